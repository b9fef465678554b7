//! When a failed call of the engine is repeated.
//!
//! An engine is near, and serves few clients. So a long wait would only delay the machines after
//! the engine has come back.

use std::time::Duration;

use machinist_core::retry_after;
use machinist_instance::{Error, ErrorKind};

/// The longest wait after a failure that a repetition may end.
const MAX_WAIT: Duration = Duration::from_secs(15);
/// The wait while the engine works on something that the call needs.
const PROGRESS_AGAIN: Duration = Duration::from_secs(2);
/// The wait after the engine had no resources left.
const EXHAUSTED_AGAIN: Duration = Duration::from_secs(30);

/// Returns how long to wait before a failed call is repeated.
pub(super) fn again_after(error: &Error, failures: u32) -> Duration {
    if error.is_in_progress() {
        return PROGRESS_AGAIN;
    }
    let wait = retry_after(error.kind, failures, EXHAUSTED_AGAIN);
    match error.kind {
        ErrorKind::Unavailable | ErrorKind::Ambiguous | ErrorKind::Throttled { retry_after: None } => {
            wait.min(MAX_WAIT)
        }
        ErrorKind::InvalidSpec
        | ErrorKind::Denied
        | ErrorKind::Exhausted
        | ErrorKind::Throttled { retry_after: Some(_) }
        | ErrorKind::Unsupported
        | ErrorKind::Bug => wait,
    }
}

/// Returns the number of failures with which the planner that all contracts share waits as long as
/// here, or a little shorter.
pub(super) fn counted(error: &Error, failures: u32) -> u32 {
    let is_short = |count: &u32| retry_after(error.kind, *count, EXHAUSTED_AGAIN) <= MAX_WAIT;
    (0..=failures.min(10)).rev().find(is_short).unwrap_or(failures)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn waits(kind: ErrorKind) -> Vec<u64> {
        let error = Error::new(kind, "");
        (1..=8).map(|failures| again_after(&error, failures).as_secs()).collect()
    }

    #[test]
    fn the_wait_for_an_engine_is_short() {
        assert_eq!(waits(ErrorKind::Unavailable), [5, 10, 15, 15, 15, 15, 15, 15]);
        assert_eq!(waits(ErrorKind::Ambiguous), [1, 2, 4, 8, 15, 15, 15, 15]);
        assert_eq!(waits(ErrorKind::InvalidSpec)[..3], [30, 60, 120], "a user must correct it");
        assert_eq!(again_after(&Error::in_progress("pulling an image"), 9), PROGRESS_AGAIN);
    }

    #[test]
    fn the_shared_planner_waits_no_longer() {
        for (kind, count) in [(ErrorKind::Unavailable, 2), (ErrorKind::Ambiguous, 4), (ErrorKind::Denied, 9)]
        {
            assert_eq!(counted(&Error::new(kind, ""), 9), count, "{kind}");
        }
        assert_eq!(counted(&Error::new(ErrorKind::Unavailable, ""), 1), 1);
    }
}
