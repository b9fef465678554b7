//! The size that a deployment wants for one of its sets now.
//!
//! The replicas in a set's spec may be old: the patch that lowered them may have taken effect a
//! minute after it was sent, and the deployment may have changed meanwhile. So before a set deletes
//! Machines, it asks which size its deployment would give it by the facts of today.

use std::sync::Arc;

use jiff::Timestamp;
use machinist_api::StrategyType;

use super::snapshot::Owned;
use super::template::is_same_template;
use crate::facts::MachineDeploymentFacts;
use crate::mcm::refusal::Refusal;
use crate::mcm::rollout::{self, Bounds};

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

impl Sizing {
    /// Returns the numbers of Machines that bind the set with this UID when it deletes surplus
    /// Machines or creates missing ones. Since the deployment sized the set, it may have been
    /// scaled.
    pub fn bounds(&self, now: Timestamp, set_uid: &str) -> Option<Bounds> {
        let Self { deployment, sets } = self;
        if deployment.deleting_since.is_some() || unusable(deployment).is_some() {
            return None;
        }
        let index = sets.iter().position(|owned| owned.set.uid == set_uid)?;
        Some(rollout::bounds(now, deployment, sets, index))
    }
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
    let spec = &deployment.spec;
    if let Some((field, message)) = &deployment.invalid {
        return Some(Refusal::invalid(field, message));
    }
    if let Some(refusal) = Refusal::if_selecting_all(spec.selector.as_ref()) {
        return Some(refusal);
    }
    if let Some(refusal) = strategy_refusal(deployment).filter(|_| !deployment.is_in_place()) {
        return Some(refusal);
    }
    if spec.rollback_to.is_some() {
        let message =
            "spec.rollbackTo is not supported yet: expected the template of the former revision instead";
        return Some(Refusal::invalid("spec.rollbackTo", message));
    }
    None
}

/// Rejects a strategy that is not supported yet.
pub(super) fn strategy_refusal(deployment: &MachineDeploymentFacts) -> Option<Refusal> {
    let strategy = deployment.spec.strategy.as_ref()?.type_.as_ref()?;
    (*strategy != StrategyType::RollingUpdate).then(|| {
        let message = format!("spec.strategy.type {strategy} is not supported yet: expected RollingUpdate");
        Refusal::invalid("spec.strategy.type", message)
    })
}
