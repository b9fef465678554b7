//! Feeds: store the events of watches in the world, and wake the affected keys.
//!
//! A feed wakes the keys that decide from the changed object. Waking too many keys costs
//! microseconds. Waking too few costs a resync period.

use std::marker::PhantomData;
use std::sync::Arc;

use futures::future::BoxFuture;
use jiff::Timestamp;
use kube::api::ListParams;
use kube::{Api, Resource};
use machinist_core::{GAP_AFTER, Succession};
use machinist_kube::barrier::{Expect, Settled};
use machinist_kube::watch::{WatchOptions, run_watch};
use machinist_kube::{Change, Cluster, Delta, Entry, ObjectKey, Store, list_once};
use tokio::time::Instant;

use crate::contract::Contract;
use crate::runtime::Runtime;
use crate::settle::{Question, ask_api};
use crate::watch_log;

/// A watched kind: how its objects are parsed, where they are stored, and which keys decide from
/// them.
pub trait Fed<C: Contract>: Send + Sync + Sized + 'static {
    /// The API type of the object.
    type Object: Resource<DynamicType = ()>
        + Clone
        + std::fmt::Debug
        + serde::Serialize
        + serde::de::DeserializeOwned
        + Send
        + Sync
        + 'static;
    /// The plural name of the kind, which names its store in barriers and metrics.
    const RESOURCE: &'static str;
    /// Whether deadlines leave out a long silence of this watch: they end a state that the watch
    /// shows.
    const HAS_DEADLINES: bool = false;

    /// The cluster that has the objects.
    fn cluster() -> Cluster {
        Cluster::Control
    }
    /// The client for the objects of a namespace, or for all objects of a cluster-scoped kind.
    fn api(runtime: &Runtime<C>, namespace: &str) -> Api<Self::Object>;
    /// The watched objects: their client and selectors.
    fn watched(runtime: &Runtime<C>) -> (Api<Self::Object>, WatchOptions) {
        (Self::api(runtime, &runtime.options.namespace), WatchOptions::default())
    }
    /// Parses an object.
    fn parse(object: &Self::Object) -> Self;
    /// Returns the store of the kind.
    fn store(seen: &C::Seen) -> &Store<Self>;
    /// Returns the store of the kind for changes.
    fn store_mut(seen: &mut C::Seen) -> &mut Store<Self>;
    /// Adds the keys that decide from the changed object.
    fn route(seen: &C::Seen, change: &Change<Self>, wake: &mut Vec<C::Key>);
    /// Stores facts that the object itself does not contain, such as the time of its last change.
    fn learn(_: &mut C::Seen, _: &Change<Self>, _: Succession, _now: Timestamp) {}
    /// Reports a change that concerns no later decision, because the object is gone. Called before
    /// [`Fed::forget`], while this process may act, and under the world's lock.
    fn report(_: &Runtime<C>, _: &C::Seen, _: &Change<Self>) {}
    /// Forgets the learned facts of a deleted object.
    fn forget(_: &mut C::Seen, _uid: &str) {}
}

