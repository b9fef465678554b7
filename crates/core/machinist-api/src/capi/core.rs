//! The fields of Cluster and Machine that a provider reads, in both versions of Cluster API.
//!
//! The types contain the fields of both versions side by side. The functions read the newer field
//! first. A provider never writes these objects, so fields that it does not read are dropped.

use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::{Deserialize, Serialize};

use super::{CORE_GROUP, Endpoint, constants};
use crate::mcm::ConditionStatus;

/// A version of the core kinds, as a type: each version has its own URL.
pub trait CoreVersion: Clone + fmt::Debug + Send + Sync + 'static {
    /// Name of the version.
    const VERSION: &'static str;
    /// Group and version.
    const API_VERSION: &'static str;
}

/// The version v1beta1.
#[derive(Clone, Debug)]
pub struct Beta1;

/// The version v1beta2.
#[derive(Clone, Debug)]
pub struct Beta2;

impl CoreVersion for Beta1 {
    const VERSION: &'static str = "v1beta1";
    const API_VERSION: &'static str = "cluster.x-k8s.io/v1beta1";
}

impl CoreVersion for Beta2 {
    const VERSION: &'static str = "v1beta2";
    const API_VERSION: &'static str = "cluster.x-k8s.io/v1beta2";
}

/// A view of a Cluster.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", bound = "")]
pub struct Cluster<V> {
    /// Standard object metadata.
    #[serde(default)]
    pub metadata: ObjectMeta,
    /// Desired state.
    #[serde(default)]
    pub spec: ClusterSpec,
    /// Observed state.
    #[serde(default)]
    pub status: ClusterStatus,
    /// The version of the object.
    #[serde(skip)]
    pub version: PhantomData<V>,
}

/// A view of a Machine.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", bound = "")]
pub struct Machine<V> {
    /// Standard object metadata.
    #[serde(default)]
    pub metadata: ObjectMeta,
    /// Desired state.
    #[serde(default)]
    pub spec: MachineSpec,
    /// Observed state.
    #[serde(default)]
    pub status: MachineStatus,
    /// The version of the object.
    #[serde(skip)]
    pub version: PhantomData<V>,
}

macro_rules! core_kind {
    ($kind:ident, $name:literal, $list:literal, $plural:literal) => {
        impl<V: CoreVersion> k8s_openapi::Resource for $kind<V> {
            const API_VERSION: &'static str = V::API_VERSION;
            const GROUP: &'static str = CORE_GROUP;
            const KIND: &'static str = $name;
            const VERSION: &'static str = V::VERSION;
            const URL_PATH_SEGMENT: &'static str = $plural;
            type Scope = k8s_openapi::NamespaceResourceScope;
        }

        impl<V: CoreVersion> k8s_openapi::ListableResource for $kind<V> {
            const LIST_KIND: &'static str = $list;
        }

        impl<V: CoreVersion> k8s_openapi::Metadata for $kind<V> {
            type Ty = ObjectMeta;

            fn metadata(&self) -> &ObjectMeta {
                &self.metadata
            }

            fn metadata_mut(&mut self) -> &mut ObjectMeta {
                &mut self.metadata
            }
        }
    };
}

core_kind!(Cluster, "Cluster", "ClusterList", "clusters");
core_kind!(Machine, "Machine", "MachineList", "machines");

/// A view of the spec of a Cluster.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ClusterSpec {
    /// Whether controllers leave the objects of the Cluster alone.
    pub paused: Option<bool>,
    /// Address of the API servers.
    pub control_plane_endpoint: Option<Endpoint>,
    /// The infrastructure of the Cluster.
    pub infrastructure_ref: Option<Reference>,
    /// The control plane of the Cluster.
    pub control_plane_ref: Option<Reference>,
}

/// A view of the status of a Cluster.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ClusterStatus {
    /// Whether the infrastructure is complete (v1beta1).
    pub infrastructure_ready: Option<bool>,
    /// The steps that were completed once (v1beta2).
    pub initialization: Option<ClusterInitialization>,
    /// Conditions, in the format of the version.
    pub conditions: Option<Vec<ConditionView>>,
    /// Conditions of the newer format on an object of v1beta1.
    #[serde(rename = "v1beta2")]
    pub v1_beta2: Option<ConditionsView>,
    /// Conditions of the older format on an object of v1beta2.
    pub deprecated: Option<DeprecatedView>,
}

/// The steps of a Cluster that were completed once.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ClusterInitialization {
    /// Whether the infrastructure is complete.
    pub infrastructure_provisioned: Option<bool>,
    /// Whether the control plane serves its API.
    pub control_plane_initialized: Option<bool>,
}

/// The part of a condition that both formats have.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ConditionView {
    /// Type of the condition.
    #[serde(rename = "type")]
    pub type_: String,
    /// Status of the condition.
    pub status: ConditionStatus,
    /// Time of the last change of the status, raw.
    #[serde(default)]
    pub last_transition_time: Option<String>,
}

/// A list of conditions.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct ConditionsView {
    /// The conditions.
    pub conditions: Option<Vec<ConditionView>>,
}

/// Conditions of an older format.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct DeprecatedView {
    /// Conditions of the contract v1beta1.
    #[serde(rename = "v1beta1")]
    pub v1_beta1: Option<ConditionsView>,
}

