//! The calls for one Machine, as values, and the reasons of its Events.

use super::node_condition::{PreservedCondition, UpdateCondition};
use super::node_sync::NodeSync;
use super::status::StatusWrite;
use crate::event::Severity;
use crate::mcm::drain::{self};
use crate::mcm::facts::{AttachmentFacts, CreationIntent, NodeFacts, TokenFacts};
use jiff::Timestamp;
use machinist_api::MachinePriority;
use machinist_api::constants::reasons;
use machinist_core::Call;
use machinist_core::Permit;
use machinist_instance::{AccountId, InstanceKey, InstanceRef, NodeName, Place, ProviderId};
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

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
        /// Where the instance will be created. The token keeps this record if the process dies.
        intent: CreationIntent,
    },
    /// DELETEs the bootstrap token Secret.
    DeleteToken(Box<TokenFacts>),
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
    /// Records where the next call may create the instance.
    RecordIntent(CreationIntent),
    /// Records since when no process creates the instance of this deleted Machine.
    RecordWait(Timestamp),
    /// Asks the driver to complete the recorded instance.
    Initialize,
    /// Asks the driver to look up the instance.
    Find(InstanceRef),
    /// Asks the driver how the instance boots.
    ObserveBoot(InstanceRef),
    /// Asks the driver to delete the instance.
    Delete(Permit),
    /// Writes the label `node`, the provider id, the account, the place and, if missing, the
    /// priority to the Machine.
    Record {
        /// Name of the Node. A name that is not a valid label value is omitted, because an invalid
        /// label must not prevent the record of the id.
        node: Option<NodeName>,
        /// The provider id.
        provider_id: ProviderId,
        /// The account that showed the instance.
        account: Option<AccountId>,
        /// The place of that account.
        place: Option<Place>,
        /// The priority to write if the Machine has none.
        priority: Option<MachinePriority>,
    },
    /// Writes the label `node` to the Machine.
    LabelNode(NodeName),
    /// Copies the preserve annotation of the Node to the Machine, where the manager reads it; empty
    /// if the Node no longer has the annotation.
    CarryPreserve(String),
    /// Removes the annotations of the Machine that ask for its preservation.
    ForgetPreserve,
    /// Writes until when the Machine is preserved, or removes that time.
    SetPreserveExpiry(Option<Timestamp>),
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
    /// Writes the condition Preserved to the Node.
    SetPreserved {
        /// The Node.
        node: Arc<NodeFacts>,
        /// The condition.
        condition: PreservedCondition,
    },
    /// Writes the condition InPlaceUpdate to the Node.
    SetUpdate {
        /// The Node.
        node: Arc<NodeFacts>,
        /// The condition.
        condition: UpdateCondition,
    },
    /// Writes resources to the capacity of the Node, and removes those without a value.
    SetCapacity {
        /// The Node.
        node: Arc<NodeFacts>,
        /// The resources.
        changes: BTreeMap<String, Option<String>>,
    },
    /// Labels the Machine as updated in place, so that it moves to its new set.
    LabelUpdated,
    /// Makes the Node unschedulable.
    Cordon(Arc<NodeFacts>),
    /// Evicts or deletes a pod.
    Drain(drain::PodCall),
    /// Remembers the waits for the volumes of pods that leave. Nothing is written.
    NoteVolumes(BTreeMap<String, drain::VolumeWait>),
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

impl Action {
    /// Whether the action is a request to the API server of the target cluster.
    pub fn is_for_the_nodes(&self) -> bool {
        match self {
            Self::SyncNode(_)
            | Self::SetTerminating { .. }
            | Self::SetPreserved { .. }
            | Self::SetUpdate { .. }
            | Self::SetCapacity { .. }
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
            | Self::RecordIntent(_)
            | Self::RecordWait(_)
            | Self::Rekey { .. }
            | Self::Initialize
            | Self::Find(_)
            | Self::ObserveBoot(_)
            | Self::Delete(_)
            | Self::Record { .. }
            | Self::LabelNode(_)
            | Self::CarryPreserve(_)
            | Self::ForgetPreserve
            | Self::LabelUpdated
            | Self::SetPreserveExpiry(_)
            | Self::RecordHold(_)
            | Self::SetStatus(_)
            | Self::DeleteMachine
            | Self::NoteVolumes(_)
            | Self::RemoveFinalizer
            | Self::Tell { .. } => false,
        }
    }

