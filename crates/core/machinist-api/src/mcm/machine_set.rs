//! MachineSet: a number of Machines of one template.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta, Time};
use serde::{Deserialize, Serialize};

use super::resource::namespaced_kind;
use super::{ClassSpec, ConditionStatus, LastOperation, MachineSummary, MachineTemplateSpec};
use crate::absent::{is_default, null_as_default};

/// A number of Machines of one template.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct MachineSet {
    /// Name, owner, labels.
    pub metadata: ObjectMeta,
    /// What should be.
    pub spec: MachineSetSpec,
    /// What was observed.
    pub status: Option<MachineSetStatus>,
}

namespaced_kind!(MachineSet, list: "MachineSetList", plural: "machinesets", {
    spec: MachineSetSpec = "spec", skip_if: |_| false;
    status: Option<MachineSetStatus> = "status", skip_if: Option::is_none;
});

/// Desired state of a MachineSet.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct MachineSetSpec {
    /// How many Machines there should be.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub replicas: Option<i32>,
    /// Which Machines count.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub selector: Option<LabelSelector>,
    /// Not acted upon; the class is the template's.
    #[serde(default, deserialize_with = "null_as_default")]
    pub machine_class: ClassSpec,
    /// What the Machines should be.
    #[serde(default, deserialize_with = "null_as_default")]
    pub template: MachineTemplateSpec,
    /// Carried, not honoured.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min_ready_seconds: Option<i32>,
    /// How many failed Machines are preserved by themselves.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub auto_preserve_failed_machine_max: Option<i32>,
}

impl MachineSetSpec {
    /// How many Machines there should be; none if nothing is said.
    pub fn replicas(&self) -> i32 {
        self.replicas.unwrap_or_default()
    }
}

/// Observed state of a MachineSet.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct MachineSetStatus {
    /// All claimed Machines, those being deleted included.
    #[serde(deserialize_with = "null_as_default", skip_serializing_if = "is_default")]
    pub replicas: i32,
    /// Those with all labels of the template.
    #[serde(deserialize_with = "null_as_default", skip_serializing_if = "is_default")]
    pub fully_labeled_replicas: i32,
    /// Those that are Running.
    #[serde(deserialize_with = "null_as_default", skip_serializing_if = "is_default")]
    pub ready_replicas: i32,
    /// Those that are Running or Available.
    #[serde(deserialize_with = "null_as_default", skip_serializing_if = "is_default")]
    pub available_replicas: i32,
    /// Failed ones that are preserved.
    #[serde(deserialize_with = "null_as_default", skip_serializing_if = "is_default")]
    pub preserved_failed_replicas: i32,
    /// Generation of the spec that this status is about.
    #[serde(deserialize_with = "null_as_default", skip_serializing_if = "is_default")]
    pub observed_generation: i64,
    /// The conditions; the odd name is the one on the wire.
    #[serde(
        rename = "machineSetCondition",
        deserialize_with = "null_as_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub conditions: Vec<MachineSetCondition>,
    /// What was done last.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_operation: Option<LastOperation>,
    /// Machines whose last operation failed.
    #[serde(deserialize_with = "null_as_default", skip_serializing_if = "Vec::is_empty")]
    pub failed_machines: Vec<MachineSummary>,
    /// How many failed Machines are preserved by themselves.
    #[serde(deserialize_with = "null_as_default", skip_serializing_if = "is_default")]
    pub auto_preserve_failed_machine_count: i32,
}

/// One condition of a MachineSet.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct MachineSetCondition {
    /// See [`crate::constants::conditions`].
    #[serde(rename = "type")]
    pub type_: String,
    /// Whether it holds.
    pub status: ConditionStatus,
    /// When the status changed last.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_transition_time: Option<Time>,
    /// A word from [`crate::constants::reasons`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Prose.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}
