//! Observes an instance whose Node has not registered, if its cloud can show how the instance
//! boots.
//!
//! A problem is shown at once: in the status, by an Event and as the reason. A failed command alone
//! waits for the creation timeout, because the Node may register nevertheless. Only an instance
//! that can never join is replaced earlier, which [`crate::mcm::replacement`] decides.

use std::time::Duration;

use machinist_api::constants::markers;
use machinist_api::{OperationType, Phase};
use machinist_core::{is_past, plus, since};
use machinist_instance::{Boot, BootTrouble};

use super::action::Action;
use super::action::BOOT_FAILED;
use super::join::{BOOTS, awaiting, join_deadline};
use super::snapshot::Snapshot;
use super::status::OperationWrite;
use crate::mcm::reads::TargetSilence;
use crate::mcm::why::{McmReason, Plan, Step};

/// Shortest and longest time between two observations.
const OBSERVE_EVERY: (Duration, Duration) = (Duration::from_secs(2), Duration::from_secs(15));
/// The time between two observations is this fraction of the time since the instance exists.
const OBSERVE_FRACTION: u32 = 4;
/// While a Machine is Pending, an outage of the API server of its Node is noticed this often.
const LOOK_FOR_SILENCE_EVERY: Duration = Duration::from_secs(60);
/// Begin of the description while the API server of the Node does not answer.
const NOT_SEEN: &str = "Waiting for the Node: ";
/// Begin of the description of a problem that may end.
const DOES_NOT_JOIN: &str = "The instance does not join: ";
/// Begin of the description of a final problem.
const NEVER_JOINS: &str = "The instance can never join: ";

/// Waits for the Node of a Pending Machine, and observes the instance meanwhile.
pub(super) fn joining(s: &Snapshot, node: String) -> Plan<Action> {
    let joining = McmReason::Joining { node, token: s.token_use };
    // If the time is up, the reason of the replacement is shown, which names the outage, too.
    let is_overdue = is_past(s.now, join_deadline(&s.machine, &s.defaults, &s.gaps));
    let silence = s.reads.silence.as_ref().filter(|_| !is_overdue);
    let (reason, next) = match (problem(s), silence) {
        (Some(description), _) => (McmReason::BootFailed { description }, Step::Fix(FIX.to_owned())),
        (None, None) => (joining, BOOTS),
        (None, Some(TargetSilence { since, error, .. })) => {
            let (since, error, waiting) = (*since, error.clone(), joining.to_string());
            let fix = Step::Fix("restore the API server of the target cluster".to_owned());
            (McmReason::NodesUnanswered { since, error, waiting }, fix)
        }
    };
    let mut plan = awaiting(s, reason, next);
    plan.actions.extend(report(s));
    if plan.actions.is_empty() {
        plan.actions.extend(name_silence(s));
    }
    // An outage is noticed without an event.
    observe(s, plan).no_later_than(plus(s.now, LOOK_FOR_SILENCE_EVERY))
}

/// Writes into the status that the API server of the Nodes does not answer, so that the Node cannot
/// be seen, and that it answers again.
fn name_silence(s: &Snapshot) -> Option<Action> {
    let written = s.machine.status.operation.description();
    let description = match &s.reads.silence {
        _ if recorded(s).is_some() => return None,
        Some(silence) => format!("{NOT_SEEN}its API server has not answered since {:.0}", silence.since),
        None if written.starts_with(NOT_SEEN) => markers::CREATING.to_owned(),
        None => return None,
    };
    if written == description {
        return None;
    }
    let write = s.status(Phase::Pending, OperationWrite::processing(OperationType::Create, description))?;
    Some(Action::SetStatus(Box::new(write)))
}

const FIX: &str = "correct the user data or the image of the MachineClass; the Machine is replaced";

/// Describes a problem for the status.
pub(crate) fn description(trouble: &BootTrouble) -> String {
    format!("{}{trouble}", prefix(trouble))
}

fn prefix(trouble: &BootTrouble) -> &'static str {
    if trouble.is_final { NEVER_JOINS } else { DOES_NOT_JOIN }
}

/// Returns the problem in the last answer, or, before the first answer, the problem in the status.
fn problem(s: &Snapshot) -> Option<String> {
    match s.answers.boot.as_deref().map(|answered| &answered.answer) {
        Some(Ok(Boot::Trouble(trouble))) => Some(description(trouble)),
        Some(Ok(Boot::Working)) => None,
        Some(Err(_)) | None => recorded(s).map(str::to_owned),
    }
}

/// The problem in the status.
fn recorded(s: &Snapshot) -> Option<&str> {
    let description = s.machine.status.operation.description();
    (description.starts_with(DOES_NOT_JOIN) || description.starts_with(NEVER_JOINS)).then_some(description)
}

/// Writes a problem to the status, once per cause: the end of an output may differ at each look.
fn report(s: &Snapshot) -> Vec<Action> {
    let Some(Ok(boot)) = s.answers.boot.as_deref().map(|answered| &answered.answer) else {
        return Vec::new();
    };
    let description = match boot {
        Boot::Working if recorded(s).is_none() => return Vec::new(),
        Boot::Working => markers::CREATING.to_owned(),
        Boot::Trouble(trouble) => {
            let cause = format!("{}{}", prefix(trouble), trouble.cause);
            if recorded(s).is_some_and(|recorded| recorded.starts_with(&cause)) {
                return Vec::new();
            }
            description(trouble)
        }
    };
    let operation = OperationWrite::processing(OperationType::Create, &description);
    let Some(write) = s.status(Phase::Pending, operation) else { return Vec::new() };
    let mut actions = vec![Action::SetStatus(Box::new(write))];
    if matches!(boot, Boot::Trouble(_)) {
        actions.push(Action::warn(BOOT_FAILED, description));
    }
    actions
}

/// Observes the instance when that is due.
fn observe(s: &Snapshot, mut plan: Plan<Action>) -> Plan<Action> {
    if !s.observes_boot || s.answers.in_flight.is_some() || s.paused_until.is_some() {
        return plan;
    }
    let exists_since = s.machine.status.phase_since.unwrap_or(s.machine.created);
    let due = s.answers.boot.as_deref().map_or(s.now, |last| {
        let (least, most) = OBSERVE_EVERY;
        plus(last.ended, (since(last.ended, exists_since) / OBSERVE_FRACTION).clamp(least, most))
    });
    if s.now < due {
        return plan.no_later_than(due);
    }
    plan.actions.push(Action::ObserveBoot(s.instance()));
    plan
}
