//! Volumes in a drain: which pods with volumes are evicted now, and which volumes a drain waits
//! for.
//!
//! ```text
//! pod has its turn -> evicted -> pod left -> volumes detached -> attached to another Node
//!                                            at most the        at most the reattach timeout
//!                                            detach timeout
//! ```
//!
//! A pod has the turn until its volumes are attached to another Node, or a wait for them has timed
//! out. The flag `--drain-volumes-at-once` limits how many pods have a turn at the same time. Pods
//! without volumes need no turn.
//!
//! A drain waits for a volume only if all of these hold:
//!
//! - The driver knows the volume, so this cloud attaches it.
//! - The volume is attached to the Node.
//! - No other pod on the Node uses the volume. Two pods that share one would wait for each other.
//!
//! The wait for another Node is shorter: it ends if the claim or the volume is deleted, as for an
//! ephemeral volume, and soon if no pod on another Node uses the claim.
//!
//! The memory of the waits may be lost. Then the volumes that are still attached, and that no pod
//! on the Node uses, are waited for from that moment.

use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use machinist_core::{is_past, just_past};

use super::{Drain, EvictionAnswer};
use crate::mcm::facts::{AttachmentFacts, ClaimFacts, NodeFacts, PodFacts, VolumeFacts};

/// Time for a pod that uses the claim to be bound to another Node. After it, the drain does not
/// wait until the volume is attached there.
const BOUND_WITHIN: Duration = Duration::from_secs(20);

/// The facts about the volumes of the pods on the Nodes of one instance.
#[derive(Debug, Clone, Default, Hash)]
pub struct NodeVolumes {
    /// Claims by `namespace/name`.
    pub claims: BTreeMap<Box<str>, Arc<ClaimFacts>>,
    /// PersistentVolumes by name.
    pub volumes: BTreeMap<Box<str>, SeenVolume>,
    /// Memory of the waits, by pod UID, or by the name of a volume whose pod is not known. May be
    /// empty at any moment.
    pub waits: Arc<BTreeMap<String, VolumeWait>>,
}

/// A PersistentVolume, and the objects that show where it is.
#[derive(Debug, Clone, Hash)]
pub struct SeenVolume {
    /// The PersistentVolume.
    pub facts: Arc<VolumeFacts>,
    /// The driver's id of the volume; absent if this cloud does not attach it.
    pub id: Option<String>,
    /// The VolumeAttachments of the volume, on all Nodes.
    pub attachments: Vec<Arc<AttachmentFacts>>,
    /// Whether a pod that is bound to a Node of another instance uses the claim.
    pub is_used_elsewhere: bool,
}

/// Memory of the wait for the volumes of one pod.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct VolumeWait {
    /// Name of the Node that the pod leaves.
    pub node: String,
    /// PersistentVolumes that no other pod on the Node uses.
    pub volumes: Vec<Box<str>>,
    /// PersistentVolumes that other pods on the Node use, too. The drain does not wait for them.
    pub shared: Vec<Box<str>>,
    /// The grace period of the pod.
    pub grace: Duration,
    /// Since when the pod is leaving; absent before its eviction.
    pub leaving_since: Option<Timestamp>,
    /// Since when none of the volumes is attached to the Node.
    pub detached_since: Option<Timestamp>,
}

impl VolumeWait {
    /// Whether the wait is for this PersistentVolume.
    pub fn awaits(&self, volume: &str) -> bool {
        self.volumes.iter().any(|name| **name == *volume)
    }
}

/// The volumes of a drain, and the limits for them.
#[derive(Debug, Clone, Copy)]
pub struct DrainVolumes<'s> {
    /// The Node that is drained.
    pub node: &'s NodeFacts,
    /// The facts.
    pub seen: &'s NodeVolumes,
    /// The limits.
    pub limits: VolumeLimits,
}

/// How a drain handles pods with volumes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct VolumeLimits {
    /// `--drain-volumes-at-once`: how many pods with volumes have a turn at the same time.
    pub at_once: Option<NonZeroUsize>,
    /// `--machine-pv-detach-timeout`: time for a volume to be detached, after the grace period of
    /// its pod.
    pub detach_timeout: Duration,
    /// `--machine-pv-reattach-timeout`: time for a volume to be attached to another Node, after it
    /// was detached.
    pub reattach_timeout: Duration,
}

