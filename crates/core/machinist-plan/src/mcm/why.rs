//! The reasons that only objects of the machine API have.
//!
//! A [`Why`] becomes a log line, an Event, a condition reason and the output of `machinist why`.
//! Prose is rendered here, last, and parsed nowhere. A rendered reason is a complete phrase; the
//! next step says what a user must do.

use std::fmt;

use jiff::Timestamp;
use machinist_api::Phase;
use machinist_api::constants::{annotations, labels};
use machinist_core::{Call, ContractReason, just_past};
pub use machinist_core::{Deadline, Step};

use crate::mcm::drain::{AwaitedVolume, VolumeStep};
use crate::mcm::facts::{MachineFacts, Preserved, PreservedBy};

#[cfg(test)]
mod pages;

/// The reason for the state of an object of the machine API, with the next step.
pub type Why = machinist_core::Why<McmReason>;
/// The result of one decision about one object of the machine API.
pub type Plan<A> = machinist_core::Plan<A, McmReason>;
/// The reason for the state of an object of the machine API.
pub type Reason = machinist_core::Reason<McmReason>;

/// A reason that only objects of the machine API have.
#[derive(Debug, Clone, PartialEq, Eq, strum::IntoStaticStr)]
pub enum McmReason {
    /// The object's spec is invalid. Only a user can fix it.
    InvalidSpec(String),
    /// The MachineClass does not exist.
    ClassMissing {
        /// Name of the class.
        class: String,
    },
    /// The class is being deleted: no new instances are created from it.
    ClassDeleting {
        /// Name of the class.
        class: String,
    },
    /// The class names another place of the cloud than the place in which the creation began.
    ClassMoved {
        /// Name of the class.
        class: String,
        /// The place in which the creation began.
        began: String,
        /// The place that the class names now.
        now: String,
    },
    /// The class was edited after a call that may have created the instance, and the cloud does not
    /// recognise a repetition of that call with the new class.
    CreationElsewhere {
        /// Name of the class.
        class: String,
        /// The key scope of that call, if it is known.
        began: Option<String>,
        /// The key scope that the class names now.
        now: String,
    },
    /// The class has no finalizer yet, so it might be deleted before its instances. The machine
    /// controller adds the finalizer.
    ClassUnheld {
        /// Name of the class.
        class: String,
    },
    /// The class is invalid.
    ClassInvalid {
        /// Name of the class.
        class: String,
        /// The field, and the expected value.
        message: String,
    },
    /// Fields of the MachineClass have no effect.
    FieldsWithoutEffect {
        /// The fields, with their paths.
        fields: Vec<String>,
    },
    /// A Secret that the class refers to does not exist.
    SecretMissing {
        /// `namespace/name`.
        secret: String,
        /// The class that refers to it.
        class: String,
    },
    /// The class refers to a Secret in a namespace that the controller does not read.
    SecretElsewhere {
        /// `namespace/name`.
        secret: String,
        /// The class that refers to it.
        class: String,
        /// The namespace that the controller reads.
        served: String,
    },
    /// The Secret lacks an entry.
    SecretIncomplete {
        /// `namespace/name`.
        secret: String,
        /// The missing entry.
        entry: String,
    },
    /// The instance exists, and the cloud has not completed it.
    Uninitialized {
        /// The instance.
        instance: String,
        /// The work that the cloud reports.
        message: String,
    },
    /// The instance exists, and the Node has not registered.
    Joining {
        /// Expected name of the Node.
        node: String,
        /// Whether the kubelet has used the bootstrap token.
        token: TokenUse,
    },
    /// The instance exists, has a problem, and the Node has not registered.
    BootFailed {
        /// The problem, as the status describes it.
        description: String,
    },
    /// The Node was not looked up: the cluster of the Nodes is not known. Only `machinist why`
    /// without `--target-kubeconfig` has this reason.
    NodeNotAsked {
        /// Name of the Node.
        node: String,
    },
    /// A Node with the expected name exists and does not belong to this Machine.
    NodeNotOurs {
        /// Name of the Node.
        node: String,
        /// Why the Node does not belong to the Machine.
        evidence: String,
    },
    /// The Machine's recorded id belongs to another provider.
    ProviderIdNotOurs {
        /// The recorded id.
        id: String,
        /// Format of this provider's ids.
        expected: String,
    },
    /// The Machine records another id than when its Node joined.
    ProviderIdOverwritten {
        /// The recorded id.
        id: String,
        /// The id that was recorded when the Node joined.
        joined_as: String,
        /// The Node with the mark of the Machine.
        node: String,
    },
    /// The Machine's recorded id cannot be parsed.
    ProviderIdMalformed {
        /// The recorded text.
        id: String,
        /// Format of this provider's ids.
        expected: String,
    },
    /// Other Secrets use every id that the Machine's bootstrap token may have.
    TokenIdsTaken,
    /// The call waits in the queue of the cloud account for its turn.
    Queued(Call),
    /// An instance with the Machine's name belongs to another owner. It is left alone.
    NamesakeInstance {
        /// The instance.
        instance: String,
        /// Why the instance does not belong to the Machine.
        evidence: String,
    },
    /// The Node exists and is unhealthy.
    Unhealthy {
        /// Name of the Node.
        node: String,
        /// The bad conditions, or that the Node is missing.
        conditions: String,
    },
    /// The Node is ready, but its critical components are not.
    CriticalComponents {
        /// Name of the Node.
        node: String,
    },
    /// The set deletes no Machines for its size, because its deployment wants a larger size now and
    /// has not written it yet.
    SizeOutdated {
        /// Name of the deployment.
        deployment: String,
        /// The replicas that the deployment wants for the set.
        size: u32,
    },
    /// The Machine is unhealthy for too long, but another Machine of the deployment is being
    /// replaced.
    ReplacementLimit {
        /// The Machine that is being replaced.
        other: String,
    },
    /// The Machine is unhealthy for too long, but the deployment already lacks Machines, so no
    /// replacement would follow.
    ReplacementGap {
        /// Number of live Machines.
        live: u32,
        /// Number of desired Machines.
        wanted: u32,
        /// A frozen set of the deployment, if any.
        frozen: Option<String>,
    },
    /// The Machine is unhealthy for too long, but the replacement could not be created: the
    /// creation of another Machine of the set failed.
    ReplacementImpossible {
        /// The Machine without an instance.
        machine: String,
        /// Description of the last operation of that Machine.
        description: String,
    },
    /// The Machine has failed, and its set will replace it.
    Failed {
        /// Description of the Machine's last operation.
        description: String,
    },
    /// The Machine has failed and is preserved.
    Preserved {
        /// Name of the Machine.
        machine: String,
        /// The expiry. If absent, the annotation preserves the Machine.
        until: Option<Timestamp>,
        /// The Node that has the annotation. If absent, the Machine has it.
        node: Option<String>,
    },
    /// The Machine has failed and is preserved, and pods are being evicted from its Node.
    PreservedDraining {
        /// Name of the Machine.
        machine: String,
        /// The expiry.
        until: Timestamp,
        /// Number of pods left.
        left: usize,
        /// The first pod that cannot be evicted.
        blocked: Option<BlockedPod>,
    },
    /// The Machine has failed, and its deployment is about to preserve it.
    AwaitingPreservation {
        /// Name of the Machine.
        machine: String,
        /// Name of the deployment.
        deployment: String,
    },
    /// Pods are being evicted from the Node.
    Draining {
        /// Number of pods left.
        left: usize,
        /// The first pod that cannot be evicted.
        blocked: Option<BlockedPod>,
    },
    /// The API server of the target cluster does not answer, and the next step needs its answer.
    NodesUnanswered {
        /// When the first request without an answer began.
        since: Timestamp,
        /// The error of the last request.
        error: String,
        /// The step that needs the answer, as a phrase.
        waiting: String,
    },
    /// The watch shows no pods on the Node. A list from the API server must confirm this before the
    /// instance is deleted.
    ConfirmingDrain {
        /// Name of the Node.
        node: String,
        /// Number of pods in the last list that the watch does not show; 0 without a list.
        left: usize,
    },
    /// The pods have left the Node, and volumes are still attached to it.
    VolumesAttached {
        /// Name of the Node.
        node: String,
        /// Number of VolumeAttachments.
        left: usize,
        /// The first VolumeAttachment.
        first: String,
        /// The PersistentVolume of the first VolumeAttachment, if it has one.
        volume: Option<String>,
    },
    /// A volume of an evicted pod was detached from the Node, and is not attached to another Node.
    VolumesUnattached {
        /// Name of the Node.
        node: String,
        /// Number of these volumes.
        left: usize,
        /// The PersistentVolume that is waited for the longest.
        volume: String,
        /// The claim of that volume, `namespace/name`.
        claim: String,
        /// The cloud's id of that volume.
        id: String,
    },
    /// Pods with volumes wait for their turn to be evicted.
    VolumeTurn {
        /// Number of pods.
        pods: usize,
        /// The volume of the pod that has its turn; absent while the outcome of its eviction is
        /// unknown.
        moving: Option<AwaitedVolume>,
    },
    /// The watch shows no Node of the Machine. The API server must confirm this before the instance
    /// is deleted.
    ConfirmingNoNode {
        /// Name of the Node.
        node: String,
    },
    /// The cloud could not start the instance, and does not try it again.
    InstanceFailed {
        /// The instance.
        instance: String,
        /// The message of the cloud about the instance.
        message: String,
    },
    /// The cloud is deleting the instance, and the instance still exists.
    InstanceDeleting {
        /// The instance.
        instance: String,
    },
    /// The instance is deleted, and parts of it still exist.
    PartsDeleting {
        /// The instance.
        instance: String,
        /// The parts, as the driver names them.
        parts: String,
    },
    /// The cloud does not show the instance, but it may still appear.
    AbsenceNotProven {
        /// The instance.
        instance: String,
    },
    /// The cloud shows neither the instance nor any other instance created with the same Secret:
    /// the credential seems to belong to another account.
    OtherAccount {
        /// The instance.
        instance: String,
        /// The object that contains the credential.
        opened_by: String,
    },
    /// The cloud does not show the instance, and nothing confirms the account, so a second lookup
    /// follows.
    SecondLook {
        /// The instance.
        instance: String,
    },
    /// The instance that the Machine records carries the key of another object.
    InstanceNotOurs {
        /// The instance.
        instance: String,
        /// The key of the instance.
        key: String,
        /// The cluster in the instance's tag.
        cluster: Option<String>,
        /// The Machine that holds this key, if any.
        holder: Option<String>,
    },
    /// The recorded instance has no key, and nothing shows that it belongs to the Machine.
    InstanceWithoutKey {
        /// The instance.
        instance: String,
        /// Why it does not count as the Machine's.
        doubt: String,
    },
    /// A MachineSet of the deployment cannot be parsed.
    SetUnreadable {
        /// Name of the MachineSet.
        set: String,
    },
    /// Another Machine owns the same recorded instance.
    InstanceShared {
        /// The instance.
        instance: String,
        /// The owner.
        machine: String,
    },
    /// Pods run on a Node with the Machine's name, and nothing proves whose Node it is.
    NodeOfUnknownOwner {
        /// Name of the Node.
        node: String,
        /// Number of pods that a drain would evict.
        pods: usize,
        /// Why the Node is not known to be the Machine's.
        evidence: String,
    },
    /// The Machine's class or credential is missing, so its instance cannot be deleted.
    CannotDeleteInstance {
        /// The missing object.
        missing: String,
    },
    /// The Node is being deleted.
    NodeLeaving {
        /// Name of the Node.
        node: String,
    },
    /// Machines are missing or not ready yet.
    MachinesPending {
        /// Number of available Machines.
        available: u32,
        /// Number of desired Machines.
        desired: u32,
        /// The first Machine that is not available, if any.
        first: Option<String>,
    },
    /// Machines are being deleted.
    MachinesLeaving {
        /// Number of Machines left.
        left: u32,
        /// The first of these Machines.
        first: Option<String>,
    },
    /// Other objects still use the object.
    InUse {
        /// The kind of the users, singular and plural.
        by: [&'static str; 2],
        /// Number of users.
        users: usize,
        /// The first user.
        first: String,
    },
    /// An object that may use the MachineClass or Secret cannot be parsed.
    UserUnreadable {
        /// Kind of the object.
        kind: &'static str,
        /// Name of the object.
        name: String,
    },
    /// Creating or deleting a child failed.
    ChildFailed {
        /// The message of the API server.
        message: String,
    },
    /// Several new Machines left the set soon after their creation.
    MachinesStray {
        /// The problem of the last one.
        message: String,
    },
    /// The set is frozen: it must not create Machines.
    Frozen {
        /// The reason of the condition; absent if only the label exists.
        by: Option<String>,
        /// Number of Machines of the set.
        machines: u32,
        /// The freeze is lifted at this number of Machines or fewer; absent while the deployment is
        /// unknown.
        most: Option<u32>,
        /// The message of the API server when it last rejected a creation or deletion.
        refused: Option<String>,
    },
    /// The set must not create Machines, because Machines of the deployment are being updated in
    /// place.
    ScaleUpDisabled,
    /// Machines of the deployment are being updated in place.
    UpdatingInPlace {
        /// Number of available Machines of the new template.
        updated: u32,
        /// Desired number of Machines.
        desired: u32,
        /// Name of the first Machine whose update has begun and not succeeded.
        waiting_for: Option<String>,
    },
    /// A Machine is being updated in place, or was and is moving to its new set.
    UpdatedInPlace {
        /// Name of the Machine.
        machine: String,
        /// The phase or label that shows the update, as a predicate.
        what: String,
    },
    /// An annotation names a Machine to delete that the deployment does not have.
    ChosenUnknown {
        /// Name in the annotation.
        machine: String,
    },
    /// The Machine is unhealthy for too long, but the set that owns it was not found.
    OwnerUnknown {
        /// Name of the set.
        set: String,
    },
    /// Instances of the account seem to have no Machine.
    Orphans {
        /// Number of these instances.
        count: usize,
        /// Provider id of the first one.
        first: String,
        /// Why that one is not deleted, or not yet.
        held: String,
    },
    /// The deployment is paused.
    Paused,
    /// A rollout waits: `maxSurge` allows no additional Machine.
    SurgeBound {
        /// Number of Machines, including those being deleted.
        machines: u32,
        /// The allowed maximum.
        most: u32,
        /// The first Machine that the rollout waits for.
        waiting_for: Option<String>,
    },
    /// A rollout waits: `maxUnavailable` allows no further unavailable Machine.
    UnavailableBound {
        /// Number of available Machines.
        available: u32,
        /// The required minimum.
        fewest: u32,
        /// The first Machine that the rollout waits for.
        waiting_for: Option<String>,
    },
    /// A rollout is in progress.
    RollingOut {
        /// Number of available Machines with the new template.
        updated: u32,
        /// Number of desired Machines.
        desired: u32,
    },
}

/// Returns why an object that is being deleted, without our finalizer, still exists.
pub(crate) fn why_finalizers_of_others(deleting_since: Option<Timestamp>) -> Why {
    let reason = Reason::Awaiting("waiting for other clients to remove their finalizers");
    Why::new(reason, Step::Expect("each client removes its finalizer")).since(deleting_since)
}

/// Returns why an object that is deleted without its children still exists.
pub(crate) fn why_orphaning(deleting_since: Option<Timestamp>) -> Why {
    let reason = Reason::Awaiting("waiting for the garbage collector to release the children");
    Why::new(reason, Step::Expect("the garbage collector removes its finalizer")).since(deleting_since)
}

/// Returns why a failed Machine is preserved, and how that ends.
pub(crate) fn why_preserved(machine: &MachineFacts, preserved: Preserved) -> Why {
    let node = (preserved.by == PreservedBy::Node).then(|| machine.node_name().to_owned());
    let annotation = annotations::PRESERVE;
    let next = match &node {
        Some(node) => format!(
            "remove the annotation {annotation} from Node {node}, or delete Machine {}, to replace the Machine",
            machine.name
        ),
        None => format!("remove the annotation {annotation} to replace the Machine"),
    };
    let reason = McmReason::Preserved { machine: machine.name.clone(), until: preserved.until, node };
    let why = match preserved.until {
        Some(until) => Why::new(reason, Step::Expect("the Node recovers"))
            .deadline(just_past(until), Step::Expect("the MachineSet deletes and replaces the Machine")),
        None => Why::new(reason, Step::Fix(next)),
    };
    why.since(machine.status.phase_since)
}

/// A pod that cannot be evicted yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BlockedPod {
    /// `namespace/name`.
    pub pod: String,
    /// `namespace/name` of the blocking PodDisruptionBudget, if known.
    pub budget: Option<String>,
    /// Whether the budget can never allow the eviction.
    pub never: bool,
    /// Why the API server rejects the request, if no budget is the reason.
    pub rejection: Option<RejectedRequest>,
}

