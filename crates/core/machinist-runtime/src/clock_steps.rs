//! Steps of the wall clock: a machine that was suspended, or a time server that was right after all.
//!
//! What is remembered about a cloud is compared by the moments at which it was learned: an absence counts from a look that is late
//! enough. After a step such moments mean nothing, in either direction. So a step is treated as what is always safe, a restart: what was
//! learned is forgotten, and the time from which an absence counts begins anew.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use tokio::time::Instant;

/// Between two looks, a clock that is only being adjusted does not drift this far from the time that really passed.
const DRIFT_ALLOWED: Duration = Duration::from_secs(1);

/// Watches the wall clock against the time that really passes.
#[derive(Debug, Default)]
pub(crate) struct ClockSteps {
    last: Mutex<Option<(Timestamp, Instant)>>,
    count: AtomicU64,
}

impl ClockSteps {
    /// Whether the clock, which shows `now`, has stepped since the last look.
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

    /// How often it has: whoever remembers a moment can see whether it still means something.
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
    async fn only_a_step_is_a_step() {
        let steps = ClockSteps::default();
        assert!(!steps.look(at(0)), "there is nothing to compare the first look with");
        tokio::time::advance(Duration::from_secs(60)).await;
        assert!(!steps.look(at(60)));
        assert!(steps.look(at(90)), "forward");
        assert!(!steps.look(at(90)), "once");
        tokio::time::advance(Duration::from_secs(5)).await;
        assert!(steps.look(at(65)), "backward");
        assert_eq!(steps.count(), 2);
    }
}
