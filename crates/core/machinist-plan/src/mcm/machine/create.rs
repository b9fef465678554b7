//! Creates the instance of a Machine and records it on the Machine.
//!
//! ```text
//! a known instance             -> record it
//! an obstacle, such as a class -> report it
//! otherwise                    -> token -> wait in the queue of the account -> ensure
//! the creation deadline passed -> look the instance up once -> mark the Machine as Failed
//! ```
//!
//! Deliberately absent: whether an instance that joined is healthy (`join`), and everything after
//! the deletion of the Machine (`delete`).

use std::time::Duration;

use jiff::Timestamp;
use machinist_api::code::Code;
use machinist_api::constants::markers;
use machinist_api::validation::{machine_duration_error, machine_name_error};
use machinist_api::{OperationType, Phase};
use machinist_instance::{AccountId, CreateGuarantee, Error, Instance, KeyScope, Sighting};

use super::action::Action;
use super::action::CREATE_FAILED;
use super::intent;
use super::join::failed_why;
use super::no_target;
use super::proof;
use super::snapshot::SecretNeed;
use super::snapshot::Snapshot;
use super::snapshot::creation_failed;
use super::status::{OldState, OperationWrite, StateWrite};
use super::status::{code_of, code_text};
use super::target_cluster::TargetCluster;
use crate::mcm::facts::{TOKEN_NAMESPACE, Token, USER_DATA};
use crate::mcm::why::{McmReason, Plan, Reason, Step, Why};
use machinist_core::{Answers, Call, Found, Known, MadeIn, is_past, just_past, plus, retry_after};

/// The shortest lifetime of a bootstrap token, even if the creation timeout is shorter: an instance
/// that boots needs the token for this long.
const MIN_TOKEN_LIFETIME: Duration = Duration::from_secs(600);
/// A new token lasts longer by this. Thus it still has its whole lifetime when the call begins.
const TOKEN_SPARE: Duration = Duration::from_secs(60);

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
    let deadline = deadline(s);
    let blocked = if obstacle.is_none() { blocked(s) } else { None };
    // Without an attempt that failed, the time says nothing about the Machine.
    let has_tried =
        obstacle.is_some() || blocked.is_some() || creation_failed(&s.machine) || ensure_failed(s);
    let can_fail = !cannot_be_looked_for(s);
    if has_tried && can_fail && is_past(s.now, deadline) {
        return give_up_creation(s, obstacle.as_ref());
    }
    match obstacle {
        None => blocked.unwrap_or_else(|| make(s)),
        Some(obstacle) if can_fail => {
            let why =
                obstacle.why(s).deadline(just_past(deadline), Step::Expect("the Machine is marked Failed"));
            let plan = report(s, &obstacle.operation(), obstacle.state(s), why, obstacle.retry_at(s));
            intent::forget_refused(s, plan).no_later_than(just_past(deadline))
        }
        Some(obstacle) => obstructed(s, &obstacle),
    }
}

/// Returns when the creation fails. If a part of the instance has failed in the cloud, no
/// repetition helps: the next instance is created after the wait of a refused creation.
fn deadline(s: &Snapshot) -> Timestamp {
    match Answers::failure(s.answers.ensure.as_ref()) {
        Some((error, ended)) if error.is_instance_failed() => {
            plus(ended, s.defaults.exhausted_retry).min(s.creation_deadline())
        }
        Some(_) | None => s.creation_deadline(),
    }
}

/// Whether the Machine may have an instance that this process cannot look for: no credential opens
/// an account. The instance and its Node may be in use, so the time decides nothing.
fn cannot_be_looked_for(s: &Snapshot) -> bool {
    s.ownership.account.is_none() && may_have_an_instance(s)
}

/// Whether an instance may exist although none is recorded: this process does not know every call
/// about the Machine, or it made one.
fn may_have_an_instance(s: &Snapshot) -> bool {
    !s.process.saw_creation_of(s.machine.created)
        || s.answers.unsure_since.is_some()
        || s.answers.made_in != MadeIn::Nowhere
}

/// Records the instance and writes the status in one pass. The status must lag the record, so it
/// comes second.
pub(super) fn record(s: &Snapshot, instance: &Instance, account: Option<AccountId>) -> Plan<Action> {
    let mut actions = vec![s.record(instance, account)];
    let next = match s.target {
        TargetCluster::Given => {
            // If the Node is not called like the Machine, the next pass looks for a Node of that
            // name first.
            let is_next = !s.needs_initialization && instance.name.as_str() == s.machine.name;
            actions.extend(pending(s).filter(|_| is_next));
            "the Node joins"
        }
        TargetCluster::None => {
            actions.extend(no_target::available(s, instance).filter(|_| !s.needs_initialization));
            "the Machine is available"
        }
    };
    Plan::act_all(actions, Why::new(Reason::Writing("recording the instance"), Step::Expect(next)))
}

