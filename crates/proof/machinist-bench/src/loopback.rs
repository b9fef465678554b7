//! Plain HTTP to programs on this machine: the simulated cloud, and the ports of the controllers.

use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use bytes::Bytes;
use http::{StatusCode, Uri};
use http_body_util::{BodyExt, Empty};
use hyper::body::Incoming;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use serde::de::DeserializeOwned;
use tokio::sync::mpsc;

use crate::progress;

/// How long a program may take to answer after its start.
const ANSWERS_WITHIN: Duration = Duration::from_secs(60);
const LOOK_EVERY: Duration = Duration::from_millis(50);

fn client() -> Client<HttpConnector, Empty<Bytes>> {
    Client::builder(TokioExecutor::new()).build(HttpConnector::new())
}

/// A loopback address with a free port.
///
/// # Errors
/// When no port is free.
pub(crate) fn free_address() -> Result<SocketAddr> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("cannot find a free port")?;
    Ok(listener.local_addr()?)
}

/// Waits until a GET returns 200.
///
/// # Errors
/// When it does not return 200 in time.
pub(crate) async fn until_ok(url: &str) -> Result<()> {
    let uri: Uri = url.parse().with_context(|| format!("{url:?} is not a URL"))?;
    let client = client();
    let is_ok = async || {
        let status = client.get(uri.clone()).await.map(|response| response.status());
        Ok(matches!(status, Ok(StatusCode::OK)))
    };
    let answered = progress::until(ANSWERS_WITHIN, LOOK_EVERY, is_ok).await;
    answered.with_context(|| format!("{url} did not return 200 within {ANSWERS_WITHIN:?}"))?
}

async fn body_of(url: &str) -> Result<Incoming> {
    let uri: Uri = url.parse().with_context(|| format!("{url:?} is not a URL"))?;
    let response = client().get(uri).await.with_context(|| format!("no answer from {url}"))?;
    let status = response.status();
    ensure!(status == StatusCode::OK, "{url} returned {status}");
    Ok(response.into_body())
}

/// Gets JSON from a URL.
///
/// # Errors
/// When there is no answer, or the status is not 200.
pub(crate) async fn get<T: DeserializeOwned>(url: &str) -> Result<T> {
    let body = body_of(url).await?;
    let body = body.collect().await;
    let body = body.with_context(|| format!("the connection broke during the answer of {url}"))?.to_bytes();
    serde_json::from_slice(&body).with_context(|| format!("cannot parse the answer of {url}"))
}

/// Gets a stream of JSON lines. The stream ends with the connection.
///
/// # Errors
/// When there is no answer, or the status is not 200.
pub(crate) async fn follow<T>(url: &str) -> Result<mpsc::UnboundedReceiver<Result<T>>>
where
    T: DeserializeOwned + Send + 'static,
{
    let mut body = body_of(url).await?;
    let (sender, receiver) = mpsc::unbounded_channel();
    tokio::spawn(async move {
        let mut unfinished = Vec::new();
        while let Some(Ok(frame)) = body.frame().await {
            let Ok(data) = frame.into_data() else { continue };
            unfinished.extend_from_slice(&data);
            while let Some(end) = unfinished.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = unfinished.drain(..=end).collect();
                let parsed = serde_json::from_slice(&line).context("cannot parse a line of the stream");
                if sender.send(parsed).is_err() {
                    return;
                }
            }
        }
    });
    Ok(receiver)
}
