//! Facts of Pods and of their disruption budgets.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use machinist_labels::{KeyValues, Selector};

use super::machine::OwnerFacts;
use crate::facts::Version;

/// The default termination grace period of a pod.
const DEFAULT_GRACE: Duration = Duration::from_secs(30);

/// Planner facts of a Pod. They hold only the fields that a drain needs, to keep the cache of all
/// pods small.
#[derive(Debug, Clone)]
pub struct PodFacts {
    /// Version of the object.
    pub version: Version,
    /// Namespace of the Pod.
    pub namespace: String,
    /// Name of the Pod.
    pub name: String,
    /// UID of the Pod.
    pub uid: String,
    /// Name of the Node that the pod is bound to; empty while unbound.
    pub node: String,
    /// Labels, by which budgets select pods.
    pub labels: KeyValues,
    /// When the pod was created.
    pub created: Timestamp,
    /// Deletion timestamp; absent unless the object is being deleted.
    pub deleting_since: Option<Timestamp>,
    /// The termination grace period.
    pub grace: Duration,
    /// Whether a DaemonSet controls the pod, so that it would be recreated at once.
    pub is_daemon: bool,
    /// Whether the pod mirrors a static pod, which only the kubelet can stop.
    pub is_mirror: bool,
    /// Whether all containers of the pod have ended for good.
    pub has_ended: bool,
    /// The priority of the pod. Pods with volumes are evicted in its order.
    pub priority: i32,
    /// `namespace/name` of the claims that the pod uses, with those that were created for it.
    pub claims: Box<[Box<str>]>,
}

impl PodFacts {
    /// Reads a Pod.
    pub fn parse(pod: &Pod) -> Self {
        let metadata = &pod.metadata;
        let spec = pod.spec.as_ref();
        let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
        let grace = metadata
            .deletion_grace_period_seconds
            .or_else(|| spec.and_then(|spec| spec.termination_grace_period_seconds))
            .and_then(|seconds| u64::try_from(seconds).ok());
        Self {
            version: Version::of(metadata),
            namespace: metadata.namespace.clone().unwrap_or_default(),
            name: metadata.name.clone().unwrap_or_default(),
            uid: metadata.uid.clone().unwrap_or_default(),
            node: spec.and_then(|spec| spec.node_name.clone()).unwrap_or_default(),
            labels: metadata.labels.as_ref().map(KeyValues::from).unwrap_or_default(),
            created: metadata.creation_timestamp.as_ref().map_or(Timestamp::UNIX_EPOCH, |time| time.0),
            deleting_since: metadata.deletion_timestamp.as_ref().map(|time| time.0),
            grace: grace.map_or(DEFAULT_GRACE, Duration::from_secs),
            is_daemon: OwnerFacts::controller_of(metadata).is_some_and(|owner| owner.kind == "DaemonSet"),
            is_mirror: metadata
                .annotations
                .as_ref()
                .is_some_and(|all| all.contains_key("kubernetes.io/config.mirror")),
            has_ended: matches!(phase, Some("Succeeded" | "Failed")),
            priority: spec.and_then(|spec| spec.priority).unwrap_or_default(),
            claims: claims_of(pod),
        }
    }

    /// Whether a drain evicts the pod. Daemon pods would be recreated, and mirror pods cannot be
    /// evicted.
    pub fn leaves_in_a_drain(&self) -> bool {
        !self.is_daemon && !self.is_mirror
    }

    /// Whether the deletion of the instance would stop a pod that a drain evicts.
    pub fn is_lost_without_drain(&self) -> bool {
        self.leaves_in_a_drain() && !self.has_ended
    }

    /// Returns `namespace/name`.
    pub fn full_name(&self) -> String {
        format!("{}/{}", self.namespace, self.name)
    }
}

/// Returns the claims of a pod. Kubernetes creates the claim of an ephemeral volume, and names it
/// after the pod and the volume.
fn claims_of(pod: &Pod) -> Box<[Box<str>]> {
    let name = |name: &Option<String>| name.clone().unwrap_or_default();
    let (namespace, pod_name) = (name(&pod.metadata.namespace), name(&pod.metadata.name));
    let volumes = pod.spec.iter().filter_map(|spec| spec.volumes.as_ref()).flatten();
    let claims = volumes.filter_map(|volume| match (&volume.persistent_volume_claim, &volume.ephemeral) {
        (Some(claim), _) => Some(format!("{namespace}/{}", claim.claim_name)),
        (None, Some(_)) => Some(format!("{namespace}/{pod_name}-{}", volume.name)),
        (None, None) => None,
    });
    claims.map(String::into_boxed_str).collect()
}

/// Planner facts of a PodDisruptionBudget.
#[derive(Debug, Clone)]
pub struct BudgetFacts {
    /// Version of the object.
    pub version: Version,
    /// Namespace of the PodDisruptionBudget.
    pub namespace: String,
    /// Name of the PodDisruptionBudget.
    pub name: String,
    /// Selector of the covered pods.
    pub selector: Option<Selector>,
    /// Number of pods that may be disrupted now.
    pub disruptions_allowed: i32,
    /// Whether the budget can never allow a disruption: every pod is healthy, no disruption is in
    /// progress, and yet the budget allows none. This stays so until a user changes the budget or,
    /// if it requires a number of pods, runs more pods.
    pub never_allows: bool,
}

impl BudgetFacts {
    /// Reads a PodDisruptionBudget.
    pub fn parse(budget: &PodDisruptionBudget) -> Self {
        let metadata = &budget.metadata;
        let status = budget.status.clone().unwrap_or_default();
        let settled = metadata.generation == status.observed_generation;
        let all_healthy = status.expected_pods > 0 && status.current_healthy >= status.expected_pods;
        let none_in_flight = status.disrupted_pods.as_ref().is_none_or(BTreeMap::is_empty);
        Self {
            version: Version::of(metadata),
            namespace: metadata.namespace.clone().unwrap_or_default(),
            name: metadata.name.clone().unwrap_or_default(),
            selector: budget.spec.as_ref().and_then(|spec| spec.selector.as_ref()).map(Selector::from),
            disruptions_allowed: status.disruptions_allowed,
            never_allows: settled && all_healthy && none_in_flight && status.disruptions_allowed == 0,
        }
    }

    /// Whether the budget covers a pod. An absent selector covers no pod, an empty selector every
    /// pod of the namespace.
    pub fn covers(&self, pod: &PodFacts) -> bool {
        self.namespace == pod.namespace
            && self.selector.as_ref().is_some_and(|selector| selector.selects(&pod.labels))
    }

    /// Returns `namespace/name`.
    pub fn full_name(&self) -> String {
        format!("{}/{}", self.namespace, self.name)
    }
}
