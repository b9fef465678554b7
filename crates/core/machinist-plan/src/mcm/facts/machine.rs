//! Facts of a Machine.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::NodeAddress;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use machinist_api::constants::{
    annotations, conditions, finalizers, labels, markers::DeletionMarker, reasons,
};
use machinist_api::{GoDuration, LastOperation, Machine, MachineSpec, Phase};
use machinist_instance::{AccountId, InstanceKey, KeyScope, NodeName, Place, ProviderId};
use machinist_labels::KeyValues;
use serde_json::Value;

use super::condition::ConditionFacts;
use super::node::NodeFacts;
use crate::facts::{
    ACCOUNT, EARLIER_CALLS_SINCE, INTENDED_ACCOUNT, INTENDED_KEY_SCOPE, INTENDED_PLACE, PLACE, RawJson,
    Version, recorded_wait,
};
use machinist_core::{Unseen, is_past};

/// On a Machine: the periods in which its deletion waited for a user, as intervals of ISO 8601. The
/// drain timeout leaves them out.
pub const DELETION_HELD: &str = "machinist.dev/deletion-held";

/// Where the next call may create the instance of a Machine, as it is written before that call: the
/// process may end after the call, and a user may change class or Secret.
#[derive(Debug, Clone, PartialEq, Eq, Default, Hash)]
pub struct CreationIntent {
    /// The account.
    pub account: Option<AccountId>,
    /// The place; absent for a cloud with only one.
    pub place: Option<Place>,
    /// The part of the place in which the cloud recognises a repetition; absent if that is the
    /// whole place.
    pub key_scope: Option<KeyScope>,
}

impl CreationIntent {
    /// Whether nothing was written.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// Planner facts of a Machine.
#[derive(Debug, Clone)]
pub struct MachineFacts {
    /// Version of the object.
    pub version: Version,
    /// Namespace of the Machine.
    pub namespace: String,
    /// Name of the Machine.
    pub name: String,
    /// UID, which is the key of the instance.
    pub uid: String,
    /// Generation, which guards changes of the whole spec.
    pub generation: Option<i64>,
    /// Creation timestamp, truncated to seconds.
    pub created: Timestamp,
    /// Deletion timestamp; absent unless the object is being deleted.
    pub deleting_since: Option<Timestamp>,
    /// Whether the Machine has our finalizer. The finalizer is the intent; without it no instance
    /// is created.
    pub has_finalizer: bool,
    /// All finalizers, raw, in order; absent if there are none.
    pub finalizers: Option<Vec<String>>,
    /// The controlling owner.
    pub owner: Option<OwnerFacts>,
    /// All owner references, raw; absent if there are none.
    pub(crate) raw_owners: Option<RawJson>,
    /// Labels. Guards distinguish absent from empty.
    pub labels: Option<KeyValues>,
    /// Annotations. Guards distinguish absent from empty.
    pub annotations: Option<KeyValues>,
    /// The spec, as on the wire.
    pub spec: MachineSpec,
    /// `spec.providerID`, unless empty. Any text records an instance, and only the provider can
    /// interpret it.
    pub provider_id: Option<ProviderId>,
    /// Label `node`.
    pub node: Option<NodeName>,
    /// Annotation effective-creation-timeout, else `spec.creationTimeout`.
    pub creation_timeout: Option<Duration>,
    /// Status of the Machine.
    pub status: StatusFacts,
}

/// The controlling owner of an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OwnerFacts {
    /// Kind of the owner.
    pub kind: String,
    /// Name of the owner.
    pub name: String,
    /// UID of the owner.
    pub uid: String,
}

