//! Conditions, in the formats of both versions of Cluster API's contract.

use schemars::{JsonSchema, Schema};
use serde::{Deserialize, Serialize};

use super::limits::{MAX_CONDITIONS, MAX_MESSAGE_LEN, MAX_NAME_LEN};
use crate::mcm::ConditionStatus;
use crate::wire_time::WireTime;

/// A condition in the format of the contract v1beta2, which is the format of Kubernetes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Condition {
    /// Type of the condition.
    #[serde(rename = "type")]
    #[schemars(length(min = 1, max = MAX_NAME_LEN))]
    pub type_: String,
    /// Status of the condition.
    #[schemars(extend("enum" = ConditionStatus::KNOWN))]
    pub status: ConditionStatus,
    /// The generation of the object that the condition describes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// When the status changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_transition_time: Option<WireTime>,
    /// CamelCase reason.
    #[serde(default)]
    pub reason: String,
    /// Text for users.
    #[serde(default)]
    #[schemars(length(max = MAX_MESSAGE_LEN))]
    pub message: String,
}

/// A list has one condition of each type.
pub(super) fn one_of_each_type(list: &mut Schema) {
    list.insert("maxItems".to_owned(), MAX_CONDITIONS.into());
    list.insert("x-kubernetes-list-type".to_owned(), "map".into());
    list.insert("x-kubernetes-list-map-keys".to_owned(), ["type"].as_slice().into());
}

/// A condition in the format of the contract v1beta1.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ConditionV1 {
    /// Type of the condition.
    #[serde(rename = "type")]
    pub type_: String,
    /// Status of the condition.
    pub status: ConditionStatus,
    /// `Error`, `Warning` or `Info`; only if the status is False.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub severity: Option<String>,
    /// When the status changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_transition_time: Option<WireTime>,
    /// CamelCase reason.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Text for users.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

/// Fields of older contracts in the status of an object.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Deprecated {
    /// Fields of the contract v1beta1.
    #[serde(default, rename = "v1beta1", skip_serializing_if = "Option::is_none")]
    pub v1_beta1: Option<DeprecatedV1Beta1>,
}

/// Fields of the contract v1beta1 in the status of an object.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DeprecatedV1Beta1 {
    /// Conditions of v1beta1.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<ConditionV1>,
}