/// A reference to an object in the same namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Reference {
    /// API group (v1beta2).
    pub api_group: Option<String>,
    /// API group and version (v1beta1).
    pub api_version: Option<String>,
    /// Kind of the object.
    pub kind: Option<String>,
    /// Name of the object.
    pub name: Option<String>,
    /// Namespace of the object (v1beta1). A provider ignores another namespace than its own.
    pub namespace: Option<String>,
}

impl Reference {
    /// Returns the API group.
    pub fn group(&self) -> Cow<'_, str> {
        match (&self.api_group, &self.api_version) {
            (Some(group), _) => Cow::Borrowed(group.as_str()),
            (None, Some(version)) => Cow::Borrowed(version.split_once('/').map_or("", |(group, _)| group)),
            (None, None) => Cow::Borrowed(""),
        }
    }

    /// Returns the name if the reference is to that kind of our API group.
    pub fn names(&self, kind: &str) -> Option<&str> {
        let is_kind = self.group() == super::GROUP && self.kind.as_deref() == Some(kind);
        self.name.as_deref().filter(|name| is_kind && !name.is_empty())
    }

    /// Whether the reference names an object. An absent reference of v1beta2 may be an empty
    /// object.
    pub fn is_defined(&self) -> bool {
        self.kind.as_deref().is_some_and(|kind| !kind.is_empty())
    }
}

/// A view of the spec of a Machine.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct MachineSpec {
    /// Name of the Cluster.
    pub cluster_name: Option<String>,
    /// Version of Kubernetes.
    pub version: Option<String>,
    /// Bootstrap data.
    pub bootstrap: Option<Bootstrap>,
    /// The infrastructure of the Machine.
    pub infrastructure_ref: Option<Reference>,
    /// Identity of the instance.
    #[serde(rename = "providerID")]
    pub provider_id: Option<String>,
    /// Requested failure domain.
    pub failure_domain: Option<String>,
}

/// A view of the bootstrap data of a Machine.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Bootstrap {
    /// Name of the Secret with the bootstrap data.
    pub data_secret_name: Option<String>,
}

/// A view of the status of a Machine.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct MachineStatus {
    /// The Node of the Machine.
    pub node_ref: Option<NodeRef>,
}

/// A reference to a Node.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct NodeRef {
    /// Name of the Node.
    pub name: Option<String>,
}

impl ClusterStatus {
    /// Whether the infrastructure of the Cluster is complete.
    pub fn infrastructure_provisioned(&self) -> bool {
        let initialization = self.initialization.as_ref();
        let newer = initialization.and_then(|initialization| initialization.infrastructure_provisioned);
        newer.or(self.infrastructure_ready).unwrap_or_default()
    }

    /// Whether the control plane serves its API.
    pub fn control_plane_initialized(&self) -> bool {
        if let Some(initialized) =
            self.initialization.as_ref().and_then(|initialization| initialization.control_plane_initialized)
        {
            return initialized;
        }
        self.shown_as_initialized().next().is_some()
    }

    /// Since when the control plane serves its API, if a condition shows it.
    pub fn control_plane_initialized_at(&self) -> Option<Timestamp> {
        self.shown_as_initialized().find_map(|shown| shown.last_transition_time.as_ref()?.parse().ok())
    }

    /// The conditions in all formats that say that the control plane serves its API.
    fn shown_as_initialized(&self) -> impl Iterator<Item = &ConditionView> {
        let newer = self.v1_beta2.as_ref().and_then(|v1_beta2| v1_beta2.conditions.as_ref());
        let older =
            self.deprecated.as_ref().and_then(|deprecated| deprecated.v1_beta1.as_ref()?.conditions.as_ref());
        let lists = [self.conditions.as_ref(), newer, older];
        lists.into_iter().flatten().flatten().filter(|condition| {
            condition.type_ == constants::conditions::CONTROL_PLANE_INITIALIZED
                && condition.status == ConditionStatus::True
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn cluster(value: serde_json::Value) -> Cluster<Beta2> {
        serde_json::from_value(value).expect("a Cluster")
    }

    /// The fields of both versions are understood.
    #[test]
    fn both_versions_of_a_cluster_are_understood() {
        let older = cluster(json!({
            "spec": {"infrastructureRef": {
                "apiVersion": "infrastructure.cluster.x-k8s.io/v1alpha1", "kind": "DockerCluster", "name": "a"
            }},
            "status": {
                "infrastructureReady": true,
                "conditions": [{"type": "ControlPlaneInitialized", "status": "True", "severity": ""}]
            }
        }));
        let newer = cluster(json!({
            "spec": {"infrastructureRef": {
                "apiGroup": "infrastructure.cluster.x-k8s.io", "kind": "DockerCluster", "name": "a"
            }},
            "status": {"initialization": {"infrastructureProvisioned": true, "controlPlaneInitialized": true}},
            "unknown": {"fields": "are ignored"}
        }));
        for cluster in [older, newer] {
            let reference = cluster.spec.infrastructure_ref.expect("a reference");
            assert_eq!(reference.names("DockerCluster"), Some("a"));
            assert_eq!(reference.names("DevCluster"), None);
            assert!(
                cluster.status.infrastructure_provisioned() && cluster.status.control_plane_initialized()
            );
        }
        let empty = cluster(json!({"spec": {"infrastructureRef": {}}}));
        assert!(!empty.spec.infrastructure_ref.expect("a reference").is_defined());
        assert_eq!(empty.status.control_plane_initialized_at(), None);
        assert!(!empty.status.infrastructure_provisioned() && !empty.status.control_plane_initialized());
    }
}