/// The part of an `impl Fed` that is the same for each watched kind: its API type, its plural name,
/// its store, and its client. `namespaced` and `all` say whether the objects have a namespace, and
/// `control` and `target` which cluster has them.
///
/// ```text
/// impl Fed<Mcm> for MachineFacts {
///     stored! { Mcm; machines: Machine as "machines", namespaced in control }
///     fn route(..) { .. }
/// }
/// ```
#[macro_export]
macro_rules! stored {
    ($contract:ty; $store:ident: $object:ty as $resource:literal, namespaced in $cluster:ident) => {
        $crate::stored! { @rest $contract; $store: $object as $resource, $cluster }

        fn api(runtime: &$crate::Runtime<$contract>, namespace: &str) -> ::kube::Api<$object> {
            ::kube::Api::namespaced(runtime.clients.$cluster.clone(), namespace)
        }
    };
    ($contract:ty; $store:ident: $object:ty as $resource:literal, all in $cluster:ident) => {
        $crate::stored! { @rest $contract; $store: $object as $resource, $cluster }

        fn api(runtime: &$crate::Runtime<$contract>, _: &str) -> ::kube::Api<$object> {
            ::kube::Api::all(runtime.clients.$cluster.clone())
        }
    };
    (@rest $contract:ty; $store:ident: $object:ty as $resource:literal, $cluster:ident) => {
        type Object = $object;
        const RESOURCE: &'static str = $resource;

        fn cluster() -> $crate::Cluster {
            $crate::stored!(@cluster $cluster)
        }
        fn parse(object: &$object) -> Self {
            Self::parse(object)
        }
        fn store(
            seen: &<$contract as $crate::Contract>::Seen,
        ) -> &::machinist_kube::Store<Self> {
            &seen.$store
        }
        fn store_mut(
            seen: &mut <$contract as $crate::Contract>::Seen,
        ) -> &mut ::machinist_kube::Store<Self> {
            &mut seen.$store
        }
    };
    (@cluster control) => { $crate::Cluster::Control };
    (@cluster target) => { $crate::Cluster::Target };
}

/// A watched kind of any type: an entry of [`Contract::feeds`].
pub trait Feed<C: Contract>: Send + Sync {
    /// The plural name of the kind.
    fn resource(&self) -> &'static str;
    /// The number of stored objects.
    fn len(&self, seen: &C::Seen) -> usize;
    /// Whether the store was filled by at least one list.
    fn is_synced(&self, seen: &C::Seen) -> bool;
    /// Whether the object exists but cannot be parsed.
    fn is_unreadable(&self, seen: &C::Seen, key: &ObjectKey) -> bool;
    /// The cluster that has the objects; absent if the feed reads no cluster.
    fn cluster(&self) -> Option<Cluster> {
        None
    }
    /// Whether deadlines leave out a long silence of this watch.
    fn has_deadlines(&self) -> bool {
        false
    }
    /// Whether the watch delivered something within two minutes.
    fn is_fresh(&self, _seen: &C::Seen) -> bool {
        true
    }
    /// When the watch last delivered something.
    fn heard_at(&self, _seen: &C::Seen) -> Option<Instant> {
        None
    }
    /// From now on, the kind is not fresh until its watch delivers something.
    fn doubt(&self, _seen: &mut C::Seen) {}
    /// Watches the kind until an error that the watch cannot recover from.
    fn watch(&self, runtime: Arc<Runtime<C>>) -> BoxFuture<'static, ()>;
    /// Lists the kind once.
    fn read_once<'a>(&'a self, runtime: &'a Runtime<C>) -> BoxFuture<'a, Result<(), kube::Error>>;
    /// Reads the outcome of a write from the API server.
    fn ask_about<'a>(
        &'a self,
        runtime: &'a Runtime<C>,
        expect: &'a Expect,
        question: Question,
    ) -> BoxFuture<'a, Option<Settled>>;
}