/// A rejected request to remove a pod, with the API server's message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RejectedRequest {
    /// The eviction was rejected.
    Eviction(String),
    /// The deletion without grace was rejected.
    Deletion(String),
}

/// Whether a bootstrap token was used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum TokenUse {
    /// Unknown, because the running controllers do not watch signing requests.
    Unasked,
    /// No certificate was ever requested with the token.
    NeverUsed,
    /// A certificate was requested with the token.
    Used,
}

/// Returns why a Machine that is being updated in place, or was and is moving to its new set, is
/// left alone.
pub(crate) fn why_updated_in_place(machine: &MachineFacts) -> Why {
    let what = match machine.status.phase {
        Phase::InPlaceUpdating | Phase::InPlaceUpdateFailed => format!("is {}", machine.status.phase),
        _ => format!("has the label {}={}", labels::UPDATE_RESULT, labels::UPDATE_SUCCESSFUL),
    };
    let next = match machine.status.phase {
        Phase::InPlaceUpdateFailed => Step::Fix("repair the Node, or delete the Machine".to_owned()),
        Phase::InPlaceUpdating => Step::Expect("the program on the Node reports the result of the update"),
        _ => Step::Expect("the Machine moves to the MachineSet of the new template"),
    };
    Why::new(McmReason::UpdatedInPlace { machine: machine.name.clone(), what }, next)
        .since(machine.status.phase_since)
}

