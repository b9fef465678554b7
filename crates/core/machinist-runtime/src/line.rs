//! The line in which the calls of an account wait, until one of them is first.
//!
//! The line has lanes, because not all calls are equal:
//!
//! - Deletions go before all others. A deletion must not wait behind thousands of creations, and it
//!   is the only call that makes room.
//! - Other changes and lookups take turns. Otherwise the lookups at new Nodes would wait behind all
//!   creations.
//! - Lookups that nothing waits for come last.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use machinist_core::Call;
use tokio::sync::oneshot;

/// A lane of the line of an account.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Lane {
    /// Deletions, and the lookups of a deletion.
    Deletion,
    /// Other calls that change something.
    Change,
    /// Lookups that a decision waits for.
    Look,
    /// Lookups that nothing waits for.
    Idle,
}

impl Lane {
    /// The lane of a call, if nothing else is known about it.
    pub fn of(call: Call) -> Self {
        match call {
            Call::DELETE | Call::REKEY => Self::Deletion,
            call if call.changes() => Self::Change,
            _ => Self::Look,
        }
    }
}

/// After this many other calls, a call of the last lane goes first once, so that it does not
/// starve.
const OTHERS_PER_IDLE: u32 = 8;

/// The waiting calls. One call at a time is first: it alone waits for a slot and a token.
#[derive(Debug, Default)]
pub(crate) struct Line(Mutex<State>);

/// The lane of a call, and its number in the order of arrival.
type Place = (Lane, u64);

#[derive(Debug, Default)]
struct State {
    has_first: bool,
    waiting: BTreeMap<Place, oneshot::Sender<First>>,
    arrived: u64,
    last_was_change: bool,
    since_idle: u32,
}

/// The first place in a line. Dropping it lets the next call be first.
#[derive(Debug)]
pub(crate) struct First {
    /// `None` if another call is first already.
    line: Option<Arc<Line>>,
    place: Place,
}

impl Line {
    /// Waits until the caller is first.
    pub(crate) async fn enter(self: &Arc<Self>, lane: Lane) -> First {
        let receiver = {
            let mut state = self.state();
            state.arrived += 1;
            let place = (lane, state.arrived);
            if !state.has_first {
                state.has_first = true;
                return First { line: Some(self.clone()), place };
            }
            state.wait(place)
        };
        receiver.await.expect("a line drops no waiting call")
    }

    /// Makes the next waiting call the first one.
    fn advance(self: &Arc<Self>) {
        let mut state = self.state();
        loop {
            let Some((place, sender)) = state.take_next() else {
                state.has_first = false;
                return;
            };
            let first = First { line: Some(self.clone()), place };
            match sender.send(first) {
                Ok(()) => return,
                // The caller no longer waits.
                Err(mut first) => first.line = None,
            }
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl First {
    /// Whether a deletion has arrived, which must go first.
    pub(crate) fn is_overtaken(&self) -> bool {
        let Some(line) = self.line.as_ref().filter(|_| self.place.0 != Lane::Deletion) else { return false };
        let state = line.state();
        let mut deletions = state.waiting.range((Lane::Deletion, 0)..=(Lane::Deletion, u64::MAX));
        deletions.any(|(_, sender)| !sender.is_closed())
    }

    /// Lets the deletions go first, and waits until the caller is first again.
    pub(crate) async fn step_back(mut self) -> Self {
        let Some(line) = self.line.take() else { return self };
        let receiver = line.state().wait(self.place);
        line.advance();
        receiver.await.expect("a line drops no waiting call")
    }

    /// Records that the call of this place begins.
    pub(crate) fn begin(&self) {
        let Some(line) = &self.line else { return };
        let mut state = line.state();
        match self.place.0 {
            Lane::Deletion => {}
            Lane::Change => state.last_was_change = true,
            Lane::Look => state.last_was_change = false,
            Lane::Idle => state.since_idle = 0,
        }
        if self.place.0 != Lane::Idle {
            state.since_idle = state.since_idle.saturating_add(1);
        }
    }
}

impl Drop for First {
    fn drop(&mut self) {
        if let Some(line) = self.line.take() {
            line.advance();
        }
    }
}

impl State {
    fn wait(&mut self, place: Place) -> oneshot::Receiver<First> {
        let (sender, receiver) = oneshot::channel();
        self.waiting.insert(place, sender);
        receiver
    }

    fn take_next(&mut self) -> Option<(Place, oneshot::Sender<First>)> {
        let place = self.next()?;
        self.waiting.remove_entry(&place)
    }

    fn next(&self) -> Option<Place> {
        let first = |lane| self.waiting.range((lane, 0)..=(lane, u64::MAX)).next().map(|(place, _)| *place);
        let idle = first(Lane::Idle);
        let due_idle = idle.filter(|_| OTHERS_PER_IDLE <= self.since_idle);
        let (change, look) = (first(Lane::Change), first(Lane::Look));
        let in_turn = if self.last_was_change { look.or(change) } else { change.or(look) };
        first(Lane::Deletion).or(due_idle).or(in_turn).or(idle)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_call_that_stopped_waiting_blocks_no_other() {
        let line = Arc::new(Line::default());
        let first = line.enter(Lane::Change).await;
        let mut waiting = Vec::new();
        for _ in 0..10_000 {
            let line = line.clone();
            waiting.push(tokio::spawn(async move { drop(line.enter(Lane::Change).await) }));
        }
        tokio::task::yield_now().await;
        let last = tokio::spawn({
            let line = line.clone();
            async move { drop(line.enter(Lane::Idle).await) }
        });
        tokio::task::yield_now().await;
        waiting.iter().for_each(tokio::task::JoinHandle::abort);
        drop(first);
        last.await.expect("the last call is first at the end");
        drop(line.enter(Lane::Look).await);
    }

    #[tokio::test(start_paused = true)]
    async fn a_place_that_no_caller_takes_is_passed_on() {
        let line = Arc::new(Line::default());
        let first = line.enter(Lane::Change).await;
        let unpolled = {
            let mut waits = Box::pin(line.enter(Lane::Change));
            assert!(futures::poll!(&mut waits).is_pending());
            waits
        };
        drop(first);
        drop(unpolled);
        drop(line.enter(Lane::Look).await);
    }
}