impl MachineFacts {
    /// Reads a Machine.
    pub fn parse(machine: &Machine) -> Self {
        let metadata = &machine.metadata;
        let annotation = |key: &str| metadata.annotations.as_ref().and_then(|all| all.get(key));
        let effective_timeout = annotation(annotations::EFFECTIVE_CREATION_TIMEOUT)
            .and_then(|text| text.parse::<GoDuration>().ok())
            .or_else(|| machine.spec.configuration.creation_timeout());
        Self {
            version: Version::of(metadata),
            namespace: metadata.namespace.clone().unwrap_or_default(),
            name: metadata.name.clone().unwrap_or_default(),
            uid: metadata.uid.clone().unwrap_or_default(),
            generation: metadata.generation,
            created: metadata.creation_timestamp.as_ref().map_or(Timestamp::UNIX_EPOCH, |time| time.0),
            deleting_since: metadata.deletion_timestamp.as_ref().map(|time| time.0),
            has_finalizer: has_finalizer(metadata, finalizers::MACHINE_CONTROLLER_MANAGER),
            finalizers: metadata.finalizers.clone(),
            owner: OwnerFacts::controller_of(metadata),
            raw_owners: OwnerFacts::raw(metadata),
            labels: metadata.labels.as_ref().map(KeyValues::from),
            annotations: metadata.annotations.as_ref().map(KeyValues::from),
            provider_id: machine.spec.provider_id().and_then(|id| ProviderId::parse(id).ok()),
            spec: machine.spec.clone(),
            node: machine.node_name().and_then(NodeName::new),
            creation_timeout: effective_timeout.and_then(GoDuration::to_std),
            status: StatusFacts::parse(machine),
        }
    }

    /// Returns all owner references as read; absent if there are none. Guards repeat them.
    pub fn owners_as_read(&self) -> Option<Value> {
        self.raw_owners.as_ref().map(RawJson::value)
    }

    /// Returns the key of the instance.
    pub fn key(&self) -> InstanceKey {
        InstanceKey::new(&self.uid)
    }

    /// Returns the value of a label.
    pub fn label(&self, key: &str) -> Option<&str> {
        self.labels.as_ref()?.get(key)
    }

    /// Returns the value of an annotation.
    pub fn annotation(&self, key: &str) -> Option<&str> {
        self.annotations.as_ref()?.get(key)
    }

    /// Returns the recorded account in which the instance was created.
    pub fn account(&self) -> Option<AccountId> {
        self.annotation(ACCOUNT).and_then(AccountId::recorded)
    }

    /// Returns the recorded place of the instance.
    pub fn place(&self) -> Option<Place> {
        self.annotation(PLACE).map(Place::new)
    }

    /// Returns what was written on the Machine before a call that may create the instance. A
    /// bootstrap token records it otherwise.
    pub fn intent(&self) -> CreationIntent {
        CreationIntent {
            account: self.annotation(INTENDED_ACCOUNT).and_then(AccountId::recorded),
            place: self.annotation(INTENDED_PLACE).map(Place::new),
            key_scope: self.annotation(INTENDED_KEY_SCOPE).map(KeyScope::new),
        }
    }

    /// Returns the recorded periods in which the deletion waited for a user.
    pub fn deletion_held(&self) -> Unseen {
        self.annotation(DELETION_HELD).map(Unseen::parse).unwrap_or_default()
    }

    /// Since when no process creates the instance, as the first process recorded that had to wait
    /// for the calls of earlier ones.
    pub fn no_creation_since(&self) -> Option<Timestamp> {
        recorded_wait(self.annotation(EARLIER_CALLS_SINCE)?, self.deleting_since)
    }

    /// Whether an instance of this name may be the Machine's: it is the name of the Machine, or in
    /// some clouds the name of the Node.
    pub fn may_name(&self, instance: &NodeName) -> bool {
        [self.name.as_str(), self.node_name()].contains(&instance.as_str())
    }

    /// Returns the actual or expected name of the Node: the label `node`, or else the Machine's
    /// name.
    pub fn node_name(&self) -> &str {
        self.node.as_ref().map_or(&self.name, NodeName::as_str)
    }

    /// Whether the label `force-deletion` requests deletion without waiting for pods.
    pub fn wants_force_deletion(&self) -> bool {
        self.label(labels::FORCE_DELETION).and_then(labels::parse_bool).unwrap_or(false)
    }

    /// Returns how the Machine is preserved, even if it has failed; see [`Preserved`].
    ///
    /// An expiry in the status decides alone, whether it is ahead or past. Without an expiry, an
    /// annotation decides: the annotation of the Node before the annotation of the Machine. The
    /// Node's value is read from the Machine, where the machine controller writes it
    /// ([`Self::preserve_news`]), because the manager does not watch Nodes.
    pub fn preserved(&self, now: Timestamp) -> Option<Preserved> {
        let (value, by) = self.preserve_value();
        let by_itself = value == annotations::PRESERVE_AUTO;
        if let Some(until) = self.status.preserve_until {
            let preserved = Preserved { until: Some(until), by_itself, by: PreservedBy::Expiry };
            return (!is_past(now, until)).then_some(preserved);
        }
        let keeps = match value {
            annotations::PRESERVE_NOW => true,
            annotations::PRESERVE_WHEN_FAILED | annotations::PRESERVE_AUTO => {
                self.status.phase == Phase::Failed
            }
            _ => false,
        };
        keeps.then_some(Preserved { until: None, by_itself, by })
    }

