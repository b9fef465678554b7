//! The safety sweep: once a minute, each key that neither the queue nor the barrier holds is woken.
//!
//! Every object has a key in the queue, due at the resync at the latest, or a write of it is awaited. A key without either was
//! lost by a bug, and no event might ever bring it back. The sweep looks at keys only; it reads no object.

use std::sync::Arc;
use std::time::Duration;

use machinist_kube::KeyQueue;

use crate::reconcile::Shared;
use crate::world::World;
use crate::{Key, mcm};

/// Between two sweeps.
const SWEEP_EVERY: Duration = Duration::from_secs(60);

impl Shared {
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
                let lost = lost_keys(&world, &self.queue, |key| self.decides_about(key));
                world.memory.keys_found += u64::try_from(lost.len()).unwrap_or(u64::MAX);
                lost
            };
            for key in lost {
                tracing::warn!(%key, "The queue had lost this key");
                self.wake(key);
            }
        }
    }
}

fn lost_keys(world: &World, queue: &KeyQueue<Key>, decides_about: impl Fn(&Key) -> bool) -> Vec<Key> {
    let mut keys = mcm::all_keys(world);
    keys.retain(|key| decides_about(key) && !queue.holds(key) && world.barrier.blocked(key).is_none());
    keys.sort_unstable();
    keys.dedup();
    keys
}

#[cfg(test)]
mod tests {
    use machinist_kube::store::Relist;
    use machinist_kube::{Delta, Entry, ObjectKey};
    use machinist_plan::facts::MachineDeploymentFacts;
    use serde_json::json;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_key_that_the_queue_lost_is_found() {
        let mut world = World::new();
        let queue = KeyQueue::new(|_: &Key| Duration::ZERO, 1);
        let mut items = Vec::new();
        for name in ["kept", "lost"] {
            let object = json!({"metadata": {"name": name, "namespace": "ns", "uid": name}, "spec": {
                "selector": {}, "template": {},
            }});
            let object = serde_json::from_value(object).expect("a deployment");
            let facts = Arc::new(MachineDeploymentFacts::parse(&object));
            let entry = Entry { uid: name.to_owned(), resource_version: 1, deleting: false, facts };
            items.push((ObjectKey::new("ns", name), entry));
            queue.wake(Key::Deployment(ObjectKey::new("ns", name)));
        }
        world.deployments.apply(Delta::Relist(Relist { items, unreadable: Vec::new(), resource_version: 1 }));
        assert_eq!(lost_keys(&world, &queue, |_| true), []);
        let lost = Key::Deployment(ObjectKey::new("ns", "lost"));
        queue.remove(&lost);
        assert_eq!(lost_keys(&world, &queue, |_| true), [lost]);
        assert_eq!(lost_keys(&world, &queue, |_| false), []);
    }
}
