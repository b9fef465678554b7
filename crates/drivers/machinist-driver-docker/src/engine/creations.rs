//! Remembers the creations that the engine may still carry out, because it has not answered them.
//!
//! The engine continues with a request whose connection broke or whose caller has ended. Within the
//! time limit of an attempt, it has carried out or forgotten the request.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use machinist_instance::ErrorKind;
use tokio::time::Instant;

use super::ATTEMPT_WITHIN;
use super::failure::Failure;

/// The creations without an answer.
#[derive(Debug, Default)]
pub(crate) struct Creations {
    open: Mutex<Open>,
}

#[derive(Debug, Default)]
struct Open {
    /// The number of the next creation.
    next: u64,
    /// The moment after which a creation no longer has an effect, by its number.
    limits: BTreeMap<u64, Instant>,
}

impl Creations {
    /// Makes a creation. If the caller drops the future, or the effect is unknown, the creation
    /// counts until its time limit.
    pub(super) async fn follow<T>(
        &self,
        creation: impl Future<Output = Result<T, Failure>>,
    ) -> Result<T, Failure> {
        let number = self.begin();
        let answer = creation.await;
        let is_known = match &answer {
            Ok(_) => true,
            Err(failure) => failure.is_answered() || failure.error.kind != ErrorKind::Ambiguous,
        };
        if is_known {
            self.open().limits.remove(&number);
        }
        answer
    }

    /// Returns the last moment at which a creation may still have its effect.
    pub(crate) fn until(&self) -> Option<Instant> {
        let mut open = self.open();
        open.forget_past();
        open.limits.values().max().copied()
    }

    fn begin(&self) -> u64 {
        let mut open = self.open();
        open.forget_past();
        let number = open.next;
        open.next += 1;
        open.limits.insert(number, Instant::now() + ATTEMPT_WITHIN);
        number
    }

    fn open(&self) -> MutexGuard<'_, Open> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Open {
    fn forget_past(&mut self) {
        let now = Instant::now();
        self.limits.retain(|_, limit| now < *limit);
    }
}

#[cfg(test)]
mod tests {
    use std::future::{pending, ready};
    use std::time::Duration;

    use http::StatusCode;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_creation_counts_until_its_answer_or_its_limit() {
        let creations = Creations::default();
        let failure = |kind, status| Failure { status, ..Failure::new(kind, "text") };
        for known in [
            Ok(()),
            Err(failure(ErrorKind::Unavailable, None)),
            Err(failure(ErrorKind::Ambiguous, Some(StatusCode::INTERNAL_SERVER_ERROR))),
        ] {
            let _ = creations.follow(ready(known)).await;
            assert_eq!(creations.until(), None);
        }

        let lost = creations.follow(ready(Err::<(), _>(failure(ErrorKind::Ambiguous, None)))).await;
        assert!(lost.is_err());
        let limit = Instant::now() + ATTEMPT_WITHIN;
        assert_eq!(creations.until(), Some(limit), "the answer was lost");

        tokio::time::sleep(Duration::from_secs(5)).await;
        let second = Duration::from_secs(1);
        let dropped = tokio::time::timeout(second, creations.follow(pending::<Result<(), Failure>>()));
        assert!(dropped.await.is_err());
        let limit = limit + Duration::from_secs(5);
        assert_eq!(creations.until(), Some(limit), "the caller has ended");
        tokio::time::sleep_until(limit).await;
        assert_eq!(creations.until(), None);
    }
}
