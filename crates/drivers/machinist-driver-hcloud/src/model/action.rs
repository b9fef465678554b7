//! Actions: changes that the cloud carries out after its answer.

use serde::Deserialize;

#[derive(Debug, Clone, PartialEq, Deserialize)]
pub(crate) struct Action {
    pub(crate) id: i64,
    #[serde(default)]
    pub(crate) command: String,
    pub(crate) status: ActionStatus,
    #[serde(default)]
    pub(crate) error: Option<ActionError>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum ActionStatus {
    Running,
    Success,
    Error,
}

#[derive(Debug, Clone, PartialEq, Default, Deserialize)]
pub(crate) struct ActionError {
    #[serde(default)]
    pub(crate) code: String,
    #[serde(default)]
    pub(crate) message: String,
}
