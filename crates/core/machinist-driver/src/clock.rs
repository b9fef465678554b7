//! How far a cloud's clock is from ours, learned from the `Date` header of its answers.

use std::sync::{Arc, Mutex, PoisonError};

use jiff::fmt::rfc2822::DateTimeParser;
use jiff::{SignedDuration, Timestamp};

/// A cloud's clock, as a driver over HTTP learns about it. A clone shares what is known.
#[derive(Debug, Clone, Default)]
pub struct CloudClock {
    skew: Arc<Mutex<Option<SignedDuration>>>,
}

impl CloudClock {
    /// An answer that took longer says too little: the cloud may have written its date at any moment in between.
    const SLOWEST_USEFUL_ANSWER: SignedDuration = SignedDuration::from_secs(3);
    /// `Date` has whole seconds, cut: on average it is half a second old.
    const AGE_OF_A_DATE: SignedDuration = SignedDuration::from_millis(500);

    /// Takes in the `Date` header of one answer, and our time before sending and after receiving. A text that is no HTTP
    /// date is ignored, and so is a slow answer.
    pub fn observe(&self, date: &str, sent: Timestamp, received: Timestamp) {
        let took = received.duration_since(sent);
        let Ok(date) = DateTimeParser::new().parse_timestamp(date) else { return };
        if took.is_negative() || Self::SLOWEST_USEFUL_ANSWER < took {
            return;
        }
        let written = date.duration_since(sent).saturating_add(Self::AGE_OF_A_DATE);
        *self.lock() = Some(written.saturating_sub(took / 2));
    }

    /// The cloud's time minus ours; `None` before the first useful answer.
    pub fn skew(&self) -> Option<SignedDuration> {
        *self.lock()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Option<SignedDuration>> {
        self.skew.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 22:13:20 on that day, and so many seconds.
    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_second(1_700_000_000 + seconds).expect("a valid second")
    }

    fn skew_after(date: &str, sent: i64, received: i64) -> Option<SignedDuration> {
        let clock = CloudClock::default();
        clock.observe(date, at(sent), at(received));
        clock.skew()
    }

    #[test]
    fn the_date_of_an_answer_shows_how_far_the_clouds_clock_is() {
        let date = "Tue, 14 Nov 2023 22:14:00 GMT";
        assert_eq!(skew_after(date, 0, 1), Some(SignedDuration::from_secs(40)));
        assert_eq!(skew_after(date, 80, 81), Some(SignedDuration::from_secs(-40)));
    }

    #[test]
    fn slow_answers_and_nonsense_show_nothing() {
        assert_eq!(skew_after("Tue, 14 Nov 2023 22:14:00 GMT", 0, 30), None);
        assert_eq!(skew_after("yesterday, perhaps", 0, 0), None);
    }
}
