//! A replica of the store that can be made to lag, for tests.

use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::Notify;

/// A replica that can be made to lag: what it serves to `resourceVersion=0` is frozen at a revision until it is thawed.
/// Clones are the same replica.
#[derive(Debug, Clone, Default)]
pub struct ReplicaView(Arc<Replica>);

#[derive(Debug, Default)]
struct Replica {
    limit: Mutex<Option<u64>>,
    /// Wakes those who wait in the order in which they came, so that a simulation repeats.
    moved: Notify,
}

impl ReplicaView {
    /// Nothing after `revision` is seen from now on.
    pub fn freeze_at(&self, revision: u64) {
        self.set(Some(revision));
    }

    /// Catches up, and lags no longer.
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
            // Enlisted before the look, so that no move in between is missed.
            let mut moved = pin!(self.0.moved.notified());
            moved.as_mut().enable();
            if self.limit().is_none_or(|limit| revision <= limit) {
                return;
            }
            moved.await;
        }
    }
}
