//! Machine: from a spec to an instance, from an instance to a Node, and back to nothing.
//!
//! ```text
//! living:    finalizer -> prerequisites -> token -> ensure -> record -> Pending -> Node joins -> Running <-> Unknown
//! deleting:  Terminating -> drain -> volumes -> delete the instance -> see it gone -> Node -> finalizer
//! ```
//!
//! Every stage is derived from facts: which is next follows from what is there, so any pass may be the first after a
//! crash. The markers in `lastOperation` are written for others (Go MCM takes over from them) and may lag reality, never
//! lead it; the one place where a marker is read is a stage that has ended for good (`delete`): a drain, or the instance.
//!
//! Deliberately absent: giving up a Machine whose Node is unhealthy. That limit is shared by all Machines of a deployment,
//! so [`super::replacement`] decides it.

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

pub use self::identity::Identity;
use self::identity::OwnNode;
pub use self::join::health;
pub use self::node_sync::NodeSync;
pub use self::status::{OperationWrite, PhaseWrite, StatusWrite, code_of};
use crate::drain::{self, Eviction};
use crate::facts::{
    AttachmentFacts, BudgetFacts, ClassFacts, MachineFacts, NodeFacts, PodFacts, SecretFacts, Token,
    TokenFacts,
};
use crate::looks::{Looks, NodeSeen};
use crate::why::{Reason, Step, TokenUse, why_updated_in_place};
use crate::{Plan, Why};
use machinist_core::Permit;
use machinist_core::instance::Shared;
use machinist_core::ownership::Ownership;
use machinist_core::{Answers, Known, Process};

/// All facts for one decision about one Machine.
#[derive(Debug, Clone)]
pub struct Snapshot {
    /// The moment of the decision.
    pub now: Timestamp,
    /// Who decides.
    pub process: Process,
    /// What applies where the Machine says nothing.
    pub defaults: Arc<Defaults>,
    /// The Machine.
    pub machine: Arc<MachineFacts>,
    /// Its class.
    pub class: Known<Arc<ClassFacts>>,
    /// What the provider says is wrong with the class; found without calling the cloud.
    pub class_error: Option<String>,
    /// The Secrets that the class refers to, in its order.
    pub secrets: Vec<SecretNeed>,
    /// A fingerprint of the class and the Secrets: changes when a person mends one of them.
    pub inputs: u64,
    /// Its bootstrap token.
    pub token: Token,
    /// Whether the token was used; only `why` asks.
    pub token_use: TokenUse,
    /// The Node of its name.
    pub node: Known<Arc<NodeFacts>>,
    /// What the provider says about the ids of both.
    pub identity: Identity,
    /// The pods on that Node.
    pub pods: Vec<Arc<PodFacts>>,
    /// The budgets that may cover them.
    pub budgets: Vec<Arc<BudgetFacts>>,
    /// Attempts at evicting pods, by pod UID.
    pub evictions: Arc<BTreeMap<String, Eviction>>,
    /// The volumes that are attached to the Node of its name.
    pub attachments: Vec<Arc<AttachmentFacts>>,
    /// What was read from the API server itself.
    pub looks: Looks,
    /// Since when the Node has been seen as it is.
    pub node_seen: NodeSeen,
    /// What the driver answered.
    pub answers: Answers,
    /// Until when the cloud throttles the account: no call begins before.
    pub paused_until: Option<Timestamp>,
    /// What tells whether today's credential opens the account of its instance.
    pub ownership: Ownership,
    /// What the last list of the account tells.
    pub shared: Shared,
    /// Which installation this is: the tag of its instances.
    pub cluster: String,
    /// The Machine that holds the key of the foreign instance that the driver found last.
    pub key_holder: Option<String>,
}

impl Hash for Snapshot {
    /// Everything that a decision is made from. Left out is what changes without news: the moment, and what the process is told or
    /// measures.
    fn hash<H: Hasher>(&self, state: &mut H) {
        let Self {
            now: _,
            process: Process { started: _, leading_since: _, skew: _, cloud_skew: _, promises },
            defaults: _,
            machine,
            class,
            class_error,
            secrets,
            inputs,
            token,
            token_use,
            node,
            identity,
            pods,
            budgets,
            evictions,
            attachments,
            looks,
            node_seen,
            answers,
            paused_until,
            ownership,
            shared,
            cluster: _,
            key_holder,
        } = self;
        (promises, machine, class, class_error, secrets, inputs, token, token_use).hash(state);
        (node, identity, pods, budgets, evictions, attachments, looks, node_seen).hash(state);
        // The end of a pause is a moment of the monotonic clock, which reads a little differently each time.
        (answers, paused_until.is_some(), ownership, shared, key_holder).hash(state);
    }
}

