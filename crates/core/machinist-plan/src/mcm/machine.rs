//! Machine: creates an instance from the spec, waits for its Node, and deletes both.
//!
//! ```text
//! living:    finalizer -> prerequisites -> token -> ensure -> record -> Pending -> Node joins -> Running <-> Unknown
//! deleting:  Terminating -> drain -> volumes -> delete the instance -> confirm its absence -> Node -> finalizer
//! ```
//!
//! Every stage is derived from facts, so any pass may be the first after a crash. The markers in
//! `lastOperation` are written for Go MCM, which continues from them. They may lag reality and
//! never lead it. Only `delete` reads a marker, for a stage that has ended for good: the drain, or
//! the deletion of the instance.
//!
//! Marking a Machine with an unhealthy Node as Failed is deliberately absent. All Machines of a
//! deployment share that limit, so [`super::replacement`] decides it.

mod boot;
mod create;
mod delete;
mod identity;
mod join;
mod node_sync;
mod proof;
mod status;

use std::collections::BTreeMap;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use machinist_api::MachinePriority;
use machinist_api::constants::{annotations, labels, reasons};
use machinist_instance::{AccountId, Instance, InstanceKey, InstanceRef, NodeName, ProviderId};

pub(crate) use self::boot::description as boot_problem;
pub use self::create::creation_failed;
pub use self::identity::Identity;
use self::identity::OwnNode;
pub use self::join::health;
pub(crate) use self::join::{Judged, health_deadline, join_deadline, judge};
pub use self::node_sync::NodeSync;
pub use self::status::{OperationWrite, PhaseWrite, StatusWrite, code_of};
pub use crate::event::Severity;
use crate::mcm::drain::{self, Eviction};
use crate::mcm::facts::{
    AttachmentFacts, BudgetFacts, ClassFacts, MachineFacts, NodeFacts, PodFacts, SecretFacts, Token,
    TokenFacts,
};
use crate::mcm::looks::{Looks, NodeSeen};
use crate::mcm::why::{McmReason, Reason, Step, TokenUse, why_updated_in_place};
use crate::mcm::{Plan, Why};
use machinist_core::instance::Shared;
use machinist_core::ownership::Ownership;
use machinist_core::{Answers, Call, Freshness, Known, Process, Unseen};
use machinist_core::{Permit, Queued};

/// All facts for one decision about one Machine.
#[derive(Debug, Clone)]
pub struct Snapshot {
    /// The moment of the decision.
    pub now: Timestamp,
    /// The deciding process.
    pub process: Process,
    /// The time that deadlines leave out.
    pub gaps: Unseen,
    /// How fresh the Nodes are.
    pub nodes_freshness: Freshness,
    /// How fresh the pods are.
    pub pods_freshness: Freshness,
    /// Defaults for fields that the Machine does not set.
    pub defaults: Arc<Defaults>,
    /// The Machine to decide about.
    pub machine: Arc<MachineFacts>,
    /// The MachineClass of the Machine.
    pub class: Known<Arc<ClassFacts>>,
    /// The provider's validation error for the class, found without a cloud call.
    pub class_error: Option<String>,
    /// The Secrets that the class refers to, in its order.
    pub secrets: Vec<SecretNeed>,
    /// Fingerprint of the class and the Secrets. It changes when a user fixes one of them.
    pub inputs: u64,
    /// The bootstrap token of the Machine.
    pub token: Token,
    /// Whether the token was used; only `machinist why` looks it up.
    pub token_use: TokenUse,
    /// The Node of the Machine.
    pub node: Known<Arc<NodeFacts>>,
    /// Other Nodes of the recorded instance: its kubelet registered under several names.
    pub other_nodes: Vec<OtherNode>,
    /// The provider's comparison of the ids of the Machine and the Node.
    pub identity: Identity,
    /// The pods on that Node.
    pub pods: Vec<Arc<PodFacts>>,
    /// The budgets that may cover these pods.
    pub budgets: Vec<Arc<BudgetFacts>>,
    /// Eviction attempts, by pod UID.
    pub evictions: Arc<BTreeMap<String, Eviction>>,
    /// The VolumeAttachments of that Node, and of the other Nodes of the instance.
    pub attachments: Vec<Arc<AttachmentFacts>>,
    /// Reads from the API server, which are newer than the stores.
    pub looks: Looks,
    /// Observation times for states of the Node without a timestamp.
    pub node_seen: NodeSeen,
    /// The driver's answers.
    pub answers: Answers,
    /// Whether the driver can show how an instance boots.
    pub observes_boot: bool,
    /// Until when the cloud throttles the account. No call begins earlier.
    pub paused_until: Option<Timestamp>,
    /// How long the creation of the instance has waited in the queue of the account, and how long
    /// the account was paused.
    pub waited: Duration,
    /// Evidence whether today's credential opens the account of the instance.
    pub ownership: Ownership,
    /// Facts from the last list of the account.
    pub shared: Shared,
    /// The cluster tag of this installation's instances.
    pub cluster: String,
    /// The Machine that holds the key of the foreign instance in the driver's last answer.
    pub key_holder: Option<String>,
}

