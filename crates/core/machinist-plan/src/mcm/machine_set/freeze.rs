//! Freezes a set that has too many Machines, and lifts the freeze.
//!
//! A frozen set has the condition `Frozen` and then the label `freeze`. It creates no Machines, and
//! deletes failed and surplus ones as before. The freeze is a safety net: names are reserved before
//! Machines are created, so this program never creates too many. Another program or a user may:
//! with Machines that the set adopts, or with a quick scale-down whose Machines need long to leave.
//!
//! The bound is the same as in Go's machine-controller-manager: replicas and surge of the
//! deployment plus `--safety-up`, or twice the replicas of a set without a deployment plus
//! `--safety-up`. A freeze is lifted at that number minus `--safety-down`, or when the annotation
//! `unfreeze` requests it. Machines that are being deleted count. Two numbers differ from Go: a set
//! without Machines is not frozen (with `--safety-up=0`, Go never lifts the freeze of an empty
//! set), and at least one Machine must leave before a freeze is lifted (with `--safety-down=0`, Go
//! freezes and lifts in turn).
//!
//! Go counts once per `--machine-safety-overshooting-period` and at each new Machine. Here, a set
//! is frozen when it has been at its bound for that period, and at once if another Machine is
//! created meanwhile. So a scale-down freezes a set if its Machines take longer than the period to
//! leave, as in Go, and costs no write otherwise. A set whose freeze a user has lifted gets a new
//! period. The period begins again in a new process.
//!
//! The status write adds the condition. The next pass sees it, adds the label and emits the Event.
//! When the freeze is lifted, the condition is removed first. Then one patch removes the label and
//! the annotation, and an Event follows if there was a label. So each freeze has one Event, and so
//! has its end. If the process dies in between, the next pass continues with what is left.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use machinist_api::constants::{annotations, conditions, reasons};
use machinist_api::{ConditionStatus, MachineSetCondition};
use machinist_core::plus;

use super::Action;
use super::snapshot::{SafetyMargins, Snapshot, invalid};
use crate::mcm::facts::{MachineDeploymentFacts, MachineSetFacts};
use crate::mcm::live::number;
use crate::mcm::status::is_fully_labelled;
use crate::mcm::why::{McmReason, Plan, Reason, Step, Why};

/// Lifts the freeze if the conditions for it are met.
pub(super) fn thaw(s: &Snapshot) -> Option<Plan<Action>> {
    let freeze = s.set.freeze();
    let machines = counted(s);
    let cause = match lift_at(s) {
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
    let event = freeze.has_label.then_some(Action::TellThawed(message));
    let actions = condition.into_iter().chain(has_marks.then_some(Action::RemoveFreeze)).chain(event);
    let why =
        Why::new(Reason::Writing("lifting the freeze"), Step::Expect("the set creates the missing machines"));
    Some(Plan::act_all(actions.collect(), why))
}

/// Returns the condition of a freeze that begins now. The status of the set contains it.
pub(super) fn begun(s: &Snapshot) -> Option<MachineSetCondition> {
    if s.now < due_at(s)? {
        return None;
    }
    let now = Timestamp::from_second(s.now.as_second()).unwrap_or(s.now);
    Some(MachineSetCondition {
        type_: conditions::FROZEN.to_owned(),
        status: ConditionStatus::True,
        last_transition_time: Some(Time(now)),
        reason: Some(reasons::OVERSHOOTING_REPLICA_COUNT.to_owned()),
        message: Some(format!(
            "The number of machines backing MachineSet: {} is {} >= {} which is the Max-ScaleUp-Limit",
            s.set.name,
            counted(s),
            bound(&s.set, s.deployment.as_deref(), s.margins).unwrap_or_default()
        )),
    })
}

/// Returns the actions that complete a freeze after its condition is in the status.
pub(super) fn completion(s: &Snapshot) -> Vec<Action> {
    let freeze = s.set.freeze();
    let is_half = freeze.condition.is_some() && !freeze.has_label && !freeze.is_lift_asked;
    let machines = counted(s);
    if !is_half || lift_at(s).is_none_or(|most| machines <= most) {
        return Vec::new();
    }
    let reason = reasons::OVERSHOOTING_REPLICA_COUNT;
    let message = format!(
        "Froze MachineSet {}: it has {machines} Machines, which are too many ({reason}). It creates no Machines.",
        s.set.name
    );
    vec![Action::AddFreeze, Action::TellFrozen(message)]
}

/// Whether a freeze stops the set from creating Machines, also while the freeze begins.
pub(super) fn stops_creation(s: &Snapshot) -> bool {
    s.set.freeze().is_frozen() || begun(s).is_some()
}

/// Returns when a set that is at its bound is frozen, unless it is frozen already.
pub(super) fn due_at(s: &Snapshot) -> Option<Timestamp> {
    let freeze = s.set.freeze();
    let is_exempt = freeze.is_frozen() || freeze.is_lift_asked || s.set.deleting_since.is_some();
    if is_exempt || !overshoots(s) || invalid(&s.set).is_some() {
        return None;
    }
    let Some(since) = s.overshooting_since else { return Some(plus(s.now, s.margins.period)) };
    let has_grown = s.machines.iter().any(|machine| since < machine.created);
    Some(if has_grown { since } else { plus(since, s.margins.period) })
}

/// Whether a set has as many Machines as freeze it.
pub fn overshoots(s: &Snapshot) -> bool {
    let bound = bound(&s.set, s.deployment.as_deref(), s.margins);
    bound.is_some_and(|bound| bound <= counted(s))
}

/// Returns the number of Machines at which a set is frozen; absent while its deployment is unknown.
pub fn bound(
    set: &MachineSetFacts,
    deployment: Option<&MachineDeploymentFacts>,
    margins: SafetyMargins,
) -> Option<u32> {
    let wanted = match (&set.owner, deployment) {
        (_, Some(deployment)) => deployment.replicas().saturating_add(deployment.any_surge()),
        (Some(owner), None) if owner.kind == "MachineDeployment" => return None,
        (_, None) => set.replicas().saturating_mul(2),
    };
    Some(wanted.saturating_add(margins.up).max(1))
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
        most: lift_at(s),
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
fn lift_at(s: &Snapshot) -> Option<u32> {
    let bound = bound(&s.set, s.deployment.as_deref(), s.margins)?;
    Some(bound.saturating_sub(s.margins.down.max(1)))
}
