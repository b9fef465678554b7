//! DockerMachine: one container that is a machine of a cluster.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::{Deserialize, Serialize};

use super::group;
use super::{Condition, Deprecated, Initialization, MachineAddress, TemplateMetadata};
use crate::absent::{is_default, null_as_default};
use crate::duration::DurationText;
use crate::resource::namespaced_kind;

/// One machine, which is a container.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct DockerMachine {
    /// Standard object metadata.
    pub metadata: ObjectMeta,
    /// Desired state.
    pub spec: DockerMachineSpec,
    /// Observed state.
    pub status: Option<DockerMachineStatus>,
}

namespaced_kind!(DockerMachine, list: "DockerMachineList", plural: "dockermachines", {
    spec: DockerMachineSpec = "spec", skip_if: |_| false;
    status: Option<DockerMachineStatus> = "status", skip_if: Option::is_none;
});

/// Desired state of a DockerMachine.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DockerMachineSpec {
    /// Identity of the container; the controller writes it once.
    #[serde(default, rename = "providerID", skip_serializing_if = "Option::is_none")]
    pub provider_id: Option<String>,
    /// Image of the container, instead of the image of the Machine's version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub custom_image: Option<String>,
    /// Images that are loaded from the engine into the container.
    #[serde(default, deserialize_with = "null_as_default", skip_serializing_if = "Vec::is_empty")]
    pub pre_load_images: Vec<String>,
    /// Folders of the host in the container.
    #[serde(default, deserialize_with = "null_as_default", skip_serializing_if = "Vec::is_empty")]
    pub extra_mounts: Vec<Mount>,
    /// The longest duration of the bootstrap.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bootstrap_timeout: Option<DurationText>,
    /// Whether the bootstrap has ended (contract v1beta1).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bootstrapped: Option<bool>,
}

/// A folder of the host in the container.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Mount {
    /// Path in the container.
    #[serde(default, deserialize_with = "null_as_default", skip_serializing_if = "String::is_empty")]
    pub container_path: String,
    /// Path on the host of the engine.
    #[serde(default, deserialize_with = "null_as_default", skip_serializing_if = "String::is_empty")]
    pub host_path: String,
    /// Whether the container may only read.
    #[serde(default, deserialize_with = "null_as_default", skip_serializing_if = "is_default")]
    pub read_only: bool,
}

/// Observed state of a DockerMachine.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
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
    pub addresses: Vec<MachineAddress>,
    /// The failure domain of the container.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure_domain: Option<String>,
    /// Whether the load balancer has this machine of the control plane (contract v1beta1).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub load_balancer_configured: Option<bool>,
    /// Conditions.
    #[serde(default, deserialize_with = "null_as_default", skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
    /// Fields of older contracts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deprecated: Option<Deprecated>,
}

/// A template of DockerMachines.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct DockerMachineTemplate {
    /// Standard object metadata.
    pub metadata: ObjectMeta,
    /// The template.
    pub spec: DockerMachineTemplateSpec,
    /// The resources of one machine, for scaling up from zero.
    pub status: Option<DockerMachineTemplateStatus>,
}

namespaced_kind!(DockerMachineTemplate, list: "DockerMachineTemplateList", plural: "dockermachinetemplates", {
    spec: DockerMachineTemplateSpec = "spec", skip_if: |_| false;
    status: Option<DockerMachineTemplateStatus> = "status", skip_if: Option::is_none;
});

/// Spec of a DockerMachineTemplate.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DockerMachineTemplateSpec {
    /// The template.
    #[serde(default)]
    pub template: DockerMachineTemplateBody,
}

/// The DockerMachine that a template creates.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DockerMachineTemplateBody {
    /// Labels and annotations.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata: Option<TemplateMetadata>,
    /// Spec of the DockerMachine.
    #[serde(default)]
    pub spec: DockerMachineSpec,
}

/// Observed state of a DockerMachineTemplate.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DockerMachineTemplateStatus {
    /// Resources of one machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub capacity: Option<BTreeMap<String, Quantity>>,
    /// Processor architecture and operating system of the machines.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_info: Option<NodeInfo>,
}

/// Processor architecture and operating system.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeInfo {
    /// For example `amd64`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub architecture: Option<String>,
    /// For example `linux`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub operating_system: Option<String>,
}
