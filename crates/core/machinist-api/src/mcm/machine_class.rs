//! MachineClass: what an instance should be, in the words of one cloud.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::SecretReference;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::resource::namespaced_kind;
use crate::absent::null_as_default;

/// What an instance should be. There is no `spec` and no status: the fields lie at the top.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct MachineClass {
    /// Name and finalizer.
    pub metadata: ObjectMeta,
    /// What a Node of this class will look like, for the cluster-autoscaler's scale-up from zero.
    pub node_template: Option<ClassNodeTemplate>,
    /// Secret whose data is merged over that of [`Self::secret_ref`].
    pub credentials_secret_ref: Option<SecretReference>,
    /// Secret with credentials and `userData`.
    pub secret_ref: Option<SecretReference>,
    /// For the driver alone. Required by the CRD; `Null` stands for a missing one, so that one bad object stays readable.
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

/// What a Node of a class will look like. The CRD keeps unknown fields here, and so does this type.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ClassNodeTemplate {
    /// Resources; `cpu`, `gpu` and `memory` are required once the class is used.
    #[serde(default, deserialize_with = "null_as_default")]
    pub capacity: BTreeMap<String, Quantity>,
    /// Resources that are written into the Node's `status.capacity`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub virtual_capacity: Option<BTreeMap<String, Quantity>>,
    /// Instance type.
    #[serde(default, deserialize_with = "null_as_default")]
    pub instance_type: String,
    /// Region.
    #[serde(default, deserialize_with = "null_as_default")]
    pub region: String,
    /// Zone.
    #[serde(default, deserialize_with = "null_as_default")]
    pub zone: String,
    /// Processor architecture.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub architecture: Option<String>,
    /// Everything else, as it came.
    #[serde(flatten)]
    pub other: Map<String, Value>,
}
