//! [`Transport`]: sends one HTTP request and receives the whole answer.

use std::io;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::{Connect, HttpConnector};
use hyper_util::rt::TokioExecutor;
use rustls::ClientConfig;
use rustls::crypto::ring;

use crate::nature::NoAnswer;

/// A page of 1000 instances with many tags fits, and a broken server cannot fill the memory.
const MAX_ANSWER_BYTES: usize = 64 * 1024 * 1024;

/// Timeout for a connection attempt: after this time the host is considered unreachable.
const CONNECT_WITHIN: Duration = Duration::from_secs(5);

/// An idle connection is closed after this time, before servers and gateways usually close it.
const IDLE_FOR: Duration = Duration::from_secs(20);

/// Sends one HTTP request to the cloud and receives the whole answer.
#[async_trait]
pub trait Transport: Send + Sync {
    /// Makes one attempt, without a time limit.
    ///
    /// # Errors
    /// [`NoAnswer::NotSent`] only when the request cannot have reached the cloud.
    async fn send(&self, request: Request<Bytes>) -> Result<Response<Bytes>, NoAnswer>;

    /// Whether a request may take effect after this process has ended. `false` only if the cloud
    /// ends with the process.
    fn outlives_process(&self) -> bool {
        true
    }
}

/// HTTP/1.1 over any kind of connection.
#[derive(Debug, Clone)]
pub struct Http<C>(Client<C, Full<Bytes>>);

impl Http<HttpConnector> {
    /// Plain HTTP over TCP, for stand-ins of the cloud.
    pub fn plain() -> Self {
        Self::over(tcp())
    }
}

impl Http<HttpsConnector<HttpConnector>> {
    /// HTTPS with the root certificates of the system, or plain HTTP, as the URL of a request says.
    ///
    /// # Errors
    /// If the system has no root certificates.
    pub fn with_tls() -> io::Result<Self> {
        let builder = HttpsConnectorBuilder::new().with_provider_and_native_roots(ring::default_provider())?;
        Ok(Self::over(builder.https_or_http().enable_http1().wrap_connector(tcp_below_tls())))
    }

    /// HTTPS with certificates and checks of the caller, or plain HTTP, as the URL of a request
    /// says.
    pub fn with_config(config: ClientConfig) -> Self {
        let builder = HttpsConnectorBuilder::new().with_tls_config(config);
        Self::over(builder.https_or_http().enable_http1().wrap_connector(tcp_below_tls()))
    }
}

fn tcp_below_tls() -> HttpConnector {
    let mut tcp = tcp();
    tcp.enforce_http(false);
    tcp
}

fn tcp() -> HttpConnector {
    let mut connector = HttpConnector::new();
    connector.set_connect_timeout(Some(CONNECT_WITHIN));
    connector.set_nodelay(true);
    connector
}

impl<C: Connect + Clone> Http<C> {
    /// Uses connections of any kind.
    pub fn over(connector: C) -> Self {
        // The client repeats a request only if the server closed an idle connection before the
        // first byte was written, so the repetition cannot have a second effect.
        let client = Client::builder(TokioExecutor::new())
            .retry_canceled_requests(true)
            .pool_idle_timeout(IDLE_FOR)
            .build(connector);
        Self(client)
    }
}

#[async_trait]
impl<C: Connect + Clone + Send + Sync + 'static> Transport for Http<C> {
    async fn send(&self, request: Request<Bytes>) -> Result<Response<Bytes>, NoAnswer> {
        let authority = request.uri().authority().map(ToString::to_string).unwrap_or_default();
        let response = self.0.request(request.map(Full::from)).await.map_err(|error| {
            if error.is_connect() {
                NoAnswer::NotSent(format!("cannot connect to {authority}"))
            } else {
                NoAnswer::Lost(format!("the connection to {authority} broke"))
            }
        })?;
        let (parts, body) = response.into_parts();
        let body = Limited::new(body, MAX_ANSWER_BYTES)
            .collect()
            .await
            .map_err(|_| NoAnswer::Lost(format!("the connection to {authority} broke during the answer")))?;
        Ok(Response::from_parts(parts, body.to_bytes()))
    }
}
