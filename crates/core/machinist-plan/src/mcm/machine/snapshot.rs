//! All facts for one decision about one Machine, and what follows from them directly.

use super::action::Action;
use super::identity::MachineIdentity;
use super::key_scope::KeyScopeFacts;
use super::place::PlaceFacts;
use super::target_cluster::TargetCluster;
use crate::mcm::drain::{Eviction, NodeVolumes, VolumeLimits};
use crate::mcm::facts::{
    AttachmentFacts, BudgetFacts, ClassFacts, MachineFacts, NodeFacts, NodeMarks, PodFacts, SecretFacts,
    Token,
};
use crate::mcm::reads::{NodeSeen, Reads};
use crate::mcm::server_freeze::Frozen;
use crate::mcm::why::{McmReason, Plan, Reason, Step, TokenUse, Why};
use jiff::Timestamp;
use machinist_api::constants::annotations;
use machinist_api::{MachinePriority, OperationState, OperationType};
use machinist_core::InQueue;
use machinist_core::instance::{Shared, Unkeyed};
use machinist_core::ownership::Ownership;
use machinist_core::{Answers, Call, Freshness, Known, Process, Unseen};
use machinist_instance::{AccountId, Instance, InstanceKey, NodeName};
use machinist_labels::is_value;
use std::collections::BTreeMap;
use std::hash::{Hash, Hasher};
use std::num::{NonZeroU32, NonZeroUsize};
use std::sync::Arc;
use std::time::Duration;

/// A Machine fails no earlier than this, even if its timeout is zero. Go MCM also looks at a new
/// Machine only every five seconds. Otherwise its set would replace it, and be written, several
/// times a second.
const LEAST_PATIENCE: Duration = Duration::from_secs(5);

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
    /// The freeze of the machine controller, if it is frozen.
    pub frozen: Option<Frozen>,
    /// Defaults for fields that the Machine does not set.
    pub defaults: Arc<Defaults>,
    /// Whether there is a cluster with Nodes.
    pub target: TargetCluster,
    /// The Machine to decide about.
    pub machine: Arc<MachineFacts>,
    /// The state that the set of the Machine wants for its Node; absent without a known set.
    pub node_marks: Option<NodeMarks>,
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
    pub identity: MachineIdentity,
    /// The pods on that Node.
    pub pods: Vec<Arc<PodFacts>>,
    /// The budgets that may cover these pods.
    pub budgets: Vec<Arc<BudgetFacts>>,
    /// Eviction attempts, by pod UID.
    pub evictions: Arc<BTreeMap<String, Eviction>>,
    /// The VolumeAttachments of that Node, and of the other Nodes of the instance.
    pub attachments: Vec<Arc<AttachmentFacts>>,
    /// The volumes of these pods, and of pods that have left.
    pub volumes: NodeVolumes,
    /// Reads from the API server, which are newer than the stores.
    pub reads: Reads,
    /// Observation times for states of the Node without a timestamp.
    pub node_seen: NodeSeen,
    /// The driver's answers.
    pub answers: Answers,
    /// Whether the driver can show how an instance boots.
    pub observes_boot: bool,
    /// Whether the provider initializes instances of the class after their creation.
    pub needs_initialization: bool,
    /// Until when the cloud throttles the account. No call begins earlier.
    pub paused_until: Option<Timestamp>,
    /// How long the creation of the instance has waited in the queue of the account, and how long
    /// the account was paused.
    pub waited: Duration,
    /// Evidence whether today's credential opens the account of the instance.
    pub ownership: Ownership,
    /// Where in its cloud the instance is.
    pub place: PlaceFacts,
    /// Within which part of that place the cloud recognises a repeated creation.
    pub key_scope: KeyScopeFacts,
    /// Facts from the last list of the account.
    pub shared: Shared,
    /// The cluster tag of this installation's instances.
    pub cluster: String,
    /// The Machine that holds the key of the foreign instance in the driver's last answer.
    pub key_holder: Option<String>,
    /// Facts about the instance that the driver's last answer showed without a key.
    pub unkeyed: Unkeyed,
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
            frozen,
            defaults: _,
            target: _,
            machine,
            node_marks,
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
            volumes,
            reads,
            node_seen,
            answers,
            observes_boot,
            needs_initialization,
            paused_until,
            waited: _,
            ownership,
            place,
            key_scope,
            shared,
            cluster: _,
            key_holder,
            unkeyed,
        } = self;
        (nodes_freshness.is_fresh(), pods_freshness.is_fresh(), frozen.is_some()).hash(state);
        (promises, machine, node_marks, class, class_error, secrets, inputs, token, token_use).hash(state);
        (node, other_nodes, identity, pods, budgets).hash(state);
        (evictions, attachments, volumes, reads, node_seen).hash(state);
        // The end of a pause is converted from the monotonic clock, so its value varies slightly.
        (answers, observes_boot, paused_until.is_some(), ownership, shared, key_holder).hash(state);
        (needs_initialization, place, key_scope, unkeyed).hash(state);
    }
}

impl Snapshot {
    /// Returns when the instance must exist. Time in which its creation waited in the queue of the
    /// account, or in which the account was paused, does not count: it says nothing about the
    /// Machine.
    pub(super) fn creation_deadline(&self) -> Timestamp {
        let created = self.machine.created;
        let counts_from = match (self.answers.wanted_since, creation_failed(&self.machine)) {
            (Some(wanted), _) => wanted,
            (None, true) => created,
            // No process has called the cloud in vain. Before this one, the Machine has waited.
            (None, false) => created.max(self.process.acting_since()),
        };
        self.gaps.deadline(counts_from, self.defaults.creation_patience(&self.machine) + self.waited)
    }

