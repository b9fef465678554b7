//! Facts of a MachineSet.

use std::collections::BTreeMap;

use jiff::Timestamp;
use machinist_api::constants::{finalizers, labels};
use machinist_api::validation::validate_machine_set;
use machinist_api::{MachineSet, MachineSetSpec, MachineSetStatus};
use serde_json::Value;

use super::machine::has_finalizer;
use super::{FreezeFacts, MachineFacts, OwnerFacts, Version};
use crate::mcm::machine_set::{self, Reserved};

/// Our annotation on a set: which numbers its children may have, as `next:pending`, for example `50:30-32,40`. Numbers from
/// `next` on are free; of those below it, the pending ones may or may not be in use, all others are used for ever.
pub const RESERVED_NUMBERS: &str = "machinist.dev/reserved-numbers";

/// What planners know of a MachineSet.
#[derive(Debug, Clone)]
pub struct MachineSetFacts {
    /// Which version of the object this is.
    pub version: Version,
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Its UID.
    pub uid: String,
    /// Its generation: guards every change of its replicas.
    pub generation: Option<i64>,
    /// When it was created, cut to seconds.
    pub created: Timestamp,
    /// When deletion was asked for.
    pub deleting_since: Option<Timestamp>,
    /// Whether our finalizer is on it.
    pub has_finalizer: bool,
    /// All finalizers, raw; absent when there are none.
    pub finalizers: Option<Vec<String>>,
    /// The controlling owner.
    pub owner: Option<OwnerFacts>,
    /// All owner references, raw; absent when there are none.
    pub raw_owners: Option<Value>,
    /// Its labels; absent and empty differ for guards.
    pub labels: Option<BTreeMap<String, String>>,
    /// Its annotations; absent and empty differ for guards.
    pub annotations: Option<BTreeMap<String, String>>,
    /// What is wrong with its spec: the field, and a sentence.
    pub invalid: Option<(String, String)>,
    /// Its spec, as on the wire.
    pub spec: MachineSetSpec,
    /// Its status, as on the wire; absent when there is none.
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
            spec: set.spec.clone(),
            status: set.status.clone(),
        }
    }

    /// One label.
    pub fn label(&self, key: &str) -> Option<&str> {
        self.labels.as_ref()?.get(key).map(String::as_str)
    }

    /// One annotation.
    pub fn annotation(&self, key: &str) -> Option<&str> {
        self.annotations.as_ref()?.get(key).map(String::as_str)
    }

    /// Whether it adopts this Machine, which nothing controls.
    pub fn would_adopt(&self, machine: &MachineFacts) -> bool {
        let stay = self.deleting_since.is_none() && machine.deleting_since.is_none();
        stay && machine_set::invalid(self).is_none() && machine_set::is_selected(self, machine)
    }

    /// How many Machines it wants; a negative number is somebody's mistake and counts as none.
    pub fn replicas(&self) -> u32 {
        u32::try_from(self.spec.replicas()).unwrap_or(0)
    }

    /// Which numbers its children may have. What cannot be read counts as nothing reserved: names are then settled by POSTs.
    pub fn reserved(&self) -> Reserved {
        self.annotation(RESERVED_NUMBERS).and_then(|text| text.parse().ok()).unwrap_or_default()
    }

    /// Whether the safety label stops it from making Machines.
    pub fn is_frozen(&self) -> bool {
        self.label(labels::FREEZE) == Some(labels::TRUE)
    }

    /// How it is frozen.
    pub fn freeze(&self) -> FreezeFacts {
        let conditions = self.status.iter().flat_map(|status| &status.conditions);
        let conditions = conditions.map(|condition| {
            (condition.type_.as_str(), condition.reason.as_deref(), condition.last_transition_time.as_ref())
        });
        FreezeFacts::parse(self.labels.as_ref(), self.annotations.as_ref(), conditions)
    }

    /// Whether it may not grow because its Machines are being updated in place.
    pub fn is_scale_up_disabled(&self) -> bool {
        self.label(labels::SCALE_UP_DISABLED).is_some()
    }
}
