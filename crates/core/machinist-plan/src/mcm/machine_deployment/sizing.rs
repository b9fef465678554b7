//! The size and the bounds that a deployment wants for one of its sets now.
//!
//! The replicas in a set's spec may be old: the patch that changed them may have taken effect a
//! minute after it was sent, and the deployment may have changed meanwhile. So before a set deletes
//! or creates Machines, it asks what its deployment would want by the facts of today.

use jiff::Timestamp;

use super::snapshot::Owned;
use super::template::is_same_template;
use crate::mcm::facts::MachineDeploymentFacts;
use crate::mcm::refusal::Refusal;
use crate::mcm::rollout::{self, Bounds};

/// The size and the bounds that a deployment wants for one of its sets now.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Limits {
    /// The replicas; absent if the deployment sizes no sets at present.
    pub size: Option<u32>,
    /// The numbers of Machines that bind the set when it deletes surplus Machines or creates
    /// missing ones.
    pub bounds: Bounds,
}

/// Returns what a deployment wants of the set with this UID. `sets` are the sets that it controls,
/// oldest first, each with its Machines. Returns nothing for a set of another owner, and if the
/// deployment is being deleted or cannot be reconciled.
pub fn limits(
    now: Timestamp,
    deployment: &MachineDeploymentFacts,
    sets: &[Owned],
    set_uid: &str,
) -> Option<Limits> {
    if deployment.deleting_since.is_some() || unusable(deployment).is_some() {
        return None;
    }
    let index = sets.iter().position(|owned| owned.set.uid == set_uid)?;
    let new = new_set_index(deployment, sets);
    let is_sized = !creates_set_first(deployment, sets, new);
    let size = || rollout::sizes(now, deployment, sets, new).replicas.get(index).copied();
    let bounds = rollout::bounds(now, deployment, sets, new, index);
    Some(Limits { size: is_sized.then(size).flatten(), bounds })
}

/// Whether the set of the template is created before any set is sized. With `Recreate`, the old
/// sets are emptied first.
pub(super) fn creates_set_first(
    deployment: &MachineDeploymentFacts,
    sets: &[Owned],
    new: Option<usize>,
) -> bool {
    let is_later = || rollout::rests(deployment, sets) || rollout::is_recreating(deployment, sets, new);
    new.is_none() && !is_later()
}

/// Returns the oldest set of this template. A set that is being deleted never counts, because its
/// Machines are deleted with it.
pub(super) fn new_set_index(deployment: &MachineDeploymentFacts, sets: &[Owned]) -> Option<usize> {
    let template = &deployment.spec.template;
    sets.iter().position(|Owned { set, .. }| {
        set.deleting_since.is_none() && is_same_template(template, &set.spec.template)
    })
}

/// Returns why a deployment is not reconciled until a user fixes its spec.
pub(super) fn unusable(deployment: &MachineDeploymentFacts) -> Option<Refusal> {
    if let Some((field, message)) = &deployment.invalid {
        return Some(Refusal::invalid(field, message));
    }
    Refusal::if_selecting_all(deployment.selector.as_ref())
}
