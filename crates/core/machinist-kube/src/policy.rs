//! The request policy as a tower layer. The table in [`crate::client`] describes the policy.
//!
//! The layer collects the whole answer to each request other than a watch. So a deadline covers the
//! last byte too, and the layer can repeat a read whose answer broke off.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::request::Parts;
use http::{HeaderValue, Method, Request, Response, StatusCode, header};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full};
use kube::client::Body;
use tokio::time::Instant;
use tower::{BoxError, Layer, Service, ServiceExt};

use crate::backoff::{Backoff, Jitter};
use crate::limiter::Limiter;
use crate::request::{ClientOptions, RequestError, RequestReport, user_agent_header};

/// No read is repeated later than this after its first attempt, because a reconcile waits for the
/// answer.
const READ_RETRY_WINDOW: Duration = Duration::from_secs(10);

const READ_BACKOFF: Backoff =
    Backoff { first: Duration::from_millis(200), cap: Duration::from_secs(2), spread: 0.5 };

/// Requests for Leases bypass the rate limit, because a Lease decides whether the process may act
/// at all.
const LEASE_PATH: &str = "/apis/coordination.k8s.io/";

type AnswerBody = UnsyncBoxBody<Bytes, BoxError>;

/// Wraps a service in the policy.
pub(crate) struct PolicyLayer {
    shared: Arc<Shared>,
}

struct Shared {
    options: ClientOptions,
    user_agent: HeaderValue,
    limiter: Option<Limiter>,
    jitter: Mutex<Jitter>,
}

impl PolicyLayer {
    pub(crate) fn new(options: &ClientOptions) -> Self {
        let limiter = options.qps.and_then(|per_second| {
            let burst = options.burst.unwrap_or_else(|| per_second.ceil() as u32);
            Limiter::new(per_second, burst)
        });
        let shared = Shared {
            user_agent: user_agent_header(&options.user_agent),
            limiter,
            jitter: Mutex::new(Jitter::new(options.seed)),
            options: options.clone(),
        };
        Self { shared: Arc::new(shared) }
    }
}

impl<S> Layer<S> for PolicyLayer {
    type Service = Policy<S>;

    fn layer(&self, inner: S) -> Policy<S> {
        Policy { inner: Arc::new(tokio::sync::Mutex::new(inner)), shared: self.shared.clone() }
    }
}

/// A service under the policy.
pub(crate) struct Policy<S> {
    /// Locked only while a request is handed over, not while the layer waits for the answer.
    inner: Arc<tokio::sync::Mutex<S>>,
    shared: Arc<Shared>,
}

impl<S> Clone for Policy<S> {
    fn clone(&self) -> Self {
        Self { inner: self.inner.clone(), shared: self.shared.clone() }
    }
}

impl<S, B> Service<Request<Body>> for Policy<S>
where
    S: Service<Request<Body>, Response = Response<B>> + Send + 'static,
    S::Future: Send + 'static,
    S::Error: Into<BoxError>,
    B: http_body::Body<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    type Response = Response<AnswerBody>;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, BoxError>> + Send>>;

    fn poll_ready(&mut self, _cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, mut request: Request<Body>) -> Self::Future {
        let policy = self.clone();
        let is_lease = request.uri().path().contains(LEASE_PATH);
        request.headers_mut().insert(header::USER_AGENT, policy.shared.user_agent.clone());
        Box::pin(async move {
            if let Some(limiter) = policy.shared.limiter.as_ref().filter(|_| !is_lease) {
                limiter.acquire().await;
            }
            match RequestKind::of(&request) {
                RequestKind::Watch => policy.watch(request).await,
                RequestKind::Read => policy.read(request).await,
                RequestKind::Write => policy.answer(request, 0).await.map(into_response),
            }
        })
    }
}

/// The kinds of requests that the policy handles differently.
#[derive(Clone, Copy, Debug, PartialEq)]
enum RequestKind {
    Read,
    Watch,
    Write,
}

impl RequestKind {
    fn of<T>(request: &Request<T>) -> Self {
        let is_read = [Method::GET, Method::HEAD].contains(request.method());
        let query = request.uri().query().unwrap_or_default();
        // `follow` requests a log stream, which is as endless as a watch.
        let is_stream = query.split('&').any(|pair| {
            matches!(pair, "watch=true" | "watch=1" | "watch" | "follow=true" | "follow=1" | "follow")
        });
        match (is_read, is_stream) {
            (true, true) => Self::Watch,
            (true, false) => Self::Read,
            (false, _) => Self::Write,
        }
    }
}

