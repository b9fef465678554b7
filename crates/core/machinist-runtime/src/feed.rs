//! The watched kinds: the traits that a contract implements and lists.
//!
//! A feed wakes the keys that decide from the changed object. Waking too many keys costs
//! microseconds. Waking too few costs a resync period.

use std::sync::Arc;

use futures::future::BoxFuture;
use jiff::Timestamp;
use kube::{Api, Resource};
use machinist_core::Succession;
use machinist_kube::barrier::{Expect, Settled};
use machinist_kube::watch::WatchOptions;
use machinist_kube::{Change, Cluster, ObjectKey, Store};
use tokio::time::Instant;

use crate::contract::Contract;
use crate::runtime::Runtime;

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
    /// Whether only a few keys need the kind, see [`Contract::needs_deferred`]. Its watch begins
    /// after the other kinds have been listed, so that their lists do not compete with its own.
    const IS_DEFERRED: bool = false;

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
    /// Whether only a few keys need the kind.
    fn is_deferred(&self) -> bool {
        false
    }
    /// When the watch last delivered something.
    fn heard_at(&self, _seen: &C::Seen) -> Option<Instant> {
        None
    }
    /// The newest resourceVersion that the watch has shown; absent if the feed reads no cluster.
    fn version(&self, _seen: &C::Seen) -> Option<u64> {
        None
    }
    /// From now on, the kind is not fresh until its watch delivers something.
    fn doubt(&self, _seen: &mut C::Seen) {}
    /// Watches the kind until an error that the watch cannot recover from.
    fn watch(&self, runtime: Arc<Runtime<C>>) -> BoxFuture<'static, ()>;
    /// Lists the kind once.
    fn read_once<'a>(&'a self, runtime: &'a Runtime<C>) -> BoxFuture<'a, Result<(), kube::Error>>;
    /// Requests one object of the kind. Returns whether the API server answers, and is neither busy
    /// nor failing.
    fn is_answered<'a>(&'a self, _runtime: &'a Runtime<C>) -> BoxFuture<'a, bool> {
        Box::pin(std::future::ready(true))
    }
    /// Reads the outcome of a write from the API server.
    fn ask_about<'a>(
        &'a self,
        runtime: &'a Runtime<C>,
        expect: &'a Expect,
        question: Question,
    ) -> BoxFuture<'a, Option<Settled>>;
}

/// The reason for reading the outcome of a write.
#[derive(Clone, Copy)]
pub enum Question {
    /// The effect of the write is unknown.
    Unknown,
    /// The effect of the write is unknown, and the write may be repeated to learn it.
    UnknownAndRecent,
    /// The write took effect, but the watch has not shown it.
    Overdue,
}
