//! The safety sweep: once a minute, each key that neither the queue nor the barrier holds is woken.
//!
//! Every object has a key in the queue, due at the resync at the latest, or a write of it is awaited. A key without either was
//! lost by a bug, and no event might ever bring it back. The sweep looks at keys only; it reads no object.

use std::sync::Arc;
use std::time::Duration;

use crate::contract::Contract;
use crate::runtime::Runtime;
use crate::world::World;

/// Between two sweeps.
const SWEEP_EVERY: Duration = Duration::from_secs(60);

impl<C: Contract> Runtime<C> {
    /// For ever: wakes lost keys, and closes accounts that no call has used for long.
    pub(crate) async fn sweep(self: Arc<Self>) {
        loop {
            tokio::time::sleep(SWEEP_EVERY).await;
            self.accounts.close_unused();
            if self.started().is_none() {
                continue;
            }
            let lost = {
                let mut world = self.world.lock();
                let lost = self.lost_keys(&world);
                world.passes.keys_found += u64::try_from(lost.len()).unwrap_or(u64::MAX);
                lost
            };
            for key in lost {
                tracing::warn!(%key, "The queue had lost this key");
                self.wake(key);
            }
        }
    }

    fn lost_keys(&self, world: &World<C>) -> Vec<C::Key> {
        let mut keys = C::keys(&world.seen, &self.tools);
        let is_lost = |key: &C::Key| !self.queue.holds(key) && world.barrier.blocked(key).is_none();
        keys.retain(|key| C::decides_about(&self.tools, key) && is_lost(key));
        keys.sort_unstable();
        keys.dedup();
        keys
    }
}
