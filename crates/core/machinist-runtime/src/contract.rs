//! The interface between a contract and the runtime.

use std::fmt::Display;
use std::future::Future;
use std::hash::Hash;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::ObjectReference;
use machinist_core::{ContractReason, Plan, Why};
use machinist_driver::Check;
use machinist_kube::Cluster;
use machinist_serve::Metrics;

use crate::feed::Feed;
use crate::key::QueueKey as _;
use crate::kinds::{ContractKey, KindId};
use crate::measurement::Measurement;
use crate::passes::{Count, WhyRecord};
use crate::runtime::Runtime;
use crate::server_answers::ServerChecks;
use crate::world::World;

/// A set of kinds that one process serves, for example the machine API, a cloud controller manager
/// or a Cluster API provider.
pub trait Contract: Sized + Send + Sync + 'static {
    /// The queue key of a pass: the table of the contract's kinds. Keys of all kinds share one
    /// queue.
    type Key: ContractKey<Self>;
    /// The contract's stores and other memory.
    type Seen: Default + Send + 'static;
    /// Inputs of the contract's kinds beyond the runtime's options: providers, planners, defaults.
    type Tools: Send + Sync + 'static;
    /// The reasons that only objects of this contract have.
    type Reason: ContractReason;

    /// The watched kinds. This is the only list of them: readiness, the settling of unanswered
    /// writes, and metrics are derived from it.
    fn feeds(tools: &Self::Tools) -> Vec<Box<dyn Feed<Self>>>;

    /// Whether a decision about the key needs the deferred kinds, see [`Fed::IS_DEFERRED`]. The
    /// answer must depend only on kinds that are not deferred.
    ///
    /// [`Fed::IS_DEFERRED`]: crate::Fed::IS_DEFERRED
    fn needs_deferred(_seen: &Self::Seen, _key: &Self::Key) -> bool {
        true
    }

    /// Forgets all remembered times after a step of the wall clock. `now` is the new time.
    fn forget_moments(seen: &mut Self::Seen, now: jiff::Timestamp);

    /// The longest timeout after which this contract destroys something. Unseen time is remembered
    /// as far back.
    fn longest_timeout(_seen: &Self::Seen, _tools: &Self::Tools) -> Duration {
        Duration::from_secs(24 * 3600)
    }

    /// The kinds whose API servers are checked while the kinds are not fresh; `None` if the
    /// contract asks for no checks.
    fn server_checks(_tools: &Self::Tools) -> Option<ServerChecks> {
        None
    }

    /// Records the metrics of the contract's memory, in addition to its stores.
    fn measure(_seen: &Self::Seen, _now: jiff::Timestamp, _metrics: &Metrics) {}

    /// Records the metrics of single objects and of the queue. There may be thousands of objects,
    /// so the caller has no lock. A process that waits for its Lease calls it, too; its stores
    /// contain only the kinds that it watches.
    fn measure_state(_runtime: &Runtime<Self>, _metrics: &Metrics) {}

    /// Returns the queue of a key in the metrics of the queue: usually the kind of the key. Other
    /// programs of the same kind may have several queues for one kind.
    fn queue_of(_seen: &Self::Seen, key: &Self::Key) -> &'static str {
        key.kind()
    }

    /// Records a measured event in the metrics of this contract.
    fn note(_tools: &Self::Tools, _measurement: &Measurement<'_>, _metrics: &Metrics) {}

    /// Whether the objects show that a leader has acted on them before.
    fn shows_former_leader(_seen: &Self::Seen) -> bool {
        false
    }

    /// Returns the number of unanswered writes that may still take effect, although the process has
    /// read their objects meanwhile. While there are some, the next process must not lead at once.
    fn late_writes(_seen: &Self::Seen) -> usize {
        0
    }

    /// Returns why the process is not ready although its stores are complete. `/readyz` shows the
    /// text.
    fn unready(_seen: &Self::Seen, _tools: &Self::Tools) -> Option<String> {
        None
    }

    /// Returns what a user should know about a process that is ready. `/readyz` shows the text
    /// after `OK`.
    fn remark(_seen: &Self::Seen) -> Option<String> {
        None
    }
}

