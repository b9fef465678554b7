//! Claims that Pods use, and volumes that are bound, stay until that ends: the server puts a finalizer on each new one, and here it
//! is lifted from what is being deleted.
//!
//! ```text
//! claim deleting --> no Pod on a Node names it: in the index, then in the quorum --> kubernetes.io/pvc-protection off
//! volume deleting -> its phase is not Bound ----------------------------------------> kubernetes.io/pv-protection off
//! ```
//!
//! A Pod counts from when it has a Node, since no kubelet starts one whose claim is being deleted, and until it is gone: one that has
//! succeeded or failed may still be looked at by its kubelet. Only a volume that was made for the Pod is let go as soon as the
//! kubelet is done with the Pod, because the finalizers of such a Pod may wait for the claim.
//!
//! Watches of two kinds may be of different age, so that no Pod is seen is confirmed by one list of a namespace, for all of its
//! claims that are due.
//!
//! Deliberately absent: the finalizers themselves, which the server's admission gives, and the binding of volumes.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim, Pod};
use kube::api::{ListParams, PatchParams};
use kube::{Api, Client, ResourceExt};
use machinist_kube::{GuardedPatch, KeyQueue, ObjectKey, WriteOutcome};
use serde_json::json;

use crate::facts::pod::{ClaimedVolume, Controller as Owner, Origin, PodFacts};
use crate::view::{OVERDUE_AFTER, View};
use crate::work::{Controller, Next};

const CLAIM_PROTECTION: &str = "kubernetes.io/pvc-protection";
const VOLUME_PROTECTION: &str = "kubernetes.io/pv-protection";
const BOUND: &str = "Bound";

/// What is known of one claim.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ClaimFacts {
    uid: String,
    namespace: String,
    is_deleting: bool,
    /// As they were read; `None`: the field is absent.
    finalizers: Option<Vec<String>>,
    /// The Pod that it was made for, if it was.
    controller: Option<Owner>,
}

impl ClaimFacts {
    /// The index of claims that wait to be let go, by namespace.
    pub(crate) const WAITING: &'static str = "waiting";

    pub(crate) fn parse(claim: PersistentVolumeClaim) -> Self {
        let metadata = claim.metadata;
        Self {
            uid: metadata.uid.unwrap_or_default(),
            namespace: metadata.namespace.unwrap_or_default(),
            is_deleting: metadata.deletion_timestamp.is_some(),
            controller: Owner::of(metadata.owner_references.as_deref()),
            finalizers: metadata.finalizers,
        }
    }

    /// The namespace, while the claim is there only because we have not let it go.
    pub(crate) fn waiting_in(&self) -> Option<String> {
        waits(self.is_deleting, self.finalizers.as_deref(), CLAIM_PROTECTION).then(|| self.namespace.clone())
    }

    /// Whether this Pod keeps the claim of this name.
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

/// What is known of one volume.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct VolumeFacts {
    uid: String,
    is_deleting: bool,
    /// As they were read; `None`: the field is absent.
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

    /// Whether nothing but our finalizer protects it any more.
    fn may_go(&self) -> bool {
        waits(self.is_deleting, self.finalizers.as_deref(), VOLUME_PROTECTION)
            && self.phase.as_deref() != Some(BOUND)
    }
}

fn waits(is_deleting: bool, finalizers: Option<&[String]>, finalizer: &str) -> bool {
    is_deleting && finalizers.unwrap_or_default().iter().any(|held| held == finalizer)
}

/// What to look at.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Key {
    /// The claims of a namespace: one list of its Pods decides about all of them.
    ClaimsIn(String),
    Volume(String),
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ClaimsIn(namespace) => write!(f, "claims in {namespace}"),
            Self::Volume(name) => f.write_str(name),
        }
    }
}

/// The controller.
pub(crate) struct VolumeProtection {
    pub(crate) client: Client,
    pub(crate) queue: KeyQueue<Key>,
    pub(crate) claims: Arc<View<ClaimFacts>>,
    pub(crate) volumes: Arc<View<VolumeFacts>>,
    pub(crate) pods: Arc<View<PodFacts>>,
}

