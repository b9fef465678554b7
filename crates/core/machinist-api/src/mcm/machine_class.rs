//! MachineClass: the desired properties of instances, in the terms of one cloud.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::SecretReference;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::group;
use crate::absent::null_as_default;
use crate::resource::namespaced_kind;

/// Desired properties of instances. The kind has no `spec` and no status: its fields are at the top
/// level.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct MachineClass {
    /// Name and finalizers.
    pub metadata: ObjectMeta,
    /// Expected properties of a Node of this class, for the cluster-autoscaler's scale-up from
    /// zero.
    pub node_template: Option<ClassNodeTemplate>,
    /// Secret with data that overrides the data of [`Self::secret_ref`].
    pub credentials_secret_ref: Option<SecretReference>,
    /// Secret with credentials and `userData`.
    pub secret_ref: Option<SecretReference>,
    /// Settings that only the driver reads. The CRD requires this field. `Null` represents a
    /// missing value, so that an invalid object stays readable.
    pub provider_spec: Value,
    /// Name of the cloud; a driver may check it.
    pub provider: Option<String>,
}

namespaced_kind!(MachineClass, list: "MachineClassList", plural: "machineclasses", {
    node_template: Option<ClassNodeTemplate> = "nodeTemplate", skip_if: Option::is_none;
    credentials_secret_ref: Option<SecretReference> = "credentialsSecretRef", skip_if: Option::is_none;
    secret_ref: Option<SecretReference> = "secretRef", skip_if: Option::is_none;
    provider_spec: Value = "providerSpec", skip_if: Value::is_null;
    provider: Option<String> = "provider", skip_if: Option::is_none;
});

/// Expected properties of a Node of a class. The CRD keeps unknown fields here, and so does this
/// type.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ClassNodeTemplate {
    /// Resources; `cpu`, `gpu` and `memory` are required once the class is used.
    #[serde(default, deserialize_with = "null_as_default")]
    pub capacity: BTreeMap<String, Quantity>,
    /// Resources that are written into the Node's `status.capacity`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub virtual_capacity: Option<BTreeMap<String, Quantity>>,
    /// Instance type of the cloud.
    #[serde(default, deserialize_with = "null_as_default")]
    pub instance_type: String,
    /// Region of the cloud.
    #[serde(default, deserialize_with = "null_as_default")]
    pub region: String,
    /// Zone within the region.
    #[serde(default, deserialize_with = "null_as_default")]
    pub zone: String,
    /// Processor architecture.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub architecture: Option<String>,
    /// All other fields, unchanged.
    #[serde(flatten)]
    pub other: Map<String, Value>,
}
