//! Patches that lower the size of a set or select a Machine for an update in place, which need
//! fresh Machines.  Both are done because enough other Machines are available. If the watch of the
//! Machines is silent, they may have become unavailable since, and the set would delete the last
//! available Machine.

use super::action::Action;
use super::snapshot::Snapshot;
use crate::mcm::why::Plan;

/// Removes the actions that lower the size of a set if the Machines are not fresh.
pub(super) fn hold_back(s: &Snapshot, mut plan: Plan<Action>) -> Plan<Action> {
    if !plan.actions.iter().any(lowers) {
        return plan;
    }
    let Some(wait) = s.machines_freshness.obstacle(|| Action::ReadMachines) else { return plan };
    // The status says which generation was acted on. A successor of this process relies on it.
    plan.actions.retain(|action| !lowers(action) && !matches!(action, Action::SetStatus(_)));
    plan.actions.extend(wait.actions);
    plan.why = wait.why;
    plan.wait = plan.wait.earliest(wait.wait);
    plan
}

fn lowers(action: &Action) -> bool {
    match action {
        Action::PatchSet(patch) => patch.is_lower(),
        // A Machine that is selected for an update in place is drained.
        Action::Relabel(step) => step.selects(),
        _ => false,
    }
}