/// A volume that a drain waits for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AwaitedVolume {
    /// Name of the PersistentVolume.
    pub volume: String,
    /// `namespace/name` of its claim.
    pub claim: String,
    /// The driver's id of the volume.
    pub id: String,
    /// The step for which the drain waits.
    pub step: VolumeStep,
    /// When the wait ends.
    pub until: Timestamp,
}

/// The required change of a volume.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum VolumeStep {
    /// The volume is detached from the Node.
    Detach,
    /// The volume is attached to another Node.
    Attach,
}

/// Pods with volumes that wait for their turn.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VolumeTurn {
    /// Number of pods.
    pub pods: usize,
    /// The volume of a pod that has its turn; absent while the outcome of its eviction is unknown.
    pub first: Option<AwaitedVolume>,
}

/// The turns of one pass.
pub(super) struct Turns {
    waits: BTreeMap<String, VolumeWait>,
    /// The pods that have a turn, with those that are evicted in this pass.
    taken: Vec<String>,
    most: usize,
}

impl Turns {
    /// Takes a turn for a pod, if the pod needs one. Returns whether the pod may be evicted now.
    pub(super) fn take(&mut self, pod: &PodFacts) -> bool {
        if !self.needs_turn(pod) || self.taken.contains(&pod.uid) {
            return true;
        }
        let is_free = self.taken.len() < self.most;
        if is_free {
            self.taken.push(pod.uid.clone());
        }
        is_free
    }

    fn needs_turn(&self, pod: &PodFacts) -> bool {
        self.waits.get(&pod.uid).is_some_and(|wait| !wait.volumes.is_empty())
    }
}

