//! Facts of a Machine.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use machinist_api::constants::{annotations, finalizers, labels, markers::DeletionMarker};
use machinist_api::{GoDuration, LastOperation, Machine, MachineSpec, Phase};
use machinist_instance::{AccountId, InstanceKey, NodeName, ProviderId};
use serde_json::Value;

use super::{NodeFacts, Version};
use machinist_core::is_past;

/// Annotation of a Machine: the account that its instance was made in, written together with the provider id. A hash; see
/// [`AccountId`].
pub const ACCOUNT: &str = "machinist.dev/account";

/// What planners know of a Machine.
#[derive(Debug, Clone)]
pub struct MachineFacts {
    /// Which version of the object this is.
    pub version: Version,
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Its UID: the key of its instance.
    pub uid: String,
    /// Its generation: guards changes of its spec as a whole.
    pub generation: Option<i64>,
    /// When it was created, cut to seconds.
    pub created: Timestamp,
    /// When deletion was asked for.
    pub deleting_since: Option<Timestamp>,
    /// Whether our finalizer is on it: the intent, without which no instance is made.
    pub has_finalizer: bool,
    /// All finalizers, raw, in order; absent when there are none.
    pub finalizers: Option<Vec<String>>,
    /// The controlling owner.
    pub owner: Option<OwnerFacts>,
    /// All owner references, raw; absent when there are none.
    pub raw_owners: Option<Value>,
    /// Its labels; absent and empty differ for guards.
    pub labels: Option<BTreeMap<String, String>>,
    /// Its annotations; absent and empty differ for guards.
    pub annotations: Option<BTreeMap<String, String>>,
    /// Its spec, as on the wire.
    pub spec: MachineSpec,
    /// `spec.providerID`, if it is not empty. Any text is the record of an instance; what it means, only the provider knows.
    pub provider_id: Option<ProviderId>,
    /// Label `node`.
    pub node: Option<NodeName>,
    /// Annotation effective-creation-timeout, else `spec.creationTimeout`.
    pub creation_timeout: Option<Duration>,
    /// Its status.
    pub status: StatusFacts,
}

/// Who controls an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OwnerFacts {
    /// The owner's kind.
    pub kind: String,
    /// The owner's name.
    pub name: String,
    /// The owner's UID.
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
            labels: metadata.labels.clone(),
            annotations: metadata.annotations.clone(),
            provider_id: machine.spec.provider_id().and_then(|id| ProviderId::parse(id).ok()),
            spec: machine.spec.clone(),
            node: machine.node_name().and_then(NodeName::new),
            creation_timeout: effective_timeout.and_then(GoDuration::to_std),
            status: StatusFacts::parse(machine),
        }
    }

    /// The key of its instance.
    pub fn key(&self) -> InstanceKey {
        InstanceKey::new(&self.uid)
    }

    /// One label.
    pub fn label(&self, key: &str) -> Option<&str> {
        self.labels.as_ref()?.get(key).map(String::as_str)
    }

    /// One annotation.
    pub fn annotation(&self, key: &str) -> Option<&str> {
        self.annotations.as_ref()?.get(key).map(String::as_str)
    }

    /// The account that its instance was made in, as it was recorded.
    pub fn account(&self) -> Option<AccountId> {
        self.annotation(ACCOUNT).and_then(AccountId::recorded)
    }

    /// The name its Node has, or will have: label `node`, else the Machine's own.
    pub fn node_name(&self) -> &str {
        self.node.as_ref().map_or(&self.name, NodeName::as_str)
    }

    /// Whether its label asks for deletion without waiting for pods.
    pub fn wants_force_deletion(&self) -> bool {
        self.label(labels::FORCE_DELETION).and_then(labels::parse_bool).unwrap_or(false)
    }

    /// Whether it is kept although it may have failed, because somebody promised so: as [`Preserved`] says.
    ///
    /// An expiry decides alone, ahead or past. Without one an annotation does: the Node's before the Machine's own. What the Node
    /// says is read from the Machine, where the machine controller writes it ([`Self::preserve_news`]): the manager sees no Nodes.
    pub fn preserved(&self, now: Timestamp) -> Option<Preserved> {
        let of_node = self.carried_preserve();
        let (value, by) = match of_node {
            "" => (self.annotation(annotations::PRESERVE).unwrap_or_default(), PreservedBy::Machine),
            of_node => (of_node, PreservedBy::Node),
        };
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

    /// The value of its Node's annotation, as it was last written to the Machine; empty if there is none.
    fn carried_preserve(&self) -> &str {
        self.annotation(annotations::LAST_APPLIED_NODE_PRESERVE_VALUE).unwrap_or_default()
    }

    /// What its Node says about preserving it, if the Machine does not carry that yet; empty if the Node says nothing any more.
    pub fn preserve_news(&self, node: &NodeFacts) -> Option<String> {
        let value = node.preserve()?;
        (value != self.carried_preserve()).then(|| value.to_owned())
    }

    /// Whether its instance is being updated without being replaced, or that has failed.
    pub fn is_updating_in_place(&self) -> bool {
        matches!(self.status.phase, Phase::InPlaceUpdating | Phase::InPlaceUpdateFailed)
    }

    /// Whether its instance was updated without being replaced, and the Machine is on its way to its new set.
    pub fn is_updated_in_place(&self) -> bool {
        self.label(labels::UPDATE_RESULT) == Some(labels::UPDATE_SUCCESSFUL)
    }

    /// The stage of its deletion that its status names.
    pub fn deletion_marker(&self) -> Option<DeletionMarker> {
        self.status.operation.deletion_marker()
    }
}

