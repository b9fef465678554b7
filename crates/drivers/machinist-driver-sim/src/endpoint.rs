//! A cloud in another process, over plain HTTP, at the URL of `--sim-endpoint`.

use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use http::uri::{Authority, Scheme};
use http::{Method, StatusCode, Uri, header};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::{Connect, HttpConnector};
use hyper_util::rt::TokioExecutor;
use jiff::SignedDuration;
use machinist_cloud_sim::http::REGION;
use machinist_cloud_sim::{Caller, Clock, CloudRefusal, NoAnswer, Reply, Request};
use machinist_driver::CloudClock;
use serde_json::Value;

use crate::transport::Transport;

/// A list of tens of thousands of instances fits, and a broken server cannot fill the memory.
const MAX_ANSWER_BYTES: usize = 64 * 1024 * 1024;

/// Timeout for a connection attempt: after this time the host is considered unreachable.
const CONNECT_WITHIN: Duration = Duration::from_secs(5);

/// A simulated cloud behind a URL. It uses TCP unless a test gives another connector.
#[derive(Debug, Clone)]
pub struct Endpoint<C = HttpConnector> {
    authority: Authority,
    client: Client<C, Full<Bytes>>,
    clock: Clock,
    cloud_clock: CloudClock,
}

/// The URL is not the address of a simulated cloud.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("simulated cloud endpoint {given:?}: expected {expected}")]
pub struct EndpointError {
    given: String,
    expected: &'static str,
}

impl Endpoint {
    /// Parses `http://ADDRESS:PORT`. Nothing is sent.
    ///
    /// # Errors
    /// When the URL has another form: the simulated cloud serves plain HTTP at the root.
    pub fn parse(url: &str) -> Result<Self, EndpointError> {
        let wrong = || EndpointError { given: url.to_owned(), expected: "http://ADDRESS:PORT" };
        let uri: Uri = url.parse().map_err(|_| wrong())?;
        let authority = uri.authority().cloned().ok_or_else(wrong)?;
        let is_root = uri.scheme() == Some(&Scheme::HTTP) && uri.path() == "/" && uri.query().is_none();
        if !is_root {
            return Err(wrong());
        }
        let mut connector = HttpConnector::new();
        connector.set_connect_timeout(Some(CONNECT_WITHIN));
        connector.set_nodelay(true);
        Ok(Self::over(authority, connector))
    }
}

impl<C: Connect + Clone> Endpoint<C> {
    /// Uses a cloud behind any kind of connection.
    pub fn over(authority: Authority, connector: C) -> Self {
        // A hidden retry would conceal that the first attempt may have taken effect.
        let client = Client::builder(TokioExecutor::new()).retry_canceled_requests(false).build(connector);
        Self { authority, client, clock: Clock::wall(), cloud_clock: CloudClock::default() }
    }

    /// Sets the clock that the cloud's clock is compared with.
    #[must_use]
    pub fn compared_with(self, clock: Clock) -> Self {
        Self { clock, ..self }
    }

    fn request(&self, caller: Caller<'_>, request: &Request) -> Result<http::Request<Full<Bytes>>, NoAnswer> {
        let not_sent = |error: &dyn std::fmt::Display| NoAnswer::NotSent(error.to_string());
        let params = match serde_json::to_value(request).map_err(|error| not_sent(&error))? {
            Value::Object(mut tagged) => tagged.remove("params").unwrap_or_default(),
            _ => Value::Null,
        };
        let uri = Uri::builder()
            .scheme(Scheme::HTTP)
            .authority(self.authority.clone())
            .path_and_query(format!("/v1/{}", request.operation()))
            .build()
            .map_err(|error| not_sent(&error))?;
        let mut builder = http::Request::builder()
            .method(Method::POST)
            .uri(uri)
            .header(header::CONTENT_TYPE, "application/json");
        if let Some(region) = caller.region {
            builder = builder.header(REGION, region);
        }
        if let Some(token) = caller.token {
            builder = builder.header(header::AUTHORIZATION, format!("Bearer {token}"));
        }
        builder.body(Full::from(params.to_string())).map_err(|error| not_sent(&error))
    }
}

#[async_trait]
impl<C: Connect + Clone + Send + Sync + 'static> Transport for Endpoint<C> {
    fn endpoint(&self) -> &str {
        self.authority.as_str()
    }

    async fn call(
        &self,
        caller: Caller<'_>,
        request: Request,
    ) -> Result<Result<Reply, CloudRefusal>, NoAnswer> {
        let request = self.request(caller, &request)?;
        let sent = self.clock.now();
        let response = self.client.request(request).await.map_err(|error| {
            if error.is_connect() {
                NoAnswer::NotSent(format!("cannot connect to {}", self.authority))
            } else {
                NoAnswer::Lost(format!("the connection to {} broke", self.authority))
            }
        })?;
        if let Some(date) = response.headers().get(header::DATE).and_then(|date| date.to_str().ok()) {
            self.cloud_clock.observe(date, sent, self.clock.now());
        }
        let status = response.status();
        let body = Limited::new(response.into_body(), MAX_ANSWER_BYTES)
            .collect()
            .await
            .map_err(|_| {
                NoAnswer::Lost(format!("the connection to {} broke during the answer", self.authority))
            })?
            .to_bytes();
        let unreadable =
            |_| NoAnswer::Lost(format!("cannot parse the answer of {} (status {status})", self.authority));
        if status == StatusCode::OK {
            serde_json::from_slice(&body).map(Ok).map_err(unreadable)
        } else {
            serde_json::from_slice(&body).map(Err).map_err(unreadable)
        }
    }

    fn clock_skew(&self) -> Option<SignedDuration> {
        self.cloud_clock.skew()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_endpoint_must_be_a_plain_http_address() {
        assert!(Endpoint::parse("http://127.0.0.1:7070").is_ok());
        assert!(Endpoint::parse("http://127.0.0.1:7070/").is_ok());
        for wrong in ["127.0.0.1:7070", "https://127.0.0.1:7070", "http://127.0.0.1:7070/v1", "", "http://"] {
            let error = Endpoint::parse(wrong).expect_err(wrong).to_string();
            assert!(error.contains("expected http://ADDRESS:PORT"), "{error}");
        }
    }
}
