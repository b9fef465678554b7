//! How requests are made: the options of a client, the report of a request, its own error.
//!
//! [`crate::client`] connects with these options; the policy applies them to each request.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use http::HeaderValue;

use crate::clock::{SharedClock, Skew, SystemClock};

/// Default timeout of a request: longer than the default timeout of an admission webhook (10 s; its
/// maximum is 30 s), and shorter than a person's patience.
pub const DEFAULT_REQUEST_TIMEOUT: Duration = Duration::from_secs(20);

/// Default timeout of a DELETE: longer than the 30 s for which an admission webhook may hold the
/// request. If we stopped waiting earlier, the DELETE could take effect later, after a planner has
/// chosen another object to delete.
pub const DEFAULT_DELETE_TIMEOUT: Duration = Duration::from_secs(35);

/// Default number of repetitions of a read.
pub const DEFAULT_READ_RETRIES: u32 = 3;

/// Function that receives a report of each finished request.
pub type RequestObserver = Arc<dyn Fn(&RequestReport<'_>) + Send + Sync>;

/// One finished request, for metrics.
#[derive(Clone, Copy, Debug)]
pub struct RequestReport<'a> {
    /// kube's name of the operation: `get`, `list`, `watch`, `create`, `patch_status`, ...; `raw`
    /// if there is none.
    pub operation: &'static str,
    /// The HTTP method.
    pub method: &'a http::Method,
    /// The path, without its query.
    pub path: &'a str,
    /// The HTTP status of the answer; `None` without an answer.
    pub status: Option<u16>,
    /// Time from sending to the end of the answer (for a watch: to its first byte).
    pub took: Duration,
    /// Number of earlier attempts of this request.
    pub earlier_attempts: u32,
}

/// The policy of one client: its User-Agent, its rate limit, its timeouts and its observer.
#[derive(Clone)]
pub struct ClientOptions {
    /// User-Agent of every request: names the program and its part, because audit logs and write
    /// counts use this name.
    pub user_agent: String,
    /// Requests per second. `None` means no limit except the priority and fairness of the API
    /// server.
    pub qps: Option<f64>,
    /// How many requests may exceed the rate at once. `None` means the rate, rounded up.
    pub burst: Option<u32>,
    /// Timeout of one request, from sending to the last byte of its answer. Watches have no timeout
    /// here.
    pub request_timeout: Duration,
    /// Timeout of a DELETE, from sending to the last byte of its answer.
    pub delete_timeout: Duration,
    /// Maximum number of repetitions of a read. With 0, the caller repeats reads itself.
    pub read_retries: u32,
    /// The local clock, compared with the clock of the API server.
    pub clock: SharedClock,
    /// Receives the `Date` headers of the API server.
    pub skew: Skew,
    /// Receives a report of each finished request.
    pub observer: Option<RequestObserver>,
    /// URL of the API server; if absent, the URL of the configuration.
    pub server: Option<String>,
    /// Seed of the jitter between repeated reads.
    pub seed: u64,
}

impl ClientOptions {
    /// Options without a rate limit, with the default timeouts and the system clock.
    pub fn new(user_agent: impl Into<String>) -> Self {
        Self {
            user_agent: user_agent.into(),
            qps: None,
            burst: None,
            request_timeout: DEFAULT_REQUEST_TIMEOUT,
            delete_timeout: DEFAULT_DELETE_TIMEOUT,
            read_retries: DEFAULT_READ_RETRIES,
            clock: SystemClock::shared(),
            skew: Skew::default(),
            observer: None,
            server: None,
            seed: 0,
        }
    }
}

impl fmt::Debug for ClientOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientOptions")
            .field("user_agent", &self.user_agent)
            .field("qps", &self.qps)
            .field("burst", &self.burst)
            .field("request_timeout", &self.request_timeout)
            .finish_non_exhaustive()
    }
}

/// Reason why a request has no complete answer.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RequestError {
    /// The deadline passed. If the request was a write, its effect is unknown.
    #[error(
        "{method} {path} timed out: the API server sent no complete answer within {after:?}; \
         check that the API server is reachable and not overloaded"
    )]
    Deadline {
        /// The HTTP method.
        method: http::Method,
        /// The path, without its query.
        path: String,
        /// The timeout of the request.
        after: Duration,
    },
}

/// The header value of a User-Agent, with `?` in place of characters that HTTP forbids.
pub(crate) fn user_agent_header(text: &str) -> HeaderValue {
    let allowed: String =
        text.chars().map(|c| if c == ' ' || c.is_ascii_graphic() { c } else { '?' }).collect();
    HeaderValue::from_str(&allowed).expect("printable ASCII is a valid header value")
}

#[test]
fn a_user_agent_with_forbidden_characters_is_still_sent() {
    assert_eq!(user_agent_header("machinist/1\n(x)"), "machinist/1?(x)");
}