    /// Returns the value that decides about the preservation, and the object that has it. The value
    /// of the Node, as last written to the Machine, comes before the value of the Machine. An
    /// unknown value counts as absent, so it is empty.
    pub fn preserve_value(&self) -> (&str, PreservedBy) {
        let own = self.annotation(annotations::PRESERVE).filter(|value| is_preserve_value(value));
        match self.carried_preserve() {
            "" => (own.unwrap_or_default(), PreservedBy::Machine),
            of_node => (of_node, PreservedBy::Node),
        }
    }

    /// Whether the Machine has the annotation value of the automatic preservation.
    pub fn is_auto_preserved(&self) -> bool {
        self.preserve_value().0 == annotations::PRESERVE_AUTO
    }

    /// Whether the pods of the Machine's Node may have to be evicted: the Machine is being deleted,
    /// it has failed and is preserved, or it is selected for an update in place.
    pub fn may_be_drained(&self) -> bool {
        let is_kept = self.status.phase == Phase::Failed && self.status.preserve_until.is_some();
        self.deleting_since.is_some() || is_kept || self.undergoes_update()
    }

    /// Whether the label `force-drain` requests a drain without waiting for pods.
    pub fn wants_force_drain(&self) -> bool {
        self.label(labels::FORCE_DRAIN) == Some("True")
    }

    /// Returns the Node's annotation as last written to the Machine; empty if there is none.
    fn carried_preserve(&self) -> &str {
        self.annotation(annotations::LAST_APPLIED_NODE_PRESERVE_VALUE).unwrap_or_default()
    }

    /// Returns the preserve annotation of the Node if the Machine does not carry that value yet.
    /// Returns an empty string if the Node no longer has the annotation.
    pub fn preserve_news(&self, node: &NodeFacts) -> Option<String> {
        let value = node.preserve()?;
        (value != self.carried_preserve()).then(|| value.to_owned())
    }

    /// Whether an in-place update of the instance is running or has failed.
    pub fn is_updating_in_place(&self) -> bool {
        matches!(self.status.phase, Phase::InPlaceUpdating | Phase::InPlaceUpdateFailed)
    }

    /// Whether the instance was updated in place and the Machine is moving to its new set.
    pub fn is_updated_in_place(&self) -> bool {
        self.label(labels::UPDATE_RESULT) == Some(labels::UPDATE_SUCCESSFUL)
    }

    /// Whether the manager has selected the Machine for an update in place.
    pub fn is_selected_for_update(&self) -> bool {
        self.label(labels::SELECTED_FOR_UPDATE).is_some()
    }

    /// Returns the stage of an update in place, as the Machine shows it: the reason of the copied
    /// condition of its Node.
    pub fn update_stage(&self) -> Option<&str> {
        let mut conditions = self.status.conditions.iter();
        let shown = conditions.find(|condition| condition.kind == conditions::NODE_IN_PLACE_UPDATE);
        shown.map(ConditionFacts::reason)
    }

    /// Whether the Machine is selected for an update in place that has not succeeded yet. A user
    /// selects the Node, which the Machine shows by the copy of its condition.
    pub fn undergoes_update(&self) -> bool {
        const STAGES: [&str; 3] =
            [reasons::SELECTED_FOR_UPDATE, reasons::DRAIN_SUCCESSFUL, reasons::READY_FOR_UPDATE];
        let is_shown = self.update_stage().is_some_and(|stage| STAGES.contains(&stage));
        !self.is_updated_in_place()
            && (self.is_selected_for_update() || self.is_updating_in_place() || is_shown)
    }

    /// Returns the stage of the deletion that the status names.
    pub fn deletion_marker(&self) -> Option<DeletionMarker> {
        self.status.operation.deletion_marker()
    }
}

/// A preserved Machine: it is not deleted when it fails, and it is deleted last when a set has too
/// many.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Preserved {
    /// The expiry. If absent, the annotation preserves the Machine until the annotation is removed.
    pub until: Option<Timestamp>,
    /// Whether the set chose the Machine automatically, not a user.
    pub by_itself: bool,
    /// The source of the promise.
    pub by: PreservedBy,
}

