//! The last operation on a Machine. It has three readers: people, the cluster-autoscaler
//! (`errorCode`), and the next controller that takes over a deletion (the marker in `description`).

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::code::Code;
use crate::constants::markers::DeletionMarker;
use crate::text_enum::text_enum;
use crate::wire_time::WireTime;

/// The last operation on a Machine.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LastOperation {
    /// Text that describes the operation or its failure.
    ///
    /// During a deletion it contains one of the stage markers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// Name of the status code of a failed operation.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error_code: Option<String>,
    /// Time of the last update of this record.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<WireTime>")]
    pub last_update_time: Option<Time>,
    /// `Processing`, `Failed` or `Successful`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub state: Option<OperationState>,
    /// `Create`, `InPlaceUpdate`, `DrainNode`, `HealthCheck` or `Delete`.
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    pub type_: Option<OperationType>,
}

impl LastOperation {
    /// Returns the description, empty if there is none.
    pub fn description(&self) -> &str {
        self.description.as_deref().unwrap_or_default()
    }

    /// Returns the deletion stage that the description names.
    pub fn deletion_marker(&self) -> Option<DeletionMarker> {
        DeletionMarker::parse(self.description())
    }

    /// Returns the status code, if one is recorded. An unknown code becomes [`Code::Unknown`].
    pub fn code(&self) -> Option<Code> {
        self.error_code.as_deref().filter(|code| !code.is_empty()).map(Code::parse_lossy)
    }
}

text_enum! {
    /// State of an operation.
    pub enum OperationState {
        /// The operation is running.
        Processing = "Processing",
        /// The operation failed, and may be retried.
        Failed = "Failed",
        /// The operation succeeded.
        Successful = "Successful",
    }
}

text_enum! {
    /// Type of an operation.
    pub enum OperationType {
        /// Creating the instance, until its Node joins.
        Create = "Create",
        /// Not used by any controller.
        Update = "Update",
        /// Updating the instance without replacing it.
        InPlaceUpdate = "InPlaceUpdate",
        /// Draining for an update in place.
        DrainNode = "DrainNode",
        /// Checking the Node's conditions.
        HealthCheck = "HealthCheck",
        /// Deleting the Machine, including the drain.
        Delete = "Delete",
    }
}

/// One failed Machine, as its MachineSet and MachineDeployment report it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MachineSummary {
    /// Name of the Machine.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Provider id of the Machine.
    #[serde(rename = "providerID", skip_serializing_if = "Option::is_none")]
    pub provider_id: Option<String>,
    /// Last operation of the Machine.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_operation: Option<LastOperation>,
    /// Name of the MachineSet.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub owner_ref: Option<String>,
}
