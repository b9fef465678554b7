//! DockerCluster: the load balancer and the failure domains of one cluster.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::condition::one_of_each_type;
use super::group;
use super::shared::failure_domains;
use super::{Condition, Deprecated, Endpoint, Initialization, TemplateMetadata};
use crate::absent::null_as_default;
use crate::resource::namespaced_kind;

/// The shared infrastructure of a cluster whose machines are containers.
#[derive(Clone, Debug, Default, PartialEq, JsonSchema)]
#[schemars(default)]
pub struct DockerCluster {
    /// Standard object metadata.
    #[schemars(skip)]
    pub metadata: ObjectMeta,
    /// Desired state.
    pub spec: DockerClusterSpec,
    /// Observed state.
    pub status: Option<DockerClusterStatus>,
}

namespaced_kind!(DockerCluster, list: "DockerClusterList", plural: "dockerclusters", {
    spec: DockerClusterSpec = "spec", skip_if: |_| false;
    status: Option<DockerClusterStatus> = "status", skip_if: Option::is_none;
});

/// Desired state of a DockerCluster.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DockerClusterSpec {
    /// Address of the API servers; written by the controller if it is not set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub control_plane_endpoint: Option<Endpoint>,
    /// Failure domains: a list with `name`, `controlPlane` and `attributes`, or a map by name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "failure_domains")]
    pub failure_domains: Option<Value>,
    /// The load balancer of the API servers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub load_balancer: Option<LoadBalancer>,
    /// The complete image of the load balancer (v1alpha1).
    #[serde(default, rename = "loadbalancerImage", skip_serializing_if = "Option::is_none")]
    pub loadbalancer_image: Option<String>,
}

/// The load balancer of the API servers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LoadBalancer {
    /// Repository of the image, without the last part `haproxy`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image_repository: Option<String>,
    /// Tag of the image.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image_tag: Option<String>,
    /// ConfigMap with a template of the configuration.
    #[serde(default, rename = "customHAProxyConfigTemplateRef", skip_serializing_if = "Option::is_none")]
    pub custom_haproxy_config_template_ref: Option<LocalReference>,
}

/// A reference to a ConfigMap in the same namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub struct LocalReference {
    /// Name of the ConfigMap.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
}

/// Observed state of a DockerCluster.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DockerClusterStatus {
    /// Whether the infrastructure is complete (contract v1beta1).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ready: Option<bool>,
    /// Whether the infrastructure is complete (contract v1beta2).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub initialization: Option<Initialization>,
    /// Failure domains, in the form that the core controllers read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "failure_domains")]
    pub failure_domains: Option<Value>,
    /// Conditions.
    #[serde(default, deserialize_with = "null_as_default", skip_serializing_if = "Vec::is_empty")]
    #[schemars(transform = one_of_each_type)]
    pub conditions: Vec<Condition>,
    /// Fields of older contracts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deprecated: Option<Deprecated>,
    /// The load balancer, for users.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub load_balancer: Option<LoadBalancerStatus>,
}

/// The load balancer as the engine shows it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LoadBalancerStatus {
    /// Name of the container.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub container_name: Option<String>,
    /// Addresses of the container.
    #[serde(default, deserialize_with = "null_as_default", skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub ips: Vec<String>,
    /// Port on the host of the engine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host_port: Option<u16>,
    /// Machines behind the load balancer.
    #[serde(default, deserialize_with = "null_as_default", skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub backends: Vec<String>,
}

/// A template of DockerClusters, for ClusterClasses.
#[derive(Clone, Debug, Default, PartialEq, JsonSchema)]
#[schemars(default)]
pub struct DockerClusterTemplate {
    /// Standard object metadata.
    #[schemars(skip)]
    pub metadata: ObjectMeta,
    /// Spec of the template.
    pub spec: DockerClusterTemplateSpec,
}

namespaced_kind!(DockerClusterTemplate, list: "DockerClusterTemplateList", plural: "dockerclustertemplates", {
    spec: DockerClusterTemplateSpec = "spec", skip_if: |_| false;
});

/// Spec of a DockerClusterTemplate.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend(
    "required" = ["template"],
    "x-kubernetes-validations" = [{
        "rule": "self == oldSelf",
        "message": "spec.template is immutable: create a new DockerClusterTemplate instead",
    }],
))]
pub struct DockerClusterTemplateSpec {
    /// The DockerCluster to create.
    #[serde(default)]
    pub template: DockerClusterTemplateBody,
}

/// The DockerCluster that a template creates.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DockerClusterTemplateBody {
    /// Labels and annotations of the objects.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata: Option<TemplateMetadata>,
    /// Spec of the DockerCluster.
    #[serde(default)]
    pub spec: DockerClusterSpec,
}
