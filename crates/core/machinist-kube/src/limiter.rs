//! An optional limit on requests per second: a token bucket that serves callers in order of
//! arrival.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// A bucket of `burst` tokens that refills at a steady rate.
#[derive(Debug)]
pub(crate) struct Limiter {
    /// Time between two tokens.
    interval: Duration,
    /// How far ahead of the steady rate a caller may be: `burst - 1` intervals.
    ahead: Duration,
    /// Time at which the next token is due at the steady rate.
    due: Mutex<Option<Instant>>,
}

impl Limiter {
    /// Creates a limiter for `per_second` requests. Returns `None`, meaning no limit, if the rate
    /// is not a positive number.
    pub(crate) fn new(per_second: f64, burst: u32) -> Option<Self> {
        let limited = per_second.is_finite() && 0.0 < per_second;
        let interval = limited.then(|| Duration::try_from_secs_f64(1.0 / per_second).ok()).flatten()?;
        Some(Self { interval, ahead: interval * burst.max(1).saturating_sub(1), due: Mutex::new(None) })
    }

    /// Waits until this caller may send a request.
    pub(crate) async fn acquire(&self) {
        let turn = self.reserve(Instant::now());
        tokio::time::sleep_until(turn).await;
    }

    /// Takes the next token and returns the time from which it may be used.
    fn reserve(&self, now: Instant) -> Instant {
        let mut due = self.due.lock().unwrap_or_else(PoisonError::into_inner);
        let mine = due.map_or(now, |due| due.max(now));
        *due = Some(mine + self.interval);
        mine.checked_sub(self.ahead).map_or(now, |turn| turn.max(now))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_burst_passes_at_once_and_then_the_rate_applies() {
        let limiter = Limiter::new(10.0, 3).expect("a positive rate");
        let start = Instant::now();
        let mut waits = Vec::new();
        for _ in 0..5 {
            limiter.acquire().await;
            waits.push(start.elapsed().as_millis());
        }
        assert_eq!(waits[..3], [0, 0, 0]);
        assert!((100..=101).contains(&waits[3]) && (200..=201).contains(&waits[4]), "{waits:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn an_idle_bucket_holds_no_more_than_its_burst() {
        let limiter = Limiter::new(10.0, 2).expect("a positive rate");
        limiter.acquire().await;
        tokio::time::advance(Duration::from_secs(60)).await;
        let start = Instant::now();
        for _ in 0..3 {
            limiter.acquire().await;
        }
        assert!(Duration::from_millis(99) < start.elapsed());
    }

    #[test]
    fn a_rate_that_is_not_positive_means_no_limit() {
        for rate in [0.0, -1.0, f64::NAN, f64::INFINITY] {
            assert!(Limiter::new(rate, 1).is_none(), "{rate}");
        }
    }
}