impl Hash for Snapshot {
    /// Hashes everything that determines a decision. Values that change without news are excluded:
    /// the moment, and the settings and measurements of the process.
    fn hash<H: Hasher>(&self, state: &mut H) {
        let Self {
            now: _,
            process: Process { started: _, leading_since: _, skew: _, cloud_skew: _, promises },
            gaps: _,
            nodes_freshness,
            pods_freshness,
            defaults: _,
            machine,
            class,
            class_error,
            secrets,
            inputs,
            token,
            token_use,
            node,
            other_nodes,
            identity,
            pods,
            budgets,
            evictions,
            attachments,
            looks,
            node_seen,
            answers,
            observes_boot,
            paused_until,
            waited: _,
            ownership,
            shared,
            cluster: _,
            key_holder,
        } = self;
        (nodes_freshness.is_fresh(), pods_freshness.is_fresh()).hash(state);
        (promises, machine, class, class_error, secrets, inputs, token, token_use).hash(state);
        (node, other_nodes, identity, pods, budgets).hash(state);
        (evictions, attachments, looks, node_seen).hash(state);
        // The end of a pause is converted from the monotonic clock, so its value varies slightly.
        (answers, observes_boot, paused_until.is_some(), ownership, shared, key_holder).hash(state);
    }
}

/// Another Node of the instance of a Machine.
#[derive(Debug, Clone, Hash)]
pub struct OtherNode {
    /// The Node. Its provider id names the instance.
    pub node: Arc<NodeFacts>,
    /// Since when the Node has been cordoned, see [`NodeSeen::cordoned`].
    pub cordoned: Option<Timestamp>,
    /// The pods on that Node, while the Machine is being deleted.
    pub pods: Vec<Arc<PodFacts>>,
}

/// A Secret that a class refers to.
#[derive(Debug, Clone, Hash)]
pub struct SecretNeed {
    /// `namespace/name`.
    pub name: String,
    /// The Secret; `Unasked` if the controller does not read its namespace.
    pub facts: Known<Arc<SecretFacts>>,
}

/// Defaults for fields that a Machine does not set: the flags of the machine controller.
#[derive(Debug, Clone)]
pub struct Defaults {
    /// `--machine-creation-timeout`
    pub creation_timeout: Duration,
    /// `--machine-health-timeout`
    pub health_timeout: Duration,
    /// `--machine-drain-timeout`
    pub drain_timeout: Duration,
    /// `--machine-max-evict-retries`
    pub max_evictions: u32,
    /// `--resource-exhausted-retry`
    pub exhausted_retry: Duration,
    /// `--node-conditions`: types that indicate an unhealthy Node unless their status is False.
    pub bad_conditions: Vec<String>,
    /// How long a Node may be NotReady before its pods are deleted by force.
    pub dead_node_after: Duration,
    /// `--machine-pv-detach-timeout`: how long a forced drain waits for volumes.
    pub detach_timeout: Duration,
}

