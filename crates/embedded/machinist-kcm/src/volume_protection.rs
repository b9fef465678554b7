//! Protects claims that Pods use, and volumes that are bound, from deletion. The server adds a
//! finalizer to each new claim and volume; this controller removes it once the object is being
//! deleted and no longer in use.
//!
//! ```text
//! claim deleting -> no Pod uses it (index, then quorum) -> remove kubernetes.io/pvc-protection
//! volume deleting -> its phase is not Bound ------------> remove kubernetes.io/pv-protection
//! ```
//!
//! A Pod uses a claim from the time it is bound to a Node, since no kubelet starts a Pod with a
//! claim that is being deleted. The use ends when the Pod is deleted: the kubelet may still access
//! a Pod that has succeeded or failed. A volume that was created for the Pod is released earlier,
//! as soon as the kubelet has shut the Pod down, because the finalizers of that Pod may wait for
//! the claim.
//!
//! Watches of two kinds may be of different age. So one list of a namespace's Pods confirms that
//! none of them uses the claims to release.
//!
//! Deliberately absent: adding the finalizers, which the server's admission does, and the binding
//! of volumes.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim, Pod};
use kube::api::{ListParams, PatchParams};
use kube::{Api, Client, ResourceExt};
use machinist_kube::{GuardedPatch, KeyQueue, ObjectKey, WriteOutcome};
use serde_json::json;

use crate::facts::pod::{ClaimedVolume, Origin, OwningController, PodFacts};
use crate::view::{OVERDUE_AFTER, View};
use crate::work::{Controller, Next};

const CLAIM_PROTECTION: &str = "kubernetes.io/pvc-protection";
const VOLUME_PROTECTION: &str = "kubernetes.io/pv-protection";
const BOUND: &str = "Bound";

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ClaimFacts {
    uid: String,
    namespace: String,
    is_deleting: bool,
    /// Finalizers as they were read; `None` means that the field is absent.
    finalizers: Option<Vec<String>>,
    /// The Pod that the claim was created for, if any.
    controller: Option<OwningController>,
}

impl ClaimFacts {
    /// Index of claims that wait for the removal of our finalizer, by namespace.
    pub(crate) const WAITING: &'static str = "waiting";

    pub(crate) fn parse(claim: PersistentVolumeClaim) -> Self {
        let metadata = claim.metadata;
        Self {
            uid: metadata.uid.unwrap_or_default(),
            namespace: metadata.namespace.unwrap_or_default(),
            is_deleting: metadata.deletion_timestamp.is_some(),
            controller: OwningController::of(metadata.owner_references.as_deref()),
            finalizers: metadata.finalizers,
        }
    }

    /// Returns the namespace if the claim is being deleted and still has our finalizer.
    pub(crate) fn waiting_in(&self) -> Option<String> {
        waits(self.is_deleting, self.finalizers.as_deref(), CLAIM_PROTECTION).then(|| self.namespace.clone())
    }

    /// Returns whether this Pod uses the claim with this name.
    fn is_used_by(&self, name: &str, pod: &PodFacts) -> bool {
        let is_made_for_pod = || self.controller.as_ref().is_some_and(|owner| owner.uid == pod.uid);
        let is_this = |volume: &ClaimedVolume| {
            volume.claim == name
                && match volume.origin {
                    Origin::Named => true,
                    Origin::MadeForPod => !pod.is_shut_down && is_made_for_pod(),
                }
        };
        pod.node.is_some() && pod.claimed.iter().any(is_this)
    }
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct VolumeFacts {
    uid: String,
    is_deleting: bool,
    /// Finalizers as they were read; `None` means that the field is absent.
    finalizers: Option<Vec<String>>,
    phase: Option<String>,
}

impl VolumeFacts {
    pub(crate) fn parse(volume: PersistentVolume) -> Self {
        let metadata = volume.metadata;
        Self {
            uid: metadata.uid.unwrap_or_default(),
            is_deleting: metadata.deletion_timestamp.is_some(),
            finalizers: metadata.finalizers,
            phase: volume.status.and_then(|status| status.phase),
        }
    }

