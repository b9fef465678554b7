//! Creates the instance of a Machine and records it on the Machine.

use std::time::Duration;

use jiff::Timestamp;
use machinist_api::code::Code;
use machinist_api::constants::markers;
use machinist_api::validation::machine_name_error;
use machinist_api::{OperationType, Phase};
use machinist_instance::{AccountId, CreateGuarantee, Error, Instance, Promises};

use super::join::failed_why;
use super::status::{code_of, code_text};
use super::{Action, CREATE_FAILED, OperationWrite, SecretNeed, Snapshot, proof};
use crate::facts::{TOKEN_NAMESPACE, Token, USER_DATA};
use crate::why::{McmReason, Reason, Step};
use crate::{Plan, Why};
use machinist_core::{Answers, Call, Known, is_past, just_past, plus, retry_after};

/// Minimum remaining lifetime of a token. A token that expires sooner is replaced before an
/// instance boots with it.
const TOKEN_MUST_LAST: Duration = Duration::from_secs(60);

pub(super) fn plan(s: &Snapshot) -> Plan<Action> {
    if s.machine.status.phase == Phase::Failed {
        return Plan::idle(failed_why(s));
    }
    if let Some((call, since, until)) = s.answers.waiting(&s.process, s.now) {
        return Plan::until(
            until,
            Why::new(Reason::Calling(call), Step::Expect("the cloud answers")).since(since),
        );
    }
    if let Some(ensured) = &s.answers.ensure
        && let Ok(instance) = &ensured.answer
    {
        return record(s, instance, ensured.account.clone());
    }
    let obstacle = obstacle(s);
    let deadline = s.creation_deadline();
    if is_past(s.now, deadline) {
        return time_is_up(s, obstacle.as_ref());
    }
    match obstacle {
        None => make(s),
        Some(obstacle) => {
            let why =
                obstacle.why(s).deadline(just_past(deadline), Step::Expect("the Machine is marked Failed"));
            report(s, &obstacle.operation(), why, obstacle.retry_at(s)).no_later_than(just_past(deadline))
        }
    }
}

/// Records the instance and writes the status in one pass. The status must lag the record, so it
/// comes second.
pub(super) fn record(s: &Snapshot, instance: &Instance, account: Option<AccountId>) -> Plan<Action> {
    let mut actions = vec![s.record(instance, account)];
    actions.extend(pending(s));
    Plan::act_all(
        actions,
        Why::new(Reason::Writing("recording the instance"), Step::Expect("the Node joins")),
    )
}

/// Returns the status write for an instance that exists while its Node has not joined yet.
pub(super) fn pending(s: &Snapshot) -> Option<Action> {
    let operation = OperationWrite::processing(OperationType::Create, markers::CREATING);
    s.status(Phase::Pending, operation).map(|write| Action::SetStatus(Box::new(write)))
}

fn make(s: &Snapshot) -> Plan<Action> {
    if let Some(plan) = unheld_class(s).or_else(|| proof::before_ensure(s)) {
        return plan;
    }
    let wants_token =
        s.secrets.iter().any(|need| need.facts.present().is_some_and(|facts| facts.wants_token));
    let lasts = |expires: Option<Timestamp>| expires.is_none_or(|at| plus(s.now, TOKEN_MUST_LAST) < at);
    let why = |what| {
        Why::new(Reason::Writing(what), Step::Expect("the controller asks the cloud to create the instance"))
    };
    match &s.token {
        Token::Free(id) if wants_token => {
            let expires = plus(s.now, s.machine.creation_timeout.unwrap_or(s.defaults.creation_timeout));
            let account = s.ownership.account.clone();
            Plan::act(
                Action::CreateToken { id: id.clone(), expires, account },
                why("creating the bootstrap token"),
            )
        }
        // The token would have expired when the instance boots. The next pass creates another
        // token.
        Token::Ours(token) if wants_token && !lasts(token.expires) => Plan::act(
            Action::DeleteToken(token.clone()),
            why("deleting the bootstrap token, which expires too soon"),
        ),
        Token::Free(_) | Token::Ours(_) | Token::Exhausted => {
            if let Some(wait) = s.paused().or_else(|| predecessor_may_create(s)) {
                return wait.no_later_than(just_past(s.creation_deadline()));
            }
            let ensure = Action::Ensure { adopt_made_since: s.process.adopts_since(s.machine.created) };
            Plan::act(ensure, Why::new(Reason::Calling(Call::ENSURE), Step::Expect("the cloud answers")))
        }
    }
}