impl Defaults {
    /// The creation timeout of a Machine.
    fn creation_timeout_of(&self, machine: &MachineFacts) -> Duration {
        machine.creation_timeout.unwrap_or(self.creation_timeout)
    }

    /// The creation timeout of a Machine, for deadlines.
    pub(super) fn creation_patience(&self, machine: &MachineFacts) -> Duration {
        self.creation_timeout_of(machine).max(LEAST_PATIENCE)
    }
}

impl Default for Defaults {
    fn default() -> Self {
        let minutes = |count: u64| Duration::from_secs(count * 60);
        Self {
            creation_timeout: minutes(20),
            health_timeout: minutes(10),
            drain_timeout: minutes(120),
            max_evictions: 360,
            exhausted_retry: minutes(10),
            bad_conditions: ["KernelDeadlock", "ReadonlyFilesystem", "DiskPressure", "NetworkUnavailable"]
                .map(str::to_owned)
                .to_vec(),
            dead_node_after: minutes(5),
            detach_timeout: minutes(2),
        }
    }
}

/// One call for one Machine. Each action contains the values for its precondition.
#[derive(Debug)]
pub enum Action {
    /// Adds our finalizer to the Machine: the intent.
    AddFinalizer {
        /// The priority to write if the Machine has none.
        priority: Option<MachinePriority>,
    },
    /// POSTs the bootstrap token Secret; `act` generates the secret part.
    CreateToken {
        /// Id of the token.
        id: String,
        /// When the token expires.
        expires: Timestamp,
        /// The account in which the instance will be created. The token keeps this record if the
        /// process dies.
        account: Option<AccountId>,
    },
    /// DELETEs the bootstrap token Secret.
    DeleteToken(TokenFacts),
    /// Lets a call wait in the queue of the account. A later pass makes it when it has its slot, so
    /// that nothing that the call needs expires in the queue.
    Queue(Call),
    /// Asks the driver to create the instance, or to return the existing one.
    Ensure {
        /// Adopts an instance with the Machine's name that another program created at this moment
        /// or later.
        adopt_made_since: Timestamp,
    },
    /// Asks the driver to list the account. All Machines of the account share the answer.
    List,
    /// Asks the driver to give the instance this Machine's key.
    Rekey {
        /// Provider id of the instance.
        id: ProviderId,
        /// The key that the instance must have before.
        from: InstanceKey,
    },
    /// Records since when no process creates the instance of this deleted Machine.
    RecordWait(Timestamp),
    /// Asks the driver to look up the instance.
    Find(InstanceRef),
    /// Asks the driver how the instance boots.
    ObserveBoot(InstanceRef),
    /// Asks the driver to delete the instance.
    Delete(Permit),
    /// Writes the label `node`, the provider id, the account and, if missing, the priority to the
    /// Machine.
    Record {
        /// Name of the Node. A name that is not a valid label value is omitted, because an invalid
        /// label must not prevent the record of the id.
        node: Option<NodeName>,
        /// The provider id.
        provider_id: ProviderId,
        /// The account that showed the instance.
        account: Option<AccountId>,
        /// The priority to write if the Machine has none.
        priority: Option<MachinePriority>,
    },
    /// Writes the label `node` to the Machine.
    LabelNode(NodeName),
    /// Copies the preserve annotation of the Node to the Machine, where the manager reads it; empty
    /// if the Node no longer has the annotation.
    CarryPreserve(String),
    /// Records the periods in which the deletion waited for a user.
    RecordHold(String),
    /// Writes the Machine's status.
    SetStatus(Box<StatusWrite>),
    /// Writes finalizer, label, template and annotation to the Node, in one patch.
    SyncNode(Box<NodeSync>),
    /// Writes the condition Terminating to the Node.
    SetTerminating {
        /// The Node.
        node: Arc<NodeFacts>,
        /// Reason of the condition.
        reason: &'static str,
    },
    /// Makes the Node unschedulable.
    Cordon(Arc<NodeFacts>),
    /// Evicts or deletes a pod.
    Drain(drain::Call),
    /// Lists the pods on the Node at the API server.
    ListPods(Arc<NodeFacts>),
    /// Lists the Nodes at the API server. All Machines share the answer.
    ReadNodes,
    /// Reads the Node's Lease at the API server.
    LookAtLease(Arc<NodeFacts>),
    /// DELETEs a VolumeAttachment, by UID.
    DeleteAttachment(Arc<AttachmentFacts>),
    /// Removes our finalizer from the Node.
    RemoveNodeFinalizer(Arc<NodeFacts>),
    /// DELETEs the Node, by UID.
    DeleteNode(Arc<NodeFacts>),
    /// Checks at the API server whether a Node with that name exists.
    LookForNode(String),
    /// DELETEs the Machine, because another client deleted its Node.
    DeleteMachine,
    /// Removes our finalizer from the Machine, which ends the deletion.
    RemoveFinalizer,
    /// Emits an Event on the Machine.
    Tell {
        /// Type of the Event.
        severity: Severity,
        /// CamelCase reason.
        reason: &'static str,
        /// Message for users.
        message: String,
    },
}

