//! The HTTP side of the fake: reads requests, plays faults, writes answers.

use std::io;
use std::time::Duration;

use bytes::Bytes;
use http::Response;
use http::header::{DATE, IF_MATCH, RETRY_AFTER};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use percent_encoding::percent_decode_str;
use serde_json::Value;
use tokio::io::{AsyncRead, AsyncWrite};

use super::{Fake, FaultKind, Request, refusal};

/// Longer than the driver waits for an answer.
const FOR_EVER: Duration = Duration::from_secs(600);

/// Serves one connection until it ends.
pub(crate) async fn serve(fake: Fake, connection: impl AsyncRead + AsyncWrite + Unpin + Send + 'static) {
    let service = service_fn(move |request| answer(fake.clone(), request));
    let http = http1::Builder::new()
        .timer(TokioTimer::new())
        .auto_date_header(false)
        .serve_connection(TokioIo::new(connection), service);
    // The client may close the connection at any time.
    let _ = http.await;
}

async fn answer(fake: Fake, request: http::Request<Incoming>) -> io::Result<Response<Full<Bytes>>> {
    let (head, body) = request.into_parts();
    let body = body.collect().await.map_err(io::Error::other)?.to_bytes();
    let header = |name: &str| {
        head.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default().to_owned()
    };
    let decode = |text: &str| percent_decode_str(text).decode_utf8().expect("UTF-8").into_owned();
    let pairs = head.uri.query().unwrap_or_default().split('&').filter_map(|pair| pair.split_once('='));
    let (region, path) = split(head.uri.path());
    let request = Request {
        method: head.method.to_string(),
        path,
        query: pairs.map(|(name, value)| (decode(name), decode(value))).collect(),
        body: serde_json::from_slice(&body).unwrap_or(Value::Null),
        region,
        token: header("x-auth-token"),
        microversion: header("openstack-api-version"),
        if_match: header(IF_MATCH.as_str()),
    };
    let fault = {
        let mut state = fake.lock();
        state.requests.push(request.clone());
        let action = request.action();
        let place = state.faults.iter().position(|fault| fault.action == action);
        place.map(|place| state.faults.remove(place).kind)
    };
    play(&fake, &request, fault).await
}

/// Splits a path into the region and the path below the endpoint of the service.
fn split(path: &str) -> (String, String) {
    let services = ["/compute/v2.1", "/network/v2.0", "/volume/v3/project"];
    for service in services {
        if let Some((region, rest)) = path.split_once(service) {
            return (region.trim_start_matches('/').to_owned(), rest.to_owned());
        }
    }
    (String::new(), path.to_owned())
}

async fn play(fake: &Fake, request: &Request, fault: Option<FaultKind>) -> io::Result<Response<Full<Bytes>>> {
    let respond = |status: u16, body: String| {
        let date = fake.now().strftime("%a, %d %b %Y %H:%M:%S GMT").to_string();
        Response::builder().status(status).header(DATE, date).body(Full::from(body)).expect("a response")
    };
    let act = || fake.lock().act(request);
    if let Some(FaultKind::Slow(time)) = &fault {
        tokio::time::sleep(*time).await;
    }
    let response = match fault {
        None | Some(FaultKind::Slow(_)) => {
            let (status, body, token) = act();
            let body = if body.is_null() { String::new() } else { body.to_string() };
            let mut response = respond(status, body);
            if let Some(token) = token {
                response.headers_mut().insert("x-subject-token", token.parse().expect("a header"));
            }
            response
        }
        Some(FaultKind::Refuse { status, name, text, retry_after }) => {
            let mut response = respond(status, refusal(status, name, text).to_string());
            if let Some(seconds) = retry_after {
                response.headers_mut().insert(RETRY_AFTER, seconds.into());
            }
            response
        }
        Some(FaultKind::EffectThenStatus(status)) => {
            act();
            respond(status, refusal(status, "computeFault", "an error").to_string())
        }
        Some(FaultKind::EffectThenSilence) => {
            act();
            tokio::time::sleep(FOR_EVER).await;
            return Err(io::ErrorKind::TimedOut.into());
        }
        Some(FaultKind::LateEffect(after)) => {
            let (fake, request) = (fake.clone(), request.clone());
            tokio::spawn(async move {
                tokio::time::sleep(after).await;
                let _ = fake.lock().act(&request);
            });
            return Err(io::ErrorKind::ConnectionReset.into());
        }
        Some(FaultKind::Garbage(status, body)) => respond(status, body.to_owned()),
    };
    Ok(response)
}
