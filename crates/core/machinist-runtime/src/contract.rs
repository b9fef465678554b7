//! What a contract tells the runtime.

use std::fmt::{Debug, Display};
use std::future::Future;
use std::hash::Hash;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use k8s_openapi::api::core::v1::ObjectReference;
use machinist_core::{ContractReason, Plan, Why};

use crate::feed::Feed;
use crate::passes::{Count, WhyRecord};
use crate::runtime::Runtime;
use crate::world::World;

/// A set of kinds that one process serves: the machine API, a cloud controller manager, a Cluster API provider.
pub trait Contract: Sized + Send + Sync + 'static {
    /// What a worker looks at. Keys of all kinds share one queue.
    type Key: QueueKey;
    /// The contract's stores, and what it remembers beside them.
    type Seen: Default + Send + 'static;
    /// What its kinds need beyond the runtime's options: providers, planners, defaults.
    type Tools: Send + Sync + 'static;
    /// What its objects wait for, beyond what every object may wait for.
    type Reason: ContractReason;

    /// The kinds that are watched. The only list of kinds: readiness, settling of writes without an answer, `why` and metrics are
    /// derived from it.
    fn feeds(tools: &Self::Tools) -> Vec<Box<dyn Feed<Self>>>;

    /// Every key there is. They are looked at when the stores are complete, and the safety sweep compares them with the queue.
    fn keys(seen: &Self::Seen, tools: &Self::Tools) -> Vec<Self::Key>;

    /// Whether this process decides about the key; others are not queued.
    fn decides_about(_tools: &Self::Tools, _key: &Self::Key) -> bool {
        true
    }

    /// Looks at one key, with [`crate::pass`] of its kind.
    fn pass<'a>(runtime: &'a Arc<Runtime<Self>>, key: &'a Self::Key) -> BoxFuture<'a, ()>;

    /// Forgets every moment that was remembered, after a step of the wall clock, which shows `now`.
    fn forget_moments(seen: &mut Self::Seen, now: jiff::Timestamp);

    /// Gauges of what the contract remembers beside its stores, by name.
    fn gauges(_seen: &Self::Seen) -> Vec<(&'static str, usize)> {
        Vec::new()
    }

    /// The key that `/why/<kind>/<name>` names.
    fn key_named(kind: &str, namespace: &str, name: &str) -> Option<Self::Key>;

    /// What a key is told to wait for, where another key's decision says more about it.
    fn why<'w>(
        _world: &'w World<Self>,
        _key: &Self::Key,
        record: &'w WhyRecord<Self::Reason>,
        _now: jiff::Timestamp,
    ) -> &'w Why<Self::Reason> {
        &record.why
    }
}

/// One thing that is decided about.
pub trait QueueKey: Clone + Ord + Debug + Display + Send + Sync + 'static {
    /// The kind, as metrics and `why` name it.
    fn kind(&self) -> &'static str;

    /// How often the key is looked at, at most. Keys that count many objects collect what happens to them first.
    fn min_interval(&self) -> Duration {
        Duration::ZERO
    }
}

/// How one kind is observed, decided and acted on.
pub trait Kind<C: Contract>: 'static {
    /// What names one object of the kind.
    type Id: Send + Sync;
    /// The facts of one decision.
    ///
    /// Its hash tells whether two decisions were made from the same facts. It leaves out what changes without news, such as the moment.
    type Snapshot: Hash + Send + Sync;
    /// One call.
    type Action: Display + Send + Sync;

    /// Collects the facts. Called under the world's lock: no waiting, no calls.
    fn observe(runtime: &Runtime<C>, world: &World<C>, id: &Self::Id) -> Observed<Self::Snapshot>;

    /// Decides. Pure.
    fn plan(runtime: &Runtime<C>, snapshot: &Self::Snapshot) -> Plan<Self::Action, C::Reason>;

    /// Performs one action.
    fn act(
        runtime: &Arc<Runtime<C>>,
        snapshot: &Self::Snapshot,
        action: Self::Action,
    ) -> impl Future<Output = Result<(), Stop>> + Send;

    /// Whether this action takes something away for which other objects are counted: it lowers a number, deletes a child, gives one up.
    /// It waits until no write of a former leader that has died can take effect any more.
    fn takes_away(_action: &Self::Action) -> bool {
        false
    }

    /// Whether this action may be performed beside its neighbours of the same sort.
    fn is_independent(_action: &Self::Action) -> bool {
        false
    }

    /// How Events name the object; nothing where a key stands for several.
    fn reference(snapshot: &Self::Snapshot) -> Option<ObjectReference>;
}

/// What observing a key came to.
pub enum Observed<S> {
    /// The facts.
    Ready(S),
    /// Something is missing that will wake the key when it arrives.
    NotYet,
    /// There is no such object, or another key has become responsible for it.
    Gone,
}

/// Why a pass ended before its plan did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Stop {
    /// The view was stale; the store will show what changed.
    Stale,
    /// The API server refused, and will refuse again.
    Refused {
        /// The API server's words.
        message: String,
        /// Whether there was an Event already, in better words than can be found for any change.
        is_told: bool,
    },
    /// The API server did not answer, or asked for patience.
    Unanswered(String),
    /// A call may not be started now.
    NotNow(&'static str),
}

impl Stop {
    /// The API server refused, and there was no Event yet.
    pub fn refused(message: impl Into<String>) -> Self {
        Self::Refused { message: message.into(), is_told: false }
    }

    pub(crate) fn count(&self) -> Count {
        match self {
            Self::Stale => Count::Stale,
            Self::Refused { .. } => Count::Refused,
            Self::Unanswered(_) => Count::Unanswered,
            Self::NotNow(_) => Count::NotNow,
        }
    }
}
