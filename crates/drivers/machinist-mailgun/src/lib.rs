//! Mailgun as a [`Mailer`]: sends mails with its HTTP API, and looks them up.
//!
//! `request` builds requests and `reply` converts answers (both pure); this file awaits. Mailgun
//! has no key that makes a request idempotent, but it keeps the Message-Id of a request. A client
//! can therefore look a mail up after a call of unknown outcome.
//!
//! Deliberately absent: retries, and connections that are kept. A request on a connection that the
//! server has just closed would have an unknown outcome.

mod reply;
mod request;

pub use request::check_address;

use std::fmt;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use http::{Request, Response, Uri};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder, MaybeHttpsStream};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use machinist_instance::{Error, ErrorKind};
use machinist_mailer::{Attempt, Envelope, Mailer};
use rustls::crypto::ring;
use tower::util::AndThen;
use tower::{Service, ServiceExt};

/// The API of the region US.
pub const DEFAULT_BASE: &str = "https://api.mailgun.net";
/// Mailgun documents that an event may appear half an hour after it happened. The rest is a
/// reserve.
pub const SHOWN_WITHIN: Duration = Duration::from_secs(35 * 60);
/// A larger answer is a mistake of the server.
const MAX_ANSWER_BYTES: usize = 1024 * 1024;
/// Timeout for a connection attempt.
const CONNECT_WITHIN: Duration = Duration::from_secs(10);

type Stream = MaybeHttpsStream<<HttpConnector as Service<Uri>>::Response>;
type Fenced = std::future::Ready<Result<Stream, Box<dyn std::error::Error + Send + Sync>>>;
/// Connects, and then checks the fence of the call.
type Connector = AndThen<HttpsConnector<HttpConnector>, fn(Stream) -> Fenced>;

/// Sends one HTTP request to the mail service and receives the whole answer.
#[async_trait]
pub trait Transport: Send + Sync {
    /// Makes one attempt, without a time limit.
    ///
    /// # Errors
    /// [`NoAnswer::NotSent`] only when the request cannot have reached the mail service.
    async fn send(&self, request: Request<Bytes>) -> Result<Response<Bytes>, NoAnswer>;
}

/// The reason why a request has no answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NoAnswer {
    /// The request was not sent.
    NotSent,
    /// The mail service may have the request.
    Lost,
}

/// A domain of Mailgun, with the key to its API.
pub struct Mailgun {
    base: String,
    domain: String,
    key: String,
    transport: Arc<dyn Transport>,
}

/// A new connection for each request.
struct Http(Client<Connector, Full<Bytes>>);

impl Mailgun {
    /// Uses the API at `base`, for example [`DEFAULT_BASE`]. Nothing is sent.
    ///
    /// # Errors
    /// If `base` is not a URL, or if the system has no root certificates.
    pub fn new(base: &str, domain: impl Into<String>, key: impl Into<String>) -> Result<Self, io::Error> {
        let invalid =
            || io::Error::new(io::ErrorKind::InvalidInput, "expected a URL such as https://api.mailgun.net");
        let uri: Uri = base.parse().map_err(|_| invalid())?;
        // Without TLS the key would be readable. Only a stand-in on this host may have none.
        let is_local = matches!(uri.host(), Some("127.0.0.1" | "localhost" | "[::1]"));
        if uri.scheme_str() != Some("https") && !(uri.scheme_str() == Some("http") && is_local) {
            return Err(invalid());
        }
        let mut tcp = HttpConnector::new();
        tcp.enforce_http(false);
        tcp.set_connect_timeout(Some(CONNECT_WITHIN));
        let connector = HttpsConnectorBuilder::new()
            .with_provider_and_native_roots(ring::default_provider())?
            .https_or_http()
            .enable_http1()
            .wrap_connector(tcp);
        let connector = ServiceExt::<Uri>::and_then(connector, fenced as fn(Stream) -> Fenced);
        let client = Client::builder(TokioExecutor::new())
            .retry_canceled_requests(false)
            .pool_max_idle_per_host(0)
            .build(connector);
        Ok(Self::over(Arc::new(Http(client)), base, domain, key))
    }

    /// Uses any transport, and URLs that begin with `base`.
    pub fn over(
        transport: Arc<dyn Transport>,
        base: &str,
        domain: impl Into<String>,
        key: impl Into<String>,
    ) -> Self {
        let base = base.trim_end_matches('/').to_owned();
        Self { base, domain: domain.into(), key: key.into(), transport }
    }

    async fn call(&self, request: Request<Bytes>) -> Result<Response<Bytes>, Error> {
        self.transport.send(request).await.map_err(|failure| match failure {
            NoAnswer::NotSent => {
                let host = self.base.parse::<Uri>().ok();
                let host =
                    host.as_ref().and_then(|uri| uri.authority()).map(|authority| authority.to_string());
                let host = host.unwrap_or_default();
                let host = host.rsplit('@').next().unwrap_or_default();
                let text = format!(
                    "cannot connect to the mail service at {host}, or the time of the call has passed"
                );
                Error::new(ErrorKind::Unavailable, text)
            }
            NoAnswer::Lost => Error::new(ErrorKind::Ambiguous, "the connection to the mail service broke"),
        })
    }
}

#[async_trait]
impl Transport for Http {
    async fn send(&self, request: Request<Bytes>) -> Result<Response<Bytes>, NoAnswer> {
        let answer = self
            .0
            .request(request.map(Full::from))
            .await
            .map_err(|error| if error.is_connect() { NoAnswer::NotSent } else { NoAnswer::Lost })?;
        let (parts, body) = answer.into_parts();
        let body = Limited::new(body, MAX_ANSWER_BYTES).collect().await.map_err(|_| NoAnswer::Lost)?;
        Ok(Response::from_parts(parts, body.to_bytes()))
    }
}

/// Uses a new connection only if the call may still change something: connecting takes time, and
/// another process may lead by now.
fn fenced(stream: Stream) -> Fenced {
    let checked = machinist_driver::may_change().map_err(Into::into);
    std::future::ready(checked.map(|()| stream))
}

impl Mailer for Mailgun {
    fn send<'a>(&'a self, mail: &'a Envelope) -> Attempt<'a, ()> {
        Box::pin(async move {
            let request = request::send(&self.base, &self.domain, &self.key, mail)?;
            reply::sent(&self.call(request).await?)
        })
    }

    fn look_up<'a>(&'a self, message_id: &'a str) -> Attempt<'a, bool> {
        Box::pin(async move {
            let request = request::look_up(&self.base, &self.domain, &self.key, message_id)?;
            reply::looked(&self.call(request).await?)
        })
    }

    fn shown_within(&self) -> Duration {
        SHOWN_WITHIN
    }
}

impl fmt::Debug for Mailgun {
    /// Leaves out the key.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Mailgun")
            .field("base", &self.base)
            .field("domain", &self.domain)
            .finish_non_exhaustive()
    }
}
