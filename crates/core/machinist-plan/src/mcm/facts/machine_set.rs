//! Facts of a MachineSet.

use std::collections::BTreeMap;

use jiff::Timestamp;
use machinist_api::constants::{annotations, finalizers, labels};
use machinist_api::validation::validate_machine_set;
use machinist_api::{MachineSet, MachineSetSpec, MachineSetStatus};
use machinist_labels::Selector;
use serde_json::Value;

use super::freeze::FreezeFacts;
use super::machine::OwnerFacts;
use super::machine::has_finalizer;
use crate::facts::{RawJson, Version};

/// Annotation of a MachineSet: the autoscaler must not remove the Nodes of its Machines, because a
/// rollout of the deployment is running. The value is `true`.
pub const PROTECTED_FROM_AUTOSCALER: &str = "machinist.dev/protected-from-autoscaler";

/// The state that a set wants for the Nodes of its Machines. The manager decides it and marks the
/// set; the machine controller, which watches Nodes, writes it to them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct NodeMarks {
    /// The template is outdated, so pods should prefer other Nodes.
    pub is_outdated: bool,
    /// Whether the autoscaler must not remove the Nodes. Absent while the manager has not decided
    /// it: another set of the deployment has Machines, so Go MCM may have begun the rollout.
    pub is_protected: Option<bool>,
    /// The Nodes may be selected for an update in place.
    pub is_candidate: bool,
}

/// Planner facts of a MachineSet.
#[derive(Debug, Clone)]
pub struct MachineSetFacts {
    /// Version of the object.
    pub version: Version,
    /// Namespace of the MachineSet.
    pub namespace: String,
    /// Name of the MachineSet.
    pub name: String,
    /// UID of the MachineSet.
    pub uid: String,
    /// Generation, which guards every change of the replicas.
    pub generation: Option<i64>,
    /// Creation timestamp, truncated to seconds.
    pub created: Timestamp,
    /// Deletion timestamp; absent unless the object is being deleted.
    pub deleting_since: Option<Timestamp>,
    /// Whether the MachineSet has our finalizer.
    pub has_finalizer: bool,
    /// All finalizers, raw; absent if there are none.
    pub finalizers: Option<Vec<String>>,
    /// The controlling owner.
    pub owner: Option<OwnerFacts>,
    /// All owner references, raw; absent if there are none.
    pub(crate) raw_owners: Option<RawJson>,
    /// Labels. Guards distinguish absent from empty.
    pub labels: Option<BTreeMap<String, String>>,
    /// Annotations. Guards distinguish absent from empty.
    pub annotations: Option<BTreeMap<String, String>>,
    /// The first validation error of the spec: the field, and a sentence.
    pub invalid: Option<(String, String)>,
    /// Selector of the Machines; absent if the spec has none.
    pub selector: Option<Selector>,
    /// The spec, as on the wire.
    pub spec: MachineSetSpec,
    /// The status, as on the wire; absent if there is none.
    pub status: Option<MachineSetStatus>,
}

impl MachineSetFacts {
    /// Reads a MachineSet.
    pub fn parse(set: &MachineSet) -> Self {
        let metadata = &set.metadata;
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
            invalid: validate_machine_set(set)
                .into_iter()
                .next()
                .map(|e| (e.field.to_string(), e.to_string())),
            selector: set.spec.selector.as_ref().map(Selector::from),
            spec: set.spec.clone(),
            status: set.status.clone(),
        }
    }

    /// Returns all owner references as read; absent if there are none. Guards repeat them.
    pub fn owners_as_read(&self) -> Option<Value> {
        self.raw_owners.as_ref().map(RawJson::value)
    }

    /// Returns the value of a label.
    pub fn label(&self, key: &str) -> Option<&str> {
        self.labels.as_ref()?.get(key).map(String::as_str)
    }

    /// Returns the value of an annotation.
    pub fn annotation(&self, key: &str) -> Option<&str> {
        self.annotations.as_ref()?.get(key).map(String::as_str)
    }

    /// Returns the number of desired Machines. A negative number is invalid and counts as 0.
    pub fn replicas(&self) -> u32 {
        u32::try_from(self.spec.replicas()).unwrap_or(0)
    }

    /// Whether the safety label stops the set from creating Machines.
    pub fn is_frozen(&self) -> bool {
        self.label(labels::FREEZE) == Some(labels::TRUE)
    }

    /// Returns the freeze of the set.
    pub fn freeze(&self) -> FreezeFacts {
        let conditions = self.status.iter().flat_map(|status| &status.conditions);
        let conditions = conditions.map(|condition| {
            (condition.type_.as_str(), condition.reason.as_deref(), condition.last_transition_time.as_ref())
        });
        FreezeFacts::parse(self.labels.as_ref(), self.annotations.as_ref(), conditions)
    }

    /// Returns what the set wants on the Nodes of its Machines. `is_alone` says whether no other
    /// set of its deployment has Machines.
    pub fn node_marks(&self, is_alone: bool) -> NodeMarks {
        let has_deployment = self.owner.as_ref().is_some_and(|owner| owner.kind == "MachineDeployment");
        let is_protected = self.annotation(PROTECTED_FROM_AUTOSCALER).is_some();
        NodeMarks {
            is_outdated: self.annotation(annotations::PREFER_NO_SCHEDULE).is_some(),
            is_protected: (is_protected || is_alone).then_some(is_protected),
            is_candidate: has_deployment && self.is_scale_up_disabled(),
        }
    }

    /// Whether scale-up is disabled because Machines of the set are being updated in place.
    pub fn is_scale_up_disabled(&self) -> bool {
        self.label(labels::SCALE_UP_DISABLED).is_some()
    }
}
