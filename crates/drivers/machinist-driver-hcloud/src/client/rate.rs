//! The rate limit as the cloud's headers describe it.
//!
//! The cloud has a bucket per project: 3600 calls, refilled with one call per second. All programs
//! that use the project share the bucket.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use http::HeaderMap;
use jiff::Timestamp;
use machinist_driver_http::header;
use machinist_instance::{AccountId, CallBudget};

/// The state of the project's bucket, from the headers of one answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RateState {
    /// Number of calls that the full bucket admits.
    pub limit: u32,
    /// Number of calls that the bucket admits now.
    pub remaining: u32,
    /// When the bucket is full again, in seconds since 1970.
    pub reset: i64,
}

/// The last known rate limit of each account of a provider. Clones share it.
#[derive(Debug, Clone, Default)]
pub struct Rates(Arc<Mutex<BTreeMap<AccountId, (RateState, CallBudget)>>>);

impl Rates {
    /// The rate limit of an account from its last answer; `None` before the first answer.
    pub fn of(&self, account: &AccountId) -> Option<RateState> {
        self.lock().get(account).map(|(rate, _)| *rate)
    }

    /// The remaining calls of an account from its last answer; `None` before the first answer.
    pub fn budget(&self, account: &AccountId) -> Option<CallBudget> {
        self.lock().get(account).map(|(_, budget)| *budget)
    }

    /// The remaining calls in the last answer of any account; `None` before the first answer.
    pub fn last_budget(&self) -> Option<CallBudget> {
        self.lock().values().map(|(_, budget)| *budget).max_by_key(|budget| budget.seen_at)
    }

    pub(crate) fn note(&self, account: &AccountId, rate: RateState, budget: CallBudget) {
        self.lock().insert(account.clone(), (rate, budget));
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<AccountId, (RateState, CallBudget)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// After throttling, calls stop until the bucket has a sixtieth of its limit (60 of 3600 calls), so
/// that the first calls of all programs do not meet the limit again.
const REFILLED_SHARE: u32 = 60;

/// The longest wait: the bucket fills within an hour.
const MAX_WAIT: Duration = Duration::from_secs(3600);

/// Reads the three `RateLimit-*` headers.
pub(crate) fn state(headers: &HeaderMap) -> Option<RateState> {
    Some(RateState {
        limit: number(headers, "ratelimit-limit")?,
        remaining: number(headers, "ratelimit-remaining")?,
        reset: number(headers, "ratelimit-reset")?,
    })
}

/// The remaining calls on the clock of this process. The headers use the clock of the cloud.
pub(crate) fn budget(state: RateState, now: Timestamp, cloud_time: Timestamp) -> CallBudget {
    let until_full = u64::try_from(state.reset.saturating_sub(cloud_time.as_second())).unwrap_or_default();
    let full_in = Duration::from_secs(until_full).min(MAX_WAIT);
    let full_at = now.checked_add(full_in).unwrap_or(Timestamp::MAX);
    CallBudget { limit: state.limit, remaining: state.remaining, seen_at: now, full_at }
}

/// The wait after an answer with status 429. A `Retry-After` header wins. Otherwise the wait ends
/// when the bucket has the share of its calls that the constant names. Absent if the headers do not
/// explain the answer: there are none, or the bucket has that share.
pub(crate) fn retry_after(headers: &HeaderMap, now: Timestamp) -> Option<Duration> {
    if let Some(wait) = header::retry_after(headers) {
        return Some(wait);
    }
    let state = state(headers)?;
    let until_full = u64::try_from(state.reset.saturating_sub(now.as_second())).unwrap_or_default();
    // The bucket fills evenly, so the wait is the missing part of the time until it is full.
    let missing = u64::from(state.limit.saturating_sub(state.remaining).max(1));
    let wanted = u64::from((state.limit / REFILLED_SHARE).max(1));
    if wanted <= u64::from(state.remaining) {
        return None;
    }
    let seconds = until_full.saturating_mul(wanted).div_ceil(missing);
    Some(Duration::from_secs(seconds.max(1)).min(MAX_WAIT))
}

fn number<T: std::str::FromStr>(headers: &HeaderMap, name: &str) -> Option<T> {
    header::text(headers, name)?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use http::{HeaderName, HeaderValue};

    use super::*;

    fn headers(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
        let pair = |(name, value): &(&'static str, &'static str)| {
            (HeaderName::from_static(name), HeaderValue::from_static(value))
        };
        pairs.iter().map(pair).collect()
    }

    fn now() -> Timestamp {
        Timestamp::from_second(1_000).expect("a valid second")
    }

    #[test]
    fn the_rate_is_read_from_three_headers() {
        let all = [("ratelimit-limit", "3600"), ("ratelimit-remaining", "12"), ("ratelimit-reset", "4588")];
        let expected = RateState { limit: 3600, remaining: 12, reset: 4588 };
        assert_eq!(state(&headers(&all)), Some(expected));
        assert_eq!(state(&headers(&all[..2])), None);
    }

    #[test]
    fn an_empty_bucket_waits_for_a_sixtieth_of_its_limit() {
        let empty = [("ratelimit-limit", "3600"), ("ratelimit-remaining", "0"), ("ratelimit-reset", "4600")];
        assert_eq!(retry_after(&headers(&empty), now()), Some(Duration::from_secs(60)));
        let tiny = [("ratelimit-limit", "10"), ("ratelimit-remaining", "0"), ("ratelimit-reset", "1010")];
        assert_eq!(retry_after(&headers(&tiny), now()), Some(Duration::from_secs(1)));
        let full = [("ratelimit-limit", "3600"), ("ratelimit-remaining", "60"), ("ratelimit-reset", "4540")];
        assert_eq!(retry_after(&headers(&full), now()), None, "another limit");
    }

    #[test]
    fn the_budget_is_full_at_a_time_of_this_process() {
        let state = RateState { limit: 3600, remaining: 3590, reset: 1_060 };
        let budget = budget(state, now(), Timestamp::from_second(1_050).expect("a valid second"));
        assert_eq!(budget.full_at.as_second(), 1_010, "the clock of the cloud is 50 s ahead");
        assert_eq!((budget.limit, budget.remaining, budget.seen_at), (3600, 3590, now()));
    }

    #[test]
    fn a_retry_after_header_wins() {
        let both = [
            ("retry-after", "5"),
            ("ratelimit-limit", "3600"),
            ("ratelimit-remaining", "0"),
            ("ratelimit-reset", "4600"),
        ];
        assert_eq!(retry_after(&headers(&both), now()), Some(Duration::from_secs(5)));
        assert_eq!(retry_after(&headers(&[]), now()), None);
        let absurd = [("retry-after", "999999")];
        assert_eq!(retry_after(&headers(&absurd), now()), Some(MAX_WAIT));
    }
}