/// Creates the feed of a kind.
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

    fn cluster(&self) -> Option<Cluster> {
        Some(F::cluster())
    }

    fn has_deadlines(&self) -> bool {
        F::HAS_DEADLINES
    }

    fn is_fresh(&self, seen: &C::Seen) -> bool {
        F::store(seen).is_fresh()
    }

    fn heard_at(&self, seen: &C::Seen) -> Option<Instant> {
        F::store(seen).heard_at()
    }

    fn doubt(&self, seen: &mut C::Seen) {
        F::store_mut(seen).doubt();
    }

    fn watch(&self, runtime: Arc<Runtime<C>>) -> BoxFuture<'static, ()> {
        Box::pin(async move {
            let (api, mut options) = F::watched(&runtime);
            let log = watch_log::of::<F::Object>(F::RESOURCE);
            let noted = runtime.clone();
            options.observer.get_or_insert_with(|| {
                Arc::new(move |note| {
                    noted.note_watch(F::RESOURCE, &note);
                    log(note);
                })
            });
            options.clock.get_or_insert_with(|| runtime.options.clock.clone());
            options.relist = Some(F::store(&runtime.world.lock().seen).relist_signal());
            let sink = |delta: Delta<F>| take_in(&runtime, delta);
            let fatal = run_watch(api, options, |object: F::Object| F::parse(&object), sink).await;
            tracing::error!(
                kind = F::RESOURCE,
                error = %fatal,
                cause = %fatal.source,
                "A watch failed permanently"
            );
        })
    }

    fn read_once<'a>(&'a self, runtime: &'a Runtime<C>) -> BoxFuture<'a, Result<(), kube::Error>> {
        Box::pin(read_kind::<C, F>(runtime))
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

/// Lists a kind once. The store drops the list if the watch has overtaken it.
pub(crate) async fn read_kind<C: Contract, F: Fed<C>>(runtime: &Runtime<C>) -> Result<(), kube::Error> {
    let (api, options) = F::watched(runtime);
    let WatchOptions { field_selector, label_selector, .. } = options;
    let params = ListParams { field_selector, label_selector, ..ListParams::default() };
    // The list is parsed item by item, because an invalid object must not hide the others.
    let list = list_once(api, &params, |object: F::Object| F::parse(&object)).await?;
    take_in::<C, F>(runtime, Delta::ListedOnce(list));
    Ok(())
}

/// Applies a delta to the store, closes the writes that it shows, and wakes the keys that decide
/// from it.
pub fn take_in<C: Contract, F: Fed<C>>(runtime: &Runtime<C>, delta: Delta<F>) {
    let mut wake = Vec::new();
    // Only a watch shows every version. A list or a read may skip versions.
    let version = if matches!(delta, Delta::Upsert(..)) { Succession::Next } else { Succession::Later };
    {
        let mut world = runtime.world.lock();
        let world = &mut *world;
        let was_synced = F::store(&world.seen).synced();
        let (was_fresh, heard_before) = (F::store(&world.seen).is_fresh(), F::store(&world.seen).heard_at());
        let changes = F::store_mut(&mut world.seen).apply(delta);
        let observed = F::store(&world.seen).observed_rv();
        wake.extend(world.barrier.observe(F::cluster(), F::RESOURCE, observed, &changes));
        for change in &changes {
            F::route(&world.seen, change, &mut wake);
            F::learn(&mut world.seen, change, version, runtime.now());
            if runtime.may_report() {
                F::report(runtime, &world.seen, change);
            }
            if change.new.is_none() {
                F::forget(&mut world.seen, &change.uid);
            }
        }
        if !was_fresh && F::store(&world.seen).is_fresh() {
            wake.extend(world.fresh_reads.heard(F::RESOURCE));
            let silent_since = heard_before.filter(|heard| F::HAS_DEADLINES && GAP_AFTER < heard.elapsed());
            if let Some(since) = silent_since {
                runtime.gaps.add(runtime.past(since), runtime.now());
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

/// Reads one object from the API server and stores it. Used if a watch does not show a write in
/// time.
///
/// # Errors
/// If the request fails.
pub async fn refresh<C: Contract, F: Fed<C>>(
    runtime: &Runtime<C>,
    key: &ObjectKey,
) -> Result<Option<Entry<F>>, kube::Error> {
    // The UID is read before the request. When the answer arrives, the watch may have shown a new
    // object of that name, which is not absent.
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

/// Converts an object to an entry of the store.
pub fn entry_of<C: Contract, F: Fed<C>>(object: &F::Object) -> Entry<F> {
    let metadata = object.meta();
    Entry {
        uid: metadata.uid.clone().unwrap_or_default(),
        resource_version: resource_version(metadata.resource_version.as_deref()),
        deleting: metadata.deletion_timestamp.is_some(),
        facts: Arc::new(F::parse(object)),
    }
}

/// Parses a resourceVersion; 0 if it is not a number.
pub(crate) fn resource_version(text: Option<&str>) -> u64 {
    text.and_then(|text| text.parse().ok()).unwrap_or_default()
}
