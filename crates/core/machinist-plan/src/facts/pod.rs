//! Facts of Pods and of the budgets that hold them.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, LabelSelectorRequirement};

use super::{OwnerFacts, Version};

/// The grace that a pod has when it names none.
const DEFAULT_GRACE: Duration = Duration::from_secs(30);

/// What planners know of a Pod: what a drain needs, and nothing that would make a cache of all pods large.
#[derive(Debug, Clone)]
pub struct PodFacts {
    /// Which version of the object this is.
    pub version: Version,
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Its UID.
    pub uid: String,
    /// The Node it is bound to; empty while it is not.
    pub node: String,
    /// Its labels: budgets select by them.
    pub labels: BTreeMap<String, String>,
    /// When deletion was asked for.
    pub deleting_since: Option<Timestamp>,
    /// How long it may take to stop.
    pub grace: Duration,
    /// Whether a DaemonSet controls it: it would come back at once.
    pub is_daemon: bool,
    /// Whether it mirrors a static pod: only the kubelet can stop it.
    pub is_mirror: bool,
}

impl PodFacts {
    /// Reads a Pod.
    pub fn parse(pod: &Pod) -> Self {
        let metadata = &pod.metadata;
        let spec = pod.spec.as_ref();
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
            labels: metadata.labels.clone().unwrap_or_default(),
            deleting_since: metadata.deletion_timestamp.as_ref().map(|time| time.0),
            grace: grace.map_or(DEFAULT_GRACE, Duration::from_secs),
            is_daemon: OwnerFacts::controller_of(metadata).is_some_and(|owner| owner.kind == "DaemonSet"),
            is_mirror: metadata
                .annotations
                .as_ref()
                .is_some_and(|all| all.contains_key("kubernetes.io/config.mirror")),
        }
    }

    /// Whether a drain moves it: daemons come back and mirrors cannot leave.
    pub fn leaves_in_a_drain(&self) -> bool {
        !self.is_daemon && !self.is_mirror
    }

    /// `namespace/name`, as people write it.
    pub fn full_name(&self) -> String {
        format!("{}/{}", self.namespace, self.name)
    }
}

/// What planners know of a PodDisruptionBudget.
#[derive(Debug, Clone)]
pub struct BudgetFacts {
    /// Which version of the object this is.
    pub version: Version,
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Which pods it covers.
    pub selector: Option<LabelSelector>,
    /// How many may be disrupted now.
    pub disruptions_allowed: i32,
    /// Whether its numbers are settled and still allow nothing: every pod is healthy, none is being disrupted, and yet none
    /// may go. Then none ever will, unless somebody changes the budget or, where it asks for a number of them, runs more pods.
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
            selector: budget.spec.as_ref().and_then(|spec| spec.selector.clone()),
            disruptions_allowed: status.disruptions_allowed,
            never_allows: settled && all_healthy && none_in_flight && status.disruptions_allowed == 0,
        }
    }

    /// Whether it covers a pod. An absent selector covers none, an empty one every pod of its namespace.
    pub fn covers(&self, pod: &PodFacts) -> bool {
        self.namespace == pod.namespace
            && self.selector.as_ref().is_some_and(|selector| selects(selector, &pod.labels))
    }

    /// `namespace/name`, as people write it.
    pub fn full_name(&self) -> String {
        format!("{}/{}", self.namespace, self.name)
    }
}

/// Whether a label selector matches. An unknown operator matches nothing.
pub(crate) fn selects(selector: &LabelSelector, labels: &BTreeMap<String, String>) -> bool {
    let by_label = selector.match_labels.iter().flatten().all(|(key, value)| labels.get(key) == Some(value));
    let by_expression = |requirement: &LabelSelectorRequirement| {
        let value = labels.get(&requirement.key);
        let listed =
            |value: &String| requirement.values.as_ref().is_some_and(|values| values.contains(value));
        match requirement.operator.as_str() {
            "In" => value.is_some_and(listed),
            "NotIn" => !value.is_some_and(listed),
            "Exists" => value.is_some(),
            "DoesNotExist" => value.is_none(),
            _ => false,
        }
    };
    by_label && selector.match_expressions.iter().flatten().all(by_expression)
}
