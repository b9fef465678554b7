//! What was done last to a Machine. It has three readers: people, the cluster-autoscaler (`errorCode`), and the next controller
//! that takes over a deletion (the marker in `description`).

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde::{Deserialize, Serialize};

use crate::code::Code;
use crate::constants::markers::DeletionMarker;
use crate::text_enum::text_enum;

/// The last operation on a Machine.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LastOperation {
    /// Prose, and in a deletion one of the stage markers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// Name of the status code that the operation failed with.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error_code: Option<String>,
    /// When this was written.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_update_time: Option<Time>,
    /// How it stands.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub state: Option<OperationState>,
    /// What it is.
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    pub type_: Option<OperationType>,
}

impl LastOperation {
    /// The description, empty if there is none.
    pub fn description(&self) -> &str {
        self.description.as_deref().unwrap_or_default()
    }

    /// The stage of a deletion that the description names.
    pub fn deletion_marker(&self) -> Option<DeletionMarker> {
        DeletionMarker::parse(self.description())
    }

    /// The status code, if one is recorded. A code that is not known reads as [`Code::Unknown`].
    pub fn code(&self) -> Option<Code> {
        self.error_code.as_deref().filter(|code| !code.is_empty()).map(Code::parse_lossy)
    }
}

text_enum! {
    /// How an operation stands.
    pub enum OperationState {
        /// It goes on.
        Processing = "Processing",
        /// It failed, and may be tried again.
        Failed = "Failed",
        /// It is done.
        Successful = "Successful",
    }
}

text_enum! {
    /// What an operation is.
    pub enum OperationType {
        /// Making the instance, up to its node's joining.
        Create = "Create",
        /// Not used by any controller.
        Update = "Update",
        /// Updating the instance without replacing it.
        InPlaceUpdate = "InPlaceUpdate",
        /// Draining for an update in place.
        DrainNode = "DrainNode",
        /// Judging the node's conditions.
        HealthCheck = "HealthCheck",
        /// Deleting, drain included.
        Delete = "Delete",
    }
}

/// One failed Machine, as its set and deployment report it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct MachineSummary {
    /// Name of the Machine.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Its provider id.
    #[serde(rename = "providerID", skip_serializing_if = "Option::is_none")]
    pub provider_id: Option<String>,
    /// Its last operation.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_operation: Option<LastOperation>,
    /// Name of the MachineSet that controls it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub owner_ref: Option<String>,
}
