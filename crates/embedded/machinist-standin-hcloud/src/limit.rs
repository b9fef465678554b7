//! The rate limit of each project: a bucket that fills evenly, and the headers that report it.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};

/// One request, in the unit of the bucket. A bucket of N requests gains N units in each millisecond
/// of an hour, so the arithmetic is exact.
const REQUEST: i64 = 3_600_000;

/// The buckets by project.
#[derive(Debug, Default)]
pub(crate) struct Buckets(BTreeMap<String, Bucket>);

/// The bucket of one project.
#[derive(Debug, Clone, Copy)]
struct Bucket {
    /// Size of the bucket if the operator set one for this project.
    own_limit: Option<u32>,
    /// Units that are left.
    left: i64,
    at: Timestamp,
}

/// The state of a bucket, as in the headers of a reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Rate {
    /// Requests that a full bucket has.
    pub limit: u32,
    /// Requests that are left.
    pub remaining: u32,
    /// When the bucket is full again, in seconds since 1970.
    pub reset: i64,
}

impl Buckets {
    /// Takes one request. Returns the state after it, and whether the bucket had one.
    pub(crate) fn take(&mut self, project: &str, limit: u32, now: Timestamp) -> (Rate, bool) {
        let bucket = self.filled(project, limit, now);
        let admitted = REQUEST <= bucket.left;
        if admitted {
            bucket.left -= REQUEST;
        }
        (bucket.rate(limit), admitted)
    }

    /// Sets the size and the content of a project's bucket.
    pub(crate) fn set(&mut self, project: &str, limit: u32, remaining: u32, now: Timestamp) {
        let bucket = Bucket { own_limit: Some(limit.max(1)), left: i64::from(remaining) * REQUEST, at: now };
        self.0.insert(project.to_owned(), bucket);
    }

    /// The state of a full bucket, for a reply to a request without a project.
    pub(crate) fn full(limit: u32, now: Timestamp) -> Rate {
        Rate { limit, remaining: limit, reset: now.as_second() }
    }

    fn filled(&mut self, project: &str, limit: u32, now: Timestamp) -> &mut Bucket {
        let full = Bucket { own_limit: None, left: i64::from(limit) * REQUEST, at: now };
        let bucket = self.0.entry(project.to_owned()).or_insert(full);
        let limit = i64::from(bucket.own_limit.unwrap_or(limit));
        let milliseconds =
            i64::try_from(now.duration_since(bucket.at).as_millis()).unwrap_or(i64::MAX).max(0);
        let gained = milliseconds.saturating_mul(limit);
        bucket.left = bucket.left.saturating_add(gained).min(limit * REQUEST);
        bucket.at = bucket.at.max(now);
        bucket
    }
}

impl Bucket {
    fn rate(&self, limit: u32) -> Rate {
        let limit = self.own_limit.unwrap_or(limit);
        let missing = (i64::from(limit) * REQUEST - self.left).max(0);
        let full_after = SignedDuration::from_millis(missing / i64::from(limit));
        let full_at = self.at.checked_add(full_after).unwrap_or(Timestamp::MAX);
        Rate {
            limit,
            remaining: u32::try_from(self.left / REQUEST).unwrap_or(0),
            reset: full_at.as_second() + i64::from(full_at.subsec_nanosecond() != 0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_second(seconds).expect("a time")
    }

    #[test]
    fn a_bucket_of_3600_gains_one_request_per_second() {
        let mut buckets = Buckets::default();
        for _ in 0..3600 {
            assert!(buckets.take("a", 3600, at(0)).1);
        }
        let (rate, admitted) = buckets.take("a", 3600, at(0));
        assert_eq!((rate, admitted), (Rate { limit: 3600, remaining: 0, reset: 3600 }, false));
        assert!(buckets.take("b", 3600, at(0)).1, "another project has its own bucket");
        assert!(buckets.take("a", 3600, at(1)).1);
        assert!(!buckets.take("a", 3600, at(1)).1);
    }

    #[test]
    fn the_operator_sets_the_bucket_of_one_project() {
        let mut buckets = Buckets::default();
        buckets.set("a", 10, 1, at(0));
        assert_eq!(buckets.take("a", 3600, at(0)), (Rate { limit: 10, remaining: 0, reset: 3600 }, true));
        assert!(!buckets.take("a", 3600, at(359)).1);
        assert!(buckets.take("a", 3600, at(360)).1);
    }
}
