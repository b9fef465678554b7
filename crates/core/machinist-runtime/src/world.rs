//! Everything one process has seen: the contract's stores, its open writes and calls, its last decisions. One lock guards it, and
//! no caller awaits under it.

use std::collections::BTreeSet;
use std::sync::{Mutex, MutexGuard, PoisonError};

use machinist_kube::Barrier;
use machinist_kube::barrier::Charge;

use crate::asks::Pending;
use crate::contract::Contract;
use crate::passes::Passes;

/// All that a process has seen.
pub struct World<C: Contract> {
    /// The contract's stores and memory.
    pub seen: C::Seen,
    /// What was decided last, by key.
    pub passes: Passes<C::Key, C::Reason>,
    /// Calls to a cloud that have not been answered.
    pub asks: Pending,
    pub(crate) barrier: Barrier<C::Key>,
    /// Writes without an answer whose outcome is being asked for.
    pub(crate) settling: BTreeSet<Charge>,
}

impl<C: Contract> World<C> {
    fn new() -> Self {
        Self {
            seen: C::Seen::default(),
            passes: Passes::default(),
            asks: Pending::default(),
            barrier: Barrier::new(),
            settling: BTreeSet::new(),
        }
    }

    /// Whether a write that is charged to the key is not shown by its store yet.
    pub fn is_charged(&self, key: &C::Key) -> bool {
        self.barrier.blocked(key).is_some()
    }
}

/// The world behind its lock.
pub(crate) struct SharedWorld<C: Contract>(Mutex<World<C>>);

impl<C: Contract> SharedWorld<C> {
    pub(crate) fn new() -> Self {
        Self(Mutex::new(World::new()))
    }

    /// Takes the lock. A panic of another holder does not matter here: the world is only a cache.
    pub(crate) fn lock(&self) -> MutexGuard<'_, World<C>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
