//! MachineSet: a number of Machines of one template.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta, Time};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::condition_status::ConditionStatus;
use super::group;
use super::last_operation::{LastOperation, MachineSummary};
use super::template::{ClassSpec, MachineTemplateSpec};
use crate::absent::{is_default, null_as_default};
use crate::resource::namespaced_kind;
use crate::schema;
use crate::wire_time::WireTime;

/// A number of Machines of one template.
#[derive(Clone, Debug, Default, PartialEq, JsonSchema)]
#[schemars(default)]
pub struct MachineSet {
    /// Name, owner and labels.
    #[schemars(skip)]
    pub metadata: ObjectMeta,
    /// Desired state.
    pub spec: MachineSetSpec,
    /// Observed state.
    pub status: Option<MachineSetStatus>,
}

namespaced_kind!(MachineSet, list: "MachineSetList", plural: "machinesets", {
    spec: MachineSetSpec = "spec", skip_if: |_| false;
    status: Option<MachineSetStatus> = "status", skip_if: Option::is_none;
});

/// Desired state of a MachineSet.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MachineSetSpec {
    /// Desired number of Machines.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub replicas: Option<i32>,
    /// Selector of the Machines.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(default, schema_with = "schema::label_selector")]
    pub selector: Option<LabelSelector>,
    /// Ignored; the class of the template is used.
    #[serde(default, deserialize_with = "null_as_default")]
    pub machine_class: ClassSpec,
    /// Template of the Machines.
    #[serde(default, deserialize_with = "null_as_default")]
    pub template: MachineTemplateSpec,
    /// Stored, but ignored, as in Go MCM: a Machine is available when it runs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min_ready_seconds: Option<i32>,
    /// Maximum number of failed Machines that are preserved automatically.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub auto_preserve_failed_machine_max: Option<i32>,
}

impl MachineSetSpec {
    /// Returns the desired number of Machines; zero if the field is absent.
    pub fn replicas(&self) -> i32 {
        self.replicas.unwrap_or_default()
    }
}

/// Observed state of a MachineSet.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct MachineSetStatus {
    /// All Machines, including those that are being deleted.
    #[serde(deserialize_with = "null_as_default", skip_serializing_if = "is_default")]
    pub replicas: i32,
    /// Machines with all labels of the template.
    #[serde(deserialize_with = "null_as_default", skip_serializing_if = "is_default")]
    pub fully_labeled_replicas: i32,
    /// Machines that are Running.
    #[serde(deserialize_with = "null_as_default", skip_serializing_if = "is_default")]
    pub ready_replicas: i32,
    /// Machines that are Running or Available.
    #[serde(deserialize_with = "null_as_default", skip_serializing_if = "is_default")]
    pub available_replicas: i32,
    /// Failed Machines that are preserved, by users or automatically.
    #[serde(deserialize_with = "null_as_default", skip_serializing_if = "is_default")]
    pub preserved_failed_replicas: i32,
    /// Generation of the spec that this status belongs to.
    #[serde(deserialize_with = "null_as_default", skip_serializing_if = "is_default")]
    pub observed_generation: i64,
    /// Conditions of this object.
    ///
    /// Go MCM's name on the wire; `conditions` would be usual.
    #[serde(
        rename = "machineSetCondition",
        deserialize_with = "null_as_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub conditions: Vec<MachineSetCondition>,
    /// The latest of the operations on its Machines.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_operation: Option<LastOperation>,
    /// Machines whose last operation failed.
    #[serde(deserialize_with = "null_as_default", skip_serializing_if = "Vec::is_empty")]
    pub failed_machines: Vec<MachineSummary>,
    /// Failed Machines that are preserved automatically.
    #[serde(deserialize_with = "null_as_default", skip_serializing_if = "is_default")]
    pub auto_preserve_failed_machine_count: i32,
}

/// One condition of a MachineSet.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MachineSetCondition {
    /// Type of the condition.
    ///
    /// One of [`crate::constants::conditions`].
    #[serde(rename = "type")]
    pub type_: String,
    /// Status of the condition.
    pub status: ConditionStatus,
    /// Time of the last status change.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<WireTime>")]
    pub last_transition_time: Option<Time>,
    /// CamelCase reason.
    ///
    /// One of [`crate::constants::reasons`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Text for people.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}