/// Returns the status write for an instance that exists while its Node has not joined yet.
pub(super) fn pending(s: &Snapshot) -> Option<Action> {
    let operation = OperationWrite::processing(OperationType::Create, markers::CREATING);
    s.status(Phase::Pending, operation).map(|write| Action::SetStatus(Box::new(write)))
}

fn ensure_failed(s: &Snapshot) -> bool {
    Answers::failure(s.answers.ensure.as_ref()).is_some()
}

/// Waits for another object, or for evidence, before the cloud may be called.
fn blocked(s: &Snapshot) -> Option<Plan<Action>> {
    unheld_class(s).or_else(|| proof::before_ensure(s))
}

/// Queues the call. When the call has its slot, creates the token, and then makes the call. A token
/// that was made earlier could expire in the queue.
fn make(s: &Snapshot) -> Plan<Action> {
    if let Some(wait) = s.paused().or_else(|| earlier_call_may_create(s)) {
        return if creation_failed(&s.machine) || ensure_failed(s) {
            wait.no_later_than(just_past(s.creation_deadline()))
        } else {
            wait
        };
    }
    if let Some(wait) = s.await_slot(Call::ENSURE) {
        return wait;
    }
    // Without a target cluster, no token opens anything, and the placeholder stays.
    let wants_token = s.target == TargetCluster::Given
        && s.secrets.iter().any(|need| need.facts.present().is_some_and(|facts| facts.wants_token));
    let lasts = |expires: Option<Timestamp>| expires.is_none_or(|at| plus(s.now, token_must_last(s)) <= at);
    let expires_soon = wants_token && s.token.ours().is_some_and(|token| !lasts(token.expires));
    let why = |what| {
        Why::new(Reason::Writing(what), Step::Expect("the controller asks the cloud to create the instance"))
    };
    let next = intent::of_next_call(s);
    let record = |intent| {
        let what = "recording where the instance is created";
        Plan::act(Action::RecordIntent(intent), why(what))
    };
    let on_machine = s.machine.intent();
    if !on_machine.is_empty() && on_machine != next {
        // It would count more than a newer token.
        return record(next);
    }
    match &s.token {
        Token::Free(id) if wants_token => {
            let expires = plus(s.now, token_lifetime(s) + TOKEN_SPARE);
            let create = Action::CreateToken { id: id.clone(), expires, intent: next };
            Plan::act(create, why("creating the bootstrap token"))
        }
        // The token would have expired when the instance boots. The next pass creates another
        // token.
        Token::Ours(token) if expires_soon && intent::is_kept_without_token(s, &next) => Plan::act(
            Action::DeleteToken(token.clone()),
            why("deleting the bootstrap token, which expires too soon"),
        ),
        Token::Free(_) | Token::Ours(_) | Token::Exhausted
            if expires_soon || s.token.last_intent(&s.machine) != next =>
        {
            record(next)
        }
        Token::Free(_) | Token::Ours(_) | Token::Exhausted => {
            let ensure = Action::Ensure { adopt_made_since: s.process.adopts_since(s.machine.created) };
            Plan::act(ensure, Why::new(Reason::Calling(Call::ENSURE), Step::Expect("the cloud answers")))
        }
    }
}

/// Returns how long a token lasts from the call that creates the instance.
fn token_lifetime(s: &Snapshot) -> Duration {
    s.creation_timeout().max(MIN_TOKEN_LIFETIME)
}

/// Returns how long an existing token must last. If an earlier call may have created the instance,
/// the instance may still need the token that it got, so that token is replaced later.
fn token_must_last(s: &Snapshot) -> Duration {
    let is_unused = s.knows_no_creation();
    if is_unused { token_lifetime(s) } else { token_lifetime(s) / 2 }
}