/// A Secret that a class refers to.
#[derive(Debug, Clone, Hash)]
pub struct SecretNeed {
    /// `namespace/name`.
    pub name: String,
    /// The Secret; unasked if it is in a namespace that is not read.
    pub facts: Known<Arc<SecretFacts>>,
}

/// What applies where a Machine says nothing: the flags of the machine controller.
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
    /// `--node-conditions`: types that mean unhealthy unless their status is False.
    pub bad_conditions: Vec<String>,
    /// How long a Node may be NotReady before its pods are given up.
    pub dead_node_after: Duration,
    /// `--machine-pv-detach-timeout`: how long a drain by force waits for volumes.
    pub detach_timeout: Duration,
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

/// One call for one Machine. Each names what its precondition is made from.
#[derive(Debug)]
pub enum Action {
    /// Put our finalizer on the Machine: the intent.
    AddFinalizer {
        /// The priority to be written with it, where it has none.
        priority: Option<MachinePriority>,
    },
    /// POST the bootstrap token Secret; `act` draws the secret part.
    CreateToken {
        /// Its id.
        id: String,
        /// When it stops being accepted.
        expires: Timestamp,
        /// The account in which the instance is going to be made. It outlives the process that makes it.
        account: Option<AccountId>,
    },
    /// DELETE the bootstrap token Secret.
    DeleteToken(TokenFacts),
    /// Ask the driver for the instance.
    Ensure {
        /// Adopt an instance of that name that others made since then.
        adopt_made_since: Timestamp,
    },
    /// Ask the driver what the account shows. All Machines of the account share the answer.
    List,
    /// Ask the driver to give the instance this Machine's key.
    Rekey {
        /// The instance.
        id: ProviderId,
        /// The key that it must carry.
        from: InstanceKey,
    },
    /// Ask the driver where the instance is.
    Find(InstanceRef),
    /// Ask the driver to delete the instance.
    Delete(Permit),
    /// Write label `node`, the provider id, its account and, where missing, the priority to the Machine.
    Record {
        /// The Node's name. One that cannot be the value of a label is left out: the id is what matters, and it must not be lost to
        /// the label.
        node: Option<NodeName>,
        /// The provider id.
        provider_id: ProviderId,
        /// The account that showed it.
        account: Option<AccountId>,
        /// The priority to be written with it, where it has none.
        priority: Option<MachinePriority>,
    },
    /// Write label `node` to the Machine.
    LabelNode(NodeName),
    /// Write what the Node says about preserving its Machine to the Machine, where the manager reads it; empty if it says
    /// nothing any more.
    CarryPreserve(String),
    /// Write the Machine's status.
    SetStatus(Box<StatusWrite>),
    /// Bring finalizer, label, template and annotation onto the Node, in one patch.
    SyncNode(Box<NodeSync>),
    /// Say on the Node that it is being terminated.
    SetTerminating {
        /// The Node.
        node: Arc<NodeFacts>,
        /// Why.
        reason: &'static str,
    },
    /// Make the Node unschedulable.
    Cordon(Arc<NodeFacts>),
    /// Move a pod away.
    Drain(drain::Call),
    /// Ask the API server itself which pods are on the Node.
    ListPods(Arc<NodeFacts>),
    /// Ask the API server when the Node's Lease was last renewed.
    LookAtLease(Arc<NodeFacts>),
    /// DELETE a VolumeAttachment, by UID.
    DeleteAttachment(Arc<AttachmentFacts>),
    /// Take our finalizer off the Node.
    RemoveNodeFinalizer(Arc<NodeFacts>),
    /// DELETE the Node, by UID.
    DeleteNode(Arc<NodeFacts>),
    /// Ask the API server itself whether a Node of that name exists.
    LookForNode(String),
    /// DELETE the Machine: its Node was deleted by somebody.
    DeleteMachine,
    /// Take our finalizer off the Machine: it is done.
    RemoveFinalizer,
    /// Tell people, by an Event on the Machine.
    Tell {
        /// Whether it is a warning.
        severity: Severity,
        /// CamelCase.
        reason: &'static str,
        /// Prose.
        message: String,
    },
}

/// How an Event is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Severity {
    /// As expected.
    Normal,
    /// Somebody should look.
    Warning,
}

