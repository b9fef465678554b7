//! Configuration of the controllers.

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

/// Configuration and timeouts of the controllers. The defaults are the same as in
/// kube-controller-manager.
#[non_exhaustive]
pub struct KcmConfig {
    /// The time of day, for timestamps in API objects and for deadlines that start at one.
    pub clock: SharedClock,
    /// Difference between the server's clock and ours. If the difference is large, the controllers
    /// delete no object because of its age.
    pub skew: Skew,
    /// Signs the certificates of kubelets; `None` leaves signing to another controller.
    pub ca: Option<CaPair>,
    /// Maximum lifetime of a certificate, and the lifetime if the request does not ask for one.
    pub certificate_life: Duration,
    /// Time without a sign of life after which a Node is declared lost. It must be longer than a
    /// kubelet's interval between Lease renewals.
    pub node_monitor_grace: Duration,
    /// The time for a Node with a kubelet that has not posted a status yet, instead of
    /// [`Self::node_monitor_grace`].
    pub node_startup_grace: Duration,
    /// Interval at which the controller checks that its own process was running. A Node counts as
    /// silent only during time in which the process was running.
    pub node_monitor_period: Duration,
    /// Time that a Pod stays on a lost Node if it has no toleration for that. API servers add a
    /// toleration of 300 s to each Pod.
    pub pod_eviction_after: Duration,
    /// Time that a Node has to be missing before Pods bound to it are deleted.
    pub missing_node_quarantine: Duration,
    /// Kinds of objects that are collected and that count as owners. The server should serve all of
    /// them when the controllers start. The collector reads an owner of another kind when it needs
    /// that owner.
    pub gc_resources: Vec<GcResource>,
    /// Whether objects of CustomResourceDefinitions are also collected, from the moment a
    /// definition is established until it is deleted.
    pub collect_defined_kinds: bool,
    /// Seed of the jitter between retries.
    pub seed: u64,
}

impl KcmConfig {
    /// Returns the defaults with this clock and without a certificate authority.
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

impl fmt::Debug for KcmConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KcmConfig")
            .field("ca", &self.ca)
            .field("node_monitor_grace", &self.node_monitor_grace)
            .field("pod_eviction_after", &self.pod_eviction_after)
            .field("gc_resources", &self.gc_resources.len())
            .finish_non_exhaustive()
    }
}

impl Default for KcmConfig {
    fn default() -> Self {
        Self::new(SystemClock::shared())
    }
}

/// A kind that is garbage collected.
#[derive(Clone, Debug, PartialEq)]
pub struct GcResource(pub(crate) Resource);

impl GcResource {
    /// A namespaced kind.
    pub fn namespaced(api: ApiResource) -> Self {
        Self(Resource { api, scope: Scope::Namespaced })
    }

    /// A cluster-scoped kind.
    pub fn cluster_scoped(api: ApiResource) -> Self {
        Self(Resource { api, scope: Scope::Cluster })
    }

    /// The built-in kinds in a cluster of machines that can have owners, or be owners.
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
