//! Machine: one instance that should exist, and the Node that should come of it.

use k8s_openapi::api::core::v1::{NodeAddress, NodeCondition};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use serde::{Deserialize, Serialize};

use super::resource::namespaced_kind;
use super::{LastOperation, MachineSpec};
use crate::absent::{is_default, null_as_default};
use crate::constants::{annotations, labels};
use crate::priority::MachinePriority;
use crate::text_enum::text_enum;
use crate::wire_time::WireTime;

/// One instance that should exist.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Machine {
    /// Name, owner, labels; the label [`labels::NODE`] names the Node.
    pub metadata: ObjectMeta,
    /// What it should be.
    pub spec: MachineSpec,
    /// What was observed.
    pub status: Option<MachineStatus>,
}

namespaced_kind!(Machine, list: "MachineList", plural: "machines", {
    spec: MachineSpec = "spec", skip_if: |_| false;
    status: Option<MachineStatus> = "status", skip_if: Option::is_none;
});

impl Machine {
    /// The phase; [`Phase::Empty`] as long as no controller has written one.
    pub fn phase(&self) -> Phase {
        self.current_status().and_then(|current| current.phase.clone()).unwrap_or_default()
    }

    /// The current status, if there is one.
    pub fn current_status(&self) -> Option<&CurrentStatus> {
        self.status.as_ref()?.current_status.as_ref()
    }

    /// The last operation, if there is one.
    pub fn last_operation(&self) -> Option<&LastOperation> {
        self.status.as_ref()?.last_operation.as_ref()
    }

    /// Name of the Node, once it is known.
    pub fn node_name(&self) -> Option<&str> {
        let labels = self.metadata.labels.as_ref()?;
        labels.get(labels::NODE).map(String::as_str).filter(|name| !name.is_empty())
    }

    /// Whether a deletion was asked for.
    pub fn is_deleting(&self) -> bool {
        self.metadata.deletion_timestamp.is_some()
    }

    /// The rank among the Machines to delete first.
    pub fn priority(&self) -> MachinePriority {
        let text = self.metadata.annotations.as_ref().and_then(|all| all.get(annotations::MACHINE_PRIORITY));
        text.map_or(MachinePriority::DEFAULT, |text| MachinePriority::parse_or_default(text))
    }
}

/// Observed state of a Machine.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct MachineStatus {
    /// Addresses of the instance; written only where there is no target cluster to have a Node in.
    #[serde(default, deserialize_with = "null_as_default", skip_serializing_if = "Vec::is_empty")]
    pub addresses: Vec<NodeAddress>,
    /// Copy of the Node's conditions.
    #[serde(default, deserialize_with = "null_as_default", skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<NodeCondition>,
    /// What was done last.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_operation: Option<LastOperation>,
    /// Phase and times.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub current_status: Option<CurrentStatus>,
    /// State that only the driver understands.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_known_state: Option<String>,
}

/// Phase of a Machine, and since when.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CurrentStatus {
    /// The summary word. Absent and empty mean the same; a patch that tests the phase must tell them apart.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub phase: Option<Phase>,
    /// Whether a timeout runs.
    #[serde(default, deserialize_with = "null_as_default", skip_serializing_if = "is_default")]
    pub timeout_active: bool,
    /// Since when the phase is what it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_update_time: Option<WireTime>,
    /// Until when the Machine is preserved.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub preserve_expiry_time: Option<Time>,
}

text_enum! {
    /// Summary of a Machine's life.
    #[derive(Default)]
    pub enum Phase {
        /// Just made: no controller has looked at it.
        #[default]
        Empty = "",
        /// The instance exists, its Node has not joined.
        Pending = "Pending",
        /// The instance exists, and there is no target cluster to wait for a Node in.
        Available = "Available",
        /// The Node is healthy.
        Running = "Running",
        /// Being deleted.
        Terminating = "Terminating",
        /// The Node is unhealthy or gone.
        Unknown = "Unknown",
        /// Given up; to be replaced.
        Failed = "Failed",
        /// Creation failed and is tried again.
        CrashLoopBackOff = "CrashLoopBackOff",
        /// The instance is being updated without being replaced.
        InPlaceUpdating = "InPlaceUpdating",
        /// The update succeeded.
        InPlaceUpdateSuccessful = "InPlaceUpdateSuccessful",
        /// The update failed.
        InPlaceUpdateFailed = "InPlaceUpdateFailed",
    }
}

impl Phase {
    /// Still of use: its template is synced, its hash labelled.
    pub fn is_active(&self) -> bool {
        !matches!(self, Self::Failed | Self::Terminating)
    }

    /// Counts as an available replica.
    pub fn is_available(&self) -> bool {
        matches!(self, Self::Available | Self::Running)
    }

    /// Counts as a ready replica.
    pub fn is_ready(&self) -> bool {
        matches!(self, Self::Running)
    }
}
