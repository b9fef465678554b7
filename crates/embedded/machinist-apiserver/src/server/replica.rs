//! A replica of the store that can be made to lag, for tests.

use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::Notify;

/// A replica that can be made to lag. While it is frozen at a revision, it answers
/// `resourceVersion=0` from that revision. Clones share the same replica.
#[derive(Debug, Clone, Default)]
pub struct ReplicaView(Arc<Replica>);

#[derive(Debug, Default)]
struct Replica {
    limit: Mutex<Option<u64>>,
    /// Wakes waiting requests in the order of their arrival, so that a simulation is repeatable.
    moved: Notify,
}

impl ReplicaView {
    /// Freezes the replica: it does not see changes after `revision`.
    pub fn freeze_at(&self, revision: u64) {
        self.set(Some(revision));
    }

    /// Lets the replica catch up and stops its lag.
    pub fn thaw(&self) {
        self.set(None);
    }

    fn set(&self, limit: Option<u64>) {
        *self.0.limit.lock().unwrap_or_else(PoisonError::into_inner) = limit;
        self.0.moved.notify_waiters();
    }

    pub(crate) fn limit(&self) -> Option<u64> {
        *self.0.limit.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until the replica has seen `revision`.
    pub(crate) async fn reaches(&self, revision: u64) {
        loop {
            // Registered before the check, so that no change in between is missed.
            let mut moved = pin!(self.0.moved.notified());
            moved.as_mut().enable();
            if self.limit().is_none_or(|limit| revision <= limit) {
                return;
            }
            moved.await;
        }
    }
}
