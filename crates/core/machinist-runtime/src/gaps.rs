//! The gaps in which this process or its predecessors saw nothing, as far as this process knows.

use std::sync::{Mutex, MutexGuard, PoisonError};

use jiff::Timestamp;
use machinist_core::Unseen;
use machinist_kube::Moment;

/// The gaps that this process knows.
#[derive(Debug, Default)]
pub(crate) struct Gaps(Mutex<KnownGaps>);

/// The known facts about the gaps.
#[derive(Debug, Default)]
pub(crate) struct KnownGaps {
    pub(crate) unseen: Unseen,
    /// Whether the runtime has workers.
    pub(crate) acts: bool,
    /// Whether this process has begun to act, so that the gap before it is known.
    pub(crate) has_begun: bool,
    /// The last look at the clocks.
    pub(crate) looked: Option<Moment>,
}

impl Gaps {
    pub(crate) fn lock(&self) -> MutexGuard<'_, KnownGaps> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The runtime has workers.
    pub(crate) fn act(&self) {
        self.lock().acts = true;
    }

    /// Adds a gap.
    pub(crate) fn add(&self, from: Timestamp, to: Timestamp) {
        self.lock().unseen.add(from, to);
    }
}
