//! The time of day, injected, and how far ours is from an API server's.
//!
//! The wall clock is only for timestamps in API objects and for deadlines that start at such a timestamp; everything
//! else counts with `tokio::time::Instant`. Product code never asks the operating system: it is handed a [`Clock`], so
//! that a simulation can run days in seconds.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use tokio::time::Instant;

/// Where the time of day comes from.
pub trait Clock: Send + Sync {
    /// The time of day, now.
    fn now(&self) -> Timestamp;
}

/// A clock as it is handed around.
pub type SharedClock = Arc<dyn Clock>;

/// The operating system's clock.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

impl SystemClock {
    /// The system clock as a [`SharedClock`].
    pub fn shared() -> SharedClock {
        Arc::new(Self)
    }
}

impl Clock for SystemClock {
    #[expect(clippy::disallowed_methods, reason = "the one place that may read the system clock")]
    fn now(&self) -> Timestamp {
        Timestamp::now()
    }
}

/// A clock that starts at a given time and advances with tokio's, paused or not.
#[derive(Clone, Copy, Debug)]
pub struct TokioClock {
    epoch: Timestamp,
    started: Instant,
}

impl TokioClock {
    /// A clock that shows `epoch` now.
    pub fn starting_at(epoch: Timestamp) -> Self {
        Self { epoch, started: Instant::now() }
    }
}

impl Clock for TokioClock {
    fn now(&self) -> Timestamp {
        let elapsed = SignedDuration::try_from(self.started.elapsed()).unwrap_or(SignedDuration::MAX);
        self.epoch.saturating_add(elapsed).unwrap_or(Timestamp::MAX)
    }
}

/// How far the local clock is from a server's, learned from the `Date` header of its answers.
///
/// A clone shares the estimate. `Date` has whole seconds and was written somewhere between sending and receiving, so
/// what is known is an interval; [`Skew::exceeds`] is true only when all of it lies beyond the limit.
#[derive(Clone, Default)]
pub struct Skew {
    offset: Arc<Mutex<Option<Offset>>>,
}

/// Bounds of "server time minus local time".
#[derive(Clone, Copy, Debug, PartialEq)]
struct Offset {
    at_least: SignedDuration,
    at_most: SignedDuration,
}

impl Offset {
    fn width(self) -> SignedDuration {
        self.at_most.saturating_sub(self.at_least)
    }
}

impl Skew {
    /// Answers slower than this say too little: they would widen an interval that a quick answer has narrowed.
    const SLOWEST_USEFUL_ANSWER: SignedDuration = SignedDuration::from_secs(3);

    /// The resolution of the `Date` header.
    const DATE_RESOLUTION: SignedDuration = SignedDuration::from_secs(1);

    /// Takes in one answer: its `Date` header, and the local time before sending and after receiving.
    pub fn observe(&self, server_date: Timestamp, sent: Timestamp, received: Timestamp) {
        let offset = Offset {
            at_least: server_date.duration_since(received),
            at_most: server_date.duration_since(sent).saturating_add(Self::DATE_RESOLUTION),
        };
        let useful = offset.width() <= Self::SLOWEST_USEFUL_ANSWER;
        let mut known = self.lock();
        if useful || known.is_none() {
            *known = Some(offset);
        }
    }

    /// Takes in the text of a `Date` header; text that is no HTTP date is ignored.
    pub fn observe_header(&self, date: &str, sent: Timestamp, received: Timestamp) {
        if let Ok(server_date) = jiff::fmt::rfc2822::DateTimeParser::new().parse_timestamp(date) {
            self.observe(server_date, sent, received);
        }
    }

    /// True when the clocks are certainly further apart than `limit`, in either direction.
    pub fn exceeds(&self, limit: Duration) -> bool {
        let limit = SignedDuration::try_from(limit).unwrap_or(SignedDuration::MAX);
        self.lock().is_some_and(|offset| limit < offset.at_least || offset.at_most < -limit)
    }

    /// Server time minus local time, the middle of what is known; `None` before the first answer with a `Date`.
    pub fn estimate(&self) -> Option<SignedDuration> {
        (*self.lock()).map(|offset| offset.at_least.saturating_add(offset.width() / 2))
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Option<Offset>> {
        self.offset.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Skew {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Skew").field(&*self.lock()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_second(1_700_000_000 + seconds).expect("a valid second")
    }

    #[tokio::test(start_paused = true)]
    async fn the_tokio_clock_follows_paused_time() {
        let clock = TokioClock::starting_at(at(0));
        tokio::time::advance(Duration::from_secs(90)).await;
        assert_eq!(clock.now(), at(90));
    }

    #[test]
    fn nothing_is_known_before_the_first_answer() {
        let skew = Skew::default();
        assert!(!skew.exceeds(Duration::ZERO));
        assert_eq!(skew.estimate(), None);
    }

    #[test]
    fn an_answer_from_the_future_exceeds_the_limit() {
        let skew = Skew::default();
        skew.observe(at(40), at(0), at(1));
        assert!(skew.exceeds(Duration::from_secs(30)));
        assert!(!skew.exceeds(Duration::from_secs(39)), "the Date may be up to a second and the trip old");
    }

    #[test]
    fn an_answer_from_the_past_exceeds_the_limit_too() {
        let skew = Skew::default();
        skew.observe(at(-40), at(0), at(1));
        assert!(skew.exceeds(Duration::from_secs(30)));
    }

    #[test]
    fn a_slow_answer_does_not_hide_what_a_quick_one_showed() {
        let skew = Skew::default();
        skew.observe(at(40), at(0), at(1));
        skew.observe(at(140), at(60), at(120));
        assert!(skew.exceeds(Duration::from_secs(30)));
    }

    #[test]
    fn a_corrected_clock_clears_it() {
        let skew = Skew::default();
        skew.observe(at(40), at(0), at(1));
        skew.observe(at(61), at(60), at(61));
        assert!(!skew.exceeds(Duration::from_secs(30)));
    }

    #[test]
    fn the_date_header_is_read_and_nonsense_is_ignored() {
        let skew = Skew::default();
        skew.observe_header("yesterday, perhaps", at(0), at(0));
        assert_eq!(skew.estimate(), None);
        skew.observe_header("Tue, 14 Nov 2023 22:14:20 GMT", at(0), at(0));
        assert!(skew.exceeds(Duration::from_secs(50)), "{skew:?}");
    }
}
