//! From watches into the world, and from what changed to the keys that must look again.
//!
//! One rule decides which keys are woken: those that decide from the changed object. Waking too many costs microseconds, waking
//! too few costs a resync period.

use std::marker::PhantomData;
use std::sync::Arc;

use futures::future::BoxFuture;
use jiff::Timestamp;
use kube::api::ListParams;
use kube::{Api, Resource};
use machinist_core::Version;
use machinist_kube::barrier::{Expect, Settled};
use machinist_kube::watch::{WatchOptions, run_watch};
use machinist_kube::{Change, Cluster, Delta, Entry, ObjectKey, Store, list_once};

use crate::contract::Contract;
use crate::runtime::Runtime;
use crate::settle::{Question, ask_api};

/// A kind of object that a process watches: how it becomes facts, where these are kept, and which keys decide from them.
pub trait Fed<C: Contract>: Send + Sync + Sized + 'static {
    /// The object on the wire.
    type Object: Resource<DynamicType = ()>
        + Clone
        + std::fmt::Debug
        + serde::Serialize
        + serde::de::DeserializeOwned
        + Send
        + Sync
        + 'static;
    /// The plural name: the store's name in barriers and metrics.
    const RESOURCE: &'static str;

    /// Where the objects live.
    fn cluster() -> Cluster {
        Cluster::Control
    }
    /// The objects of a namespace; all of them where the kind has none.
    fn api(runtime: &Runtime<C>, namespace: &str) -> Api<Self::Object>;
    /// The objects that are watched.
    fn watched(runtime: &Runtime<C>) -> (Api<Self::Object>, WatchOptions) {
        (Self::api(runtime, &runtime.options.namespace), WatchOptions::default())
    }
    /// Reads an object.
    fn parse(object: &Self::Object) -> Self;
    /// The store of the kind.
    fn store(seen: &C::Seen) -> &Store<Self>;
    /// The store of the kind.
    fn store_mut(seen: &mut C::Seen) -> &mut Store<Self>;
    /// Adds the keys that decide from a change.
    fn route(seen: &C::Seen, change: &Change<Self>, wake: &mut Vec<C::Key>);
    /// Remembers what an object does not say about itself: since when it has been as it is.
    fn learn(_: &mut C::Seen, _: &Change<Self>, _: Version, _now: Timestamp) {}
    /// Forgets what was learned about an object that is gone.
    fn forget(_: &mut C::Seen, _uid: &str) {}
}

/// A watched kind, whatever its type: an entry of [`Contract::feeds`].
pub trait Feed<C: Contract>: Send + Sync {
    /// The plural name.
    fn resource(&self) -> &'static str;
    /// How many objects are stored.
    fn len(&self, seen: &C::Seen) -> usize;
    /// Whether the kind was listed at least once.
    fn is_synced(&self, seen: &C::Seen) -> bool;
    /// Whether an object exists in a form that cannot be read.
    fn is_unreadable(&self, seen: &C::Seen, key: &ObjectKey) -> bool;
    /// Watches for ever.
    fn watch(&self, runtime: Arc<Runtime<C>>) -> BoxFuture<'static, ()>;
    /// Lists once.
    fn read_once<'a>(&'a self, runtime: &'a Runtime<C>) -> BoxFuture<'a, Result<(), kube::Error>>;
    /// Asks the API server what became of a write.
    fn ask_about<'a>(
        &'a self,
        runtime: &'a Runtime<C>,
        expect: &'a Expect,
        question: Question,
    ) -> BoxFuture<'a, Option<Settled>>;
}

/// The feed of a kind.
pub fn feed<C: Contract, F: Fed<C>>() -> Box<dyn Feed<C>> {
    Box::new(Of::<F>(PhantomData))
}

struct Of<F>(PhantomData<fn() -> F>);

