//! Steps of the wall clock, for example after a suspend or a correction by a time server.
//!
//! The planner compares answers of a cloud by their times: a read proves an absence only if it is
//! late enough. After a step in either direction, earlier times have no meaning. So the runtime
//! treats a step like a restart, which is always safe: it forgets the answers and restarts the time
//! from which an absence counts.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use tokio::time::Instant;

/// The largest drift between two checks that counts as a gradual adjustment of the clock. A larger
/// one is a step.
const DRIFT_ALLOWED: Duration = Duration::from_secs(1);

/// Detects steps by comparing the wall clock with the monotonic clock.
#[derive(Debug, Default)]
pub(crate) struct ClockSteps {
    last: Mutex<Option<(Timestamp, Instant)>>,
    count: AtomicU64,
}

impl ClockSteps {
    /// Whether the wall clock has stepped since the last check. `now` is its current time.
    pub(crate) fn look(&self, now: Timestamp) -> bool {
        let instant = Instant::now();
        let last = self.last.lock().unwrap_or_else(PoisonError::into_inner).replace((now, instant));
        let Some((then, since)) = last else { return false };
        let shown = now.duration_since(then);
        let passed = SignedDuration::try_from(instant.duration_since(since)).unwrap_or(SignedDuration::MAX);
        let has_stepped = DRIFT_ALLOWED < shown.saturating_sub(passed).unsigned_abs();
        if has_stepped {
            self.count.fetch_add(1, Ordering::Relaxed);
        }
        has_stepped
    }

    /// The number of steps so far. If the number changes, remembered times have no meaning.
    pub(crate) fn count(&self) -> u64 {
        self.count.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(1_700_000_000 + second).expect("a valid second")
    }

    #[tokio::test(start_paused = true)]
    async fn steps_are_detected_in_both_directions() {
        let steps = ClockSteps::default();
        assert!(!steps.look(at(0)), "the first check has no earlier time");
        tokio::time::advance(Duration::from_secs(60)).await;
        assert!(!steps.look(at(60)));
        assert!(steps.look(at(90)), "a step forward");
        assert!(!steps.look(at(90)), "a step is reported once");
        tokio::time::advance(Duration::from_secs(5)).await;
        assert!(steps.look(at(65)), "a step backward");
        assert_eq!(steps.count(), 2);
    }
}
