//! The memory of a process: the contract's stores, open writes and calls, and the last decisions.
//!
//! One lock guards the memory. A caller must not await while it holds the lock.

mod outages;
mod pending;
mod reads;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};

use machinist_kube::Barrier;
use machinist_kube::barrier::Charge;

use outages::Outages;
pub(crate) use pending::Waiting;
pub use pending::{Pending, Queued};
pub(crate) use reads::{ANSWERED_WITHIN, FreshReads, ReadState};

use crate::contract::Contract;
use crate::passes::Passes;
use crate::silence::Failure;

/// The memory of a process.
pub struct World<C: Contract> {
    /// The contract's stores and memory.
    pub seen: C::Seen,
    /// The last decisions, by key.
    pub passes: Passes<C::Key, C::Reason>,
    /// Driver calls without an answer yet.
    pub asks: Pending,
    /// Driver calls that wait in the queue of their account.
    pub queued: Queued,
    pub(crate) barrier: Barrier<C::Key>,
    pub(crate) fresh_reads: FreshReads<C::Key>,
    /// The last failure of each watch that fails, by kind.
    pub(crate) failing: BTreeMap<&'static str, Failure>,
    /// Unanswered writes whose outcome a task is reading.
    pub(crate) outcomes_being_read: BTreeSet<Charge>,
    /// Keys that wait for an answer of an API server.
    pub(crate) outages: Outages<C::Key>,
}

impl<C: Contract> World<C> {
    fn new() -> Self {
        Self {
            seen: C::Seen::default(),
            passes: Passes::default(),
            asks: Pending::default(),
            queued: Queued::default(),
            barrier: Barrier::new(),
            fresh_reads: FreshReads::default(),
            failing: BTreeMap::new(),
            outcomes_being_read: BTreeSet::new(),
            outages: Outages::default(),
        }
    }

    /// Whether the key has a charged write that its store does not show yet.
    pub fn is_charged(&self, key: &C::Key) -> bool {
        self.barrier.blocked(key).is_some()
    }

    /// Whether the key has a charged write with an unknown outcome.
    pub fn is_unsure(&self, key: &C::Key) -> bool {
        self.barrier.blocked(key).is_some_and(|blocked| !blocked.unknown.is_empty())
    }
}

/// The world with its lock.
pub(crate) struct SharedWorld<C: Contract>(Mutex<World<C>>);

impl<C: Contract> SharedWorld<C> {
    pub(crate) fn new() -> Self {
        Self(Mutex::new(World::new()))
    }

    /// Takes the lock. The function ignores poisoning: the world is only a cache.
    pub(crate) fn lock(&self) -> MutexGuard<'_, World<C>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