impl Drain<'_> {
    /// Returns the turns. Once the drain has timed out, every pod has a turn: each one must be
    /// evicted before the drain may end by force.
    pub(super) fn turns(&self) -> Turns {
        let waits = self.volume_waits();
        let limit = self.volumes.limits.at_once.map_or(usize::MAX, NonZeroUsize::get);
        let most = if is_past(self.now, self.deadline) { usize::MAX } else { limit };
        let is_taken = |(uid, wait): (&String, &VolumeWait)| {
            let is_asked = self
                .attempts
                .get(uid)
                .is_some_and(|attempt| matches!(attempt.outcome, EvictionAnswer::Unanswered(_)));
            let has_volumes = !wait.volumes.is_empty();
            let is_leaving = wait.leaving_since.is_some();
            (self.awaited(wait).is_some() || (is_asked && has_volumes && !is_leaving)).then(|| uid.clone())
        };
        let taken = waits.iter().filter_map(is_taken).collect();
        Turns { waits, taken, most }
    }

    /// Returns the pods that wait for their turn, if any.
    pub fn volume_turn(&self) -> Option<VolumeTurn> {
        let turns = self.turns();
        if turns.taken.len() < turns.most {
            return None;
        }
        let waits = |pod: &&Arc<PodFacts>| {
            pod.leaves_in_a_drain()
                && turns.needs_turn(pod)
                && turns.waits.get(&pod.uid).is_some_and(|wait| wait.leaving_since.is_none())
                && !turns.taken.contains(&pod.uid)
        };
        let pods = self.pods.iter().filter(waits).count();
        let first = turns.waits.values().find_map(|wait| self.awaited(wait));
        (0 < pods).then_some(VolumeTurn { pods, first })
    }

    /// Returns the volumes that the drain still waits for, with the one whose wait ends last at the
    /// end.
    pub fn awaited_volumes(&self) -> Vec<AwaitedVolume> {
        let waits = self.volume_waits();
        let mut awaited: Vec<_> = waits.values().filter_map(|wait| self.awaited(wait)).collect();
        awaited.sort_by_key(|awaited| awaited.until);
        awaited
    }

    /// Returns the memory of the waits after this pass.
    pub fn volume_waits(&self) -> BTreeMap<String, VolumeWait> {
        let mut waits = BTreeMap::clone(&self.volumes.seen.waits);
        for (uid, wait) in &mut waits {
            let is_here = wait.node == self.volumes.node.name;
            let has_left = is_here && !self.pods.iter().any(|pod| pod.uid == *uid);
            wait.leaving_since = wait.leaving_since.or(has_left.then_some(self.now));
        }
        for pod in self.pods.iter().filter(|pod| pod.leaves_in_a_drain() && !pod.claims.is_empty()) {
            self.note_pod(pod, &mut waits);
        }
        self.note_volumes_left(&mut waits);
        for wait in waits.values_mut() {
            let is_detached = wait.leaving_since.is_some() && !self.is_any_here(wait);
            wait.detached_since = wait.detached_since.or(is_detached.then_some(self.now));
        }
        waits
    }

    /// Notes the volumes of a pod before its eviction, and then since when the pod is leaving.
    fn note_pod(&self, pod: &PodFacts, waits: &mut BTreeMap<String, VolumeWait>) {
        let accepted = self
            .attempts
            .get(&pod.uid)
            .filter(|attempt| matches!(attempt.outcome, EvictionAnswer::Accepted | EvictionAnswer::Deleted));
        let leaving_since = match (accepted, pod.deleting_since) {
            (Some(attempt), _) => Some(attempt.attempts.last),
            (None, Some(_)) => Some(self.now),
            (None, None) => None,
        };
        let is_noted = waits.get(&pod.uid).is_some_and(|wait| {
            // Other pods may have left since the eviction, and no longer share the volumes.
            wait.leaving_since.is_some() || leaving_since.is_some()
        });
        if is_noted {
            let wait = waits.get_mut(&pod.uid).expect("the wait was just read");
            wait.leaving_since = wait.leaving_since.or(leaving_since);
            return;
        }
        let (shared, volumes): (Vec<_>, Vec<_>) =
            self.attached_volumes_of(pod).partition(|volume| self.is_shared(pod, volume));
        if volumes.is_empty() && shared.is_empty() {
            waits.remove(&pod.uid);
            return;
        }
        let node = self.volumes.node.name.clone();
        let wait =
            VolumeWait { node, volumes, shared, grace: pod.grace, leaving_since, detached_since: None };
        waits.insert(pod.uid.clone(), wait);
    }

    /// Notes the volumes that are still attached, and that no known pod uses: their pods left
    /// before this process could see them.
    fn note_volumes_left(&self, waits: &mut BTreeMap<String, VolumeWait>) {
        for (name, volume) in &self.volumes.seen.volumes {
            let is_known = || {
                waits.values().any(|wait| wait.volumes.contains(name) || wait.shared.contains(name))
                    || self.pods.iter().any(|pod| self.uses(pod, name))
            };
            let claim = volume.facts.claim.as_ref();
            let has_claim = claim.is_some_and(|claim| self.volumes.seen.claims.contains_key(claim));
            let is_tracked = volume.id.is_some() && has_claim;
            if !is_tracked || !self.is_here(volume, &self.volumes.node.name) || is_known() {
                continue;
            }
            let wait = VolumeWait {
                node: self.volumes.node.name.clone(),
                volumes: vec![name.clone()],
                shared: Vec::new(),
                grace: Duration::ZERO,
                leaving_since: Some(self.now),
                detached_since: None,
            };
            waits.insert(format!("volume {name}"), wait);
        }
    }

    /// Returns the volume that a wait is for now; absent before the eviction and after the wait.
    fn awaited(&self, wait: &VolumeWait) -> Option<AwaitedVolume> {
        let limits = &self.volumes.limits;
        let leaving_since = wait.leaving_since?;
        let volumes = || wait.volumes.iter().filter_map(|name| self.volumes.seen.volumes.get(name));
        let Some(detached_since) = wait.detached_since else {
            let until = self.unseen.deadline(leaving_since, wait.grace + limits.detach_timeout);
            let here = volumes().find(|volume| self.is_here(volume, &wait.node))?;
            return (!is_past(self.now, until)).then(|| awaited(here, VolumeStep::Detach, until));
        };
        volumes().find_map(|volume| {
            let is_used = volume.is_used_elsewhere;
            let patience = if is_used { Duration::MAX } else { BOUND_WITHIN };
            let patience = patience.min(limits.reattach_timeout);
            let until = self.unseen.deadline(detached_since, patience);
            let is_awaited = self.stays(volume) && !is_elsewhere(volume, &wait.node);
            (is_awaited && !is_past(self.now, until)).then(|| awaited(volume, VolumeStep::Attach, until))
        })
    }

    /// Returns the names of the volumes of a pod that this cloud has attached to the Node.
    fn attached_volumes_of<'a>(&'a self, pod: &'a PodFacts) -> impl Iterator<Item = Box<str>> + 'a {
        let names = pod.claims.iter().filter_map(|claim| self.volumes.seen.volume_of(claim));
        let is_tracked = |name: &&str| {
            let volume = self.volumes.seen.volumes.get(*name);
            volume.is_some_and(|volume| volume.id.is_some() && self.is_here(volume, &self.volumes.node.name))
        };
        names.filter(is_tracked).map(Box::from)
    }

    /// Whether another pod on the Node uses the volume, too.
    fn is_shared(&self, pod: &PodFacts, volume: &str) -> bool {
        self.pods.iter().any(|other| other.uid != pod.uid && self.uses(other, volume))
    }

    fn uses(&self, pod: &PodFacts, volume: &str) -> bool {
        self.volumes.seen.is_used_by(pod, volume)
    }

    fn is_any_here(&self, wait: &VolumeWait) -> bool {
        let mut volumes = wait.volumes.iter().filter_map(|name| self.volumes.seen.volumes.get(name));
        volumes.any(|volume| self.is_here(volume, &wait.node))
    }

    /// Whether a volume is attached to a Node, or being attached to or detached from it.
    fn is_here(&self, volume: &SeenVolume, node: &str) -> bool {
        let in_status = || {
            let source = volume.facts.source.as_ref().filter(|_| node == self.volumes.node.name);
            source.is_some_and(|source| {
                self.volumes.node.attached.iter().any(|name| source.is_attached_as(name))
            })
        };
        volume.attachments.iter().any(|attachment| attachment.node == node) || in_status()
    }

    /// Whether a volume and its claim stay, so that another pod may use them.
    fn stays(&self, volume: &SeenVolume) -> bool {
        let claim = volume.facts.claim.as_ref().and_then(|claim| self.volumes.seen.claims.get(claim));
        !volume.facts.is_deleting && claim.is_some_and(|claim| !claim.is_deleting && !claim.is_of_a_pod)
    }
}

