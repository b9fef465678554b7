//! Reads that end the silence of a watch, because a deadline is due.
//!
//! All keys that ask for the same kind share one list. A list without an answer, or with an answer
//! older than what the watch has shown, is repeated after a pause that doubles. Nothing is read
//! while nothing is due.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use machinist_core::{FreshRead, Freshness, Silence};
use machinist_kube::Cluster;
use tokio::time::{Instant, timeout};

use crate::contract::{Contract, QueueKey, Stop};
use crate::feed::{Fed, read_kind};
use crate::runtime::Runtime;
use crate::world::World;

/// The longest time that a read may take.
const ANSWERED_WITHIN: Duration = Duration::from_secs(20);
/// The time in which the end of a read is recorded.
const ENDS_WITHIN: Duration = Duration::from_secs(1);
/// The pause after the first read without an answer.
const FIRST_PAUSE: Duration = Duration::from_secs(5);
/// The longest pause between two reads.
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

/// The reads of a process, by kind.
#[derive(Debug)]
pub(crate) struct FreshReads<K>(BTreeMap<&'static str, Reading<K>>);

#[derive(Debug)]
struct Reading<K> {
    /// The keys that wait for fresh facts.
    waiting: BTreeSet<K>,
    /// When the read in flight began.
    began: Option<Instant>,
    failures: u32,
    /// No read begins earlier.
    next: Option<Instant>,
}

impl<K> Default for FreshReads<K> {
    fn default() -> Self {
        Self(BTreeMap::new())
    }
}

impl<K> Default for Reading<K> {
    fn default() -> Self {
        Self { waiting: BTreeSet::new(), began: None, failures: 0, next: None }
    }
}

impl<K: QueueKey> FreshReads<K> {
    /// Lets a key wait for a kind. Returns whether a read of the kind begins.
    fn begin(&mut self, resource: &'static str, key: K) -> bool {
        let may_begin = matches!(self.state(resource), State::Possible);
        let reading = self.0.entry(resource).or_default();
        reading.waiting.insert(key);
        if may_begin {
            reading.began = Some(Instant::now());
        }
        may_begin
    }

    /// Ends the read in flight without a fresh answer, and returns the keys that look again.
    fn fail(&mut self, resource: &'static str) -> BTreeSet<K> {
        let reading = self.0.entry(resource).or_default();
        let pause = FIRST_PAUSE.saturating_mul(2_u32.saturating_pow(reading.failures)).min(LONGEST_PAUSE);
        reading.failures = reading.failures.saturating_add(1);
        reading.began = None;
        reading.next = Some(Instant::now() + pause);
        reading.waiting.clone()
    }

    /// The kind is fresh again: returns the keys that waited for it.
    pub(crate) fn heard(&mut self, resource: &'static str) -> BTreeSet<K> {
        self.0.remove(resource).map(|reading| reading.waiting).unwrap_or_default()
    }

    /// The API server answers again: the next read may begin at once. Returns the waiting keys.
    pub(crate) fn answered(&mut self, resource: &'static str) -> BTreeSet<K> {
        let Some(reading) = self.0.get_mut(resource) else { return BTreeSet::new() };
        reading.next = None;
        reading.waiting.clone()
    }

    fn state(&self, resource: &'static str) -> State {
        let Some(reading) = self.0.get(resource) else { return State::Possible };
        let is_ahead = |at: &Instant| Instant::now() < *at;
        // A read that has not ended by then never will: its task panicked.
        let ends = reading.began.map(|began| began + ANSWERED_WITHIN + ENDS_WITHIN);
        match (ends.filter(is_ahead), reading.next.filter(is_ahead)) {
            (Some(ends), _) => State::InFlight(ends),
            (None, Some(next)) => State::Failed(next),
            (None, None) => State::Possible,
        }
    }
}

/// A [`FreshRead`] on the monotonic clock.
enum State {
    Possible,
    InFlight(Instant),
    Failed(Instant),
}

impl<C: Contract> Runtime<C> {
    /// How recently the watch of a kind delivered something.
    pub fn freshness<F: Fed<C>>(&self, world: &World<C>) -> Freshness {
        let store = F::store(&world.seen);
        if store.is_fresh() {
            return Freshness::Fresh;
        }
        let since = store.heard_at().map_or_else(|| self.now(), |heard| self.past(heard));
        let read = match world.fresh_reads.state(F::RESOURCE) {
            State::Possible => FreshRead::Possible,
            State::InFlight(until) => FreshRead::InFlight(self.wall(until)),
            State::Failed(until) => FreshRead::Failed(self.wall(until)),
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

/// The name of an API server for users.
pub(crate) fn server(cluster: &Cluster) -> String {
    format!("the API server of the {cluster} cluster")
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use machinist_kube::barrier::{Expect, Settled, WriteKind};
    use machinist_kube::store::FRESH_FOR;
    use machinist_kube::{Delta, ObjectKey};
    use serde_json::json;
    use tokio::time::advance;

    use super::*;
    use crate::feed::take_in;
    use crate::test_contract::{Host, TestContract, item, relist, runtime};
    use crate::test_key::TestKey;

    #[tokio::test(start_paused = true)]
    async fn keys_share_a_read_and_pauses_grow() {
        let mut reads = FreshReads::default();
        assert!(reads.begin("nodes", TestKey("a")));
        assert!(!reads.begin("nodes", TestKey("b")), "one read is in flight");
        assert!(reads.begin("pods", TestKey("a")), "kinds are independent");
        let mut pauses = Vec::new();
        for _ in 0..6 {
            assert_eq!(reads.fail("nodes"), [TestKey("a"), TestKey("b")].into());
            let State::Failed(next) = reads.state("nodes") else { panic!("a pause") };
            assert!(!reads.begin("nodes", TestKey("a")));
            pauses.push(next.duration_since(Instant::now()).as_secs());
            tokio::time::sleep_until(next).await;
            assert!(reads.begin("nodes", TestKey("a")));
        }
        assert_eq!(pauses, [5, 10, 20, 40, 60, 60]);
        reads.fail("nodes");
        assert_eq!(reads.answered("nodes"), [TestKey("a"), TestKey("b")].into());
        assert!(reads.begin("nodes", TestKey("a")), "the server answers again");
        assert_eq!(reads.heard("nodes"), [TestKey("a"), TestKey("b")].into());
        assert!(reads.heard("nodes").is_empty());
    }

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
            assert!(world.barrier.settle(charge, committed).is_empty());
        }
        advance(FRESH_FOR + ENDS_WITHIN).await;
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
        assert!(matches!(lists(1000).await, (false, State::Failed(_))));
        advance(FIRST_PAUSE).await;
        assert!(matches!(lists(1005).await, (true, State::Possible)));
    }
}
