//! Counts the work in flight. A stopping process waits for it before another process may lead.
//!
//! A driver call may take effect until its bound ends, even if its process has exited. So a
//! stopping process begins no more work, and releases its Lease only when no work is in flight.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

/// The sorts of counted work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Work {
    /// A driver call.
    Call,
    /// A pass over one key, including its writes to API servers.
    Pass,
    /// A request that reads the outcome of an unanswered write.
    Question,
}

/// The counters of one process.
#[derive(Debug, Default)]
pub(crate) struct InFlight {
    counts: Mutex<Counts>,
    ended: Notify,
}

#[derive(Debug, Default)]
struct Counts {
    calls: usize,
    passes: usize,
    questions: usize,
    is_draining: bool,
}

/// A guard for a piece of work. The work is in flight until the guard is dropped.
#[derive(Debug)]
pub(crate) struct CountedWork {
    of: Arc<InFlight>,
    work: Work,
}

/// The work that was still in flight after a wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Drained {
    /// The number of driver calls that had not ended.
    pub calls: usize,
    /// The number of passes, with their writes to API servers, that had not ended.
    pub passes: usize,
    /// The number of unanswered DELETE requests and unanswered patches that cause deletions. They
    /// may still take effect.
    pub deletes: usize,
    /// The number of other unanswered writes that may still take effect
    /// ([`crate::Contract::late_writes`]).
    pub late: usize,
    /// The duration of the wait.
    pub waited: Duration,
}

impl Drained {
    /// Whether the next process may lead at once: no write of this one may still take effect
    /// unseen.
    pub fn may_hand_over(&self) -> bool {
        self.deletes + self.late == 0
    }

    /// Logs the result, unless no work was in flight.
    pub fn tell(&self) {
        let Self { calls, passes, deletes, late, waited } = self;
        if 0 < calls + passes + deletes + late {
            tracing::warn!(
                calls,
                passes,
                deletes,
                late,
                ?waited,
                "Timed out waiting for driver calls and writes in flight"
            );
        } else if !waited.is_zero() {
            tracing::info!(?waited, "All driver calls and writes have ended");
        }
    }
}

impl InFlight {
    /// Begins to count a piece of work. Returns `None` in a stopping process, where no work may
    /// begin.
    ///
    /// The check and the count are one atomic step. So a stopping process waits for each piece of
    /// work that it did not prevent.
    pub(crate) fn begin(self: &Arc<Self>, work: Work) -> Option<CountedWork> {
        let mut counts = self.counts();
        if counts.is_draining {
            return None;
        }
        *counts.of(work) += 1;
        Some(CountedWork { of: self.clone(), work })
    }

    /// Counts a request that reads the outcome of a write. The request may begin in a stopping
    /// process, because it starts no new work.
    pub(crate) fn ask(self: &Arc<Self>) -> CountedWork {
        *self.counts().of(Work::Question) += 1;
        CountedWork { of: self.clone(), work: Work::Question }
    }

    /// Whether the process is stopping, so that no work may begin.
    pub(crate) fn is_draining(&self) -> bool {
        self.counts().is_draining
    }

    /// Prevents new work, and waits at most `at_most` until no work is in flight.
    pub(crate) async fn drain(&self, at_most: Duration) -> Drained {
        let began = Instant::now();
        {
            let mut counts = self.counts();
            counts.is_draining = true;
            let Counts { calls, passes, .. } = *counts;
            if 0 < calls + passes {
                tracing::info!(calls, passes, ?at_most, "Waiting for driver calls and writes in flight");
            }
        }
        // The result contains the work that has not ended.
        let _ = tokio::time::timeout(at_most, self.nothing_left()).await;
        Drained { waited: began.elapsed(), ..self.now() }
    }

    /// The work in flight now.
    pub(crate) fn now(&self) -> Drained {
        let Counts { calls, passes, .. } = *self.counts();
        Drained { calls, passes, deletes: 0, late: 0, waited: Duration::ZERO }
    }

    async fn nothing_left(&self) {
        loop {
            // Subscribed before the check, so that the task does not miss a notification in
            // between.
            let ended = self.ended.notified();
            if self.counts().is_empty() {
                return;
            }
            ended.await;
        }
    }

    fn counts(&self) -> MutexGuard<'_, Counts> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Counts {
    fn of(&mut self, work: Work) -> &mut usize {
        match work {
            Work::Call => &mut self.calls,
            Work::Pass => &mut self.passes,
            Work::Question => &mut self.questions,
        }
    }

    fn is_empty(&self) -> bool {
        self.calls + self.passes + self.questions == 0
    }
}

impl Drop for CountedWork {
    fn drop(&mut self) {
        let mut counts = self.of.counts();
        *counts.of(self.work) -= 1;
        if counts.is_empty() {
            self.of.ended.notify_waiters();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOUND: Duration = Duration::from_secs(20);

    #[tokio::test(start_paused = true)]
    async fn a_drain_waits_for_all_work() {
        let in_flight = Arc::new(InFlight::default());
        let call = in_flight.begin(Work::Call).expect("work may begin");
        let pass = in_flight.begin(Work::Pass).expect("work may begin");
        let drain = tokio::spawn({
            let in_flight = in_flight.clone();
            async move { in_flight.drain(BOUND).await }
        });
        tokio::time::sleep(Duration::from_secs(3)).await;
        assert!(in_flight.begin(Work::Call).is_none(), "no work may begin while draining");
        drop(pass);
        tokio::time::sleep(Duration::from_secs(4)).await;
        assert!(!drain.is_finished(), "the drain waits for the call");
        drop(call);
        let drained = drain.await.expect("no panic");
        assert_eq!((drained.calls, drained.passes, drained.waited.as_secs()), (0, 0, 7));
    }

    #[tokio::test(start_paused = true)]
    async fn a_drain_times_out_and_returns_the_remaining_work() {
        let in_flight = Arc::new(InFlight::default());
        let _call = in_flight.begin(Work::Call);
        let drained = in_flight.drain(BOUND).await;
        assert_eq!((drained.calls, drained.passes, drained.waited.as_secs()), (1, 0, BOUND.as_secs()));
        let idle = Arc::new(InFlight::default());
        assert_eq!(idle.drain(BOUND).await.waited, Duration::ZERO);
    }
}
