//! Facts of a Node for the cloud-controller-manager.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Node, NodeAddress, NodeCondition, Taint};
use machinist_instance::AccountId;

use crate::ccm::names;
use crate::facts::{ACCOUNT, RawVersion, Version};

/// Planner facts of a Node for the cloud-controller-manager. Annotations, conditions and images
/// that no rule reads are left out, because a cluster has thousands of Nodes.
#[derive(Debug, Clone)]
pub struct CloudNodeFacts {
    /// Version of the object.
    pub version: Version,
    /// The resourceVersion for the precondition of a DELETE.
    pub resource_version: RawVersion,
    /// Name of the Node.
    pub name: String,
    /// UID of the Node.
    pub uid: String,
    /// Creation timestamp, truncated to seconds.
    pub created: Timestamp,
    /// Deletion timestamp; absent unless the object is being deleted.
    pub deleting_since: Option<Timestamp>,
    /// Labels. Guards distinguish absent from empty.
    pub labels: Option<BTreeMap<String, String>>,
    /// The annotations that rules read: [`names::PROVIDED_NODE_IP`],
    /// [`names::SKIP_CLOUD_DELETION`] and [`ACCOUNT`].
    pub annotations: BTreeMap<String, String>,
    /// Whether the Node has any annotations. A guard must create a missing map.
    pub has_annotations: bool,
    /// `spec.providerID`, raw. Guards distinguish absent from empty.
    pub provider_id: Option<String>,
    /// `spec.taints`, raw, in order. Guards distinguish absent from empty.
    pub taints: Option<Vec<Taint>>,
    /// `spec.podCIDRs`, in order; empty if none are allocated.
    pub pod_cidrs: Vec<String>,
    /// `status.addresses`, raw, in order. Guards distinguish absent from empty.
    pub addresses: Option<Vec<NodeAddress>>,
    /// The condition Ready.
    pub ready: Option<NodeConditionFacts>,
    /// The condition NetworkUnavailable.
    pub network: Option<NodeConditionFacts>,
}

/// One condition of a Node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeConditionFacts {
    /// `True`, `False` or `Unknown`.
    pub status: String,
    /// Reason of the condition.
    pub reason: String,
    /// When the status last changed.
    pub since: Option<Timestamp>,
}

impl CloudNodeFacts {
    /// Reads a Node.
    pub fn parse(node: &Node) -> Self {
        let metadata = &node.metadata;
        let spec = node.spec.as_ref();
        let status = node.status.as_ref();
        let condition = |kind: &str| {
            let all = status.and_then(|status| status.conditions.as_ref());
            all.into_iter().flatten().find(|condition| condition.type_ == kind).map(NodeConditionFacts::of)
        };
        let annotations = metadata.annotations.as_ref();
        let kept =
            annotations.into_iter().flatten().filter(|(key, _)| KEPT_ANNOTATIONS.contains(&key.as_str()));
        Self {
            version: Version::of(metadata),
            resource_version: RawVersion::of(metadata),
            name: metadata.name.clone().unwrap_or_default(),
            uid: metadata.uid.clone().unwrap_or_default(),
            created: metadata.creation_timestamp.as_ref().map_or(Timestamp::UNIX_EPOCH, |time| time.0),
            deleting_since: metadata.deletion_timestamp.as_ref().map(|time| time.0),
            labels: metadata.labels.clone(),
            annotations: kept.map(|(key, value)| (key.clone(), value.clone())).collect(),
            has_annotations: annotations.is_some(),
            provider_id: spec.and_then(|spec| spec.provider_id.clone()),
            taints: spec.and_then(|spec| spec.taints.clone()),
            pod_cidrs: spec.and_then(|spec| spec.pod_cidrs.clone()).unwrap_or_default(),
            addresses: status.and_then(|status| status.addresses.clone()),
            ready: condition(names::READY),
            network: condition(names::NETWORK_UNAVAILABLE),
        }
    }

    /// Returns `spec.providerID` unless it is empty.
    pub fn provider_id(&self) -> Option<&str> {
        self.provider_id.as_deref().filter(|id| !id.is_empty())
    }

    /// Returns the value of a label.
    pub fn label(&self, key: &str) -> Option<&str> {
        self.labels.as_ref()?.get(key).map(String::as_str)
    }

    /// Returns the taints in order.
    pub fn taints(&self) -> &[Taint] {
        self.taints.as_deref().unwrap_or_default()
    }

    /// Returns the addresses in order.
    pub fn addresses(&self) -> &[NodeAddress] {
        self.addresses.as_deref().unwrap_or_default()
    }

    /// Whether the Node waits for its initialisation by a cloud-controller-manager.
    pub fn is_uninitialized(&self) -> bool {
        self.taints().iter().any(|taint| taint.key == names::UNINITIALIZED_TAINT)
    }

    /// Whether the condition Ready is True. A missing condition counts as Unknown.
    pub fn is_ready(&self) -> bool {
        self.ready.as_ref().is_some_and(|ready| ready.status == "True")
    }

    /// The annotation with the addresses that the kubelet was started with.
    pub fn provided_ips(&self) -> Option<&str> {
        self.annotations.get(names::PROVIDED_NODE_IP).map(String::as_str)
    }

    /// Whether a user excluded the Node from deletion by this program. Every value but `false`
    /// does, because a switch for safety must not depend on its spelling.
    pub fn skips_deletion(&self) -> bool {
        let value = self.annotations.get(names::SKIP_CLOUD_DELETION);
        value.is_some_and(|value| !value.trim().eq_ignore_ascii_case("false"))
    }

    /// The account that showed the Node's instance, as recorded on the Node.
    pub fn account(&self) -> Option<AccountId> {
        AccountId::recorded(self.annotations.get(ACCOUNT)?)
    }
}

const KEPT_ANNOTATIONS: [&str; 3] = [names::PROVIDED_NODE_IP, names::SKIP_CLOUD_DELETION, ACCOUNT];

impl NodeConditionFacts {
    fn of(condition: &NodeCondition) -> Self {
        Self {
            status: condition.status.clone(),
            reason: condition.reason.clone().unwrap_or_default(),
            since: condition.last_transition_time.as_ref().map(|time| time.0),
        }
    }
}
