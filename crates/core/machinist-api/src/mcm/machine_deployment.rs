//! MachineDeployment: a number of Machines of one template, with rollouts from one template to the
//! next.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta, Time};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::condition_status::ConditionStatus;
use super::group;
use super::last_operation::MachineSummary;
use super::template::MachineTemplateSpec;
use crate::absent::{is_default, null_as_default};
use crate::resource::namespaced_kind;
use crate::schema;
use crate::text_enum::text_enum;
use crate::wire_time::WireTime;

/// A number of Machines of one template, with rollouts from one template to the next.
#[derive(Clone, Debug, Default, PartialEq, JsonSchema)]
#[schemars(default)]
pub struct MachineDeployment {
    /// Name and labels.
    #[schemars(skip)]
    pub metadata: ObjectMeta,
    /// Desired state.
    pub spec: MachineDeploymentSpec,
    /// Observed state.
    pub status: Option<MachineDeploymentStatus>,
}

namespaced_kind!(MachineDeployment, list: "MachineDeploymentList", plural: "machinedeployments", {
    spec: MachineDeploymentSpec = "spec", skip_if: |_| false;
    status: Option<MachineDeploymentStatus> = "status", skip_if: Option::is_none;
});

/// Desired state of a MachineDeployment.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("required" = ["template"]))]
pub struct MachineDeploymentSpec {
    /// Desired number of Machines.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub replicas: Option<i32>,
    /// Selector of the MachineSets; must match the template's labels.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(default, schema_with = "schema::label_selector")]
    pub selector: Option<LabelSelector>,
    /// Template of the Machines.
    #[serde(default, deserialize_with = "null_as_default")]
    pub template: MachineTemplateSpec,
    /// Strategy of rollouts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub strategy: Option<Strategy>,
    /// Copied to the MachineSet, otherwise ignored.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min_ready_seconds: Option<i32>,
    /// Number of old MachineSets to keep; absent means all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub revision_history_limit: Option<i32>,
    /// Whether rollouts are paused.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub paused: Option<bool>,
    /// Requested rollback; the controller clears it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rollback_to: Option<RollbackConfig>,
    /// Time without progress after which a rollout counts as failed; absent means no limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub progress_deadline_seconds: Option<i32>,
    /// Maximum number of failed Machines that are preserved automatically.
    ///
    /// Copied to the new MachineSet.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub auto_preserve_failed_machine_max: Option<i32>,
}

impl MachineDeploymentSpec {
    /// Returns the desired number of Machines; zero if the field is absent.
    pub fn replicas(&self) -> i32 {
        self.replicas.unwrap_or_default()
    }

    /// Returns whether rollouts are paused.
    pub fn is_paused(&self) -> bool {
        self.paused.unwrap_or_default()
    }
}

/// Strategy of rollouts.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Strategy {
    /// `RollingUpdate`, `Recreate` or `InPlaceUpdate`; required.
    ///
    /// There is no default, so that an invalid object stays readable.
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    pub type_: Option<StrategyType>,
    /// Limits of a rolling update.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rolling_update: Option<RollingUpdateStrategy>,
    /// Limits of an update in place.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub in_place_update: Option<InPlaceUpdateStrategy>,
}

text_enum! {
    /// Type of a rollout strategy.
    pub enum StrategyType {
        /// New Machines are created and old ones deleted, within limits.
        RollingUpdate = "RollingUpdate",
        /// All old Machines are deleted before new ones are created.
        Recreate = "Recreate",
        /// The instances stay and are updated.
        InPlaceUpdate = "InPlaceUpdate",
    }
}

/// Limits of a rolling update.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RollingUpdateStrategy {
    /// Maximum number of missing Machines; a percentage rounds down.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(default, schema_with = "schema::int_or_string")]
    pub max_unavailable: Option<IntOrString>,
    /// Maximum number of additional Machines; a percentage rounds up.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(default, schema_with = "schema::int_or_string")]
    pub max_surge: Option<IntOrString>,
}

/// Limits of an update in place.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct InPlaceUpdateStrategy {
    /// Maximum number of missing Machines; a percentage rounds down.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(default, schema_with = "schema::int_or_string")]
    pub max_unavailable: Option<IntOrString>,
    /// Maximum number of additional Machines; a percentage rounds up.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(default, schema_with = "schema::int_or_string")]
    pub max_surge: Option<IntOrString>,
    /// `Auto` lets the controller select the Machines, `Manual` a user.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub orchestration_type: Option<OrchestrationType>,
}

text_enum! {
    /// Selection of the Machines of an update in place.
    pub enum OrchestrationType {
        /// The controller selects the Machines.
        Auto = "Auto",
        /// A user selects the Machines by label.
        Manual = "Manual",
    }
}

/// Requested rollback to an older template.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RollbackConfig {
    /// Revision to roll back to; `0` means the previous one.
    ///
    /// Absent means the same.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub revision: Option<i64>,
}

/// Observed state of a MachineDeployment.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct MachineDeploymentStatus {
    /// Generation of the spec that this status belongs to.
    #[serde(deserialize_with = "null_as_default", skip_serializing_if = "is_default")]
    pub observed_generation: i64,
    /// All Machines of all MachineSets.
    #[serde(deserialize_with = "null_as_default", skip_serializing_if = "is_default")]
    pub replicas: i32,
    /// Machines of the current template.
    #[serde(deserialize_with = "null_as_default", skip_serializing_if = "is_default")]
    pub updated_replicas: i32,
    /// Machines that are Running.
    #[serde(deserialize_with = "null_as_default", skip_serializing_if = "is_default")]
    pub ready_replicas: i32,
    /// Machines that are Running or Available.
    #[serde(deserialize_with = "null_as_default", skip_serializing_if = "is_default")]
    pub available_replicas: i32,
    /// Failed Machines that are preserved.
    #[serde(deserialize_with = "null_as_default", skip_serializing_if = "is_default")]
    pub preserved_failed_replicas: i32,
    /// Machines that are missing.
    #[serde(deserialize_with = "null_as_default", skip_serializing_if = "is_default")]
    pub unavailable_replicas: i32,
    /// Conditions of this object.
    #[serde(deserialize_with = "null_as_default", skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<MachineDeploymentCondition>,
    /// Number of name collisions of MachineSets.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub collision_count: Option<i32>,
    /// Machines whose last operation failed.
    #[serde(deserialize_with = "null_as_default", skip_serializing_if = "Vec::is_empty")]
    pub failed_machines: Vec<MachineSummary>,
}

/// One condition of a MachineDeployment.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MachineDeploymentCondition {
    /// Type of the condition.
    ///
    /// One of [`crate::constants::conditions`].
    #[serde(rename = "type")]
    pub type_: String,
    /// Status of the condition.
    pub status: ConditionStatus,
    /// Time of the last evaluation.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<WireTime>")]
    pub last_update_time: Option<Time>,
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
