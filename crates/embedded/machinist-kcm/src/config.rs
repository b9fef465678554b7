//! How the controllers are set up.

use std::fmt;
use std::time::Duration;

use k8s_openapi::api::apps::v1::{DaemonSet, Deployment, ReplicaSet, StatefulSet};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{
    ConfigMap, Node, PersistentVolume, PersistentVolumeClaim, Pod, Secret, Service, ServiceAccount,
};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::api::scheduling::v1::PriorityClass;
use k8s_openapi::api::storage::v1::VolumeAttachment;
use kube::api::ApiResource;
use kube::discovery::Scope;
use machinist_kube::{SharedClock, Skew, SystemClock};

use crate::certificates::signing::CaPair;
use crate::kinds::Resource;

/// What the controllers are to do, and how patient they are. The defaults are kube-controller-manager's.
#[non_exhaustive]
pub struct Config {
    /// The time of day, for timestamps in API objects and for deadlines that start at one.
    pub clock: SharedClock,
    /// How far the server's clock is from ours; when it is far, nothing is deleted because of its age.
    pub skew: Skew,
    /// Signs the certificates of kubelets; `None` leaves that to somebody else.
    pub ca: Option<CaPair>,
    /// How long a certificate is valid at most, and when nothing else was asked for.
    pub certificate_life: Duration,
    /// How long a Node may be silent before it is declared lost. It must be longer than kubelets take to renew a Lease.
    pub node_monitor_grace: Duration,
    /// The same for a Node whose kubelet has not posted anything yet.
    pub node_startup_grace: Duration,
    /// How often it is checked that this process itself was awake; silence counts only while it was.
    pub node_monitor_period: Duration,
    /// How long a Pod stays on a lost Node, if it does not say so itself. API servers make each Pod say 300 s.
    pub pod_eviction_after: Duration,
    /// How long a Node has to be missing before Pods bound to it are deleted.
    pub missing_node_quarantine: Duration,
    /// The kinds that are collected, and whose objects are owners; kinds of other owners are looked up when needed. All of
    /// them should be served when the controllers start.
    pub gc_resources: Vec<GcResource>,
    /// Whether the kinds of CustomResourceDefinitions are collected, too, from when they are established until they are deleted.
    pub collect_defined_kinds: bool,
    /// The seed of the jitter between retries.
    pub seed: u64,
}

impl Config {
    /// The defaults, with this clock and without a certificate authority.
    pub fn new(clock: SharedClock) -> Self {
        Self {
            clock,
            skew: Skew::default(),
            ca: None,
            certificate_life: Duration::from_secs(365 * 24 * 3600),
            node_monitor_grace: Duration::from_secs(50),
            node_startup_grace: Duration::from_secs(60),
            node_monitor_period: Duration::from_secs(5),
            pod_eviction_after: Duration::from_secs(300),
            missing_node_quarantine: Duration::from_secs(40),
            gc_resources: GcResource::built_in(),
            collect_defined_kinds: false,
            seed: 0,
        }
    }
}

impl fmt::Debug for Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Config")
            .field("ca", &self.ca)
            .field("node_monitor_grace", &self.node_monitor_grace)
            .field("pod_eviction_after", &self.pod_eviction_after)
            .field("gc_resources", &self.gc_resources.len())
            .finish_non_exhaustive()
    }
}

impl Default for Config {
    fn default() -> Self {
        Self::new(SystemClock::shared())
    }
}

/// A kind that is garbage collected.
#[derive(Clone, Debug, PartialEq)]
pub struct GcResource(pub(crate) Resource);

impl GcResource {
    /// A kind whose objects lie in namespaces.
    pub fn namespaced(api: ApiResource) -> Self {
        Self(Resource { api, scope: Scope::Namespaced })
    }

    /// A kind whose objects lie in no namespace.
    pub fn cluster_scoped(api: ApiResource) -> Self {
        Self(Resource { api, scope: Scope::Cluster })
    }

    /// The built-in kinds that can have owners, or be owners, in a cluster of machines.
    pub fn built_in() -> Vec<Self> {
        vec![
            Self::cluster_scoped(ApiResource::erase::<Node>(&())),
            Self::cluster_scoped(ApiResource::erase::<CertificateSigningRequest>(&())),
            Self::cluster_scoped(ApiResource::erase::<PersistentVolume>(&())),
            Self::cluster_scoped(ApiResource::erase::<VolumeAttachment>(&())),
            Self::cluster_scoped(ApiResource::erase::<PriorityClass>(&())),
            Self::namespaced(ApiResource::erase::<Pod>(&())),
            Self::namespaced(ApiResource::erase::<Secret>(&())),
            Self::namespaced(ApiResource::erase::<ConfigMap>(&())),
            Self::namespaced(ApiResource::erase::<ServiceAccount>(&())),
            Self::namespaced(ApiResource::erase::<Lease>(&())),
            Self::namespaced(ApiResource::erase::<PodDisruptionBudget>(&())),
            Self::namespaced(ApiResource::erase::<Service>(&())),
            Self::namespaced(ApiResource::erase::<PersistentVolumeClaim>(&())),
            Self::namespaced(ApiResource::erase::<Deployment>(&())),
            Self::namespaced(ApiResource::erase::<ReplicaSet>(&())),
            Self::namespaced(ApiResource::erase::<DaemonSet>(&())),
            Self::namespaced(ApiResource::erase::<StatefulSet>(&())),
            Self::namespaced(ApiResource::erase::<Job>(&())),
        ]
    }
}
