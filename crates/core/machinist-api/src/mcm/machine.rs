//! Machine: the desired state of one instance and its Node.

use k8s_openapi::api::core::v1::{NodeAddress, NodeCondition};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::group;
use super::last_operation::LastOperation;
use super::template::MachineSpec;
use crate::absent::{is_default, null_as_default};
use crate::constants::labels;
use crate::resource::namespaced_kind;
use crate::schema;
use crate::text_enum::text_enum;
use crate::wire_time::WireTime;

/// Desired state of one instance and its Node.
#[derive(Clone, Debug, Default, PartialEq, JsonSchema)]
#[schemars(default)]
pub struct Machine {
    /// Name, owner and labels; the label [`labels::NODE`] names the Node.
    #[schemars(skip)]
    pub metadata: ObjectMeta,
    /// Desired state of the Machine.
    pub spec: MachineSpec,
    /// Observed state.
    pub status: Option<MachineStatus>,
}

namespaced_kind!(Machine, list: "MachineList", plural: "machines", {
    spec: MachineSpec = "spec", skip_if: |_| false;
    status: Option<MachineStatus> = "status", skip_if: Option::is_none;
});

impl Machine {
    /// Returns the phase; [`Phase::Empty`] until a controller has written one.
    pub fn phase(&self) -> Phase {
        self.current_status().and_then(|current| current.phase.clone()).unwrap_or_default()
    }

    /// Returns the current status, if there is one.
    pub fn current_status(&self) -> Option<&CurrentStatus> {
        self.status.as_ref()?.current_status.as_ref()
    }

    /// Returns the last operation, if there is one.
    pub fn last_operation(&self) -> Option<&LastOperation> {
        self.status.as_ref()?.last_operation.as_ref()
    }

    /// Returns the name of the Node, once it is known.
    pub fn node_name(&self) -> Option<&str> {
        let labels = self.metadata.labels.as_ref()?;
        labels.get(labels::NODE).map(String::as_str).filter(|name| !name.is_empty())
    }

    /// Returns whether the Machine has a deletion timestamp.
    pub fn is_deleting(&self) -> bool {
        self.metadata.deletion_timestamp.is_some()
    }
}

/// Observed state of a Machine.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MachineStatus {
    /// Addresses of the instance.
    ///
    /// Written only if there is no target cluster and hence no Node.
    #[serde(default, deserialize_with = "null_as_default", skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schema::node_addresses")]
    pub addresses: Vec<NodeAddress>,
    /// Copy of the Node's conditions.
    #[serde(default, deserialize_with = "null_as_default", skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schema::node_conditions")]
    pub conditions: Vec<NodeCondition>,
    /// Last operation.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_operation: Option<LastOperation>,
    /// Phase and times.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub current_status: Option<CurrentStatus>,
    /// State that only the driver understands.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_known_state: Option<String>,
}

/// Phase of a Machine, and the time of its last change.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CurrentStatus {
    /// `Pending`, `Running`, `Unknown`, `Failed`, `Terminating` and others.
    ///
    /// Absent and empty mean the same, but a patch that tests the phase must distinguish them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub phase: Option<Phase>,
    /// Whether a timeout is running.
    #[serde(default, deserialize_with = "null_as_default", skip_serializing_if = "is_default")]
    pub timeout_active: bool,
    /// Time of the last phase change.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_update_time: Option<WireTime>,
    /// End of the preservation of the Machine.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<WireTime>")]
    pub preserve_expiry_time: Option<Time>,
}

text_enum! {
    /// Phase in the life cycle of a Machine.
    #[derive(Default)]
    pub enum Phase {
        /// No controller has handled the new Machine yet.
        #[default]
        Empty = "",
        /// The instance exists, and its Node has not joined yet.
        Pending = "Pending",
        /// The instance exists, and there is no target cluster for a Node.
        Available = "Available",
        /// The Node is healthy.
        Running = "Running",
        /// The Machine is being deleted.
        Terminating = "Terminating",
        /// The Node is unhealthy or missing.
        Unknown = "Unknown",
        /// The Machine failed and will be replaced.
        Failed = "Failed",
        /// Creation failed and is retried.
        CrashLoopBackOff = "CrashLoopBackOff",
        /// The instance is updated without being replaced.
        InPlaceUpdating = "InPlaceUpdating",
        /// The update in place succeeded.
        InPlaceUpdateSuccessful = "InPlaceUpdateSuccessful",
        /// The update in place failed.
        InPlaceUpdateFailed = "InPlaceUpdateFailed",
    }
}

impl Phase {
    /// Returns whether the Machine is active: its template is synced, and it gets the template hash
    /// label.
    pub fn is_active(&self) -> bool {
        !matches!(self, Self::Failed | Self::Terminating)
    }

    /// Returns whether the Machine counts as an available replica.
    pub fn is_available(&self) -> bool {
        matches!(self, Self::Available | Self::Running)
    }

    /// Returns whether the Machine counts as a ready replica.
    pub fn is_ready(&self) -> bool {
        matches!(self, Self::Running)
    }
}
