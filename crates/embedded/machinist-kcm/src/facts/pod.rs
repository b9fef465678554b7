//! Parses Pods into the fields that the controllers need.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Pod, PodCondition, Volume};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;

use crate::node_lifecycle::taints::Toleration;

/// The fields of a Pod that matter for budgets, the node lifecycle and volumes.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct PodFacts {
    pub(crate) uid: String,
    pub(crate) namespace: String,
    pub(crate) labels: BTreeMap<String, String>,
    /// The Node that the Pod is bound to; `None` while the Pod is not scheduled.
    pub(crate) node: Option<String>,
    /// Whether the condition Ready is True.
    pub(crate) is_ready: bool,
    /// Whether a deletionTimestamp is set.
    pub(crate) is_deleting: bool,
    /// The owner reference with `controller: true`, if there is one.
    pub(crate) controller: Option<OwningController>,
    /// Tolerations of taints with the effect NoExecute.
    pub(crate) tolerations: Vec<Toleration>,
    /// Volumes of the Pod that are claims.
    pub(crate) claimed: Vec<ClaimedVolume>,
    /// Whether the Pod is being deleted with no grace period left: its kubelet has finished, or is
    /// not needed.
    pub(crate) is_shut_down: bool,
}

/// A volume that the Pod uses through a claim in its namespace.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ClaimedVolume {
    /// Name of the claim.
    pub(crate) claim: String,
    pub(crate) origin: Origin,
}

/// Origin of a volume's claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    /// The Pod names the claim.
    Named,
    /// The claim was created for the Pod. A foreign claim may have the same name.
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

/// The controller in the owner references of a Pod.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct OwningController {
    pub(crate) api_version: String,
    pub(crate) kind: String,
    pub(crate) name: String,
    pub(crate) uid: String,
}

impl OwningController {
    /// Returns the controller among these owners.
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
    /// Index of Pods by the Node they are bound to.
    pub(crate) const BY_NODE: &'static str = "node";

    /// Index of Pods by namespace.
    pub(crate) const BY_NAMESPACE: &'static str = "namespace";

    /// Index of Pods by the claims of their volumes, `namespace/name`.
    pub(crate) const BY_CLAIM: &'static str = "claim";

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
            controller: OwningController::of(metadata.owner_references.as_deref()),
            tolerations: tolerations.iter().filter_map(Toleration::of_eviction).collect(),
            claimed: volumes.iter().filter_map(|volume| ClaimedVolume::of(volume, name)).collect(),
            is_shut_down: metadata.deletion_timestamp.is_some()
                && metadata.deletion_grace_period_seconds == Some(0),
        }
    }
}
