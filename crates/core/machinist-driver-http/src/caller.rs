//! [`HttpCaller`]: sends the requests of one account, with what every request needs.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::DATE;
use http::{Request, Response};
use jiff::{SignedDuration, Timestamp};
use machinist_driver::{CloudClock, may_change};
use machinist_instance::Error;
use tokio::time::timeout;

use crate::header;
use crate::nature::{Nature, NoAnswer};
use crate::traffic::Traffic;
use crate::transport::Transport;

/// Reads the wall clock.
pub type Now = Arc<dyn Fn() -> Timestamp + Send + Sync>;

/// The description of a request, for the log, the counters and the kind of an error without an
/// answer.
#[derive(Debug, Clone)]
pub struct HttpCall<'a> {
    /// Whether the request changes the cloud.
    pub nature: Nature,
    /// The request in the log, for example `Nova: POST /servers`. Errors do not repeat it.
    pub action: &'a str,
    /// The path with `-` instead of an id, or the name of the action. Counters use it.
    pub endpoint: Cow<'static, str>,
}

/// Sends the requests of one account: one attempt each, with a time limit. It counts requests, and
/// measures the clock of the cloud by the header `Date` of the answers.
pub struct HttpCaller {
    transport: Arc<dyn Transport>,
    attempt_within: Duration,
    traffic: Traffic,
    clock: CloudClock,
    now: Now,
}

impl HttpCaller {
    /// Creates a caller whose attempts end after this time. Nothing is sent.
    pub fn new(transport: Arc<dyn Transport>, attempt_within: Duration, traffic: Traffic, now: Now) -> Self {
        Self { transport, attempt_within, traffic, clock: CloudClock::default(), now }
    }

    /// Whether a request may take effect after this process has ended.
    pub fn outlives_process(&self) -> bool {
        self.transport.outlives_process()
    }

    /// The time of the cloud minus the time of this process; `None` before the first useful answer.
    pub fn skew(&self) -> Option<SignedDuration> {
        self.clock.skew()
    }

    /// The present time by the clock of this process.
    pub fn now(&self) -> Timestamp {
        (self.now)()
    }

    /// The present time of the cloud, as far as it is known.
    pub fn cloud_time(&self) -> Timestamp {
        let now = self.now();
        now.checked_add(self.skew().unwrap_or(SignedDuration::ZERO)).unwrap_or(now)
    }

    /// Makes one attempt. An answer with an error status is an answer.
    ///
    /// # Errors
    /// `Unavailable` if this process may no longer change the cloud, if the request cannot have
    /// reached the cloud, or if a request that only reads has no answer. `Ambiguous` if a request
    /// that changes the cloud has no answer.
    pub async fn send(&self, request: Request<Bytes>, about: HttpCall<'_>) -> Result<Response<Bytes>, Error> {
        if about.nature == Nature::Changes {
            may_change()?;
        }
        let in_flight = self.traffic.begin(request.method().clone(), about.endpoint);
        let sent = self.now();
        let answer = timeout(self.attempt_within, self.transport.send(request)).await.unwrap_or_else(|_| {
            Err(NoAnswer::Lost(format!("no answer within {} s", self.attempt_within.as_secs())))
        });
        match &answer {
            Ok(answer) => in_flight.answered(answer.status()),
            Err(_) => drop(in_flight),
        }
        let answer = answer.map_err(|lost| {
            tracing::info!(call = about.action, error = %lost, "The cloud did not answer a request");
            Error::new(about.nature.without_answer(&lost), lost.to_string())
        })?;
        if let Some(date) = header::text(answer.headers(), DATE.as_str()) {
            self.clock.observe(date, sent, self.now());
        }
        Ok(answer)
    }
}
