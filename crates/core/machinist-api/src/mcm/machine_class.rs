//! MachineClass: the desired properties of instances, in the terms of one cloud.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::SecretReference;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::group;
use crate::absent::null_as_default;
use crate::resource::namespaced_kind;
use crate::schema;

/// Desired properties of instances.
///
/// The kind has no `spec` and no status: its fields are at the top level.
#[derive(Clone, Debug, Default, PartialEq, JsonSchema)]
#[schemars(default, rename_all = "camelCase", extend("required" = ["providerSpec"]))]
pub struct MachineClass {
    /// Name and finalizers.
    #[schemars(skip)]
    pub metadata: ObjectMeta,
    /// Expected properties of a Node of this class, for scaling up from zero.
    pub node_template: Option<ClassNodeTemplate>,
    /// Secret with data that overrides the data of `secretRef`.
    #[schemars(schema_with = "schema::secret_reference")]
    pub credentials_secret_ref: Option<SecretReference>,
    /// Secret with credentials and `userData`.
    #[schemars(schema_with = "schema::secret_reference")]
    pub secret_ref: Option<SecretReference>,
    /// Settings of the instance; only the driver of the cloud reads them.
    ///
    /// `Null` represents a missing value, so that an invalid object stays readable.
    #[schemars(schema_with = "schema::open_object")]
    pub provider_spec: Value,
    /// Name of the cloud.
    ///
    /// A driver may check it.
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
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend(
    "required" = ["capacity", "instanceType", "region", "zone"],
    "x-kubernetes-preserve-unknown-fields" = true,
))]
pub struct ClassNodeTemplate {
    /// Resources; `cpu`, `gpu` and `memory` are required.
    ///
    /// The CRD does not check that: the class is invalid once it is used.
    #[serde(default, deserialize_with = "null_as_default")]
    #[schemars(schema_with = "schema::resource_list")]
    pub capacity: BTreeMap<String, Quantity>,
    /// Resources that are written into the Node's capacity.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(default, schema_with = "schema::resource_list")]
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
    #[schemars(skip)]
    pub other: Map<String, Value>,
}