/// Waits until no call of the previous leader can take effect. A driver that looks before it
/// creates is safe only with one caller per key, and a call of the previous leader may still be in
/// flight.
fn predecessor_may_create(s: &Snapshot) -> Option<Plan<Action>> {
    let Promises { create, call_bound, .. } = s.process.promises;
    let alone_from = plus(s.process.leading_since?, call_bound);
    if create != CreateGuarantee::FindThenCreate || alone_from <= s.now {
        return None;
    }
    let why = Why::new(
        Reason::PredecessorCalls,
        Step::Expect("the controller asks the cloud to create the instance"),
    );
    Some(Plan::until(alone_from, why.since(s.process.leading_since)))
}

/// Waits until the class has our finalizer. Without it, the class could be deleted, and then the
/// instance could not be deleted.
fn unheld_class(s: &Snapshot) -> Option<Plan<Action>> {
    let class = s.class.present()?;
    // For another kind, Machines do not count as users of the class, so this program adds no
    // finalizer.
    let is_counted = s.machine.spec.class.kind() == "MachineClass";
    if class.has_finalizer || !is_counted {
        return None;
    }
    let why = Why::new(
        McmReason::ClassUnheld { class: class.name.clone() },
        Step::Expect("the controller asks the cloud to create the instance"),
    );
    Some(Plan::until(just_past(s.creation_deadline()), why))
}

/// The reason why an instance cannot be created now.
enum Obstacle<'s> {
    /// A problem that only a user can fix.
    Missing { reason: McmReason, fix: String },
    /// The driver call failed.
    Refused { error: &'s Error, ended: Timestamp },
}

fn obstacle(s: &Snapshot) -> Option<Obstacle<'_>> {
    prerequisite(s).or_else(|| {
        let (error, ended) = Answers::failure(s.answers.ensure.as_ref())?;
        // The class or a Secret has changed since the failure, so the call is retried at once.
        let fixed = s.answers.is_fixed(s.inputs);
        let refused = Obstacle::Refused { error, ended };
        let again = fixed || refused.retry_at(s).is_none_or(|at| at <= s.now);
        (!again).then_some(refused)
    })
}

fn prerequisite(s: &Snapshot) -> Option<Obstacle<'static>> {
    let missing = |reason: McmReason, fix: String| Some(Obstacle::Missing { reason, fix });
    if let Some(error) = machine_name_error(&s.machine.name) {
        let fix = "delete the Machine, and create one with a shorter name".to_owned();
        return missing(McmReason::InvalidSpec(error.to_string()), fix);
    }
    let class_name = s.machine.spec.class.name().to_owned();
    if s.machine.spec.class.kind().is_empty() || class_name.is_empty() {
        let field = if class_name.is_empty() { "spec.class.name" } else { "spec.class.kind" };
        let message = format!("{field} is empty: expected the {} of a MachineClass", &field[11..]);
        return missing(McmReason::InvalidSpec(message), format!("set {field}"));
    }
    let class = match &s.class {
        Known::Present(class) => class,
        Known::Absent | Known::Unasked => {
            let fix = format!(
                "create MachineClass {}/{class_name}, or change spec.class.name",
                s.machine.namespace
            );
            return missing(McmReason::ClassMissing { class: class_name }, fix);
        }
    };
    if class.deleting_since.is_some() {
        let fix =
            "use another MachineClass, or create this one again when no machine uses it any more".to_owned();
        return missing(McmReason::ClassDeleting { class: class_name }, fix);
    }
    for need in &s.secrets {
        let (secret, class) = (need.name.clone(), class_name.clone());
        match need.facts {
            Known::Present(_) => {}
            Known::Absent => {
                let fix = format!("create Secret {secret}");
                return missing(McmReason::SecretMissing { secret, class }, fix);
            }
            Known::Unasked => {
                let served = s.machine.namespace.clone();
                let fix = format!(
                    "create the Secret in namespace {served}, and change the reference in the MachineClass"
                );
                return missing(McmReason::SecretElsewhere { secret, class, served }, fix);
            }
        }
    }
    if let Some(secret) = lacks_user_data(s) {
        let fix = format!("add {USER_DATA} to Secret {secret}");
        return missing(McmReason::SecretIncomplete { secret, entry: USER_DATA.to_owned() }, fix);
    }
    if let Some(message) = class.invalid.as_ref().or(s.class_error.as_ref()) {
        let reason = McmReason::ClassInvalid { class: class_name, message: message.clone() };
        return missing(reason, "fix the MachineClass".to_owned());
    }
    if let Token::Exhausted = s.token {
        let fix = format!("delete unused Secrets bootstrap-token-* in namespace {TOKEN_NAMESPACE}");
        return missing(McmReason::TokenIdsTaken, fix);
    }
    None
}

