//! Lifts the freeze of a set.
//!
//! Go's machine-controller-manager freezes a set with too many Machines: it writes the condition
//! `Frozen`, then the label `freeze`. A freeze is lifted when few enough Machines are left, or when
//! the annotation `unfreeze` requests it.
//!
//! The condition is removed first. Then one patch removes the label and the annotation. If the
//! process dies in between, the next pass finds the label or the annotation and starts again.
//!
//! Freezing is deliberately absent: names are reserved before Machines are created, so this program
//! never creates too many.

use machinist_api::constants::{annotations, reasons};

use super::{Action, Snapshot};
use crate::mcm::live::number;
use crate::mcm::status::is_fully_labelled;
use crate::mcm::why::{McmReason, Plan, Reason, Step, Why};

/// Lifts the freeze if the conditions for it are met.
pub(super) fn thaw(s: &Snapshot) -> Option<Plan<Action>> {
    let freeze = s.set.freeze();
    let machines = counted(s);
    let cause = match most(s) {
        _ if freeze.is_lift_asked => {
            format!("the annotation {} requests it ({})", annotations::UNFREEZE, reasons::UNFREEZE_ANNOTATION)
        }
        Some(most) if freeze.is_frozen() && machines <= most => {
            format!(
                "{machines} Machines are left, at most {most} allowed ({})",
                reasons::UNDERSHOOTING_REPLICA_COUNT
            )
        }
        Some(_) | None => return None,
    };
    let condition =
        freeze.condition.as_ref().map(|condition| Action::RemoveFrozen { index: condition.index });
    let has_marks = freeze.has_label || freeze.is_lift_asked;
    let message = format!("Lifted the freeze of MachineSet {}: {cause}", s.set.name);
    let event = freeze.is_frozen().then_some(Action::TellThawed(message));
    let actions = condition.into_iter().chain(has_marks.then_some(Action::RemoveFreeze)).chain(event);
    let why =
        Why::new(Reason::Writing("lifting the freeze"), Step::Expect("the set creates the missing machines"));
    Some(Plan::act_all(actions.collect(), why))
}

/// Returns why a freeze is not lifted yet.
pub(super) fn why(s: &Snapshot) -> Option<Why> {
    let freeze = s.set.freeze();
    if !freeze.is_frozen() {
        return None;
    }
    let reason = McmReason::Frozen {
        by: freeze.condition.as_ref().map(|condition| condition.reason.clone()),
        machines: counted(s),
        most: most(s),
        refused: s.last_failure().map(|failure| failure.message.clone()),
    };
    let next = format!(
        "wait until Machines are deleted, or set the annotation {} on the MachineSet to lift the freeze now",
        annotations::UNFREEZE
    );
    Some(Why::new(reason, Step::Fix(next)).since(freeze.condition.and_then(|condition| condition.since)))
}

/// Returns how many Machines a freeze counts: all of the set with its template's labels, including
/// those being deleted.
fn counted(s: &Snapshot) -> u32 {
    number(s.machines.iter().filter(|machine| is_fully_labelled(machine, &s.set)).count())
}

/// Returns the number of Machines at which a freeze is lifted; absent while the deployment is
/// unknown.
fn most(s: &Snapshot) -> Option<u32> {
    let wanted = match (&s.set.owner, &s.deployment) {
        (_, Some(deployment)) => deployment.replicas().saturating_add(deployment.any_surge()),
        (Some(owner), None) if owner.kind == "MachineDeployment" => return None,
        (_, None) => s.set.replicas().saturating_mul(2),
    };
    Some(wanted.saturating_add(s.margins.up).saturating_sub(s.margins.down))
}
