//! Whether an API server answers.
//!
//! One [`ApiHealth`] per cluster, fed by the client's policy layer with every request. It counts a server as failing
//! when it did not answer or answered 5xx; refusals (4xx) are answers.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// A server counts as healthy again when its last failure is this old: a server that fails now and then is no
/// ground to destroy things on.
pub const HEALTHY_AFTER: Duration = Duration::from_secs(30);

/// What the requests of this process say about one API server. A clone shares the record.
#[derive(Clone, Debug, Default)]
pub struct ApiHealth {
    record: Arc<Mutex<Record>>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Record {
    last_success: Option<Instant>,
    last_failure: Option<Instant>,
    /// The first failure since the last success.
    failing_since: Option<Instant>,
    failures: u64,
}

impl ApiHealth {
    /// Notes that the server answered.
    pub fn record_success(&self) {
        let mut record = self.lock();
        record.last_success = Some(Instant::now());
        record.failing_since = None;
    }

    /// Notes that the server did not answer, or with an error of its own.
    pub fn record_failure(&self) {
        let now = Instant::now();
        let mut record = self.lock();
        record.last_failure = Some(now);
        record.failing_since.get_or_insert(now);
        record.failures += 1;
    }

    /// True when the server has answered, and has not failed for [`HEALTHY_AFTER`].
    pub fn healthy(&self) -> bool {
        let record = *self.lock();
        let answered = record.last_success.is_some();
        let quiet = record.last_failure.is_none_or(|at| HEALTHY_AFTER <= at.elapsed());
        answered && quiet
    }

    /// For how long every request has failed; `None` while the latest one was answered.
    pub fn failing_for(&self) -> Option<Duration> {
        self.lock().failing_since.map(|since| since.elapsed())
    }

    /// When the server last answered.
    pub fn last_success(&self) -> Option<Instant> {
        self.lock().last_success
    }

    /// How many requests failed since the process started.
    pub fn failures(&self) -> u64 {
        self.lock().failures
    }

    fn lock(&self) -> MutexGuard<'_, Record> {
        self.record.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_server_that_never_answered_is_not_healthy() {
        assert!(!ApiHealth::default().healthy());
    }

    #[tokio::test(start_paused = true)]
    async fn one_failure_makes_it_unhealthy_until_it_was_quiet_for_a_while() {
        let health = ApiHealth::default();
        health.record_success();
        assert!(health.healthy());
        health.record_failure();
        health.record_success();
        assert!(!health.healthy());
        tokio::time::advance(HEALTHY_AFTER).await;
        assert!(health.healthy());
    }

    #[tokio::test(start_paused = true)]
    async fn failing_is_counted_from_the_first_failure_and_ends_with_an_answer() {
        let health = ApiHealth::default();
        health.record_failure();
        tokio::time::advance(Duration::from_secs(40)).await;
        health.record_failure();
        assert_eq!(health.failing_for(), Some(Duration::from_secs(40)));
        health.record_success();
        assert_eq!(health.failing_for(), None);
        assert_eq!(health.failures(), 2);
    }
}
