//! The safety sweep: once a minute, it wakes each key that neither the queue nor the barrier has.
//!
//! The key of every object is in the queue, due at the resync at the latest, or the barrier awaits
//! a write for it. If a bug loses a key, possibly no event wakes it again. The sweep checks only
//! keys and reads no objects.
//!
//! A pass takes a key off the queue if there is nothing to decide about its object, for example
//! because another class lists the same account. The key is not lost. The sweep also wakes it,
//! because that can change without an event, but reports nothing.

use std::sync::Arc;
use std::time::Duration;

use machinist_kube::{Barrier, KeyQueue};

use crate::contract::Contract;
use crate::key::QueueKey;
use crate::kinds::ContractKey as _;
use crate::runtime::Runtime;

/// The time between two sweeps.
const SWEEP_EVERY: Duration = Duration::from_secs(60);

impl<C: Contract> Runtime<C> {
    /// Wakes lost keys and closes unused accounts, in an endless loop.
    pub(crate) async fn sweep(self: Arc<Self>) {
        loop {
            tokio::time::sleep(SWEEP_EVERY).await;
            self.accounts.close_unused();
            self.activity.swept();
            if self.started().is_none() {
                continue;
            }
            let (dropped, lost) = {
                let mut world = self.world.lock();
                let mut keys = C::Key::all(&world.seen, &self.tools);
                // The last list wakes the keys that wait for it.
                keys.retain(|key| key.is_decided(&self.tools) && self.is_synced_for(&world.seen, key));
                let dropped = std::mem::take(&mut world.passes.dropped);
                let missing = missing_keys(keys, &self.queue, &world.barrier).into_iter();
                let (dropped, lost): (Vec<_>, Vec<_>) = missing.partition(|key| dropped.contains(key));
                world.passes.keys_found += u64::try_from(lost.len()).unwrap_or(u64::MAX);
                (dropped, lost)
            };
            dropped.into_iter().for_each(|key| self.wake(key));
            for key in lost {
                tracing::warn!(%key, "Internal error (please report it): the queue lost this key; waking it");
                self.wake(key);
            }
        }
    }
}

/// The keys that nothing will wake.
fn missing_keys<K: QueueKey>(mut keys: Vec<K>, queue: &KeyQueue<K>, barrier: &Barrier<K>) -> Vec<K> {
    keys.retain(|key| !queue.holds(key) && barrier.blocked(key).is_none());
    keys.sort_unstable();
    keys.dedup();
    keys
}

#[cfg(test)]
mod tests {
    use std::fmt;

    use super::*;

    #[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
    struct Key(&'static str);

    impl fmt::Display for Key {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str(self.0)
        }
    }

    impl QueueKey for Key {
        fn kind(&self) -> &'static str {
            "letter"
        }
        fn named(_: &str, _: &str, _: &str) -> Option<Self> {
            None
        }
    }

    #[tokio::test(start_paused = true)]
    async fn the_sweep_finds_a_missing_key() {
        let (queue, barrier) = (KeyQueue::new(Key::min_interval, 1), Barrier::new());
        let keys = || vec![Key("lost"), Key("kept"), Key("lost")];
        queue.wake(Key("kept"));
        assert_eq!(missing_keys(keys(), &queue, &barrier), [Key("lost")]);
        queue.wake(Key("lost"));
        assert_eq!(missing_keys(keys(), &queue, &barrier), []);
    }
}