/// The source that preserves a Machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PreservedBy {
    /// The expiry in the Machine's status.
    Expiry,
    /// The Machine's annotation.
    Machine,
    /// The Node's annotation.
    Node,
}

/// Whether a text is a value of the preserve annotation. An empty text stands for no annotation.
pub(super) fn is_preserve_value(text: &str) -> bool {
    const VALUES: [&str; 5] = [
        "",
        annotations::PRESERVE_NOW,
        annotations::PRESERVE_WHEN_FAILED,
        annotations::PRESERVE_AUTO,
        annotations::PRESERVE_FALSE,
    ];
    VALUES.contains(&text)
}

/// Whether an object has a finalizer.
pub(crate) fn has_finalizer(metadata: &ObjectMeta, finalizer: &str) -> bool {
    metadata.finalizers.as_ref().is_some_and(|all| all.iter().any(|f| f == finalizer))
}

impl StatusFacts {
    /// Whether a status with this phase keeps the expiry. Every phase except the last keeps it.
    pub fn keeps_promise_in(phase: &Phase) -> bool {
        *phase != Phase::Terminating
    }

    fn parse(machine: &Machine) -> Self {
        let Some(status) = &machine.status else { return Self::default() };
        let read = match &status.current_status {
            None => ReadPhase::NoCurrentStatus,
            Some(current) => ReadPhase::Read {
                phase: current.phase.as_ref().map(|phase| phase.as_str().to_owned()),
                since: current.last_update_time.as_ref().map(|time| time.as_str().to_owned()),
            },
        };
        let current = status.current_status.clone().unwrap_or_default();
        Self {
            read,
            phase: current.phase.unwrap_or_default(),
            phase_since: current.last_update_time.map(|time| time.at()),
            timeout_active: current.timeout_active,
            preserve_until: current.preserve_expiry_time.map(|time| time.0),
            operation: status.last_operation.clone().unwrap_or_default(),
            conditions: status.conditions.iter().map(ConditionFacts::of).collect(),
            addresses: status.addresses.clone(),
            last_known_state: status.last_known_state.clone().filter(|state| !state.is_empty()),
        }
    }
}

impl OwnerFacts {
    /// Returns all owner references as on the wire: a guard must repeat them.
    pub(crate) fn raw(metadata: &ObjectMeta) -> Option<RawJson> {
        metadata.owner_references.as_ref().and_then(RawJson::of)
    }

    /// Returns the controlling owner of an object.
    pub fn controller_of(metadata: &ObjectMeta) -> Option<Self> {
        let controls = |owner: &&OwnerReference| owner.controller == Some(true);
        metadata.owner_references.as_ref()?.iter().find(controls).map(|owner| Self {
            kind: owner.kind.clone(),
            name: owner.name.clone(),
            uid: owner.uid.clone(),
        })
    }
}

/// Planner facts of a Machine's status.
#[derive(Debug, Clone, Default)]
pub struct StatusFacts {
    /// The phase as it was read. Every status write tests it.
    pub read: ReadPhase,
    /// `currentStatus.phase`; empty if it is absent.
    pub phase: Phase,
    /// `currentStatus.lastUpdateTime`: when the phase last changed.
    pub phase_since: Option<Timestamp>,
    /// `currentStatus.timeoutActive`.
    pub timeout_active: bool,
    /// `currentStatus.preserveExpiryTime`: until when the Machine is preserved.
    pub preserve_until: Option<Timestamp>,
    /// `lastOperation`.
    pub operation: LastOperation,
    /// Conditions copied from the Node.
    pub conditions: Box<[ConditionFacts]>,
    /// Addresses of the instance; only without a target cluster.
    pub addresses: Vec<NodeAddress>,
    /// The text that the driver stores; absent if empty.
    pub last_known_state: Option<String>,
}

/// The phase of a Machine as read. The guard of a status write repeats it.
///
/// Absent and empty differ, and it matters which level is absent: a JSON patch cannot test a path
/// below a missing object.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum ReadPhase {
    /// The Machine has no `status`.
    #[default]
    NoStatus,
    /// The `status` has no `currentStatus`.
    NoCurrentStatus,
    /// The `status` has a `currentStatus`.
    Read {
        /// `phase`; absent and empty differ.
        phase: Option<String>,
        /// `lastUpdateTime`.
        since: Option<String>,
    },
}