    /// Returns a Warning Event.
    pub(super) fn warn(reason: &'static str, message: impl Into<String>) -> Self {
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
            Self::RecordIntent(_) => f.write_str("machine: record the account and place of the creation"),
            Self::RecordWait(_) => f.write_str("machine: record the wait for earlier calls"),
            Self::Rekey { id, from } => write!(f, "driver: rekey {id} from {from}"),
            Self::Initialize => f.write_str("driver: initialize"),
            Self::Find(which) => write!(f, "driver: find {which}"),
            Self::ObserveBoot(which) => write!(f, "driver: observe the boot of {which}"),
            Self::Delete(permit) => write!(f, "driver: delete {} because {permit}", permit.which()),
            Self::Record { node: Some(node), provider_id, .. } => {
                write!(f, "machine: record node {node} and {provider_id}")
            }
            Self::Record { node: None, provider_id, .. } => write!(f, "machine: record {provider_id}"),
            Self::LabelNode(node) => write!(f, "machine: label node {node}"),
            Self::CarryPreserve(value) => write!(f, "machine: record preserve {value:?} of its node"),
            Self::ForgetPreserve => f.write_str("machine: remove the preserve annotations"),
            // Without the time, which differs in each pass: a pass must recognize that it repeats
            // an action.
            Self::SetPreserveExpiry(Some(_)) => f.write_str("status: preserved until the timeout"),
            Self::SetPreserveExpiry(None) => f.write_str("status: no longer preserved"),
            Self::RecordHold(held) => write!(f, "machine: record that the deletion waited, {held}"),
            Self::SetStatus(write) => write!(f, "status: {write}"),
            Self::SyncNode(sync) => write!(f, "node {}: {sync}", sync.node.name),
            Self::SetTerminating { node, reason } => write!(f, "node {}: Terminating, {reason}", node.name),
            Self::SetUpdate { node, condition } => write!(f, "node {}: {condition}", node.name),
            Self::SetCapacity { node, changes } => {
                let named = changes.iter().map(|(key, value)| match value {
                    Some(value) => format!("{key}={value}"),
                    None => format!("-{key}"),
                });
                write!(f, "node {}: capacity {}", node.name, named.collect::<Vec<_>>().join(" "))
            }
            Self::LabelUpdated => f.write_str("machine: label as updated"),
            Self::SetPreserved { node, condition } => write!(f, "node {}: {condition}", node.name),
            Self::Cordon(node) => write!(f, "node {}: cordon", node.name),
            Self::Drain(drain::PodCall::Evict(pod)) => write!(f, "pod {}/{}: evict", pod.namespace, pod.name),
            Self::Drain(drain::PodCall::Delete(pod)) => {
                write!(f, "pod {}/{}: delete without grace", pod.namespace, pod.name)
            }
            // The numbers differ in each note of a drain, so the notes do not count as one action
            // that is repeated without an end.
            Self::NoteVolumes(waits) => {
                let leaving = waits.values().filter(|wait| wait.leaving_since.is_some()).count();
                let detached = waits.values().filter(|wait| wait.detached_since.is_some()).count();
                let pods = waits.len();
                write!(f, "memory: volumes of {pods} pods, {leaving} leaving, {detached} detached")
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
/// Reason of the Event for an instance that a forced deletion leaves in the cloud. No other Event
/// has it, because the recorder delays repetitions of a reason, and the process may end before.
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
/// Reason of the Event for an update in place that failed.
pub const UPDATE_FAILED: &str = reasons::UPDATE_FAILED;
/// Reason of the Event for a Machine that is preserved from now on.
pub const PRESERVED: &str = "MachinePreserved";
/// Reason of the Event for a Machine that is no longer preserved.
pub const PRESERVATION_ENDED: &str = "PreservationEnded";
