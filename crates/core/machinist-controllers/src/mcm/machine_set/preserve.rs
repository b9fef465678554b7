//! Automatic preservation: the facts of a set, and the patch of a Machine. The rules are in
//! `machinist_plan::mcm::machine_set`.

use std::collections::BTreeSet;
use std::sync::Arc;

use machinist_api::Phase;
use machinist_api::constants::annotations;
use machinist_kube::GuardedPatch;
use machinist_plan::mcm::facts::{MachineFacts, MachineSetFacts};
use machinist_plan::mcm::machine_deployment::about_to_preserve;
use machinist_plan::mcm::machine_set::AutoPreserve;
use serde_json::Value;

use super::deployment_of;
use crate::mcm::contract::World;
use crate::mcm::seen::sets_owned_by;

/// Returns the component that decides about the failed Machines of a set. A set whose deployment
/// does not exist decides itself.
pub(super) fn auto_preserve(
    world: &World,
    set: &MachineSetFacts,
    machines: &[Arc<MachineFacts>],
) -> AutoPreserve {
    let Some(deployment) = deployment_of(world, set) else { return AutoPreserve::Own };
    let has_failed = machines.iter().any(|machine| machine.status.phase == Phase::Failed);
    let preserves = deployment.facts.spec.auto_preserve_failed_machine_max.is_some_and(|most| 0 < most);
    let about_to = if has_failed && preserves {
        about_to_preserve(&deployment.facts, &sets_owned_by(&world.seen, &deployment.uid))
    } else {
        BTreeSet::new()
    };
    AutoPreserve::Deployment { about_to }
}

/// Returns the patch that asks for the preservation of a Machine. It applies only if the Machine is
/// still Failed.
pub(in crate::mcm) fn preserve_patch(machine: &MachineFacts) -> GuardedPatch {
    let failed = Value::from(Phase::Failed.as_str());
    GuardedPatch::new(&machine.uid)
        .set_annotation(machine.annotations.as_ref(), annotations::PRESERVE, annotations::PRESERVE_AUTO)
        .test(&["status", "currentStatus", "phase"], Some(&failed))
}

/// Returns the patch that ends an automatic preservation.
pub(in crate::mcm) fn end_patch(machine: &MachineFacts) -> GuardedPatch {
    let read = machine.annotations.as_ref();
    GuardedPatch::new(&machine.uid).remove_annotation(read, annotations::PRESERVE)
}
