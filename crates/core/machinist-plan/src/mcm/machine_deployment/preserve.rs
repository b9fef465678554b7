//! Automatic preservation of the failed Machines of a deployment.
//!
//! The limit `autoPreserveFailedMachineMax` counts the Machines of the old and the new sets, so one
//! planner on one key decides. The rule is [`crate::mcm::machine_set`]'s.
//!
//! A paused or invalid deployment preserves Machines, too: its sets replace failed Machines anyway.

use std::collections::BTreeSet;

use super::action::Action;
use super::snapshot::{Owned, Snapshot};
use crate::mcm::facts::MachineDeploymentFacts;
use crate::mcm::machine_set::preserve::{Choice, choose};
use crate::mcm::why::Plan;

/// Adds the annotations of Machines that are preserved from now on, or no longer, to the plan for a
/// deployment that is not being deleted.
pub(super) fn attend(s: &Snapshot, mut plan: Plan<Action>) -> Plan<Action> {
    let Choice { preserve, release } = choice(&s.deployment, &s.sets);
    // First: a change that is rejected must not keep the sets from deleting failed Machines.
    plan.actions.splice(0..0, preserve.into_iter().map(Action::Preserve));
    if release.is_empty() {
        return plan;
    }
    // In an old view, a counted Machine may be gone already.
    let obstacle: Option<Plan<Action>> = s.machines_freshness.obstacle(|| Action::ReadMachines);
    match obstacle {
        Some(wait) => {
            plan.actions.extend(wait.actions);
            plan.wait = plan.wait.earliest(wait.wait);
        }
        None => plan.actions.extend(release.into_iter().map(Action::EndPreservation)),
    }
    plan
}

/// Returns the UIDs of the failed Machines that a deployment is about to preserve. Their sets do
/// not delete them meanwhile.
pub fn about_to_preserve(deployment: &MachineDeploymentFacts, sets: &[Owned]) -> BTreeSet<String> {
    if deployment.deleting_since.is_some() {
        return BTreeSet::new();
    }
    choice(deployment, sets).preserve.into_iter().map(|machine| machine.uid.clone()).collect()
}

fn choice(deployment: &MachineDeploymentFacts, sets: &[Owned]) -> Choice {
    let machines = sets.iter().flat_map(|owned| &owned.machines);
    choose(deployment.spec.auto_preserve_failed_machine_max, machines)
}