/// The observe, plan and act functions of one kind.
pub trait Kind<C: Contract>: 'static {
    /// The plural name of the watched kind whose objects `why` explains without a controller;
    /// `None` if it explains none.
    const EXPLAINS: Option<&'static str> = None;

    /// The identity of one object of the kind.
    type Id: KindId;
    /// The facts of one decision.
    ///
    /// Two snapshots with the same hash have the same facts. The hash must not include values that
    /// change without an event, such as the current time.
    type Snapshot: Hash + Send + Sync;
    /// One planned call.
    type Action: Display + Send + Sync;

    /// The identities of the stored objects. The runtime wakes them when the stores are complete.
    /// The safety sweep compares them with the queue.
    fn ids(seen: &C::Seen, tools: &C::Tools) -> Vec<Self::Id>;

    /// Whether this process decides about the kind. Its keys are not queued otherwise.
    fn is_decided(_tools: &C::Tools) -> bool {
        true
    }

    /// Whether a decision about the object does not wait for the target cluster: a user gives up
    /// what that cluster has. What its API server has not answered within 20 s is not waited for.
    fn goes_on_without_target(_seen: &C::Seen, _id: &Self::Id) -> bool {
        false
    }

    /// Whether decisions depend on the objects of that cluster.
    fn depends_on(_cluster: &Cluster) -> bool {
        true
    }

    /// Returns a check whether the cloud of the kind answers; `None` if it cannot be checked
    /// without cost. `why` shows the silence of the cloud first.
    fn check_cloud(_tools: &C::Tools) -> Option<Check> {
        None
    }

    /// Returns the reason to show for an object. It can be the reason of another key that explains
    /// more.
    fn why<'w>(
        _world: &'w World<C>,
        _id: &Self::Id,
        record: &'w WhyRecord<C::Reason>,
        _now: jiff::Timestamp,
    ) -> &'w Why<C::Reason> {
        &record.why
    }

    /// Collects the facts. The function runs under the world's lock, so it must not wait or make
    /// calls.
    fn observe(runtime: &Runtime<C>, world: &World<C>, id: &Self::Id) -> Observed<Self::Snapshot>;

    /// Decides, as a pure function of the snapshot and of the contract's options. The signature has
    /// no runtime, so a decision can neither read memory nor write it.
    fn plan(tools: &C::Tools, snapshot: &Self::Snapshot) -> Plan<Self::Action, C::Reason>;

    /// Stores what other keys read of a decision, and wakes those keys. The function decides
    /// nothing. `machinist why` without a controller does not call it.
    fn publish(_runtime: &Runtime<C>, _snapshot: &Self::Snapshot, _why: &Why<C::Reason>) {}

    /// Performs one action.
    fn act(
        runtime: &Arc<Runtime<C>>,
        snapshot: &Self::Snapshot,
        action: Self::Action,
    ) -> impl Future<Output = Result<(), Stop>> + Send;

    /// Whether this action must not overtake the last writes of a former leader: it lowers a
    /// replica number, deletes a child, or removes the finalizer of an owner. After a failover, it
    /// waits until those writes can no longer take effect.
    fn takes_away(_action: &Self::Action) -> bool {
        false
    }

    /// Whether independent actions like this one run in batches that double, until one is rejected.
    fn starts_slowly(_action: &Self::Action) -> bool {
        false
    }

    /// Whether this action may run concurrently with adjacent independent actions.
    fn is_independent(_action: &Self::Action) -> bool {
        false
    }

    /// Whether this process only reports the action, because it must change nothing (`--dry-run`).
    /// Each action is logged once, and stays among the planned actions of `why`.
    fn is_rehearsed(_runtime: &Runtime<C>, _action: &Self::Action) -> bool {
        false
    }

    /// The reference for Events; `None` if a key stands for several objects.
    fn reference(snapshot: &Self::Snapshot) -> Option<ObjectReference>;
}

/// The result of observing a key.
pub enum Observed<S> {
    /// The facts are complete.
    Ready(S),
    /// A fact is missing. Its arrival will wake the key.
    NotYet,
    /// The object does not exist, or another key is responsible for it.
    Gone,
}

/// The reason why a pass ended before its plan.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Stop {
    /// The facts were stale. The store will show the change.
    Stale,
    /// The API server rejected a write, and would reject it again.
    Refused {
        /// The message of the API server.
        message: String,
        /// Whether the contract has already emitted a more specific Event.
        is_told: bool,
    },
    /// The API server did not answer, or throttled the client. The text says why.
    Unanswered(String),
    /// A call may not start now. The text says why.
    NotNow(&'static str),
}

impl Stop {
    /// Creates [`Stop::Refused`] without an earlier Event.
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
