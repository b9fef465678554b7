//! The keys that wait for an API server that does not answer.

use std::collections::BTreeMap;
use std::time::Duration;

use machinist_kube::Cluster;
use tokio::time::Instant;

use crate::key::QueueKey;

/// Up to this number, all keys are woken at once.
const WOKEN_AT_ONCE: usize = 50;
/// If more keys wait, they are woken one after the other within this time.
const WOKEN_WITHIN: Duration = Duration::from_secs(2);

/// A key waits at least this long. A server may answer its version and fail everything else; then
/// each key tries again once in this time.
const WAITS_AT_LEAST: Duration = Duration::from_secs(4);

/// The keys that wait for an answer of a server, by cluster, and since when.
#[derive(Debug)]
pub(crate) struct Outages<K: QueueKey>(BTreeMap<Cluster, BTreeMap<K, Instant>>);

impl<K: QueueKey> Default for Outages<K> {
    fn default() -> Self {
        Self(BTreeMap::new())
    }
}

impl<K: QueueKey> Outages<K> {
    /// Adds a key that waits for a server. A server of a workload cluster is not asked: its keys
    /// wait for their own pauses.
    pub(crate) fn await_answer(&mut self, cluster: Cluster, key: K) {
        match cluster {
            Cluster::Control | Cluster::Target => {
                self.0.entry(cluster).or_default().entry(key).or_insert_with(Instant::now);
            }
            Cluster::Workload(_) => {}
        }
    }

    /// Whether a key has waited long enough for a server.
    pub(crate) fn is_awaited(&self, cluster: &Cluster) -> bool {
        self.0.get(cluster).is_some_and(|keys| keys.values().any(has_waited))
    }

    /// Takes the keys that wait for a server, each with the delay before it is woken.
    pub(crate) fn take(&mut self, cluster: &Cluster) -> Vec<(K, Duration)> {
        let (keys, others) =
            self.0.remove(cluster).unwrap_or_default().into_iter().partition(|(_, since)| has_waited(since));
        let keys: BTreeMap<K, Instant> = keys;
        self.0.insert(cluster.clone(), others);
        let step = match u32::try_from(keys.len()) {
            Ok(count) if WOKEN_AT_ONCE < keys.len() => WOKEN_WITHIN / count,
            Ok(_) | Err(_) => Duration::ZERO,
        };
        keys.into_keys()
            .scan(Duration::ZERO, |delay, key| Some((key, std::mem::replace(delay, *delay + step))))
            .collect()
    }
}

fn has_waited(since: &Instant) -> bool {
    WAITS_AT_LEAST <= since.elapsed()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_key::TestKey;

    #[tokio::test(start_paused = true)]
    async fn many_keys_are_woken_one_after_the_other() {
        let woken = async |count| {
            let mut outages = Outages::default();
            (0..count).for_each(|number| outages.await_answer(Cluster::Target, TestKey(number)));
            assert!(outages.take(&Cluster::Control).is_empty());
            assert!(!outages.is_awaited(&Cluster::Target), "the keys began to wait just now");
            tokio::time::advance(WAITS_AT_LEAST).await;
            let delays: Vec<_> = outages.take(&Cluster::Target).into_iter().map(|(_, delay)| delay).collect();
            assert!(!outages.is_awaited(&Cluster::Target));
            delays
        };
        assert_eq!(woken(3).await, [Duration::ZERO; 3]);
        let many = woken(1000).await;
        assert_eq!((many.len(), many[500]), (1000, Duration::from_secs(1)));
    }
}