impl ContractReason for McmReason {
    fn code(&self) -> &'static str {
        self.into()
    }
}

impl fmt::Display for McmReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::InvalidSpec(message) => write!(f, "invalid spec: {message}"),
            Self::ClassMissing { class } => write!(f, "MachineClass {class} not found"),
            Self::ClassDeleting { class } => {
                write!(f, "MachineClass {class} is being deleted: no new instances are created from it")
            }
            Self::ClassMoved { class, began, now } => write!(
                f,
                "MachineClass {class} names {now} now, and the creation of this instance began in {began}"
            ),
            Self::CreationElsewhere { class, began, now } => {
                let began = began.as_deref().unwrap_or("another part of the cloud");
                write!(
                    f,
                    "checking that no instance was created in {began}: MachineClass {class} names {now} now, where \
                     the cloud would create a second one"
                )
            }
            Self::ClassUnheld { class } => {
                write!(
                    f,
                    "waiting for the finalizer of MachineClass {class}, which protects it while machines use it"
                )
            }
            Self::ClassInvalid { class, message } => {
                write!(f, "MachineClass {class} is invalid: {message}")
            }
            Self::FieldsWithoutEffect { fields } => {
                write!(f, "the class has fields without effect: {}", fields.join(", "))
            }
            Self::SecretMissing { secret, class } => {
                write!(f, "Secret {secret} not found (used by MachineClass {class})")
            }
            Self::SecretElsewhere { secret, class, served } => write!(
                f,
                "Secret {secret} of MachineClass {class} is not readable: the controller reads only namespace {served}"
            ),
            Self::SecretIncomplete { secret, entry } => {
                write!(f, "Secret {secret} has no entry {entry:?}")
            }
            Self::Uninitialized { instance, message } => {
                write!(f, "instance {instance} exists and is not initialized yet: {message}")
            }
            Self::Joining { node, token } => {
                write!(f, "waiting for Node {node} to register")?;
                match token {
                    TokenUse::Unasked => Ok(()),
                    TokenUse::NeverUsed => f.write_str(" (its bootstrap token was never used)"),
                    TokenUse::Used => f.write_str(" (its bootstrap token was used to request a certificate)"),
                }
            }
            Self::BootFailed { description } => f.write_str(description),
            Self::NodeNotAsked { node } => write!(
                f,
                "Node {node} was not looked up: it is not in the cluster of the Machine, and no other cluster is known"
            ),
            Self::NodeNotOurs { node, evidence } => {
                write!(
                    f,
                    "Node {node} does not belong to this machine ({evidence}); waiting for its deletion"
                )
            }
            Self::ProviderIdNotOurs { id, expected } => {
                write!(f, "spec.providerID belongs to another provider: expected {expected}, got {id:?}")
            }
            Self::ProviderIdOverwritten { id, joined_as, node } => {
                write!(f, "spec.providerID is {id}, and was {joined_as} when Node {node} joined")
            }
            Self::ProviderIdMalformed { id, expected } => {
                write!(f, "spec.providerID is malformed: expected {expected}, got {id:?}")
            }
            Self::TokenIdsTaken => f.write_str(
                "no free bootstrap token id: other Secrets use every id that this machine may take",
            ),
            Self::Queued(call) => write!(f, "waiting in the queue of the cloud account to {}", call.task()),
            Self::NamesakeInstance { instance, evidence } => write!(
                f,
                "checking that this machine has no instance: {instance} has its name but another owner ({evidence})"
            ),
            Self::Unhealthy { node, conditions } => write!(f, "Node {node} is unhealthy: {conditions}"),
            Self::CriticalComponents { node } => {
                write!(f, "critical components of Node {node} are not ready")
            }
            Self::SizeOutdated { deployment, size } => write!(
                f,
                "the size of this MachineSet is outdated: MachineDeployment {deployment} wants {} here, and has not written that yet",
                machines(*size)
            ),
            Self::ReplacementLimit { other } => {
                write!(f, "replacement waits: Machine {other} of the same deployment is being replaced")
            }
            Self::ReplacementImpossible { machine, description } => write!(
                f,
                "replacement waits: instances cannot be created, as Machine {machine} of the same set shows: {description}"
            ),
            Self::ReplacementGap { live, wanted, frozen } => {
                write!(f, "replacement waits: the deployment wants {} and has {live}", machines(*wanted))?;
                frozen.as_ref().map_or(Ok(()), |set| write!(f, "; MachineSet {set} is frozen"))
            }
            Self::Failed { description } => {
                write!(f, "waiting for the MachineSet to replace this machine: {description}")
            }
            Self::Preserved { machine, until: Some(until), node: _ } => {
                write!(f, "Machine {machine} has failed and is preserved until {until:.0}")
            }
            Self::Preserved { machine, until: None, node: None } => write!(
                f,
                "Machine {machine} has failed and is preserved by its annotation {}",
                annotations::PRESERVE
            ),
            Self::Preserved { machine, until: None, node: Some(node) } => write!(
                f,
                "Machine {machine} has failed and is preserved by the annotation {} of its Node {node}",
                annotations::PRESERVE
            ),
            Self::PreservedDraining { machine, until, left, blocked } => {
                write!(f, "Machine {machine} has failed and is preserved until {until:.0}; ")?;
                write_draining(f, *left, blocked.as_ref())
            }
            Self::AwaitingPreservation { machine, deployment } => write!(
                f,
                "Machine {machine} has failed, and MachineDeployment {deployment} is about to preserve it"
            ),
            Self::Draining { left, blocked } => write_draining(f, *left, blocked.as_ref()),
            Self::NodesUnanswered { since, error, waiting } => write!(
                f,
                "the API server of the target cluster has not answered since {since:.0} ({error}); {waiting}"
            ),
            Self::ConfirmingDrain { node, left } => {
                write!(f, "confirming with the API server that no pod is left on Node {node}")?;
                if *left == 0 { Ok(()) } else { write!(f, "; the last list showed {}", pods(*left)) }
            }
            Self::VolumesAttached { node, left, first, volume } => {
                match *left {
                    1 => write!(
                        f,
                        "waiting for a volume to be detached from Node {node}: VolumeAttachment {first}"
                    )?,
                    many => write!(
                        f,
                        "waiting for {many} volumes to be detached from Node {node}; the first is VolumeAttachment {first}"
                    )?,
                }
                volume.as_ref().map_or(Ok(()), |volume| write!(f, " of PersistentVolume {volume}"))
            }
            Self::VolumesUnattached { node, left, volume, claim, id } => {
                match *left {
                    1 => write!(
                        f,
                        "waiting for a volume to be attached to another Node, after it was detached from Node {node}:"
                    )?,
                    many => write!(
                        f,
                        "waiting for {many} volumes to be attached to other Nodes, after they were detached from Node {node}; the last is"
                    )?,
                }
                write!(f, " PersistentVolume {volume} of claim {claim}, volume {id} in the cloud")
            }
            Self::VolumeTurn { pods: count, moving } => {
                write!(f, "waiting to evict {} with volumes", pods(*count))?;
                match moving {
                    None => f.write_str("; the API server has not answered the eviction of another one"),
                    Some(AwaitedVolume { volume, claim, step: VolumeStep::Detach, .. }) => write!(
                        f,
                        " until PersistentVolume {volume} of claim {claim} is detached, and attached to another Node"
                    ),
                    Some(AwaitedVolume { volume, claim, step: VolumeStep::Attach, .. }) => {
                        write!(
                            f,
                            " until PersistentVolume {volume} of claim {claim} is attached to another Node"
                        )
                    }
                }
            }
            Self::ConfirmingNoNode { node } => {
                write!(f, "checking with the API server whether Node {node} exists")
            }
            Self::InstanceFailed { instance, message } => {
                write!(f, "the cloud has given up instance {instance}: {message}")
            }
            Self::InstanceDeleting { instance } => {
                write!(f, "waiting for the cloud to delete instance {instance}")
            }
            Self::PartsDeleting { instance, parts } => {
                write!(f, "waiting for the cloud to delete what is left of instance {instance}: {parts}")
            }
            Self::AbsenceNotProven { instance } => {
                write!(f, "checking that instance {instance} does not exist: the cloud may not show it yet")
            }
            Self::OtherAccount { instance, opened_by } => write!(
                f,
                "instance {instance} not found: the credential in {opened_by} seems to open another account, \
                 because the cloud shows no other instance from that time either"
            ),
            Self::SecondLook { instance } => write!(
                f,
                "instance {instance} not found: checking a second time, because no other Machine confirms the account"
            ),
            Self::InstanceNotOurs { instance, key, cluster, holder } => {
                write!(f, "instance {instance} has another owner: ")?;
                match (holder, cluster) {
                    (Some(machine), _) => write!(f, "it has the key of Machine {machine}"),
                    (None, Some(cluster)) => write!(f, "it has key {key} of cluster {cluster:?}"),
                    (None, None) => write!(f, "it has key {key} and no cluster tag"),
                }
            }
            Self::InstanceWithoutKey { instance, doubt } => {
                write!(f, "instance {instance} has no key, and {doubt}")
            }
            Self::SetUnreadable { set } => {
                write!(f, "its MachineSet {set} cannot be parsed, and may have all its Machines")
            }
            Self::InstanceShared { instance, machine } => {
                write!(f, "instance {instance} has another owner: Machine {machine} also records it")
            }
            Self::NodeOfUnknownOwner { node, pods, evidence } => {
                match pods {
                    1 => f.write_str("1 pod runs")?,
                    _ => write!(f, "{pods} pods run")?,
                }
                write!(f, " on Node {node}, and it is not known whose Node it is ({evidence})")
            }
            Self::CannotDeleteInstance { missing } => {
                write!(f, "the instance cannot be deleted without {missing}")
            }
            Self::NodeLeaving { node } => write!(f, "waiting for the deletion of Node {node}"),
            Self::MachinesPending { available, desired, first } => {
                write!(f, "{available} of {} available", machines(*desired))?;
                first.as_ref().map_or(Ok(()), |first| write!(f, "; the first unavailable machine is {first}"))
            }
            Self::MachinesLeaving { left, first } => {
                write!(f, "waiting for {} to be deleted", machines(*left))?;
                first.as_ref().map_or(Ok(()), |first| write!(f, "; the first is {first}"))
            }
            Self::UserUnreadable { kind, name } => {
                write!(f, "{kind} {name} may use it, and cannot be parsed")
            }
            Self::InUse { by: [one, several], users, first } => match users {
                1 => write!(f, "in use by {one} {first}"),
                many => write!(f, "in use by {many} {several}; the first is {first}"),
            },
            Self::ChildFailed { message } => {
                write!(f, "the API server rejected a change: {message}")
            }
            Self::MachinesStray { message } => {
                write!(
                    f,
                    "the set creates one Machine at a time, because it lost several new ones: {message}"
                )
            }
            Self::Frozen { by, machines: count, most, refused } => {
                match by {
                    Some(reason) => {
                        write!(f, "frozen ({reason})")?;
                    }
                    None => f.write_str("frozen by the label freeze, without a condition Frozen")?,
                }
                write!(f, "; the set has {}, and ", machines(*count))?;
                match most {
                    Some(most) => write!(f, "the freeze is lifted at {most} or fewer")?,
                    None => f.write_str("its MachineDeployment is unknown so far")?,
                }
                refused
                    .as_ref()
                    .map_or(Ok(()), |error| write!(f, "; the API server rejected a change: {error}"))
            }
            Self::ScaleUpDisabled => write!(
                f,
                "the label {} prevents scale-up: machines of the deployment are updated in place",
                labels::SCALE_UP_DISABLED
            ),
            Self::UpdatingInPlace { updated, desired, waiting_for } => {
                let are = if *updated == 1 { "is" } else { "are" };
                write!(f, "update in place: {updated} of {} {are} updated", machines(*desired))?;
                waiting_for.as_ref().map_or(Ok(()), |machine| write!(f, "; waiting for {machine}"))
            }
            Self::UpdatedInPlace { machine, what } => {
                write!(f, "Machine {machine} is being updated in place: it {what}")
            }
            Self::ChosenUnknown { machine } => write!(
                f,
                "Machine {machine} not found in this deployment (named by the annotation {})",
                annotations::TRIGGER_DELETION
            ),
            Self::OwnerUnknown { set } => {
                write!(f, "owner MachineSet {set} not found")
            }
            Self::Orphans { count: 1, first, held } => write!(f, "instance {first} has no Machine: {held}"),
            Self::Orphans { count, first, held } => {
                write!(f, "{count} instances have no Machine; the first is {first}: {held}")
            }
            Self::Paused => f.write_str("paused by spec.paused"),
            Self::SurgeBound { machines, most, waiting_for } => {
                let exist = if *machines == 1 { "machine exists" } else { "machines exist" };
                write!(f, "rollout limited by maxSurge: {machines} {exist}, at most {most} allowed")?;
                waiting_for.as_ref().map_or(Ok(()), |first| write!(f, "; waiting for {first}"))
            }
            Self::UnavailableBound { available, fewest, waiting_for } => {
                let are = are(*available);
                write!(
                    f,
                    "rollout limited by maxUnavailable: {available} {are} available, at least {fewest} must stay available"
                )?;
                waiting_for.as_ref().map_or(Ok(()), |first| write!(f, "; waiting for {first}"))
            }
            Self::RollingOut { updated, desired } => {
                write!(
                    f,
                    "rollout in progress: {updated} of {} {} updated",
                    machines(*desired),
                    are(*updated)
                )
            }
        }
    }
}

