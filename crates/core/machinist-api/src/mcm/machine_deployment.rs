//! MachineDeployment: a number of Machines of one template, and how to get from one template to the next.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta, Time};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use serde::{Deserialize, Serialize};

use super::resource::namespaced_kind;
use super::{ConditionStatus, MachineSummary, MachineTemplateSpec};
use crate::absent::{is_default, null_as_default};
use crate::text_enum::text_enum;

/// A number of Machines of one template, and how to get from one template to the next.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct MachineDeployment {
    /// Name and labels.
    pub metadata: ObjectMeta,
    /// What should be.
    pub spec: MachineDeploymentSpec,
    /// What was observed.
    pub status: Option<MachineDeploymentStatus>,
}

namespaced_kind!(MachineDeployment, list: "MachineDeploymentList", plural: "machinedeployments", {
    spec: MachineDeploymentSpec = "spec", skip_if: |_| false;
    status: Option<MachineDeploymentStatus> = "status", skip_if: Option::is_none;
});

/// Desired state of a MachineDeployment.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct MachineDeploymentSpec {
    /// How many Machines there should be.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub replicas: Option<i32>,
    /// Which sets count.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub selector: Option<LabelSelector>,
    /// What the Machines should be.
    #[serde(default, deserialize_with = "null_as_default")]
    pub template: MachineTemplateSpec,
    /// How to get from one template to the next.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub strategy: Option<Strategy>,
    /// Copied to the set, otherwise not honoured.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min_ready_seconds: Option<i32>,
    /// How many old sets are kept; all if nothing is said.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub revision_history_limit: Option<i32>,
    /// Whether rollouts rest.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub paused: Option<bool>,
    /// A wish to go back; cleared by the controller.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rollback_to: Option<RollbackConfig>,
    /// How long a rollout may stand still before it counts as failed; for ever if nothing is said.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub progress_deadline_seconds: Option<i32>,
    /// How many failed Machines are preserved by themselves; copied to the new set.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub auto_preserve_failed_machine_max: Option<i32>,
}

impl MachineDeploymentSpec {
    /// How many Machines there should be; none if nothing is said.
    pub fn replicas(&self) -> i32 {
        self.replicas.unwrap_or_default()
    }

    /// Whether rollouts rest.
    pub fn is_paused(&self) -> bool {
        self.paused.unwrap_or_default()
    }
}

/// How to get from one template to the next.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Strategy {
    /// Which way. There is no default: a missing one is invalid.
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    pub type_: Option<StrategyType>,
    /// Bounds for [`StrategyType::RollingUpdate`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rolling_update: Option<RollingUpdateStrategy>,
    /// Bounds for [`StrategyType::InPlaceUpdate`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub in_place_update: Option<InPlaceUpdateStrategy>,
}

text_enum! {
    /// Ways to get from one template to the next.
    pub enum StrategyType {
        /// New Machines come, old ones go, within bounds.
        RollingUpdate = "RollingUpdate",
        /// All old Machines go, then new ones come.
        Recreate = "Recreate",
        /// The instances stay and are updated.
        InPlaceUpdate = "InPlaceUpdate",
    }
}

/// Bounds of a rolling update.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RollingUpdateStrategy {
    /// How many may be missing; a percentage rounds down.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_unavailable: Option<IntOrString>,
    /// How many may be too many; a percentage rounds up.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_surge: Option<IntOrString>,
}

/// Bounds of an update in place.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct InPlaceUpdateStrategy {
    /// How many may be missing; a percentage rounds down.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_unavailable: Option<IntOrString>,
    /// How many may be too many; a percentage rounds up.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_surge: Option<IntOrString>,
    /// Who picks the Machines.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub orchestration_type: Option<OrchestrationType>,
}

text_enum! {
    /// Who picks the Machines of an update in place.
    pub enum OrchestrationType {
        /// The controller.
        Auto = "Auto",
        /// Somebody else, by label.
        Manual = "Manual",
    }
}

/// A wish to go back to an older template.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RollbackConfig {
    /// The revision to go back to; `0` or nothing means the one before.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub revision: Option<i64>,
}

/// Observed state of a MachineDeployment.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct MachineDeploymentStatus {
    /// Generation of the spec that this status is about.
    #[serde(deserialize_with = "null_as_default", skip_serializing_if = "is_default")]
    pub observed_generation: i64,
    /// All Machines of all sets.
    #[serde(deserialize_with = "null_as_default", skip_serializing_if = "is_default")]
    pub replicas: i32,
    /// Those of the new set.
    #[serde(deserialize_with = "null_as_default", skip_serializing_if = "is_default")]
    pub updated_replicas: i32,
    /// Those that are Running.
    #[serde(deserialize_with = "null_as_default", skip_serializing_if = "is_default")]
    pub ready_replicas: i32,
    /// Those that are Running or Available.
    #[serde(deserialize_with = "null_as_default", skip_serializing_if = "is_default")]
    pub available_replicas: i32,
    /// Failed ones that are preserved.
    #[serde(deserialize_with = "null_as_default", skip_serializing_if = "is_default")]
    pub preserved_failed_replicas: i32,
    /// How many are missing.
    #[serde(deserialize_with = "null_as_default", skip_serializing_if = "is_default")]
    pub unavailable_replicas: i32,
    /// The conditions.
    #[serde(deserialize_with = "null_as_default", skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<MachineDeploymentCondition>,
    /// How often a set's name was taken.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub collision_count: Option<i32>,
    /// Machines whose last operation failed.
    #[serde(deserialize_with = "null_as_default", skip_serializing_if = "Vec::is_empty")]
    pub failed_machines: Vec<MachineSummary>,
}

/// One condition of a MachineDeployment.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct MachineDeploymentCondition {
    /// See [`crate::constants::conditions`].
    #[serde(rename = "type")]
    pub type_: String,
    /// Whether it holds.
    pub status: ConditionStatus,
    /// When it was judged last.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_update_time: Option<Time>,
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
