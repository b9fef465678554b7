//! The driver calls of a process, by subject: those in flight, and those that wait in the queue of
//! their account.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use machinist_core::Call;
use machinist_instance::AccountId;
use tokio::sync::OwnedSemaphorePermit;
use tokio::task::AbortHandle;
use tokio::time::Instant;

/// The asks in flight, by subject.
#[derive(Debug, Default)]
pub struct Pending(BTreeMap<String, (Call, Timestamp)>);

impl Pending {
    /// The call in flight for a subject, and its start.
    pub fn of(&self, subject: &str) -> Option<(Call, Timestamp)> {
        self.0.get(subject).copied()
    }

    pub(crate) fn insert(&mut self, subject: &str, call: Call, at: Timestamp) {
        self.0.insert(subject.to_owned(), (call, at));
    }

    pub(crate) fn remove(&mut self, subject: &str) {
        self.0.remove(subject);
    }

    /// The number of calls that are in flight or wait for a slot.
    pub(crate) fn count(&self) -> usize {
        self.0.len()
    }
}

/// The calls that wait, by subject.
#[derive(Debug, Default)]
pub struct Queued {
    calls: BTreeMap<String, Waiting>,
    entered: u64,
}

/// A call that waits in the queue of its account.
#[derive(Debug)]
pub(crate) struct Waiting {
    pub(crate) call: Call,
    pub(crate) account: AccountId,
    pub(crate) since: Instant,
    pub(crate) since_wall: Timestamp,
    /// Distinguishes this entry from a later one of the same subject.
    pub(crate) number: u64,
    /// The task that waits for the slot, and holds it for a while.
    pub(crate) task: AbortHandle,
    /// The slot, as soon as the call may be made.
    pub(crate) slot: Option<OwnedSemaphorePermit>,
}

impl Drop for Waiting {
    /// A call that is made or replaced leaves the queue.
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Queued {
    /// The waiting call of a subject.
    pub fn of(&self, subject: &str) -> Option<machinist_core::InQueue> {
        // Without its task, an entry never gets a slot: the task has panicked.
        let Waiting { call, since_wall, slot, .. } =
            self.calls.get(subject).filter(|waiting| !waiting.task.is_finished())?;
        Some(machinist_core::InQueue { call: *call, since: *since_wall, has_slot: slot.is_some() })
    }

    /// How long that call of a subject has waited so far.
    pub fn waits_for(&self, subject: &str, call: Call) -> Duration {
        let waits = |waiting: &&Waiting| waiting.call == call && waiting.slot.is_none();
        self.calls.get(subject).filter(waits).map_or(Duration::ZERO, |waiting| waiting.since.elapsed())
    }

    /// Whether that call of a subject waits already.
    pub(crate) fn waits(&self, subject: &str, call: Call, account: &AccountId) -> bool {
        self.calls.get(subject).is_some_and(|waiting| {
            waiting.call == call && waiting.account == *account && !waiting.task.is_finished()
        })
    }

    /// Returns the number of the next entry.
    pub(crate) fn next_number(&mut self) -> u64 {
        self.entered += 1;
        self.entered
    }

    /// Adds a call. An earlier call of the subject leaves the queue.
    pub(crate) fn insert(&mut self, subject: String, waiting: Waiting) {
        self.calls.insert(subject, waiting);
    }

    /// Removes the call of a subject.
    pub(crate) fn remove(&mut self, subject: &str) {
        self.calls.remove(subject);
    }

    /// The number of calls in the queue.
    pub(crate) fn count(&self) -> usize {
        self.calls.len()
    }

    /// Takes the slot of a call, which then leaves the queue.
    pub(crate) fn take_slot(
        &mut self,
        subject: &str,
        call: Call,
        account: &AccountId,
    ) -> Option<OwnedSemaphorePermit> {
        let waiting = self.calls.get(subject)?;
        let may_begin = waiting.slot.is_some() && waiting.call == call && waiting.account == *account;
        if !may_begin {
            return None;
        }
        self.calls.remove(subject)?.slot.take()
    }

    /// The waiting call of a subject, if it is this entry and not a later one.
    pub(crate) fn mine(&mut self, subject: &str, number: u64) -> Option<&mut Waiting> {
        self.calls.get_mut(subject).filter(|waiting| waiting.number == number)
    }
}
