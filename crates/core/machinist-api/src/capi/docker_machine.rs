//! DockerMachine: one container that is a machine of a cluster.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::condition::one_of_each_type;
use super::group;
use super::limits::{MAX_ADDRESSES, MAX_ID_LEN, MAX_NAME_LEN};
use super::{Condition, Deprecated, Initialization, MachineAddress, TemplateMetadata};
use crate::absent::{is_default, null_as_default};
use crate::duration::DurationText;
use crate::resource::namespaced_kind;
use crate::schema;

/// A duration in Go's format that is not negative.
const DURATION: &str = r"^(0|([0-9]+(\.[0-9]+)?(ns|us|ms|s|m|h))+)$";

/// One machine of a cluster, which is a container.
#[derive(Clone, Debug, Default, PartialEq, JsonSchema)]
#[schemars(default)]
pub struct DockerMachine {
    /// Standard object metadata.
    #[schemars(skip)]
    pub metadata: ObjectMeta,
    /// Desired state.
    #[schemars(extend("x-kubernetes-validations" = [
        schema::write_once("providerID"),
        {
            "rule": "has(self.customImage) == has(oldSelf.customImage) \
                     && (!has(self.customImage) || self.customImage == oldSelf.customImage)",
            "message": "spec.customImage cannot be changed: create a new DockerMachine instead",
        },
    ]))]
    pub spec: DockerMachineSpec,
    /// Observed state.
    pub status: Option<DockerMachineStatus>,
}

namespaced_kind!(DockerMachine, list: "DockerMachineList", plural: "dockermachines", {
    spec: DockerMachineSpec = "spec", skip_if: |_| false;
    status: Option<DockerMachineStatus> = "status", skip_if: Option::is_none;
});

/// Desired state of a DockerMachine.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DockerMachineSpec {
    /// Identity of the container; the controller writes it once.
    #[serde(default, rename = "providerID", skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = MAX_ID_LEN))]
    pub provider_id: Option<String>,
    /// Image of the container; default: the image of the version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub custom_image: Option<String>,
    /// Images to load into the container.
    #[serde(default, deserialize_with = "null_as_default", skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub pre_load_images: Vec<String>,
    /// Folders of the host in the container.
    #[serde(default, deserialize_with = "null_as_default", skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub extra_mounts: Vec<Mount>,
    /// The longest duration of the bootstrap, such as 5m.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("pattern" = DURATION))]
    pub bootstrap_timeout: Option<DurationText>,
    /// Whether the bootstrap has ended (contract v1beta1).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bootstrapped: Option<bool>,
}

/// A folder of the host in the container.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("required" = ["containerPath"]))]
pub struct Mount {
    /// Path in the container.
    #[serde(default, deserialize_with = "null_as_default", skip_serializing_if = "String::is_empty")]
    #[schemars(length(min = 1))]
    pub container_path: String,
    /// Path on the host of the engine.
    #[serde(default, deserialize_with = "null_as_default", skip_serializing_if = "String::is_empty")]
    pub host_path: String,
    /// Whether the container may only read.
    #[serde(default, deserialize_with = "null_as_default", skip_serializing_if = "is_default")]
    pub read_only: bool,
}

/// Observed state of a DockerMachine.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DockerMachineStatus {
    /// Whether the container is complete (contract v1beta1).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ready: Option<bool>,
    /// Whether the container is complete (contract v1beta2).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub initialization: Option<Initialization>,
    /// Addresses of the container.
    #[serde(default, deserialize_with = "null_as_default", skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = MAX_ADDRESSES), extend("x-kubernetes-list-type" = "atomic"))]
    pub addresses: Vec<MachineAddress>,
    /// The failure domain of the container.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = MAX_NAME_LEN))]
    pub failure_domain: Option<String>,
    /// Whether the load balancer has this machine.
    ///
    /// Only a machine of the control plane has the field, for the contract v1beta1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub load_balancer_configured: Option<bool>,
    /// Conditions.
    #[serde(default, deserialize_with = "null_as_default", skip_serializing_if = "Vec::is_empty")]
    #[schemars(transform = one_of_each_type)]
    pub conditions: Vec<Condition>,
    /// Fields of older contracts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deprecated: Option<Deprecated>,
}

/// A template of DockerMachines.
#[derive(Clone, Debug, Default, PartialEq, JsonSchema)]
#[schemars(default)]
pub struct DockerMachineTemplate {
    /// Standard object metadata.
    #[schemars(skip)]
    pub metadata: ObjectMeta,
    /// Spec of the template.
    pub spec: DockerMachineTemplateSpec,
    /// Observed state.
    ///
    /// The resources of one machine, for scaling up from zero.
    pub status: Option<DockerMachineTemplateStatus>,
}

namespaced_kind!(DockerMachineTemplate, list: "DockerMachineTemplateList", plural: "dockermachinetemplates", {
    spec: DockerMachineTemplateSpec = "spec", skip_if: |_| false;
    status: Option<DockerMachineTemplateStatus> = "status", skip_if: Option::is_none;
});

/// Spec of a DockerMachineTemplate.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("required" = ["template"]))]
pub struct DockerMachineTemplateSpec {
    /// The DockerMachine to create.
    #[serde(default)]
    pub template: DockerMachineTemplateBody,
}

/// The DockerMachine that a template creates.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DockerMachineTemplateBody {
    /// Labels and annotations of the objects.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata: Option<TemplateMetadata>,
    /// Spec of the DockerMachine.
    #[serde(default)]
    pub spec: DockerMachineSpec,
}

/// Observed state of a DockerMachineTemplate.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DockerMachineTemplateStatus {
    /// Resources of one machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::resource_list")]
    pub capacity: Option<BTreeMap<String, Quantity>>,
    /// Processor architecture and operating system.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_info: Option<NodeInfo>,
}

/// Processor architecture and operating system.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NodeInfo {
    /// Processor architecture.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("enum" = ["amd64", "arm64", "s390x", "ppc64le"]))]
    pub architecture: Option<String>,
    /// Operating system, for example `linux`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub operating_system: Option<String>,
}