/// Returns the Secret that should have user data, if no Secret has user data. Without user data an
/// instance boots and never joins. A class without Secrets has no user data on purpose: its image
/// contains everything that the instance needs.
fn lacks_user_data(s: &Snapshot) -> Option<String> {
    let has = |need: &SecretNeed| need.facts.present().is_some_and(|facts| facts.has_user_data);
    if s.secrets.iter().any(has) {
        return None;
    }
    // User data belongs in `secretRef`, which comes first.
    s.secrets.first().map(|need| need.name.clone())
}

impl Obstacle<'_> {
    fn why(&self, s: &Snapshot) -> Why {
        match self {
            Self::Missing { reason, fix } => Why::new(reason.clone(), Step::Fix(fix.clone())),
            Self::Refused { error, ended } => {
                let reason = Reason::CallFailed {
                    call: Call::ENSURE,
                    kind: error.kind,
                    message: error.message.clone(),
                    failures: s.answers.failures,
                };
                let retry_at = self.retry_at(s).unwrap_or(s.now);
                Why::new(reason, Step::Repeat(Call::ENSURE, retry_at)).since(*ended)
            }
        }
    }

    fn retry_at(&self, s: &Snapshot) -> Option<Timestamp> {
        match self {
            // A watch reports when the problem is fixed.
            Self::Missing { .. } => None,
            Self::Refused { error, ended } => {
                Some(plus(*ended, retry_after(error.kind, s.answers.failures, s.defaults.exhausted_retry)))
            }
        }
    }

    fn operation(&self) -> OperationWrite {
        match self {
            Self::Missing { reason, .. } => {
                let code = match reason {
                    McmReason::ClassMissing { .. }
                    | McmReason::SecretMissing { .. }
                    | McmReason::SecretElsewhere { .. } => Code::NotFound,
                    McmReason::ClassDeleting { .. } | McmReason::TokenIdsTaken => Code::FailedPrecondition,
                    _ => Code::InvalidArgument,
                };
                // This description is not a message of the cloud, because no call was made.
                let description = format!("Creation is blocked: {reason}");
                OperationWrite::failed(OperationType::Create, description, Some(code))
            }
            Self::Refused { error, .. } => {
                let description = format!("{}{}", markers::CREATE_FAILURE_PREFIX, code_text(error));
                OperationWrite::failed(OperationType::Create, description, Some(code_of(error)))
            }
        }
    }
}

/// Reports the obstacle in the status, and once by an Event.
fn report(s: &Snapshot, operation: &OperationWrite, why: Why, retry_at: Option<Timestamp>) -> Plan<Action> {
    let mut plan = Plan::idle(why);
    if let Some(write) = s.status(Phase::CrashLoopBackOff, operation.clone()) {
        plan.actions.push(Action::SetStatus(Box::new(write)));
        plan.actions.push(Action::warn(CREATE_FAILED, &operation.description));
    }
    match retry_at {
        Some(at) => plan.no_later_than(at),
        None => plan,
    }
}

/// Marks a Machine as Failed when creation times out. The MachineSet replaces it, and the ordinary
/// deletion removes an instance that exists after all.
fn time_is_up(s: &Snapshot, obstacle: Option<&Obstacle<'_>>) -> Plan<Action> {
    if !s.process.may_enforce_deadlines() {
        let seconds = s.process.skew.as_secs();
        return Plan::until(
            plus(s.now, Duration::from_secs(60)),
            Why::new(Reason::ClockSkew { seconds }, Step::Fix("synchronize the clocks".to_owned())),
        );
    }
    let last = match obstacle {
        Some(obstacle) => obstacle.operation().description,
        None => s.machine.status.operation.description().to_owned(),
    };
    let description = format!("Machine {} was not created in time. {last}", s.machine.name);
    let code = obstacle.and_then(|obstacle| obstacle.operation().code).or(Some(Code::DeadlineExceeded));
    let operation = OperationWrite::failed(OperationType::Create, description.clone(), code);
    let write = s.status(Phase::Failed, operation).map(|write| Action::SetStatus(Box::new(write)));
    let why = Why::new(McmReason::Failed { description }, Step::Expect("the MachineSet deletes the Machine"));
    Plan::act_all(write.into_iter().collect(), why)
}
