//! The limit on calls. Each project has a bucket of one hour's calls that refills at a constant
//! rate.

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

use crate::clock::later;
use crate::{CloudRefusal, Code};

const HOUR: Duration = Duration::from_secs(60 * 60);

/// When the bucket of each project is full again, which determines the number of calls left in it
/// now.
#[derive(Debug, Default)]
pub(crate) struct Buckets(BTreeMap<String, Timestamp>);

impl Buckets {
    /// Takes one call out of a project's bucket.
    ///
    /// # Errors
    /// When the bucket is empty. The refusal contains the time until the next call fits. A refused
    /// call uses no quota.
    pub(crate) fn take(
        &mut self,
        project: &str,
        per_hour: Option<NonZeroU32>,
        now: Timestamp,
    ) -> Result<(), CloudRefusal> {
        let Some(per_hour) = per_hour else { return Ok(()) };
        let full_at = self.0.get(project).map_or(now, |full_at| (*full_at).max(now));
        let then_full_at = later(full_at, HOUR / per_hour.get());
        let missing = then_full_at.duration_since(later(now, HOUR));
        if missing.is_positive() {
            let message = format!("the project may make {per_hour} calls an hour");
            let seconds = (missing + SignedDuration::from_nanos(999_999_999)).as_secs();
            return Err(CloudRefusal {
                retry_after_seconds: u64::try_from(seconds).ok(),
                ..CloudRefusal::new(Code::RateLimited, message)
            });
        }
        self.0.insert(project.to_owned(), then_full_at);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_bucket_says_when_the_next_call_fits() {
        let (mut buckets, hundred) = (Buckets::default(), NonZeroU32::new(100));
        let now = Timestamp::UNIX_EPOCH;
        for call in 0..100 {
            assert_eq!(buckets.take("a", hundred, now), Ok(()), "call {call}");
        }
        let refused = buckets.take("a", hundred, now).expect_err("100 calls were made");
        assert_eq!((refused.code, refused.retry_after_seconds), (Code::RateLimited, Some(36)));
        assert_eq!(buckets.take("b", hundred, now), Ok(()), "another project has its own bucket");
        assert_eq!(buckets.take("a", None, now), Ok(()), "the limit was lifted");
        let then = later(now, Duration::from_secs(36));
        assert_eq!(buckets.take("a", hundred, then), Ok(()));
        assert!(buckets.take("a", hundred, then).is_err(), "only one call was available");
    }
}
