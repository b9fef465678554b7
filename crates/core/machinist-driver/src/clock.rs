//! The skew between the clock of a cloud and the clock of this process, measured from the `Date`
//! header of answers.

use std::sync::{Arc, Mutex, PoisonError};

use jiff::fmt::rfc2822::DateTimeParser;
use jiff::{SignedDuration, Timestamp};

/// The clock of a cloud, as a driver over HTTP measures it. Clones share the measurement.
///
/// ```
/// use jiff::{SignedDuration, Timestamp};
/// use machinist_driver::CloudClock;
///
/// let sent: Timestamp = "2023-11-14T22:13:20Z".parse()?;
/// let received: Timestamp = "2023-11-14T22:13:21Z".parse()?;
/// let clock = CloudClock::default();
/// assert_eq!(clock.skew(), None);
/// clock.observe("Tue, 14 Nov 2023 22:14:00 GMT", sent, received);
/// assert_eq!(clock.skew(), Some(SignedDuration::from_secs(40)));
/// # Ok::<(), jiff::Error>(())
/// ```
#[derive(Debug, Clone, Default)]
pub struct CloudClock {
    skew: Arc<Mutex<Option<SignedDuration>>>,
}

impl CloudClock {
    /// The longest duration of a request whose answer is used. The cloud writes the date at an
    /// unknown moment during the request, so a slower answer is too inaccurate.
    const SLOWEST_USEFUL_ANSWER: SignedDuration = SignedDuration::from_secs(3);
    /// The average age of a `Date` header: the cloud cuts it to whole seconds.
    const AGE_OF_A_DATE: SignedDuration = SignedDuration::from_millis(500);

    /// Measures the skew from the `Date` header of one answer, the time before sending and the time
    /// after receiving. Slow answers and invalid dates are ignored.
    pub fn observe(&self, date: &str, sent: Timestamp, received: Timestamp) {
        let took = received.duration_since(sent);
        let Ok(date) = DateTimeParser::new().parse_timestamp(date) else { return };
        if took.is_negative() || Self::SLOWEST_USEFUL_ANSWER < took {
            return;
        }
        let written = date.duration_since(sent).saturating_add(Self::AGE_OF_A_DATE);
        *self.lock() = Some(written.saturating_sub(took / 2));
    }

    /// The time of the cloud minus the time of this process; `None` before the first useful answer.
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

    /// 2023-11-14 22:13:20 UTC plus this number of seconds.
    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_second(1_700_000_000 + seconds).expect("a valid second")
    }

    fn skew_after(date: &str, sent: i64, received: i64) -> Option<SignedDuration> {
        let clock = CloudClock::default();
        clock.observe(date, at(sent), at(received));
        clock.skew()
    }

    #[test]
    fn skew_is_measured_from_the_date_of_an_answer() {
        let date = "Tue, 14 Nov 2023 22:14:00 GMT";
        assert_eq!(skew_after(date, 0, 1), Some(SignedDuration::from_secs(40)));
        assert_eq!(skew_after(date, 80, 81), Some(SignedDuration::from_secs(-40)));
    }

    #[test]
    fn slow_answers_and_invalid_dates_are_ignored() {
        assert_eq!(skew_after("Tue, 14 Nov 2023 22:14:00 GMT", 0, 30), None);
        assert_eq!(skew_after("yesterday, perhaps", 0, 0), None);
    }
}