/// Decides the next actions for one Machine.
pub fn plan(s: &Snapshot) -> Plan<Action> {
    match s.machine.deleting_since {
        None => plan_living(s),
        Some(since) => delete::plan(s, since),
    }
}

fn plan_living(s: &Snapshot) -> Plan<Action> {
    if !s.machine.has_finalizer {
        let why = Why::new(
            Reason::Writing("adding the finalizer, which records that an instance may exist"),
            Step::Nothing,
        );
        return Plan::act(Action::AddFinalizer { priority: s.missing_priority() }, why);
    }
    if let Some(why) = s.unusable_id() {
        return Plan::idle(why);
    }
    match &s.machine.provider_id {
        None if s.machine.is_updating_in_place() => Plan::idle(why_updated_in_place(&s.machine)),
        None => create::plan(s),
        Some(_) => proof::gather(s, join::plan(s)),
    }
}

/// A Machine fails no earlier than this, even if its timeout is zero. Go MCM also looks at a new
/// Machine only every five seconds. Otherwise its set would replace it, and be written, several
/// times a second.
const LEAST_PATIENCE: Duration = Duration::from_secs(5);

impl Snapshot {
    /// Returns when the instance must exist. Time in which its creation waited in the queue of the
    /// account, or in which the account was paused, does not count: it says nothing about the
    /// Machine.
    fn creation_deadline(&self) -> Timestamp {
        let created = self.machine.created;
        let counts_from = match (self.answers.wanted_since, create::creation_failed(&self.machine)) {
            (Some(wanted), _) => wanted,
            (None, true) => created,
            // No process has called the cloud in vain. Before this one, the Machine has waited.
            (None, false) => created.max(self.process.acting_since()),
        };
        self.gaps.deadline(counts_from, self.defaults.creation_patience(&self.machine) + self.waited)
    }

    fn creation_timeout(&self) -> Duration {
        self.defaults.creation_timeout_of(&self.machine)
    }

    fn key(&self) -> InstanceKey {
        self.machine.key()
    }

    /// Returns the action that records an instance shown by an account.
    fn record(&self, instance: &Instance, account: Option<AccountId>) -> Action {
        let node = Some(instance.name.clone()).filter(|name| labels::is_value(name.as_str()));
        let priority = self.missing_priority();
        Action::Record { node, provider_id: instance.id.clone(), account, priority }
    }