    /// Returns whether our finalizer can be removed from the volume.
    fn may_go(&self) -> bool {
        waits(self.is_deleting, self.finalizers.as_deref(), VOLUME_PROTECTION)
            && self.phase.as_deref() != Some(BOUND)
    }
}

fn waits(is_deleting: bool, finalizers: Option<&[String]>, finalizer: &str) -> bool {
    is_deleting && finalizers.unwrap_or_default().iter().any(|held| held == finalizer)
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum VolumeKey {
    /// The claims of a namespace: one list of its Pods decides about all of them.
    ClaimsIn(String),
    Volume(String),
}

impl fmt::Display for VolumeKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ClaimsIn(namespace) => write!(f, "claims in {namespace}"),
            Self::Volume(name) => f.write_str(name),
        }
    }
}

pub(crate) struct VolumeProtection {
    pub(crate) client: Client,
    pub(crate) queue: KeyQueue<VolumeKey>,
    pub(crate) claims: Arc<View<ClaimFacts>>,
    pub(crate) volumes: Arc<View<VolumeFacts>>,
    pub(crate) pods: Arc<View<PodFacts>>,
}

/// Returns a queue that is woken for each claim and volume that waits for the removal of our
/// finalizer.
pub(crate) fn listen(
    claims: &mut View<ClaimFacts>,
    volumes: &mut View<VolumeFacts>,
    seed: u64,
) -> KeyQueue<VolumeKey> {
    /// Claims are often deleted in groups, and each pass costs a list.
    const MIN_INTERVAL: Duration = Duration::from_millis(200);
    let queue = KeyQueue::new(|_| MIN_INTERVAL, seed);
    let on_claim = queue.clone();
    claims.listen(move |change| {
        if let Some(namespace) = change.new.as_ref().and_then(|claim| claim.waiting_in()) {
            on_claim.wake(VolumeKey::ClaimsIn(namespace));
        }
    });
    let on_volume = queue.clone();
    volumes.listen(move |change| {
        if change.new.as_ref().is_some_and(|volume| volume.may_go()) {
            on_volume.wake(VolumeKey::Volume(change.key.name.clone()));
        }
    });
    queue
}

/// Wakes the claims of each namespace with a changed Pod that uses a waiting claim.
pub(crate) fn listen_to_pods(
    pods: &mut View<PodFacts>,
    claims: &Arc<View<ClaimFacts>>,
    queue: &KeyQueue<VolumeKey>,
) {
    let (claims, queue) = (claims.clone(), queue.clone());
    pods.listen(move |change| {
        let Some(before) = change.old.as_ref().filter(|_| change.old != change.new) else { return };
        let store = claims.store();
        let is_waited_for = before.claimed.iter().any(|volume| {
            let claim = store.get(&ObjectKey::new(&before.namespace, &volume.claim));
            claim.is_some_and(|claim| claim.facts.waiting_in().is_some())
        });
        if is_waited_for {
            queue.wake(VolumeKey::ClaimsIn(before.namespace.clone()));
        }
    });
}

impl Controller for VolumeProtection {
    type Key = VolumeKey;

    const NAME: &'static str = "volume-protection";

    fn queue(&self) -> &KeyQueue<VolumeKey> {
        &self.queue
    }

    async fn pass(&self, key: &VolumeKey) -> Next {
        match key {
            VolumeKey::ClaimsIn(namespace) => self.pass_claims(namespace).await,
            VolumeKey::Volume(name) => self.pass_volume(name).await,
        }
    }
}