/// Renders a drain, with the pod that blocks it.
fn write_draining(f: &mut fmt::Formatter<'_>, left: usize, blocked: Option<&BlockedPod>) -> fmt::Result {
    write!(f, "waiting for {} to leave the Node", pods(left))?;
    match blocked {
        None => Ok(()),
        Some(BlockedPod { pod, rejection: Some(RejectedRequest::Eviction(message)), .. }) => {
            write!(f, "; the API server rejects the eviction of pod {pod}: {message}")
        }
        Some(BlockedPod { pod, rejection: Some(RejectedRequest::Deletion(message)), .. }) => {
            write!(f, "; the API server rejects the deletion of pod {pod}: {message}")
        }
        Some(BlockedPod { pod, budget: None, .. }) => write!(f, "; pod {pod} cannot be evicted"),
        Some(BlockedPod { pod, budget: Some(budget), never: false, .. }) => {
            write!(f, "; PodDisruptionBudget {budget} blocks the eviction of pod {pod}")
        }
        Some(BlockedPod { pod, budget: Some(budget), never: true, .. }) => {
            write!(f, "; PodDisruptionBudget {budget} never allows the eviction of pod {pod}")
        }
    }
}

/// Renders a number of pods.
fn pods(count: usize) -> String {
    format!("{count} {}", if count == 1 { "pod" } else { "pods" })
}

/// Renders a number of machines.
fn machines(count: u32) -> String {
    format!("{count} {}", if count == 1 { "machine" } else { "machines" })
}

fn are(count: u32) -> &'static str {
    if count == 1 { "is" } else { "are" }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn singular_and_plural_are_correct() {
        let pending = |available, desired| McmReason::MachinesPending { available, desired, first: None };
        let surge = |machines| McmReason::SurgeBound { machines, most: 3, waiting_for: None };
        for (reason, expected) in [
            (pending(0, 1), "0 of 1 machine available"),
            (pending(1, 3), "1 of 3 machines available"),
            (McmReason::MachinesLeaving { left: 1, first: None }, "waiting for 1 machine to be deleted"),
            (surge(1), "rollout limited by maxSurge: 1 machine exists, at most 3 allowed"),
            (surge(3), "rollout limited by maxSurge: 3 machines exist, at most 3 allowed"),
            (
                McmReason::RollingOut { updated: 1, desired: 3 },
                "rollout in progress: 1 of 3 machines is updated",
            ),
        ] {
            assert_eq!(reason.to_string(), expected);
        }
    }
}