/// Waits until no earlier call can create the instance. A driver that looks before it creates is
/// safe only if what was created before is visible: a call of the previous leader may be in flight,
/// and a call of this process without an answer may take effect late.
///
/// A cloud that recognises a repeated creation needs this wait only if an earlier call may have
/// been made in another key scope.
fn earlier_call_may_create(s: &Snapshot) -> Option<Plan<Action>> {
    let promises = &s.process.promises;
    let only_looks = promises.create == CreateGuarantee::FindThenCreate;
    let elsewhere = |began: Option<&KeyScope>| McmReason::CreationElsewhere {
        class: s.machine.spec.class.name().to_owned(),
        began: began.map(ToString::to_string),
        now: s.key_scope.of_class.to_string(),
    };
    let wait = |reason: Reason, began: Timestamp| {
        let until = plus(began, promises.absence_takes());
        let next = Step::Expect("the controller asks the cloud to create the instance");
        (s.now < until).then(|| Plan::until(until, Why::new(reason, next).since(began)))
    };
    let unanswered = || {
        let unproven = McmReason::AbsenceNotProven { instance: s.instance().to_string() };
        let left = || s.key_scope.left_by_own_call().map(|began| elsewhere(Some(began)));
        let reason = if only_looks { unproven } else { left()? };
        wait(reason.into(), s.answers.unsure_since?)
    };
    let of_predecessor = || {
        // Every call of a predecessor was written before.
        let is_left = s.ownership.intended.is_some() && s.key_scope.is_left_by_record();
        let left = || is_left.then(|| elsewhere(s.key_scope.intended.as_ref()).into());
        let reason = if only_looks { Reason::PredecessorCalls } else { left()? };
        let may_have = promises.calls_outlive_process && !s.process.saw_creation_of(s.machine.created);
        wait(reason, s.process.acting_since()).filter(|_| may_have)
    };
    unanswered().or_else(of_predecessor)
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
pub(super) enum Obstacle<'s> {
    /// A problem that only a user can fix.
    Missing { reason: McmReason, fix: String },
    /// The driver call failed.
    Refused { error: &'s Error, ended: Timestamp },
}

fn obstacle(s: &Snapshot) -> Option<Obstacle<'_>> {
    prerequisite(s).or_else(|| moved_class(s)).or_else(|| {
        let (error, ended) = Answers::failure(s.answers.ensure.as_ref())?;
        // The class or a Secret has changed since the failure, so the call is retried at once.
        let fixed = s.answers.is_fixed(s.inputs);
        let refused = Obstacle::Refused { error, ended };
        let is_final = error.is_instance_failed();
        let again = !is_final && (fixed || refused.retry_at(s).is_none_or(|at| at <= s.now));
        (!again).then_some(refused)
    })
}

pub(super) fn prerequisite(s: &Snapshot) -> Option<Obstacle<'static>> {
    let missing = |reason: McmReason, fix: String| Some(Obstacle::Missing { reason, fix });
    if let Some(error) = machine_name_error(&s.machine.name) {
        let fix = "delete the Machine, and create one with a shorter name".to_owned();
        return missing(McmReason::InvalidSpec(error.to_string()), fix);
    }
    let class_name = s.machine.spec.class.name().to_owned();
    if s.machine.spec.class.kind().is_empty() || class_name.is_empty() {
        let part = if class_name.is_empty() { "name" } else { "kind" };
        let field = format!("spec.class.{part}");
        let message = format!("{field} is empty: expected the {part} of a MachineClass");
        return missing(McmReason::InvalidSpec(message), format!("set {field}"));
    }
    if let Some(error) = machine_duration_error(&s.machine.spec) {
        return missing(McmReason::InvalidSpec(error.to_string()), format!("correct {}", error.field));
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
            "use another MachineClass, or create this one again when no machine still uses it".to_owned();
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

/// Returns the obstacle of a class that names another place than the place in which the creation
/// began. An instance may exist there, so no other one is created. The creation fails at its
/// deadline, after a lookup in that place, and the next Machine is created in the new place.
fn moved_class(s: &Snapshot) -> Option<Obstacle<'static>> {
    let (began, now) = s.place.moved()?;
    let class = s.machine.spec.class.name().to_owned();
    let (began, now) = (began.to_string(), now.to_string());
    let fix = format!("change MachineClass {class} back, or delete the Machine");
    Some(Obstacle::Missing { reason: McmReason::ClassMoved { class, began, now }, fix })
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
    pub(super) fn why(&self, s: &Snapshot) -> Why {
        match self {
            Self::Missing { reason, fix } => Why::new(reason.clone(), Step::Fix(fix.clone())),
            Self::Refused { error, ended } => {
                let retry_at = self.retry_at(s).unwrap_or(s.now);
                Why::call_failed(Call::ENSURE, error, s.answers.failures, retry_at).since(*ended)
            }
        }
    }

    fn retry_at(&self, s: &Snapshot) -> Option<Timestamp> {
        match self {
            // A watch reports when the problem is fixed.
            Self::Missing { .. } => None,
            Self::Refused { error, .. } if error.is_instance_failed() => Some(just_past(deadline(s))),
            Self::Refused { error, ended } => {
                Some(plus(*ended, retry_after(error.kind, s.answers.failures, s.defaults.exhausted_retry)))
            }
        }
    }

    fn state(&self, s: &Snapshot) -> Option<StateWrite> {
        match self {
            Self::Missing { .. } => None,
            Self::Refused { error, .. } => s.state_after(error, OldState::after_creation(error)),
        }
    }

    fn operation(&self) -> OperationWrite {
        match self {
            Self::Missing { reason, .. } => {
                let code = match reason {
                    McmReason::ClassMissing { .. }
                    | McmReason::SecretMissing { .. }
                    | McmReason::SecretElsewhere { .. } => Code::NotFound,
                    McmReason::ClassDeleting { .. }
                    | McmReason::ClassMoved { .. }
                    | McmReason::TokenIdsTaken => Code::FailedPrecondition,
                    _ => Code::InvalidArgument,
                };
                // This description is not a message of the cloud, because no call was made.
                let description = format!("Creation is blocked: {reason}");
                OperationWrite::failed(OperationType::Create, description, Some(code))
            }
            Self::Refused { error, .. } => refused(error),
        }
    }
}