impl<S, B> Policy<S>
where
    S: Service<Request<Body>, Response = Response<B>> + Send + 'static,
    S::Future: Send + 'static,
    S::Error: Into<BoxError>,
    B: http_body::Body<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    async fn watch(&self, request: Request<Body>) -> Result<Response<AnswerBody>, BoxError> {
        let sent = SentRequest::now(&self.shared, &request, 0);
        let answer = self.send(request).await;
        sent.report(&self.shared, answer.as_ref().ok().map(Response::status));
        let answer = answer?;
        self.shared.compare_clocks(&sent, answer.headers());
        Ok(answer.map(|body| body.map_err(Into::into).boxed_unsync()))
    }

    async fn read(&self, request: Request<Body>) -> Result<Response<AnswerBody>, BoxError> {
        let first_sent = Instant::now();
        let (parts, body) = request.into_parts();
        let mut attempt = 0;
        loop {
            // Only a streamed body cannot be cloned, and no read has one.
            let again = body.try_clone().unwrap_or_else(Body::empty);
            let answer = self.answer(Request::from_parts(clone_parts(&parts), again), attempt).await;
            let wait = match &answer {
                Ok(answer) if !is_worth_repeating(answer.status()) => None,
                Ok(answer) => Some(retry_after(answer.headers()).unwrap_or_default()),
                Err(_) => Some(Duration::ZERO),
            };
            let Some(asked) = wait.filter(|_| attempt < self.shared.options.read_retries) else {
                return answer.map(into_response);
            };
            let wait = asked.max(self.shared.backoff(attempt));
            if READ_RETRY_WINDOW < first_sent.elapsed() + wait {
                return answer.map(into_response);
            }
            tokio::time::sleep(wait).await;
            attempt += 1;
        }
    }

    /// Sends the request once and collects the answer within the deadline.
    async fn answer(&self, request: Request<Body>, earlier: u32) -> Result<Response<Bytes>, BoxError> {
        let sent = SentRequest::now(&self.shared, &request, earlier);
        let whole = async {
            let (parts, body) = self.send(request).await?.into_parts();
            let bytes = body.collect().await.map_err(Into::into)?.to_bytes();
            Ok::<_, BoxError>(Response::from_parts(parts, bytes))
        };
        let deadline = match sent.method {
            Method::DELETE => self.shared.options.delete_timeout,
            _ => self.shared.options.request_timeout,
        };
        let answer = tokio::time::timeout(deadline, whole).await.unwrap_or_else(|_| {
            let (method, path) = (sent.method.clone(), sent.path.clone());
            Err(RequestError::Deadline { method, path, after: deadline }.into())
        });
        sent.report(&self.shared, answer.as_ref().ok().map(Response::status));
        let answer = answer?;
        self.shared.compare_clocks(&sent, answer.headers());
        Ok(with_retry_after_in_body(answer))
    }

    async fn send(&self, request: Request<Body>) -> Result<Response<B>, BoxError> {
        let answer = {
            let mut service = self.inner.lock().await;
            service.ready().await.map_err(Into::into)?.call(request)
        };
        answer.await.map_err(Into::into)
    }
}

impl Shared {
    fn backoff(&self, attempt: u32) -> Duration {
        READ_BACKOFF.delay(attempt, &mut self.jitter.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn compare_clocks(&self, sent: &SentRequest, headers: &http::HeaderMap) {
        if let Some(date) = headers.get(header::DATE).and_then(|date| date.to_str().ok()) {
            self.options.skew.observe_header(date, sent.wall, self.options.clock.now());
        }
    }
}

/// The data of a sent request that its report needs.
struct SentRequest {
    operation: &'static str,
    method: Method,
    path: String,
    earlier_attempts: u32,
    at: Instant,
    wall: jiff::Timestamp,
}

impl SentRequest {
    fn now(shared: &Shared, request: &Request<Body>, earlier_attempts: u32) -> Self {
        Self {
            operation: request.extensions().get::<&'static str>().copied().unwrap_or("raw"),
            method: request.method().clone(),
            path: request.uri().path().to_owned(),
            earlier_attempts,
            at: Instant::now(),
            wall: shared.options.clock.now(),
        }
    }

    fn report(&self, shared: &Shared, status: Option<StatusCode>) {
        if let Some(observer) = &shared.options.observer {
            observer(&RequestReport {
                operation: self.operation,
                method: &self.method,
                path: &self.path,
                status: status.map(|status| status.as_u16()),
                took: self.at.elapsed(),
                earlier_attempts: self.earlier_attempts,
            });
        }
    }
}

fn clone_parts(parts: &Parts) -> Parts {
    let mut clone = Request::new(()).into_parts().0;
    clone.method = parts.method.clone();
    clone.uri = parts.uri.clone();
    clone.version = parts.version;
    clone.headers = parts.headers.clone();
    clone.extensions = parts.extensions.clone();
    clone
}

fn into_response(answer: Response<Bytes>) -> Response<AnswerBody> {
    answer.map(|bytes| Full::new(bytes).map_err(|never| match never {}).boxed_unsync())
}

fn is_worth_repeating(status: StatusCode) -> bool {
    status == StatusCode::TOO_MANY_REQUESTS || status.is_server_error()
}

/// The `Retry-After` header in whole seconds. API servers do not use the date form of the header.
fn retry_after(headers: &http::HeaderMap) -> Option<Duration> {
    let seconds = headers.get(header::RETRY_AFTER)?.to_str().ok()?.trim().parse().ok()?;
    Some(Duration::from_secs(seconds))
}

/// Moves the number of a `Retry-After` header into `details` of a Status, where callers read it.
///
/// kube drops the headers of a failed request. An API server that throttles before it decodes the
/// request answers with plain text and a `Retry-After` header, so the number would be lost.
fn with_retry_after_in_body(answer: Response<Bytes>) -> Response<Bytes> {
    let status = answer.status();
    let Some(wait) = retry_after(answer.headers()).filter(|_| is_worth_repeating(status)) else {
        return answer;
    };
    let is_status_object = serde_json::from_slice::<serde_json::Value>(answer.body())
        .is_ok_and(|body| body.get("kind").is_some_and(|kind| kind == "Status"));
    if is_status_object {
        return answer;
    }
    answer.map(|text| {
        let body = serde_json::json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "code": status.as_u16(),
            "reason": if status == StatusCode::TOO_MANY_REQUESTS { "TooManyRequests" } else { "ServiceUnavailable" },
            "message": String::from_utf8_lossy(&text).trim(),
            "details": { "retryAfterSeconds": wait.as_secs() },
        });
        Bytes::from(body.to_string())
    })
}

#[cfg(test)]
mod tests;