/// A Machine that is kept: not deleted for having failed, and last when there are too many.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Preserved {
    /// Until when; for as long as its annotation says so, if absent.
    pub until: Option<Timestamp>,
    /// Whether its set chose it, and no person.
    pub by_itself: bool,
    /// Where that is said.
    pub by: PreservedBy,
}

/// What says that a Machine is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PreservedBy {
    /// The expiry in its status.
    Expiry,
    /// Its own annotation.
    Machine,
    /// The annotation of its Node.
    Node,
}

/// Whether a finalizer is on an object.
pub(crate) fn has_finalizer(metadata: &ObjectMeta, finalizer: &str) -> bool {
    metadata.finalizers.as_ref().is_some_and(|all| all.iter().any(|f| f == finalizer))
}

impl StatusFacts {
    /// Whether a status of that phase carries the expiry on: a promise outlives every phase but the last.
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
            conditions: status.conditions.iter().filter_map(ConditionFacts::of).collect(),
        }
    }
}

impl ConditionFacts {
    /// Reads any condition: they all have the same five fields.
    pub fn of(condition: &impl serde::Serialize) -> Option<Self> {
        let raw = serde_json::to_value(condition).ok()?;
        let text = |field: &str| raw.get(field).and_then(Value::as_str).unwrap_or_default().to_owned();
        let since = text("lastTransitionTime").parse().ok();
        Some(Self { kind: text("type"), status: text("status"), reason: text("reason"), since, raw })
    }
}

impl OwnerFacts {
    /// All owner references of an object, as on the wire: what a guard must repeat.
    pub(crate) fn raw(metadata: &ObjectMeta) -> Option<Value> {
        metadata.owner_references.as_ref().and_then(|all| serde_json::to_value(all).ok())
    }

    /// The controlling owner among the references of an object.
    pub fn controller_of(metadata: &ObjectMeta) -> Option<Self> {
        let controls = |owner: &&OwnerReference| owner.controller == Some(true);
        metadata.owner_references.as_ref()?.iter().find(controls).map(|owner| Self {
            kind: owner.kind.clone(),
            name: owner.name.clone(),
            uid: owner.uid.clone(),
        })
    }
}

/// What planners know of a Machine's status.
#[derive(Debug, Clone, Default)]
pub struct StatusFacts {
    /// The phase as it was read, which every write of the status tests.
    pub read: ReadPhase,
    /// `currentStatus.phase`; empty if it is absent.
    pub phase: Phase,
    /// `currentStatus.lastUpdateTime`: since when the phase is what it is.
    pub phase_since: Option<Timestamp>,
    /// `currentStatus.timeoutActive`.
    pub timeout_active: bool,
    /// `currentStatus.preserveExpiryTime`: until when somebody promised to keep it.
    pub preserve_until: Option<Timestamp>,
    /// `lastOperation`.
    pub operation: LastOperation,
    /// Conditions copied from the Node, raw.
    pub conditions: Vec<ConditionFacts>,
}

/// The phase of a Machine as its text was read: what the guard of a status write repeats.
///
/// Absent and empty differ, and so does what is absent: a JSON patch cannot look below an object that is not there.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum ReadPhase {
    /// There is no `status`.
    #[default]
    NoStatus,
    /// There is a `status` without `currentStatus`.
    NoCurrentStatus,
    /// There is a `currentStatus`.
    Read {
        /// Its `phase`; absent and empty differ.
        phase: Option<String>,
        /// Its `lastUpdateTime`.
        since: Option<String>,
    },
}

/// One condition, with what is compared taken out of it.
#[derive(Debug, Clone, PartialEq)]
pub struct ConditionFacts {
    /// Its type, for example `Ready`.
    pub kind: String,
    /// `True`, `False` or `Unknown`.
    pub status: String,
    /// Its reason.
    pub reason: String,
    /// Since when its status is what it is.
    pub since: Option<Timestamp>,
    /// All of it, as it is copied.
    pub raw: Value,
}