/// The operation of a creation that the cloud refused.
pub(super) fn refused(error: &Error) -> OperationWrite {
    let description = format!("{}{}", markers::CREATE_FAILURE_PREFIX, code_text(error));
    OperationWrite::failed(OperationType::Create, description, Some(code_of(error)))
}

/// Reports the obstacle in the status, and once by an Event.
pub(super) fn report(
    s: &Snapshot,
    operation: &OperationWrite,
    state: Option<StateWrite>,
    why: Why,
    retry_at: Option<Timestamp>,
) -> Plan<Action> {
    let mut plan = Plan::idle(why);
    let write = s.status(Phase::CrashLoopBackOff, operation.clone());
    let event = write.is_some().then(|| Action::warn(CREATE_FAILED, &operation.description));
    plan.actions.extend(s.with_state(write, state).map(|write| Action::SetStatus(Box::new(write))));
    plan.actions.extend(event);
    match retry_at {
        Some(at) => plan.no_later_than(at),
        None => plan,
    }
}

/// Reports what keeps a call from being made, without a deadline. A Machine with a recorded
/// instance does not fail for it: the instance may have run for long, and no answer of the cloud
/// speaks against it.
pub(super) fn obstructed(s: &Snapshot, obstacle: &Obstacle<'_>) -> Plan<Action> {
    report(s, &obstacle.operation(), obstacle.state(s), obstacle.why(s), obstacle.retry_at(s))
}

/// Whether the creation of a recorded instance has timed out. No deadline counts while the clocks
/// differ.
pub(super) fn has_timed_out(s: &Snapshot) -> bool {
    s.process.may_enforce_deadlines() && is_past(s.now, s.creation_deadline())
}

/// Wakes the plan at the creation deadline. If the deadline has passed and may not be enforced, it
/// wakes nothing: a wait that is over would repeat the decision without an end.
pub(super) fn until_timeout(s: &Snapshot, plan: Plan<Action>) -> Plan<Action> {
    let deadline = just_past(s.creation_deadline());
    if s.now < deadline { plan.no_later_than(deadline) } else { plan }
}

/// Adds the creation deadline to an explanation while it is ahead.
pub(super) fn with_deadline(s: &Snapshot, why: Why) -> Why {
    let deadline = just_past(s.creation_deadline());
    let ends = Step::Expect("the Machine is marked Failed");
    if s.now < deadline { why.deadline(deadline, ends) } else { why }
}

/// Marks a Machine with a recorded instance as Failed. Its set replaces it, and its deletion
/// removes the instance.
pub(super) fn give_up_recorded(
    s: &Snapshot,
    operation: OperationWrite,
    state: Option<StateWrite>,
) -> Plan<Action> {
    if let Some(frozen) = &s.frozen {
        return frozen.wait(s.now);
    }
    let description = operation.description.clone();
    let write = s.with_state(s.status(Phase::Failed, operation), state);
    let write = write.map(|write| Action::SetStatus(Box::new(write)));
    let actions: Vec<_> =
        write.into_iter().flat_map(|write| [write, Action::warn(CREATE_FAILED, &description)]).collect();
    let next = Step::Expect("the MachineSet deletes the Machine");
    Plan::act_all(actions, Why::new(McmReason::Failed { description }, next))
}