impl VolumeProtection {
    async fn pass_claims(&self, namespace: &str) -> Next {
        let (unused, next) = self.unused_claims(namespace);
        if unused.is_empty() {
            return next;
        }
        let api: Api<Pod> = Api::namespaced(self.client.clone(), namespace);
        let on_nodes = ListParams::default().fields("spec.nodeName!=");
        let pods: Vec<PodFacts> = match api.list(&on_nodes).await {
            Ok(pods) => pods.items.into_iter().map(PodFacts::parse).collect(),
            Err(error) => return Next::after_failed_read("list the pods of a namespace", &error),
        };
        let mut next = next;
        for (key, claim) in unused {
            let is_used = pods.iter().any(|pod| claim.is_used_by(&key.name, pod));
            next = next.sooner(if is_used {
                // The watch usually shows this Pod and later its deletion. It shows neither if the
                // Pod comes and disappears between two lists.
                Next::In(OVERDUE_AFTER)
            } else {
                self.let_claim_go(&key, &claim).await
            });
        }
        next
    }

    /// Returns the waiting claims that no Pod is seen to use, and the delay for claims that were
    /// written just now.
    fn unused_claims(&self, namespace: &str) -> (Vec<(ObjectKey, Arc<ClaimFacts>)>, Next) {
        let waiting: Vec<(ObjectKey, Arc<ClaimFacts>)> = {
            let store = self.claims.store();
            let waiting = store.by_index(ClaimFacts::WAITING, namespace);
            waiting.map(|(key, entry)| (key.clone(), entry.facts.clone())).collect()
        };
        let (written, waiting): (Vec<_>, Vec<_>) =
            waiting.into_iter().partition(|(key, _)| self.claims.lacks_own_write(key));
        let next = if written.is_empty() { Next::Idle } else { Next::In(OVERDUE_AFTER) };
        let pods = self.pods.store();
        let is_used = |key: &ObjectKey, claim: &ClaimFacts| {
            let indexed = key.to_string();
            pods.by_index(PodFacts::BY_CLAIM, &indexed)
                .any(|(_, pod)| claim.is_used_by(&key.name, &pod.facts))
        };
        (waiting.into_iter().filter(|(key, claim)| !is_used(key, claim)).collect(), next)
    }

    async fn let_claim_go(&self, key: &ObjectKey, claim: &ClaimFacts) -> Next {
        tracing::info!(claim = %key, "Removing the finalizer of a claim that no pod uses");
        let patch =
            GuardedPatch::new(&claim.uid).remove_finalizer(claim.finalizers.as_deref(), CLAIM_PROTECTION);
        let api: Api<PersistentVolumeClaim> = Api::namespaced(self.client.clone(), &key.namespace);
        let result = api.patch(&key.name, &PatchParams::default(), &patch.into_kube()).await;
        if let Ok(written) = &result {
            self.claims.note_written(key.clone(), written.resource_version().as_deref());
        }
        Next::after_write("remove the finalizer of a claim", WriteOutcome::of(&result))
    }

    async fn pass_volume(&self, name: &str) -> Next {
        let key = ObjectKey::cluster_scoped(name);
        if self.volumes.lacks_own_write(&key) {
            return Next::In(OVERDUE_AFTER);
        }
        let volume = self.volumes.store().get(&key).map(|entry| entry.facts.clone());
        let Some(volume) = volume.filter(|volume| volume.may_go()) else { return Next::Idle };
        tracing::info!(volume = name, "Removing the finalizer of a volume that is not bound");
        let patch = GuardedPatch::new(&volume.uid)
            .test(&["status", "phase"], volume.phase.as_ref().map(|phase| json!(phase)).as_ref())
            .remove_finalizer(volume.finalizers.as_deref(), VOLUME_PROTECTION);
        let api: Api<PersistentVolume> = Api::all(self.client.clone());
        let result = api.patch(name, &PatchParams::default(), &patch.into_kube()).await;
        if let Ok(written) = &result {
            self.volumes.note_written(key, written.resource_version().as_deref());
        }
        Next::after_write("remove the finalizer of a volume", WriteOutcome::of(&result))
    }
}
