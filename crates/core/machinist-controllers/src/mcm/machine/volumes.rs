//! Collects the facts about the volumes of the pods on the Nodes of one instance.

use std::collections::BTreeSet;
use std::sync::Arc;

use machinist_driver::Volumes;
use machinist_kube::ObjectKey;
use machinist_plan::mcm::drain::{NodeVolumes, SeenVolume};
use machinist_plan::mcm::facts::{AttachmentFacts, ClaimFacts, MachineFacts, PodFacts, VolumeFacts};

use crate::mcm::seen::{BY_CLAIM, BY_VOLUME, Seen};

/// The objects on the Nodes of one instance.
pub(super) struct OnNodes<'s> {
    /// The names of these Nodes.
    pub names: Vec<&'s str>,
    /// The pods on them.
    pub pods: Vec<&'s Arc<PodFacts>>,
    /// The VolumeAttachments of them.
    pub attachments: &'s [Arc<AttachmentFacts>],
}

/// Returns the volumes of these pods, the volumes that are attached to these Nodes, and the volumes
/// of pods that have left. `driver` knows which of them the cloud attaches.
pub(super) fn volumes(
    seen: &Seen,
    machine: &MachineFacts,
    on_nodes: &OnNodes<'_>,
    driver: Option<&dyn Volumes>,
) -> NodeVolumes {
    let waits = seen.memory.volume_waits.get(&machine.uid).cloned().unwrap_or_default();
    let mut volumes = NodeVolumes { waits, ..NodeVolumes::default() };
    let claimed = on_nodes.pods.iter().flat_map(|pod| &pod.claims).filter_map(|claim| claim_of(seen, claim));
    for claim in claimed {
        volumes.claims.insert(claim.full_name.clone(), claim);
    }
    let of_claims = volumes.claims.values().filter_map(|claim| claim.volume.as_deref());
    let attached = on_nodes.attachments.iter().filter_map(|attachment| attachment.volume.as_deref());
    let awaited = volumes.waits.values().flat_map(|wait| wait.volumes.iter().chain(&wait.shared));
    let names: BTreeSet<Box<str>> =
        of_claims.chain(attached).map(Box::from).chain(awaited.cloned()).collect();
    for name in names {
        let Some(volume) = seen.volumes.get(&ObjectKey::cluster_scoped(&*name)) else { continue };
        let volume = volume.facts.clone();
        if let Some(claim) = volume.claim.as_ref().and_then(|claim| claim_of(seen, claim)) {
            volumes.claims.insert(claim.full_name.clone(), claim);
        }
        let id = driver.and_then(|driver| driver.volume_id(volume.source.as_deref()?));
        let attachments = seen.attachments.by_index(BY_VOLUME, &name).map(|(_, entry)| entry.facts.clone());
        let seen_volume = SeenVolume {
            id,
            attachments: attachments.collect(),
            is_used_elsewhere: is_used_elsewhere(seen, &volume, &on_nodes.names),
            facts: volume,
        };
        volumes.volumes.insert(name, seen_volume);
    }
    volumes
}

/// Returns a claim by its full name.
fn claim_of(seen: &Seen, full_name: &str) -> Option<Arc<ClaimFacts>> {
    let (namespace, name) = full_name.split_once('/')?;
    seen.claims.get(&ObjectKey::new(namespace, name)).map(|entry| entry.facts.clone())
}

/// Whether a pod that is bound to another Node uses the volume.
fn is_used_elsewhere(seen: &Seen, volume: &VolumeFacts, names: &[&str]) -> bool {
    let Some(claim) = &volume.claim else { return false };
    let mut users = seen.pods.by_index(BY_CLAIM, claim).map(|(_, pod)| pod.facts.node.as_str());
    users.any(|node| !node.is_empty() && !names.contains(&node))
}
