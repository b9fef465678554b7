//! Reads that end the silence of a watch, because a deadline is due.
//!
//! All keys that ask for the same kind share one list. A list without an answer, or with an answer
//! older than what the watch has shown, is repeated after a pause that doubles. Nothing is read
//! while nothing is due.

use std::sync::Arc;

use machinist_core::{FreshRead, Freshness, Silence};
use tokio::time::timeout;

use crate::contract::{Contract, Stop};
use crate::feed::Fed;
use crate::runtime::Runtime;
use crate::silence::server;
use crate::take_in::read_kind;
use crate::world::{ANSWERED_WITHIN, ReadState, World};

impl<C: Contract> Runtime<C> {
    /// How recently the watch of a kind delivered something.
    pub fn freshness<F: Fed<C>>(&self, world: &World<C>) -> Freshness {
        let store = F::store(&world.seen);
        if store.is_fresh() {
            return Freshness::Fresh;
        }
        let since = store.heard_at().map_or_else(|| self.now(), |heard| self.past(heard));
        let read = match world.fresh_reads.state(F::RESOURCE) {
            ReadState::Possible => FreshRead::Possible,
            ReadState::InFlight(until) => FreshRead::InFlight(self.wall(until)),
            ReadState::Failed(until) => FreshRead::Failed(self.wall(until)),
        };
        Freshness::Stale(Silence { server: server(&F::cluster()), since, read })
    }

    /// Checks that the watch of a kind is not silent, before a call creates something: the store
    /// may show an object that was deleted. Otherwise lists the kind, which wakes the key.
    ///
    /// # Errors
    /// [`Stop::NotNow`] with `silence`, which names the kind.
    pub fn require_fresh<F: Fed<C>>(
        self: &Arc<Self>,
        key: &C::Key,
        silence: &'static str,
    ) -> Result<(), Stop> {
        if F::store(&self.world.lock().seen).is_fresh() {
            return Ok(());
        }
        self.read_soon::<F>(key);
        Err(Stop::NotNow(silence))
    }

    /// Lists a kind once, in a task. Wakes the key when the kind is fresh, and after a failure.
    pub fn read_soon<F: Fed<C>>(self: &Arc<Self>, key: &C::Key) {
        if !self.world.lock().fresh_reads.begin(F::RESOURCE, key.clone()) {
            return;
        }
        let runtime = self.clone();
        self.spawn(async move {
            let error = match timeout(ANSWERED_WITHIN, read_kind::<C, F>(&runtime)).await {
                Ok(Ok(())) => {
                    let waiting = {
                        let mut world = runtime.world.lock();
                        let is_fresh = F::store(&world.seen).is_fresh();
                        is_fresh.then(|| world.fresh_reads.heard(F::RESOURCE))
                    };
                    if let Some(waiting) = waiting {
                        return waiting.into_iter().for_each(|key| runtime.wake(key));
                    }
                    "the list is older than what the watch has shown".to_owned()
                }
                Ok(Err(error)) => error.to_string(),
                Err(_) => format!("no answer within {ANSWERED_WITHIN:?}"),
            };
            let kind = F::RESOURCE;
            tracing::warn!(
                kind,
                error,
                "A deadline is due, and the API server gives no fresh answer; trying again"
            );
            let waiting = runtime.world.lock().fresh_reads.fail(F::RESOURCE);
            waiting.into_iter().for_each(|key| runtime.wake(key));
        });
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::time::Duration;

    use machinist_kube::barrier::{Expect, Settled, WriteKind};
    use machinist_kube::store::FRESH_FOR;
    use machinist_kube::{Cluster, Delta, ObjectKey};
    use serde_json::json;
    use tokio::time::advance;

    use super::*;
    use crate::take_in::take_in;
    use crate::test_contract::{Host, TestContract, item, relist, runtime};
    use crate::test_key::TestKey;

    const SECOND: Duration = Duration::from_secs(1);
    /// The pause after a failed read.
    const PAUSE: Duration = Duration::from_secs(5);

    /// The watch reports a new Node while the list is under way, and becomes silent.
    #[tokio::test(start_paused = true)]
    async fn a_list_that_the_watch_overtook_is_repeated() {
        let answer = Arc::new(AtomicU64::new(1000));
        let answered = answer.clone();
        let (runtime, _) = runtime(move || {
            let rv = answered.load(Ordering::Relaxed);
            let node = json!({"metadata": {"name": "a", "uid": "a", "resourceVersion": "1001"}});
            let items: Vec<_> = (1001 <= rv).then_some(node).into_iter().collect();
            json!({"metadata": {"resourceVersion": rv.to_string()}, "items": items})
        });
        let (key, entry) = item(ObjectKey::cluster_scoped("a"), 1001, Host);
        take_in::<TestContract, Host>(&runtime, relist(Vec::new(), 900));
        take_in::<TestContract, Host>(&runtime, Delta::Upsert(key.clone(), entry));
        let (waiting, charged) = (TestKey("waiting".to_owned()), TestKey("charged".to_owned()));
        {
            let mut world = runtime.lock();
            let expect = Expect {
                cluster: Cluster::Target,
                resource: Host::RESOURCE,
                key: key.clone(),
                uid: None,
                unchanged_since: None,
                kind: WriteKind::Update,
            };
            let charge = world.barrier.open(std::slice::from_ref(&charged), expect);
            let committed = Settled::Committed { uid: "a".to_owned(), resource_version: 1010 };
            assert!(world.barrier.record_outcome(charge, committed).is_empty());
        }
        advance(FRESH_FOR + SECOND).await;
        let lists = async |rv: u64| {
            answer.store(rv, Ordering::Relaxed);
            runtime.read_soon::<Host>(&waiting);
            assert_eq!(runtime.queue.next().await, waiting);
            runtime.queue.done(&waiting);
            let world = runtime.lock();
            assert!(world.seen.hosts.get(&key).is_some(), "the Node exists");
            assert!(world.is_charged(&charged), "no list shows the write yet");
            assert_eq!(world.seen.hosts.observed_rv(), 1001);
            (world.seen.hosts.is_fresh(), world.fresh_reads.state(Host::RESOURCE))
        };
        assert!(matches!(lists(1000).await, (false, ReadState::Failed(_))));
        advance(PAUSE).await;
        assert!(matches!(lists(1005).await, (true, ReadState::Possible)));
    }
}