/// A queue that is woken by each claim and volume that waits to be let go.
pub(crate) fn listen(
    claims: &mut View<ClaimFacts>,
    volumes: &mut View<VolumeFacts>,
    seed: u64,
) -> KeyQueue<Key> {
    /// Claims are deleted by the namespace or by the set, and each look costs a list.
    const MIN_INTERVAL: Duration = Duration::from_millis(200);
    let queue = KeyQueue::new(|_| MIN_INTERVAL, seed);
    let on_claim = queue.clone();
    claims.listen(move |change| {
        if let Some(namespace) = change.new.as_ref().and_then(|claim| claim.waiting_in()) {
            on_claim.wake(Key::ClaimsIn(namespace));
        }
    });
    let on_volume = queue.clone();
    volumes.listen(move |change| {
        if change.new.as_ref().is_some_and(|volume| volume.may_go()) {
            on_volume.wake(Key::Volume(change.key.name.clone()));
        }
    });
    queue
}

/// Wakes the claims of each namespace in which a Pod changes that one of them waits for.
pub(crate) fn listen_to_pods(
    pods: &mut View<PodFacts>,
    claims: &Arc<View<ClaimFacts>>,
    queue: &KeyQueue<Key>,
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
            queue.wake(Key::ClaimsIn(before.namespace.clone()));
        }
    });
}

impl Controller for VolumeProtection {
    type Key = Key;

    const NAME: &'static str = "volume-protection";

    fn queue(&self) -> &KeyQueue<Key> {
        &self.queue
    }

    async fn pass(&self, key: &Key) -> Next {
        match key {
            Key::ClaimsIn(namespace) => self.pass_claims(namespace).await,
            Key::Volume(name) => self.pass_volume(name).await,
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
            next = next.sooner(match is_used {
                // The watch should show that Pod, and later that it is gone; but not both of a Pod that comes and goes between two lists.
                true => Next::In(OVERDUE_AFTER),
                false => self.let_claim_go(&key, &claim).await,
            });
        }
        next
    }

    /// The claims that wait and that no Pod is seen to use, and when to look at those again that we wrote just now.
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
        tracing::info!(claim = %key, "Letting go of a claim that no pod uses");
        let patch =
            GuardedPatch::new(&claim.uid).remove_finalizer(claim.finalizers.as_deref(), CLAIM_PROTECTION);
        let api: Api<PersistentVolumeClaim> = Api::namespaced(self.client.clone(), &key.namespace);
        let result = api.patch(&key.name, &PatchParams::default(), &patch.into_kube()).await;
        if let Ok(written) = &result {
            self.claims.note_written(key.clone(), written.resource_version().as_deref());
        }
        Next::after_write("let go of a claim", WriteOutcome::of(&result))
    }

    async fn pass_volume(&self, name: &str) -> Next {
        let key = ObjectKey::cluster_scoped(name);
        if self.volumes.lacks_own_write(&key) {
            return Next::In(OVERDUE_AFTER);
        }
        let volume = self.volumes.store().get(&key).map(|entry| entry.facts.clone());
        let Some(volume) = volume.filter(|volume| volume.may_go()) else { return Next::Idle };
        tracing::info!(volume = name, "Letting go of a volume that is not bound");
        let patch = GuardedPatch::new(&volume.uid)
            .test(&["status", "phase"], volume.phase.as_ref().map(|phase| json!(phase)).as_ref())
            .remove_finalizer(volume.finalizers.as_deref(), VOLUME_PROTECTION);
        let api: Api<PersistentVolume> = Api::all(self.client.clone());
        let result = api.patch(name, &PatchParams::default(), &patch.into_kube()).await;
        if let Ok(written) = &result {
            self.volumes.note_written(key, written.resource_version().as_deref());
        }
        Next::after_write("let go of a volume", WriteOutcome::of(&result))
    }
}