impl<C: Contract, F: Fed<C>> Feed<C> for Of<F> {
    fn resource(&self) -> &'static str {
        F::RESOURCE
    }

    fn len(&self, seen: &C::Seen) -> usize {
        F::store(seen).len()
    }

    fn is_synced(&self, seen: &C::Seen) -> bool {
        F::store(seen).synced()
    }

    fn is_unreadable(&self, seen: &C::Seen, key: &ObjectKey) -> bool {
        F::store(seen).is_unreadable(key)
    }

    fn watch(&self, runtime: Arc<Runtime<C>>) -> BoxFuture<'static, ()> {
        Box::pin(async move {
            let (api, options) = F::watched(&runtime);
            let sink = |delta: Delta<F>| take_in(&runtime, delta);
            let fatal = run_watch(api, options, |object: F::Object| F::parse(&object), sink).await;
            tracing::error!(kind = F::RESOURCE, error = %fatal, cause = %fatal.source, "A watch cannot go on");
        })
    }

    fn read_once<'a>(&'a self, runtime: &'a Runtime<C>) -> BoxFuture<'a, Result<(), kube::Error>> {
        Box::pin(async move {
            let (api, options) = F::watched(runtime);
            let WatchOptions { field_selector, label_selector, .. } = options;
            let params = ListParams { field_selector, label_selector, ..ListParams::default() };
            // Item by item: an object that cannot be read must not hide the rest.
            let relist = list_once(api, &params, |object: F::Object| F::parse(&object)).await?;
            take_in::<C, F>(runtime, Delta::Relist(relist));
            Ok(())
        })
    }

    fn ask_about<'a>(
        &'a self,
        runtime: &'a Runtime<C>,
        expect: &'a Expect,
        question: Question,
    ) -> BoxFuture<'a, Option<Settled>> {
        Box::pin(ask_api::<C, F>(runtime, expect, question))
    }
}

/// Takes in what was seen, closes the writes that it shows, and wakes the keys that decide from it.
pub fn take_in<C: Contract, F: Fed<C>>(runtime: &Runtime<C>, delta: Delta<F>) {
    let mut wake = Vec::new();
    // Only the watch shows one version after the other; a list or a read shows what has come of them.
    let version = if matches!(delta, Delta::Upsert(..)) { Version::Next } else { Version::Later };
    {
        let mut world = runtime.world.lock();
        let world = &mut *world;
        let was_synced = F::store(&world.seen).synced();
        let changes = F::store_mut(&mut world.seen).apply(delta);
        let observed = F::store(&world.seen).observed_rv();
        wake.extend(world.barrier.observe(F::cluster(), F::RESOURCE, observed, &changes));
        for change in &changes {
            F::route(&world.seen, change, &mut wake);
            F::learn(&mut world.seen, change, version, runtime.now());
            if change.new.is_none() {
                F::forget(&mut world.seen, &change.uid);
            }
        }
        if !was_synced && F::store(&world.seen).synced() {
            runtime.note_synced(world);
        }
    }
    for key in wake {
        runtime.wake(key);
    }
}

/// Reads one object from the API server itself and takes it in, when a watch has not shown a write in time.
///
/// # Errors
/// When the API server does not answer.
pub async fn refresh<C: Contract, F: Fed<C>>(
    runtime: &Runtime<C>,
    key: &ObjectKey,
) -> Result<Option<Entry<F>>, kube::Error> {
    // Read before the request is sent: when the answer comes, the watch may have shown another object of that name, and that one is
    // not absent.
    let known = F::store(&runtime.world.lock().seen).get(key).map(|entry| entry.uid.clone());
    let api = F::api(runtime, &key.namespace);
    let Some(object) = api.get_opt(&key.name).await? else {
        if let Some(uid) = known {
            take_in::<C, F>(runtime, Delta::Absent { key: key.clone(), uid });
        }
        return Ok(None);
    };
    let entry = entry_of::<C, F>(&object);
    take_in::<C, F>(runtime, Delta::Fetched(key.clone(), entry.clone()));
    Ok(Some(entry))
}

/// An object as the store keeps it.
pub fn entry_of<C: Contract, F: Fed<C>>(object: &F::Object) -> Entry<F> {
    let metadata = object.meta();
    Entry {
        uid: metadata.uid.clone().unwrap_or_default(),
        resource_version: resource_version(metadata.resource_version.as_deref()),
        deleting: metadata.deletion_timestamp.is_some(),
        facts: Arc::new(F::parse(object)),
    }
}

/// A resourceVersion as a number; 0 for what is none.
pub(crate) fn resource_version(text: Option<&str>) -> u64 {
    text.and_then(|text| text.parse().ok()).unwrap_or_default()
}