impl NodeVolumes {
    /// Returns the PersistentVolume of a claim, by the full name of the claim.
    fn volume_of(&self, claim: &str) -> Option<&str> {
        self.claims.get(claim)?.volume.as_deref()
    }

    /// Whether a pod uses a PersistentVolume.
    fn is_used_by(&self, pod: &PodFacts, volume: &str) -> bool {
        pod.claims.iter().any(|claim| self.volume_of(claim) == Some(volume))
    }

    /// Whether a VolumeAttachment is of a volume that a pod uses which a drain does not evict. The
    /// drain does not wait for such volumes.
    pub fn is_of_a_pod_that_stays(&self, attachment: &AttachmentFacts, pods: &[Arc<PodFacts>]) -> bool {
        let staying = pods.iter().filter(|pod| !pod.leaves_in_a_drain());
        let volume = attachment.volume.as_deref();
        volume.is_some_and(|volume| staying.into_iter().any(|pod| self.is_used_by(pod, volume)))
    }
}

fn awaited(volume: &SeenVolume, step: VolumeStep, until: Timestamp) -> AwaitedVolume {
    AwaitedVolume {
        volume: volume.facts.name.to_string(),
        claim: volume.facts.claim.as_deref().unwrap_or_default().to_owned(),
        id: volume.id.clone().unwrap_or_default(),
        step,
        until: just_past(until),
    }
}

/// Whether a volume is attached to another Node than this one.
fn is_elsewhere(volume: &SeenVolume, node: &str) -> bool {
    volume.attachments.iter().any(|attachment| attachment.node != node && attachment.is_attached)
}