/// Decides what is done next for one Machine.
pub fn plan(s: &Snapshot) -> Plan<Action> {
    match s.machine.deleting_since {
        None => plan_living(s),
        Some(since) => delete::plan(s, since),
    }
}

fn plan_living(s: &Snapshot) -> Plan<Action> {
    if !s.machine.has_finalizer {
        let why =
            Why::new(Reason::Writing("its finalizer, the record that an instance may exist"), Step::Nothing);
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

impl Snapshot {
    /// When creation, joining included, must be done.
    fn creation_deadline(&self) -> Timestamp {
        let timeout = self.machine.creation_timeout.unwrap_or(self.defaults.creation_timeout);
        machinist_core::plus(self.machine.created, timeout)
    }

    fn key(&self) -> InstanceKey {
        self.machine.key()
    }

    /// The record of an instance that an account has shown.
    fn record(&self, instance: &Instance, account: Option<AccountId>) -> Action {
        let node = Some(instance.name.clone()).filter(|name| labels::is_value(name.as_str()));
        let priority = self.missing_priority();
        Action::Record { node, provider_id: instance.id.clone(), account, priority }
    }

    /// The priority that ranks the Machine among those to delete, if it has none: everybody expects it to be there.
    fn missing_priority(&self) -> Option<MachinePriority> {
        self.machine.annotation(annotations::MACHINE_PRIORITY).is_none().then_some(MachinePriority::DEFAULT)
    }

    /// Waits for the end of the account's pause, if the cloud throttles it.
    fn paused(&self) -> Option<Plan<Action>> {
        let until = self.paused_until.filter(|until| self.now < *until)?;
        let why = Why::new(Reason::AccountPaused, Step::Expect("the call to the cloud is made"));
        Some(Plan::until(until, why.deadline(until, Step::Expect("the pause ends"))))
    }
}

impl Action {
    /// The event that tells people that something failed.
    fn warn(reason: &'static str, message: impl Into<String>) -> Self {
        Self::Tell { severity: Severity::Warning, reason, message: message.into() }
    }
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AddFinalizer { .. } => f.write_str("machine: add finalizer"),
            Self::CreateToken { id, expires, .. } => write!(f, "token {id}: create, expires {expires}"),
            Self::DeleteToken(token) => write!(f, "token {}: delete", token.id),
            Self::Ensure { .. } => f.write_str("driver: ensure"),
            Self::List => f.write_str("driver: list"),
            Self::Rekey { id, from } => write!(f, "driver: rekey {id} from {from}"),
            Self::Find(which) => write!(f, "driver: find {which}"),
            Self::Delete(permit) => write!(f, "driver: delete {} because {permit}", permit.which()),
            Self::Record { node: Some(node), provider_id, .. } => {
                write!(f, "machine: record node {node} and {provider_id}")
            }
            Self::Record { node: None, provider_id, .. } => write!(f, "machine: record {provider_id}"),
            Self::LabelNode(node) => write!(f, "machine: label node {node}"),
            Self::CarryPreserve(value) => write!(f, "machine: record preserve {value:?} of its node"),
            Self::SetStatus(write) => write!(f, "status: {write}"),
            Self::SyncNode(sync) => write!(f, "node {}: {sync}", sync.node.name),
            Self::SetTerminating { node, reason } => write!(f, "node {}: Terminating, {reason}", node.name),
            Self::Cordon(node) => write!(f, "node {}: cordon", node.name),
            Self::Drain(drain::Call::Evict(pod)) => write!(f, "pod {}/{}: evict", pod.namespace, pod.name),
            Self::Drain(drain::Call::Delete(pod)) => {
                write!(f, "pod {}/{}: delete without grace", pod.namespace, pod.name)
            }
            Self::ListPods(node) => write!(f, "node {}: list its pods at the API server", node.name),
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

/// Reason of the Event that says a Node joined.
pub const JOINED: &str = "MachineJoined";
/// Reason of the Event that says an instance could not be made.
pub const CREATE_FAILED: &str = reasons::FAILED_CREATE;
/// Reason of the Event that says an instance could not be deleted.
pub const DELETE_FAILED: &str = reasons::FAILED_DELETE;
/// Reason of the Event that says a Node became unhealthy.
pub const NODE_UNHEALTHY: &str = "NodeUnhealthy";
/// Reason of the Event that says whose an instance of the Machine's name is not.
pub const INSTANCE_NOT_OURS: &str = "InstanceNotOurs";
/// Reason of the Event that says a budget holds a drain up.
pub const DRAIN_BLOCKED: &str = "DrainBlocked";

#[cfg(test)]
mod tests;