    /// Returns the default deletion priority if the Machine has none: other programs expect the
    /// annotation.
    fn missing_priority(&self) -> Option<MachinePriority> {
        self.machine.annotation(annotations::MACHINE_PRIORITY).is_none().then_some(MachinePriority::DEFAULT)
    }

    /// Waits in the queue of the account until that call has its slot. Then returns `None`.
    fn await_slot(&self, call: Call) -> Option<Plan<Action>> {
        let Some(queued) = self.answers.queued_for(call) else {
            let why = Why::new(Reason::Calling(call), Step::Expect("the cloud answers"));
            return Some(Plan::act(Action::Queue(call), why));
        };
        (!queued.has_slot).then(|| self.in_queue(queued))
    }

    /// Waits if that call is in the queue and has no slot yet.
    fn still_queued(&self, call: Call) -> Option<Plan<Action>> {
        self.answers.queued_for(call).filter(|queued| !queued.has_slot).map(|queued| self.in_queue(queued))
    }

    fn in_queue(&self, queued: &Queued) -> Plan<Action> {
        let why = Why::new(McmReason::Queued(queued.call), Step::Expect("the controller makes the call"));
        Plan::idle(why.since(queued.since))
    }

    /// Waits for the end of the account's pause, if the cloud throttles the account.
    fn paused(&self) -> Option<Plan<Action>> {
        let until = self.paused_until.filter(|until| self.now < *until)?;
        let why = Why::new(Reason::AccountPaused, Step::Expect("the controller makes the call"));
        Some(Plan::until(until, why.deadline(until, Step::Expect("the pause ends"))))
    }
}

impl Action {
    /// Whether the action is a request to the API server of the target cluster.
    pub fn is_for_the_nodes(&self) -> bool {
        match self {
            Self::SyncNode(_)
            | Self::SetTerminating { .. }
            | Self::Cordon(_)
            | Self::Drain(_)
            | Self::ListPods(_)
            | Self::ReadNodes
            | Self::LookAtLease(_)
            | Self::DeleteAttachment(_)
            | Self::RemoveNodeFinalizer(_)
            | Self::DeleteNode(_)
            | Self::LookForNode(_)
            | Self::CreateToken { .. }
            | Self::DeleteToken(_) => true,
            Self::AddFinalizer { .. }
            | Self::Queue(_)
            | Self::Ensure { .. }
            | Self::List
            | Self::RecordWait(_)
            | Self::Rekey { .. }
            | Self::Find(_)
            | Self::ObserveBoot(_)
            | Self::Delete(_)
            | Self::Record { .. }
            | Self::LabelNode(_)
            | Self::CarryPreserve(_)
            | Self::RecordHold(_)
            | Self::SetStatus(_)
            | Self::DeleteMachine
            | Self::RemoveFinalizer
            | Self::Tell { .. } => false,
        }
    }

