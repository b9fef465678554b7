//! The server behind the proxy.

use std::time::Duration;

use bytes::Bytes;
use http::uri::{Authority, PathAndQuery, Scheme};
use http::{Request, Response, Uri};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use tokio::time::timeout;

/// A list of a thousand instances fits.
const MAX_ANSWER_BYTES: usize = 64 * 1024 * 1024;

/// moto answers in milliseconds. On a busy computer it may need seconds.
const ANSWERS_WITHIN: Duration = Duration::from_secs(60);

/// The server behind the proxy, which keeps the instances.
pub trait Backend: Send + Sync + 'static {
    /// The URL at which a test reaches the server without the proxy.
    fn url(&self) -> String;

    /// Sends one request, once.
    ///
    /// # Errors
    /// If no whole answer arrived. The request may have taken effect.
    fn send(
        &self,
        request: Request<Bytes>,
    ) -> impl Future<Output = Result<Response<Bytes>, BackendError>> + Send;
}

/// The backend gave no answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the server behind the proxy gave no answer: {0}")]
pub struct BackendError(pub String);

/// The URL of a backend has the wrong form.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("expected http://HOST:PORT")]
pub struct WrongUrl;

/// A server that is reached over plain HTTP.
#[derive(Debug, Clone)]
pub struct HttpBackend {
    client: Client<HttpConnector, Full<Bytes>>,
    authority: Authority,
}

impl HttpBackend {
    /// Uses the server at a URL. Nothing is sent.
    ///
    /// # Errors
    /// If the URL has another scheme than `http`, or a path.
    pub fn new(url: &str) -> Result<Self, WrongUrl> {
        let parts = url.parse::<Uri>().map_err(|_| WrongUrl)?.into_parts();
        let is_plain = parts.scheme == Some(Scheme::HTTP);
        let has_path = parts.path_and_query.is_some_and(|path| path != "/");
        let authority = parts.authority.filter(|_| is_plain && !has_path).ok_or(WrongUrl)?;
        Ok(Self { client: Client::builder(TokioExecutor::new()).build(HttpConnector::new()), authority })
    }
}

impl Backend for HttpBackend {
    fn url(&self) -> String {
        format!("http://{}", self.authority)
    }

    async fn send(&self, mut request: Request<Bytes>) -> Result<Response<Bytes>, BackendError> {
        let path = request.uri().path_and_query().cloned();
        let path = path.unwrap_or_else(|| PathAndQuery::from_static("/"));
        *request.uri_mut() = Uri::builder()
            .scheme(Scheme::HTTP)
            .authority(self.authority.clone())
            .path_and_query(path)
            .build()
            .map_err(|error| BackendError(error.to_string()))?;
        let exchange = async {
            let answer = self.client.request(request.map(Full::from)).await;
            let (head, body) = answer.map_err(|error| BackendError(error.to_string()))?.into_parts();
            let body = Limited::new(body, MAX_ANSWER_BYTES).collect().await;
            let body = body.map_err(|error| BackendError(error.to_string()))?;
            Ok(Response::from_parts(head, body.to_bytes()))
        };
        let late = || BackendError(format!("none within {} s", ANSWERS_WITHIN.as_secs()));
        timeout(ANSWERS_WITHIN, exchange).await.unwrap_or_else(|_| Err(late()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_backend_is_a_host_without_a_path() {
        let backend = HttpBackend::new("http://127.0.0.1:5000/").expect("valid");
        assert_eq!(backend.url(), "http://127.0.0.1:5000");
        for url in ["127.0.0.1:5000", "https://127.0.0.1:5000", "http://127.0.0.1:5000/base", ""] {
            assert_eq!(HttpBackend::new(url).map(|_| ()), Err(WrongUrl), "{url}");
        }
    }
}
