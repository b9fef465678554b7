//! The memory of a process: the contract's stores, open writes and calls, and the last decisions.
//!
//! One lock guards the memory. A caller must not await while it holds the lock.

use std::collections::BTreeSet;
use std::sync::{Mutex, MutexGuard, PoisonError};

use machinist_kube::Barrier;
use machinist_kube::barrier::Charge;

use crate::asks::Pending;
use crate::contract::Contract;
use crate::passes::Passes;

/// The memory of a process.
pub struct World<C: Contract> {
    /// The contract's stores and memory.
    pub seen: C::Seen,
    /// The last decisions, by key.
    pub passes: Passes<C::Key, C::Reason>,
    /// Driver calls without an answer yet.
    pub asks: Pending,
    pub(crate) barrier: Barrier<C::Key>,
    /// Unanswered writes whose outcome a task is reading.
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

    /// Whether the key has a charged write that its store does not show yet.
    pub fn is_charged(&self, key: &C::Key) -> bool {
        self.barrier.blocked(key).is_some()
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