    /// Returns a Warning Event.
    fn warn(reason: &'static str, message: impl Into<String>) -> Self {
        Self::Tell { severity: Severity::Warning, reason, message: message.into() }
    }
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AddFinalizer { .. } => f.write_str("machine: add finalizer"),
            // Without the expiry, which differs in each pass: a pass must recognize that it repeats
            // an action.
            Self::CreateToken { id, .. } => write!(f, "token {id}: create"),
            Self::DeleteToken(token) => write!(f, "token {}: delete", token.id),
            Self::Queue(call) => write!(f, "driver: queue {call}"),
            Self::Ensure { .. } => f.write_str("driver: ensure"),
            Self::List => f.write_str("driver: list"),
            Self::RecordWait(_) => f.write_str("machine: record the wait for earlier calls"),
            Self::Rekey { id, from } => write!(f, "driver: rekey {id} from {from}"),
            Self::Find(which) => write!(f, "driver: find {which}"),
            Self::ObserveBoot(which) => write!(f, "driver: observe the boot of {which}"),
            Self::Delete(permit) => write!(f, "driver: delete {} because {permit}", permit.which()),
            Self::Record { node: Some(node), provider_id, .. } => {
                write!(f, "machine: record node {node} and {provider_id}")
            }
            Self::Record { node: None, provider_id, .. } => write!(f, "machine: record {provider_id}"),
            Self::LabelNode(node) => write!(f, "machine: label node {node}"),
            Self::CarryPreserve(value) => write!(f, "machine: record preserve {value:?} of its node"),
            Self::RecordHold(held) => write!(f, "machine: record that the deletion waited, {held}"),
            Self::SetStatus(write) => write!(f, "status: {write}"),
            Self::SyncNode(sync) => write!(f, "node {}: {sync}", sync.node.name),
            Self::SetTerminating { node, reason } => write!(f, "node {}: Terminating, {reason}", node.name),
            Self::Cordon(node) => write!(f, "node {}: cordon", node.name),
            Self::Drain(drain::Call::Evict(pod)) => write!(f, "pod {}/{}: evict", pod.namespace, pod.name),
            Self::Drain(drain::Call::Delete(pod)) => {
                write!(f, "pod {}/{}: delete without grace", pod.namespace, pod.name)
            }
            Self::ListPods(node) => write!(f, "node {}: list its pods at the API server", node.name),
            Self::ReadNodes => f.write_str("nodes: list them at the API server"),
            Self::LookAtLease(node) => write!(f, "node {}: look at its lease", node.name),
            Self::DeleteAttachment(attachment) => write!(f, "volume attachment {}: delete", attachment.name),
            Self::RemoveNodeFinalizer(node) => write!(f, "node {}: remove finalizer", node.name),
            Self::DeleteNode(node) => write!(f, "node {}: delete", node.name),
            Self::LookForNode(name) => write!(f, "node {name}: look for it at the API server"),
            Self::DeleteMachine => f.write_str("machine: delete"),
            Self::RemoveFinalizer => f.write_str("machine: remove finalizer"),
            Self::Tell { severity: Severity::Normal, reason, message } => {
                write!(f, "event {reason}: {message}")
            }
            Self::Tell { severity: Severity::Warning, reason, message } => {
                write!(f, "warning {reason}: {message}")
            }
        }
    }
}

/// Reason of the Event for a Node that joined.
pub const JOINED: &str = "MachineJoined";
/// Reason of the Event for an instance that could not be created.
pub const CREATE_FAILED: &str = reasons::FAILED_CREATE;
/// Reason of the Event for an instance that has a problem before its Node registers.
pub const BOOT_FAILED: &str = "BootFailed";
/// Reason of the Event for an instance that could not be deleted.
pub const DELETE_FAILED: &str = reasons::FAILED_DELETE;
/// Reason of the Event for an instance that a forced deletion leaves in the cloud. It has a reason of
/// its own, because the recorder delays repetitions of a reason, and the process may end before.
pub const INSTANCE_LEFT_BEHIND: &str = "InstanceLeftBehind";
/// Reason of the Event for a Node that became unhealthy.
pub const NODE_UNHEALTHY: &str = "NodeUnhealthy";
/// Reason of the Event for an instance that has the Machine's name and another owner.
pub const INSTANCE_NOT_OURS: &str = "InstanceNotOurs";
/// Reason of the Event for a drain that a budget blocks, or whose requests the API server rejects.
pub const DRAIN_BLOCKED: &str = "DrainBlocked";
/// Reason of the Event for pods that were deleted without grace.
pub const DRAIN_FORCED: &str = "DrainForced";
/// Reason of the Event for an instance that is deleted with attached volumes.
pub const VOLUMES_LEFT: &str = "VolumesLeft";
/// Reason of the Event for objects that a forced deletion leaves in a target cluster whose API
/// server does not answer.
pub const TARGET_SILENT: &str = "TargetSilent";

#[cfg(test)]
mod tests;
