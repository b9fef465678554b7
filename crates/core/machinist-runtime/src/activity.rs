//! The work of the workers of a process: what each of them does now, and when anything last moved.
//! Metrics and `/healthz` read it.
//!
//! A pass waits for API servers, and each of its requests has a deadline. So in a process whose
//! loop turns, a pass or a request ends every few minutes, even if no API server answers. Passes
//! never wait for a cloud.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// Work that is due or begun, and in which nothing moves for this long, has stalled. All requests
/// of the client have a deadline far below it.
const STALLED_AFTER: Duration = Duration::from_secs(5 * 60);
/// A single pass with more requests than fit into this time would be a bug.
const LONGEST_PASS: Duration = Duration::from_secs(60 * 60);

/// The time at which a pass or a request of a process last began or ended. Clones share it.
#[derive(Clone, Debug)]
pub struct Pulse(Arc<Mutex<Instant>>);

impl Default for Pulse {
    fn default() -> Self {
        Self(Arc::new(Mutex::new(Instant::now())))
    }
}

impl Pulse {
    /// Records that something began or ended.
    pub fn beat(&self) {
        *self.last() = Instant::now();
    }

    fn last(&self) -> MutexGuard<'_, Instant> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The passes of a process.
#[derive(Debug, Default)]
pub(crate) struct Activity {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// The passes that run, by their number.
    running: BTreeMap<u64, Pass>,
    next: u64,
    /// The number of passes that have begun, by queue.
    begun: BTreeMap<&'static str, u64>,
    /// When the safety sweep last ended; absent before the first one.
    swept: Option<Instant>,
}

#[derive(Debug, Clone, Copy)]
struct Pass {
    kind: &'static str,
    queue: &'static str,
    began: Instant,
}

/// A pass that runs until this value is dropped.
pub(crate) struct RunningPass<'a> {
    of: &'a Activity,
    number: u64,
}

impl Activity {
    /// Records that a pass over a key of that kind begins. Metrics name its queue.
    pub(crate) fn begin(&self, kind: &'static str, queue: &'static str) -> RunningPass<'_> {
        let mut state = self.state();
        let number = state.next;
        state.next += 1;
        state.running.insert(number, Pass { kind, queue, began: Instant::now() });
        *state.begun.entry(queue).or_default() += 1;
        RunningPass { of: self, number }
    }

    /// Records that the safety sweep has ended.
    pub(crate) fn swept(&self) {
        self.state().swept = Some(Instant::now());
    }

    /// The number of passes that have begun, by queue.
    pub(crate) fn begun(&self) -> BTreeMap<&'static str, u64> {
        self.state().begun.clone()
    }

    /// The passes that run: their queue, and for how long.
    pub(crate) fn running(&self) -> Vec<(&'static str, Duration)> {
        self.state().running.values().map(|pass| (pass.queue, pass.began.elapsed())).collect()
    }

    /// Returns which loop does not turn, if one does not. `lag` is the time for which the first key
    /// of the queue has been due.
    pub(crate) fn stall(&self, lag: Duration, pulse: &Pulse) -> Option<String> {
        let (longest, swept) = {
            let state = self.state();
            let longest = state.running.values().map(|pass| (pass.began.elapsed(), pass.kind)).max();
            (longest, state.swept.map(|at| at.elapsed()))
        };
        let still = pulse.last().elapsed();
        if let Some((took, kind)) = longest.filter(|(took, _)| LONGEST_PASS < *took) {
            return Some(format!("a pass over a {kind} has been running for {} s", took.as_secs()));
        }
        let busy = longest.map_or(Duration::ZERO, |(took, _)| took);
        if STALLED_AFTER < still && STALLED_AFTER < busy.max(lag) {
            return Some(format!("no pass and no request has ended for {} s", still.as_secs()));
        }
        let late = swept.filter(|since| STALLED_AFTER < *since);
        late.map(|since| format!("the sweep of the queue has not run for {} s", since.as_secs()))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for RunningPass<'_> {
    fn drop(&mut self) {
        self.of.state().running.remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::advance;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_pass_that_waits_for_a_server_is_no_stall() {
        let (activity, pulse) = (Activity::default(), Pulse::default());
        let _pass = activity.begin("machine", "machine");
        for _ in 0..20 {
            advance(Duration::from_secs(60)).await;
            // A request ended at its deadline, without an answer.
            pulse.beat();
        }
        assert_eq!(activity.stall(Duration::from_secs(1200), &pulse), None);
    }

    #[tokio::test(start_paused = true)]
    async fn a_worker_that_does_nothing_is_a_stall() {
        let (activity, pulse) = (Activity::default(), Pulse::default());
        let pass = activity.begin("machine", "machine");
        advance(STALLED_AFTER + Duration::from_secs(1)).await;
        let stall = activity.stall(Duration::ZERO, &pulse).expect("a stall");
        assert_eq!(stall, "no pass and no request has ended for 301 s");
        drop(pass);
        assert_eq!(activity.stall(Duration::ZERO, &pulse), None, "an idle process is healthy");
        assert!(activity.stall(STALLED_AFTER * 2, &pulse).is_some(), "a due key that no worker takes");
    }

    #[tokio::test(start_paused = true)]
    async fn one_endless_pass_among_others_is_a_stall() {
        let (activity, pulse) = (Activity::default(), Pulse::default());
        let _pass = activity.begin("machine", "machine");
        advance(LONGEST_PASS + Duration::from_secs(1)).await;
        pulse.beat();
        let stall = activity.stall(Duration::ZERO, &pulse).expect("a stall");
        assert_eq!(stall, "a pass over a machine has been running for 3601 s");
    }

    #[tokio::test(start_paused = true)]
    async fn a_sweep_that_stopped_is_a_stall() {
        let (activity, pulse) = (Activity::default(), Pulse::default());
        assert_eq!(activity.stall(Duration::ZERO, &pulse), None, "before the first sweep");
        activity.swept();
        advance(STALLED_AFTER + Duration::from_secs(1)).await;
        assert!(activity.stall(Duration::ZERO, &pulse).expect("a stall").starts_with("the sweep"));
    }
}