    pub(super) fn creation_timeout(&self) -> Duration {
        self.defaults.creation_timeout_of(&self.machine)
    }

    /// Whether no call of any process has had an effect for the Machine.
    pub(super) fn knows_no_creation(&self) -> bool {
        self.answers.knows_no_creation(&self.process, self.machine.created)
    }

    pub(super) fn key(&self) -> InstanceKey {
        self.machine.key()
    }

    /// Returns the action that records an instance shown by an account.
    pub(super) fn record(&self, instance: &Instance, account: Option<AccountId>) -> Action {
        let has_label = |name: &NodeName| self.target == TargetCluster::Given && is_value(name.as_str());
        let node = Some(instance.name.clone()).filter(has_label);
        let priority = self.missing_priority();
        let place = self.place.place().cloned();
        Action::Record { node, provider_id: instance.id.clone(), account, place, priority }
    }

    /// Returns the default deletion priority if the Machine has none: other programs expect the
    /// annotation.
    pub(super) fn missing_priority(&self) -> Option<MachinePriority> {
        self.machine.annotation(annotations::MACHINE_PRIORITY).is_none().then_some(MachinePriority::DEFAULT)
    }

    /// Waits in the queue of the account until that call has its slot. Then returns `None`.
    pub(super) fn await_slot(&self, call: Call) -> Option<Plan<Action>> {
        let Some(queued) = self.answers.queued_for(call) else {
            let why = Why::new(Reason::Calling(call), Step::Expect("the cloud answers"));
            return Some(Plan::act(Action::Queue(call), why));
        };
        (!queued.has_slot).then(|| self.in_queue(queued))
    }

    /// Waits if that call is in the queue and has no slot yet.
    pub(super) fn still_queued(&self, call: Call) -> Option<Plan<Action>> {
        self.answers.queued_for(call).filter(|queued| !queued.has_slot).map(|queued| self.in_queue(queued))
    }

    pub(super) fn in_queue(&self, queued: &InQueue) -> Plan<Action> {
        let why = Why::new(McmReason::Queued(queued.call), Step::Expect("the controller makes the call"));
        Plan::idle(why.since(queued.since))
    }

    /// Waits for the end of the account's pause, if the cloud throttles the account.
    pub(super) fn paused(&self) -> Option<Plan<Action>> {
        let until = self.paused_until.filter(|until| self.now < *until)?;
        let why = Why::new(Reason::AccountPaused, Step::Expect("the controller makes the call"));
        Some(Plan::until(until, why.deadline(until, Step::Expect("the pause ends"))))
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
    /// `--dead-node-timeout`: how long a Node may be NotReady before its pods are deleted by force.
    pub dead_node_after: Duration,
    /// `--replacements-at-once`: how many unhealthy Machines of a deployment are replaced at the
    /// same time.
    pub replacements_at_once: NonZeroU32,
    /// `--machine-pv-detach-timeout`: how long a drain waits until volumes are detached.
    pub detach_timeout: Duration,
    /// `--machine-inplace-update-timeout`: how long an update in place may take after the drain.
    pub in_place_update_timeout: Duration,
    /// `--machine-preserve-timeout`: how long a Machine is preserved.
    pub preserve_timeout: Duration,
    /// `--machine-pv-reattach-timeout`: how long a drain waits until a detached volume is attached
    /// to another Node.
    pub reattach_timeout: Duration,
    /// `--drain-volumes-at-once`: how many pods with volumes a drain moves at the same time; absent
    /// if there is no limit.
    pub volumes_at_once: Option<NonZeroUsize>,
    /// `--machine-safety-orphan-vms-period`: how long the annotation `not-managed-by-mcm` stays on
    /// the Node of a Machine. If it is absent, that annotation is neither written nor removed.
    pub orphan_period: Option<Duration>,
}

impl Defaults {
    /// The creation timeout of a Machine.
    fn creation_timeout_of(&self, machine: &MachineFacts) -> Duration {
        machine.creation_timeout.unwrap_or(self.creation_timeout)
    }

    /// The limits for pods with volumes.
    pub(super) fn volume_limits(&self) -> VolumeLimits {
        VolumeLimits {
            at_once: self.volumes_at_once,
            detach_timeout: self.detach_timeout,
            reattach_timeout: self.reattach_timeout,
        }
    }

    /// The creation timeout of a Machine, for deadlines.
    pub(in crate::mcm) fn creation_patience(&self, machine: &MachineFacts) -> Duration {
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
            replacements_at_once: NonZeroU32::MIN,
            detach_timeout: minutes(2),
            in_place_update_timeout: minutes(20),
            preserve_timeout: minutes(96 * 60),
            reattach_timeout: Duration::from_secs(90),
            volumes_at_once: None,
            orphan_period: None,
        }
    }
}

/// Whether the last operation of a Machine is a creation that failed.
pub fn creation_failed(machine: &MachineFacts) -> bool {
    let operation = &machine.status.operation;
    operation.type_ == Some(OperationType::Create) && operation.state == Some(OperationState::Failed)
}
