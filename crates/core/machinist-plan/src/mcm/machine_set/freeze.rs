//! Lifting a freeze of a set.
//!
//! Go's machine-controller-manager freezes a set that has too many Machines: it writes the condition `Frozen`, then the label
//! `freeze`. A freeze is lifted when few enough Machines are left, or when the annotation `unfreeze` asks for it.
//!
//! The condition is removed first, label and annotation after it, in one patch. A manager that dies in between finds the label or
//! the annotation, and begins again.
//!
//! Deliberately absent: freezing. Names are reserved before Machines are made, so a set of ours does not have too many.

use machinist_api::constants::{annotations, reasons};

use super::{Action, Snapshot};
use crate::mcm::machine_deployment::number;
use crate::mcm::status::is_fully_labelled;
use crate::why::{McmReason, Reason, Step};
use crate::{Plan, Why};

/// How many Machines more than wanted freeze a set, and how many fewer than that lift the freeze.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SafetyMargins {
    /// `--safety-up`
    pub up: u32,
    /// `--safety-down`
    pub down: u32,
}

impl Default for SafetyMargins {
    fn default() -> Self {
        Self { up: 2, down: 1 }
    }
}

/// Lifts the freeze, when it is time.
pub(super) fn thaw(s: &Snapshot) -> Option<Plan<Action>> {
    let freeze = s.set.freeze();
    let machines = counted(s);
    let cause = match most(s) {
        _ if freeze.is_lift_asked => {
            format!("the annotation {} asks for it ({})", annotations::UNFREEZE, reasons::UNFREEZE_ANNOTATION)
        }
        Some(most) if freeze.is_frozen() && machines <= most => {
            format!(
                "{machines} of at most {most} Machines are left ({})",
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
        Why::new(Reason::Writing("its freeze to be lifted"), Step::Expect("it makes the missing machines"));
    Some(Plan::act_all(actions.collect(), why))
}

/// What a freeze waits for that is not lifted yet.
pub(super) fn why(s: &Snapshot) -> Option<Why> {
    let freeze = s.set.freeze();
    if !freeze.is_frozen() {
        return None;
    }
    let reason = McmReason::Frozen {
        by: freeze.condition.as_ref().map(|condition| condition.reason.clone()),
        machines: counted(s),
        most: most(s),
        refused: s.failure.as_ref().map(|failure| failure.message.clone()),
    };
    let next = format!(
        "its Machines are deleted; to lift the freeze at once, set the annotation {} on the MachineSet",
        annotations::UNFREEZE
    );
    Some(Why::new(reason, Step::Mend(next)).since(freeze.condition.and_then(|condition| condition.since)))
}

/// The Machines that a freeze counts: all of the set's own that have the labels of its template, those being deleted included.
fn counted(s: &Snapshot) -> u32 {
    number(s.machines.iter().filter(|machine| is_fully_labelled(machine, &s.set)).count())
}

/// At that many Machines a freeze is lifted; nothing while the deployment is not known.
fn most(s: &Snapshot) -> Option<u32> {
    let wanted = match (&s.set.owner, &s.deployment) {
        (_, Some(deployment)) => deployment.replicas().saturating_add(deployment.any_surge()),
        (Some(owner), None) if owner.kind == "MachineDeployment" => return None,
        (_, None) => s.set.replicas().saturating_mul(2),
    };
    Some(wanted.saturating_add(s.margins.up).saturating_sub(s.margins.down))
}
