//! The size that a deployment wants for one of its sets now.
//!
//! The replicas in a set's spec may be old: the patch that lowered them may have taken effect a
//! minute after it was sent, and the deployment may have changed meanwhile. So before a set deletes
//! Machines, it asks which size its deployment would give it by the facts of today.

use std::sync::Arc;

use jiff::Timestamp;

use super::snapshot::Owned;
use super::{new_set_index, unusable};
use crate::facts::MachineDeploymentFacts;
use crate::mcm::rollout;

/// A deployment with all its sets.
#[derive(Debug, Clone, Hash)]
pub struct Sizing {
    /// The deployment.
    pub deployment: Arc<MachineDeploymentFacts>,
    /// The sets that the deployment controls, oldest first, each with its Machines.
    pub sets: Vec<Owned>,
}

impl Sizing {
    /// Returns the replicas that the deployment wants for the set with this UID. Returns nothing if
    /// the deployment sizes no sets at present.
    pub fn size_of(&self, now: Timestamp, set_uid: &str) -> Option<u32> {
        let Self { deployment, sets } = self;
        if deployment.deleting_since.is_some() || unusable(deployment).is_some() {
            return None;
        }
        let new = new_set_index(deployment, sets);
        // A new set is created first.
        if new.is_none() && !rollout::rests(deployment, sets) {
            return None;
        }
        let index = sets.iter().position(|owned| owned.set.uid == set_uid)?;
        rollout::sizes(now, deployment, sets, new).replicas.get(index).copied()
    }
}
