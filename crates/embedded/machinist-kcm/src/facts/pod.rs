//! What the controllers know of a Pod.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Pod, PodCondition, Volume};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;

use crate::node_lifecycle::taints::Toleration;

/// A Pod, as far as budgets, node lifecycle and volumes go.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct PodFacts {
    pub(crate) uid: String,
    pub(crate) namespace: String,
    pub(crate) labels: BTreeMap<String, String>,
    /// The Node it is bound to; `None` while it is not scheduled.
    pub(crate) node: Option<String>,
    /// Whether the condition Ready is True.
    pub(crate) is_ready: bool,
    /// Whether a deletionTimestamp is set.
    pub(crate) is_deleting: bool,
    /// The owner that counts its pods, if any does.
    pub(crate) controller: Option<Controller>,
    /// What it says about taints that evict.
    pub(crate) tolerations: Vec<Toleration>,
    /// Its volumes that are claimed.
    pub(crate) claimed: Vec<ClaimedVolume>,
    /// Whether its kubelet is done with it, or nobody asks the kubelet: it is being deleted, without any grace left.
    pub(crate) is_shut_down: bool,
}

/// A volume that a Pod has by a claim in its namespace.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ClaimedVolume {
    /// The claim's name.
    pub(crate) claim: String,
    pub(crate) origin: Origin,
}

/// Where the claim of a volume comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    /// The Pod names it.
    Named,
    /// It is made for the Pod. Another claim may have its name.
    MadeForPod,
}

impl ClaimedVolume {
    fn of(volume: &Volume, pod: &str) -> Option<Self> {
        match (&volume.persistent_volume_claim, &volume.ephemeral) {
            (Some(source), _) => Some(Self { claim: source.claim_name.clone(), origin: Origin::Named }),
            (None, Some(_)) => {
                Some(Self { claim: format!("{pod}-{}", volume.name), origin: Origin::MadeForPod })
            }
            (None, None) => None,
        }
    }
}

/// The controller that a Pod's owner references name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Controller {
    pub(crate) api_version: String,
    pub(crate) kind: String,
    pub(crate) name: String,
    pub(crate) uid: String,
}

impl Controller {
    /// The controller among these owners.
    pub(crate) fn of(owners: Option<&[OwnerReference]>) -> Option<Self> {
        let controller = owners?.iter().find(|owner| owner.controller == Some(true))?;
        Some(Self {
            api_version: controller.api_version.clone(),
            kind: controller.kind.clone(),
            name: controller.name.clone(),
            uid: controller.uid.clone(),
        })
    }
}

impl PodFacts {
    /// The index of pods by the Node they are bound to.
    pub(crate) const BY_NODE: &'static str = "node";

    /// The index of pods by namespace.
    pub(crate) const BY_NAMESPACE: &'static str = "namespace";

    /// The index of pods by the claims of their volumes, `namespace/name`.
    pub(crate) const BY_CLAIM: &'static str = "claim";

    /// What matters of a Pod.
    pub(crate) fn parse(pod: Pod) -> Self {
        let metadata = &pod.metadata;
        let spec = pod.spec.as_ref();
        let conditions =
            pod.status.as_ref().and_then(|status| status.conditions.as_deref()).unwrap_or_default();
        let is_ready = |condition: &PodCondition| condition.type_ == "Ready" && condition.status == "True";
        let volumes = spec.and_then(|spec| spec.volumes.as_deref()).unwrap_or_default();
        let name = metadata.name.as_deref().unwrap_or_default();
        let tolerations = spec.and_then(|spec| spec.tolerations.as_deref()).unwrap_or_default();
        Self {
            uid: metadata.uid.clone().unwrap_or_default(),
            namespace: metadata.namespace.clone().unwrap_or_default(),
            labels: metadata.labels.clone().unwrap_or_default(),
            node: spec.and_then(|spec| spec.node_name.clone()).filter(|name| !name.is_empty()),
            is_ready: conditions.iter().any(is_ready),
            is_deleting: metadata.deletion_timestamp.is_some(),
            controller: Controller::of(metadata.owner_references.as_deref()),
            tolerations: tolerations.iter().filter_map(Toleration::of_eviction).collect(),
            claimed: volumes.iter().filter_map(|volume| ClaimedVolume::of(volume, name)).collect(),
            is_shut_down: metadata.deletion_timestamp.is_some()
                && metadata.deletion_grace_period_seconds == Some(0),
        }
    }
}
