//! The source of the cloud's wall-clock time.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;

/// The time that the cloud writes into its ledger. All waits use tokio, so that paused time works.
#[derive(Clone)]
pub struct Clock(Arc<dyn Fn() -> Timestamp + Send + Sync>);

impl Clock {
    /// The system clock.
    #[expect(clippy::disallowed_methods, reason = "this is where the clock is injected from")]
    pub fn wall() -> Self {
        Self(Arc::new(Timestamp::now))
    }

    /// A clock that starts at `epoch` and follows tokio's time. Under paused time it stops and
    /// jumps with tokio.
    pub fn starting_at(epoch: Timestamp) -> Self {
        let start = tokio::time::Instant::now();
        Self(Arc::new(move || later(epoch, start.elapsed())))
    }

    /// A clock that reads the time from a function.
    pub fn from_fn(now: impl Fn() -> Timestamp + Send + Sync + 'static) -> Self {
        Self(Arc::new(now))
    }

    /// The current time of this clock.
    pub fn now(&self) -> Timestamp {
        (self.0)()
    }

    /// Waits until this clock shows `moment`.
    pub async fn sleep_until(&self, moment: Timestamp) {
        let left = Duration::try_from(moment.duration_since(self.now())).unwrap_or(Duration::ZERO);
        if !left.is_zero() {
            tokio::time::sleep(left).await;
        }
    }
}

/// `moment + by`; a time beyond the calendar counts as never.
pub(crate) fn later(moment: Timestamp, by: Duration) -> Timestamp {
    moment.checked_add(by).unwrap_or(Timestamp::MAX)
}

impl fmt::Debug for Clock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Clock")
    }
}