/// Marks a Machine as Failed when creation times out. The MachineSet replaces it, and the ordinary
/// deletion removes an instance that exists after all.
fn give_up_creation(s: &Snapshot, obstacle: Option<&Obstacle<'_>>) -> Plan<Action> {
    if !s.process.may_enforce_deadlines() {
        let seconds = s.process.skew.as_secs();
        return Plan::until(
            plus(s.now, Duration::from_secs(60)),
            Why::new(Reason::ClockSkew { seconds }, Step::Fix("synchronize the clocks".to_owned())),
        );
    }
    if let Some(frozen) = &s.frozen {
        return frozen.wait(s.now);
    }
    if let Some(plan) = look_first(s) {
        return plan;
    }
    let last = match obstacle {
        Some(obstacle) => obstacle.operation().description,
        None => s.machine.status.operation.description().to_owned(),
    };
    let description = format!("Machine {} was not created in time. {last}", s.machine.name);
    // The autoscaler reads from the code whether the zone was exhausted.
    let code = match obstacle {
        Some(obstacle) => obstacle.operation().code,
        None => s.machine.status.operation.code(),
    };
    let code = code.or(Some(Code::DeadlineExceeded));
    let operation = OperationWrite::failed(OperationType::Create, description.clone(), code);
    let state = obstacle.and_then(|obstacle| obstacle.state(s));
    let write = s.with_state(s.status(Phase::Failed, operation), state);
    let write = write.map(|write| Action::SetStatus(Box::new(write)));
    let why = Why::new(McmReason::Failed { description }, Step::Expect("the MachineSet deletes the Machine"));
    Plan::act_all(write.into_iter().collect(), why)
}

/// Whether a request to create the instance would return this one.
fn is_adopted(s: &Snapshot, instance: &Instance) -> bool {
    match &instance.key {
        Some(key) => *key == s.key(),
        None => s.process.adopts_since(s.machine.created) <= instance.created,
    }
}

/// Looks for an instance before a Machine without a recorded id is marked Failed. After a restore,
/// after a crash between creation and record, or if a user removed the id, the instance exists, and
/// its Node may be in use.
///
/// Returns nothing if the instance is absent. An absence in an account that may be another one than
/// the account of the instance shows nothing.
fn look_first(s: &Snapshot) -> Option<Plan<Action>> {
    if !may_have_an_instance(s) {
        return None;
    }
    let knows_all_calls = s.process.saw_creation_of(s.machine.created);
    let last_call = [
        s.answers.unsure_since,
        // The previous leader may have asked for the instance just before.
        (!knows_all_calls).then(|| s.process.acting_since()),
    ];
    let shown_from = last_call.into_iter().flatten().max();
    let shown_from = shown_from.map_or(Timestamp::MIN, |at| plus(at, s.process.promises.absence_takes()));
    let expected = Step::Expect("the Machine is marked Failed if it has no instance");
    let looking = || Why::new(Reason::Calling(Call::FIND), expected.clone());
    if s.now < shown_from {
        return Some(Plan::until(shown_from, looking()));
    }
    let find = || s.paused().unwrap_or_else(|| Plan::act(Action::Find(s.instance()), looking()));
    let of_today = |found: &&Found| found.by.id.is_none() && found.answered.account == s.ownership.account;
    let found = s.answers.find.as_deref().filter(of_today);
    let Some(found) = found.filter(|found| shown_from <= found.answered.started) else { return Some(find()) };
    match &found.answered.answer {
        Ok(Sighting::Present(instance)) if is_adopted(s, instance) => {
            Some(record(s, instance, found.answered.account.clone()))
        }
        Ok(_) => proof::before_giving_up(s, found.answered.started, find),
        Err(error) => {
            let wait = retry_after(error.kind, s.answers.failures, s.defaults.exhausted_retry);
            let retry_at = plus(found.answered.ended, wait);
            if retry_at <= s.now {
                return Some(find());
            }
            let why = Why::call_failed(Call::FIND, error, s.answers.failures, retry_at);
            Some(Plan::until(retry_at, why.since(found.answered.ended)))
        }
    }
}
