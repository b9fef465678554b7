//! Completes an instance that the cloud has created: changes that some clouds allow only
//! afterwards, such as the source check of a network interface. Go MCM calls this
//! InitializeMachine.
//!
//! The id is on the Machine before, and the status is written after it. So a process that dies in
//! between leaves a Machine with an id and without a status, or with a failed creation, and the
//! next process repeats the call. The same holds for Machines that Go MCM left there. A driver
//! repeats the call without harm.
//!
//! Deliberately absent: repairs of an instance whose Machine is Pending or later. Go MCM does not
//! look at it either.

use std::time::Duration;

use machinist_api::OperationType;
use machinist_api::code::Code;
use machinist_api::constants::markers;
use machinist_instance::{Error, ErrorKind};

use super::action::Action;
use super::create;
use super::snapshot::Snapshot;
use super::status::{OldState, OperationWrite, code_of, code_text};
use crate::mcm::why::{McmReason, Plan, Reason, Step, Why};
use machinist_core::{Call, just_past, plus, retry_after};

/// Wait before the call is repeated while the cloud works. Go MCM waits as long.
const REPEAT_AFTER: Duration = Duration::from_secs(5);

const REPLACED: &str = "the Machine is marked Failed, and its set replaces it";

/// Initializes the recorded instance of a new Machine. Returns nothing if that is done, or if the
/// provider has nothing to do.
pub(super) fn plan(s: &Snapshot) -> Option<Plan<Action>> {
    if !s.needs_initialization {
        return None;
    }
    if let Some((call, since, until)) = s.answers.waiting(&s.process, s.now) {
        let why = Why::new(Reason::Calling(call), Step::Expect("the cloud answers"));
        return Some(Plan::until(until, why.since(since)));
    }
    let id = s.identity.recorded.ours()?;
    let answered = s.answers.initialized.as_deref().filter(|(of, _)| of == id).map(|(_, answered)| answered);
    let Some(answered) = answered else { return Some(call(s)) };
    match &answered.answer {
        Ok(()) => None,
        // A provider that has nothing to do, as in Go MCM.
        Err(error) if error.kind == ErrorKind::Unsupported => None,
        // No repetition helps. The next instance is created after the wait of a refused creation,
        // so that a cloud without a free host is not asked in a loop.
        Err(error) if error.is_instance_failed() => {
            let ends = plus(answered.ended, s.defaults.exhausted_retry).min(just_past(s.creation_deadline()));
            let state = s.state_after(error, OldState::Kept);
            if ends <= s.now && s.process.may_enforce_deadlines() {
                return Some(create::give_up_recorded(s, operation(error), state));
            }
            let why = instance_failed(s, &error.message).deadline(ends, Step::Expect(REPLACED));
            let plan = create::report(s, &operation(error), state, why.since(answered.ended), None);
            Some(if s.now < ends { plan.no_later_than(ends) } else { plan })
        }
        Err(error) if create::has_timed_out(s) && !may_be_restored(s, error) => {
            let state = s.state_after(error, OldState::Kept);
            Some(create::give_up_recorded(s, operation(error), state))
        }
        Err(error) => {
            let retry_at = if error.is_in_progress() {
                plus(answered.ended, REPEAT_AFTER)
            } else {
                let wait = retry_after(error.kind, s.answers.failures, s.defaults.exhausted_retry);
                plus(answered.ended, wait)
            };
            if retry_at <= s.now || s.answers.is_fixed(s.inputs) {
                return Some(call(s));
            }
            let why = if error.is_in_progress() {
                uninitialized(s, &error.message)
            } else {
                Why::call_failed(Call::INITIALIZE, error, s.answers.failures, retry_at)
            };
            let (operation, state) = (operation(error), s.state_after(error, OldState::Kept));
            let plan = create::report(s, &operation, state, why.since(answered.ended), Some(retry_at));
            Some(create::until_timeout(s, plan))
        }
    }
}

/// Whether the Machine may have been restored from a backup: its id was recorded before this
/// process began to act, and its instance carries another key. It may run pods, so no time decides.
fn may_be_restored(s: &Snapshot, error: &Error) -> bool {
    error.kind == ErrorKind::Denied && !s.process.saw_creation_of(s.machine.created)
}

fn call(s: &Snapshot) -> Plan<Action> {
    // Without the class or its Secrets, no call can be made.
    if let Some(obstacle) = create::prerequisite(s) {
        return create::obstructed(s, &obstacle);
    }
    s.paused().unwrap_or_else(|| {
        let why = Why::new(Reason::Calling(Call::INITIALIZE), Step::Expect("the cloud answers"));
        Plan::act(Action::Initialize, why)
    })
}

fn instance_failed(s: &Snapshot, message: &str) -> Why {
    let reason =
        McmReason::InstanceFailed { instance: s.instance().to_string(), message: message.to_owned() };
    Why::new(reason, Step::Expect(REPLACED))
}

fn uninitialized(s: &Snapshot, message: &str) -> Why {
    let reason = McmReason::Uninitialized { instance: s.instance().to_string(), message: message.to_owned() };
    create::with_deadline(s, Why::new(reason, Step::Expect("the controller repeats the call")))
}

fn operation(error: &Error) -> OperationWrite {
    let (text, code) = if error.is_in_progress() {
        (error.message.clone(), Code::Uninitialized)
    } else {
        (code_text(error), code_of(error))
    };
    let (prefix, marker) = (markers::INITIALIZE_FAILURE_PREFIX, markers::INITIALIZE_INSTANCE);
    OperationWrite::failed(OperationType::Create, format!("{prefix}{text}. {marker}"), Some(code))
}
