//! What a process has begun and not ended: it waits for that before another process may lead.
//!
//! A call to a cloud may take effect for as long as its driver says, whether or not the process that made it is still there. So a
//! process that is asked to stop begins nothing more, and gives its Lease back only when nothing is in flight.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

/// What is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Work {
    /// A call to a cloud.
    Call,
    /// A pass over one key, and with it its writes to API servers.
    Pass,
    /// The question what became of a write without an answer.
    Question,
}

/// Counts the work of one process.
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

/// A piece of work that is in flight until this is dropped.
#[derive(Debug)]
pub(crate) struct Begun {
    of: Arc<InFlight>,
    work: Work,
}

/// How the wait for work in flight ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Drained {
    /// Calls to clouds that had not ended.
    pub calls: usize,
    /// Passes over an object, with writes to API servers, that had not ended.
    pub passes: usize,
    /// DELETEs, and patches for which objects are deleted, that the API server has not answered: they may still take effect.
    pub deletes: usize,
    /// How long it took.
    pub waited: Duration,
}

impl Drained {
    /// Logs it, where there was something to wait for.
    pub fn tell(&self) {
        let Self { calls, passes, deletes, waited } = self;
        if 0 < calls + passes + deletes {
            tracing::warn!(
                calls,
                passes,
                deletes,
                ?waited,
                "Calls and writes in flight have not ended within their bound"
            );
        } else if !waited.is_zero() {
            tracing::info!(?waited, "Nothing is in flight any more");
        }
    }
}

impl InFlight {
    /// Counts a piece of work from now on; `None` in a process that is stopping, where nothing may begin.
    ///
    /// The question and the count are one step, so that the process waits for each piece of work that it did not keep from beginning.
    pub(crate) fn begin(self: &Arc<Self>, work: Work) -> Option<Begun> {
        let mut counts = self.counts();
        if counts.is_draining {
            return None;
        }
        *counts.of(work) += 1;
        Some(Begun { of: self.clone(), work })
    }

    /// Counts a question about a write. It may begin in a process that is stopping: it begins nothing new.
    pub(crate) fn ask(self: &Arc<Self>) -> Begun {
        *self.counts().of(Work::Question) += 1;
        Begun { of: self.clone(), work: Work::Question }
    }

    /// Whether nothing may begin any more.
    pub(crate) fn is_draining(&self) -> bool {
        self.counts().is_draining
    }

    /// Lets nothing begin from now on, and waits until nothing is in flight, or for `at_most`.
    pub(crate) async fn drain(&self, at_most: Duration) -> Drained {
        let began = Instant::now();
        {
            let mut counts = self.counts();
            counts.is_draining = true;
            let Counts { calls, passes, .. } = *counts;
            if 0 < calls + passes {
                tracing::info!(calls, passes, ?at_most, "Waiting for calls and writes in flight");
            }
        }
        // What has not ended by then is told in the result.
        let _ = tokio::time::timeout(at_most, self.nothing_left()).await;
        Drained { waited: began.elapsed(), ..self.now() }
    }

    /// What is in flight now.
    pub(crate) fn now(&self) -> Drained {
        let Counts { calls, passes, .. } = *self.counts();
        Drained { calls, passes, deletes: 0, waited: Duration::ZERO }
    }

    async fn nothing_left(&self) {
        loop {
            // Enlisted before the look, so that an end in between is not missed.
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

impl Drop for Begun {
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
    async fn a_drain_ends_when_the_last_work_has() {
        let in_flight = Arc::new(InFlight::default());
        let call = in_flight.begin(Work::Call).expect("it works");
        let pass = in_flight.begin(Work::Pass).expect("it works");
        let drain = tokio::spawn({
            let in_flight = in_flight.clone();
            async move { in_flight.drain(BOUND).await }
        });
        tokio::time::sleep(Duration::from_secs(3)).await;
        assert!(in_flight.begin(Work::Call).is_none(), "nothing begins any more");
        drop(pass);
        tokio::time::sleep(Duration::from_secs(4)).await;
        assert!(!drain.is_finished(), "the call is in flight");
        drop(call);
        let drained = drain.await.expect("no panic");
        assert_eq!((drained.calls, drained.passes, drained.waited.as_secs()), (0, 0, 7));
    }

    #[tokio::test(start_paused = true)]
    async fn a_drain_ends_at_its_bound_and_says_what_is_left() {
        let in_flight = Arc::new(InFlight::default());
        let _call = in_flight.begin(Work::Call);
        let drained = in_flight.drain(BOUND).await;
        assert_eq!((drained.calls, drained.passes, drained.waited.as_secs()), (1, 0, BOUND.as_secs()));
        let idle = Arc::new(InFlight::default());
        assert_eq!(idle.drain(BOUND).await.waited, Duration::ZERO);
    }
}
