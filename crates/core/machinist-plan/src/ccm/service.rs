//! Service: creates, updates and deletes its load balancer.
//!
//! ```text
//! wanted:      finalizer -> ensure -> status
//! not wanted:  delete -> finalizer and status in one patch
//! ```
//!
//! The finalizer is the intent: without it no load balancer is created, and with it the Service
//! stays until its load balancer no longer exists. A call of the driver returns `Working`
//! while the cloud acts, and is repeated later. An absence counts only when no earlier call can
//! still create the load balancer.
//!
//! A Service without the finalizer needs no cleanup, so this planner makes no call for it. The name
//! of the finalizer is a standard that programs of other classes use, too. So the finalizer of a
//! Service of another class is removed only after its load balancer was found here and deleted. A
//! change of the type removes the class, so the process remembers the class that it saw last.

mod action;
mod answers;
mod claims;
mod events;
mod late_calls;
mod options;
mod record;
mod rehearsal;
mod served;
mod skipped;
mod snapshot;
mod status;
mod wanted;

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use machinist_core::{Answered, Call, Step, plus};
use machinist_instance::{
    Balancer, BalancerDeletion, BalancerNote, BalancerRef, Ensured, Error, ErrorKind, Ingress, Progress,
    ProviderId,
};
use machinist_labels::Selector;

use self::events::{deletion_failed_event, emit, failed_event, joined};
use self::late_calls::{others_end, own_calls_end};
use self::wanted::Wanted;
use super::account::{self, BalancerProof, Failure, Proof};
use super::listed_balancers::{LIST_AGAIN, LIST_BALANCERS};
use super::names;
use crate::ccm::facts::ServiceFacts;
use crate::ccm::why::{CcmReason, Plan, Reason, Why};
use crate::event::EventText;

pub use self::action::{Action, COMPARE_BALANCER, DELETE_BALANCER, ENSURE_BALANCER};
pub use self::answers::{Inputs, ServiceAnswers};
pub use self::claims::{balancer_name, has_begun, may_hold_a_name};
pub use self::options::Options;
pub use self::rehearsal::lacks_finalizer;
pub use self::served::{Served, may_be_deleted, needs_cleanup, wants_balancer};
pub use self::snapshot::{ListedTargets, Rehearsal, Rival, Snapshot};
pub use self::status::entry as ingress_entry;

/// Time between two questions whether the cloud has carried out a change: at first, and at most.
const WORKING_AGAIN: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(5));
/// A change that takes longer than this is reported, and asked about less often.
const SLOW: Duration = Duration::from_secs(120);
const WORKING_AGAIN_IF_SLOW: Duration = Duration::from_secs(60);
/// First and longest wait after a failed call.
const FAILED_AGAIN: (Duration, Duration) = (Duration::from_secs(5), Duration::from_secs(300));

/// Wait before a Service looks again whether another one still claims the name of its load
/// balancer. The look makes no call.
const LOOK_AGAIN_AT_CLAIM: Duration = Duration::from_secs(30);

/// Decides the next actions for one Service.
pub fn plan(s: &Snapshot) -> Plan<Action> {
    let plan = plan_changes(s);
    let mut plan = match s.rehearsal {
        Some(rehearsal) => rehearsal::plan(s, rehearsal, plan),
        None => plan,
    };
    if let Some(why) = failed_list(s, &plan.why) {
        plan.why = why;
    }
    plan
}

/// Returns the reason for a Service whose load balancer cannot be checked, because the list of the
/// load balancers fails. What a user has to correct at the Service is named as well.
fn failed_list(s: &Snapshot, why: &Why) -> Option<Why> {
    let failure = s.list_failed.as_ref()?;
    let is_live = wants_balancer(&s.service, &s.options) && s.service.deleting_since.is_none();
    // These reasons concern all calls to the cloud.
    let is_about_account = match &why.reason {
        Reason::CallFailed { call, .. } => *call == Call::LIST,
        Reason::Contract(CcmReason::NoAccount | CcmReason::AccountUnproven) | Reason::AccountPaused => true,
        _ => false,
    };
    if is_about_account || !(is_live || needs_cleanup(&s.service)) {
        return None;
    }
    let again_at = plus(failure.ended, account::failure_wait(failure, LIST_AGAIN));
    let mut first = Why::call_failed(LIST_BALANCERS, &failure.error, failure.count, again_at);
    if let Step::Fix(fix) = &why.next {
        first.next = Step::Fix(format!("for the Service itself, {fix} ({})", why.reason));
    }
    Some(first)
}

/// Decides as if the process could change the Service and the cloud.
fn plan_changes(s: &Snapshot) -> Plan<Action> {
    match (&s.service.class, wants_balancer(&s.service, &s.options)) {
        (Some(class), false) if s.service.is_load_balancer => {
            if s.service.has_finalizer {
                doubtful(s).unwrap_or_else(|| hand_over(s, class))
            } else {
                left_to(s, class)
            }
        }
        _ if needs_cleanup(&s.service) => doubtful(s).unwrap_or_else(|| match &s.served {
            Served::ByOther(class) if !s.service.is_load_balancer => hand_over(s, class),
            Served::ByOther(_) | Served::Ours | Served::Unseen => delete(s),
        }),
        (_, true) if s.service.deleting_since.is_none() => doubtful(s).unwrap_or_else(|| ensure(s)),
        (_, _) => Plan::idle(Why::up_to_date()),
    }
}

fn left_to(s: &Snapshot, class: &str) -> Plan<Action> {
    let next = match s.service.deleting_since {
        None if s.service.is_load_balancer => "the other program creates the load balancer",
        Some(_) | None => "the other program removes its finalizer",
    };
    let reason = CcmReason::OtherBalancerClass { class: class.to_owned() };
    Plan::idle(Why::new(reason, Step::Expect(next)))
}

/// Waits and reports it, if the account may be a wrong one. There, the load balancer of each
/// Service would be created a second time. The load balancer of a deleted Service would look
/// deleted.
fn doubtful(s: &Snapshot) -> Option<Plan<Action>> {
    let mut plan: Plan<Action> = s.account.is_doubtful_for_balancers()?;
    let failed = match (s.account.proof, &s.account.balancers) {
        (Proof::Missing, _) | (Proof::Given, BalancerProof::Missing(_)) => {
            let message = format!("{}. Nothing is created or deleted.", plan.why.reason);
            plan.actions.extend(emit(s, EventText::warning(names::ACCOUNT_UNPROVEN, message)));
            return Some(plan);
        }
        // Until the first list ends, there is no proof, and nothing to report.
        (Proof::Unlisted, _) => s.account.list_failed.as_ref(),
        (Proof::Given, BalancerProof::Unlisted(failed)) => failed.as_ref(),
        (Proof::Given, BalancerProof::Given) => None,
    };
    let event = if may_be_deleted(&s.service, &s.options) { deletion_failed_event } else { failed_event };
    plan.actions.extend(failed.and_then(|failure| emit_failed_list(s, failure, event)));
    Some(plan)
}

/// Waits for the first list of the account before the account is recorded on the Service. A
/// credential that the cloud rejects creates nothing, and its record would only be in the way of
/// the corrected one.
fn untried(s: &Snapshot) -> Option<Plan<Action>> {
    if !s.account.is_untried || record::intent(s).is_none() {
        return None;
    }
    let mut plan = Plan::idle(s.account.unlisted());
    let failed = s.account.list_failed.as_ref();
    plan.actions.extend(failed.and_then(|failure| emit_failed_list(s, failure, failed_event)));
    Some(plan)
}

/// Reports a list that fails until a user acts.
fn emit_failed_list(s: &Snapshot, failure: &Failure, event: fn(&str) -> EventText) -> Option<Action> {
    needs_a_user(failure.error.kind).then(|| emit(s, event(&failure.error.message))).flatten()
}

/// Whether a list fails until a user corrects the credential or the settings.
fn needs_a_user(kind: ErrorKind) -> bool {
    match kind {
        ErrorKind::InvalidSpec | ErrorKind::Denied | ErrorKind::Unsupported => true,
        ErrorKind::Exhausted
        | ErrorKind::Throttled { .. }
        | ErrorKind::Unavailable
        | ErrorKind::Ambiguous
        | ErrorKind::Bug => false,
    }
}

/// Returns the selector of the Nodes behind the load balancer, if the annotation is valid.
pub fn selector(s: &Snapshot) -> Option<Selector> {
    wanted::selector(s).ok()
}

/// Returns a fingerprint of the Service. After a change of it, a failed deletion is tried at once.
pub fn shape(service: &ServiceFacts) -> u64 {
    wanted::fingerprint(&(service.spec_fingerprint, &service.annotations))
}

fn ensure(s: &Snapshot) -> Plan<Action> {
    if let Some(waits) = without_the_name(s) {
        return waits;
    }
    if let Some(waits) = untried(s) {
        return waits;
    }
    if !s.service.has_finalizer {
        let why = Why::new(
            Reason::Writing("adding the finalizer, which records that a load balancer may exist"),
            Step::Expect("the cloud creates the load balancer"),
        );
        return Plan::act(Action::AddFinalizer(record::intent(s)), why);
    }
    if s.service.earlier_calls_since.is_some() {
        let why = Why::new(
            Reason::Writing("removing the record that no load balancer is created"),
            Step::Expect("the cloud creates the load balancer"),
        );
        return Plan::act(Action::ForgetWait, why);
    }
    match wanted::of(s) {
        Ok(wanted) => ensure_wanted(s, &wanted),
        Err(message) => {
            let reason = CcmReason::NodeSelectorInvalid { message };
            let event = failed_event(&reason.to_string());
            let mut plan = wanted::following(s)
                .map_or_else(|| Plan::idle(Why::up_to_date()), |wanted| ensure_wanted(s, &wanted));
            plan.why = Why::new(reason, Step::Fix("correct the annotation of the Service".to_owned()));
            plan.actions.splice(0..0, emit(s, event));
            plan
        }
    }
}

fn ensure_wanted(s: &Snapshot, wanted: &Wanted) -> Plan<Action> {
    let mut plan = ensured(s, wanted);
    let skipped = joined(&wanted.skipped).map(|text| EventText::warning(names::PORT_SKIPPED, text));
    let none = wanted.own.is_empty().then(|| {
        let message = "There are no available Nodes for the load balancer";
        EventText::warning(names::UNAVAILABLE_BALANCER, message)
    });
    let events: Vec<Action> = skipped.into_iter().chain(none).filter_map(|event| emit(s, event)).collect();
    plan.actions.splice(0..0, events);
    plan
}

/// Waits if another Service has the wanted name and this one has no load balancer. With one, the
/// driver keeps its name.
fn without_the_name(s: &Snapshot) -> Option<Plan<Action>> {
    let holder = claims::holder(s)?;
    // Without the finalizer, no load balancer exists.
    if s.service.has_finalizer {
        let was_ensured = matches!(&s.answers.ensure, Some((_, Answered { answer: Ok(_), .. })));
        let Some(listed) = &s.listed else {
            let is_published = was_ensured || !s.service.ingress().is_empty();
            // A list shows whether an earlier process has created the load balancer.
            return (!is_published).then(|| Plan::idle(account::calling(LIST_BALANCERS)));
        };
        if was_ensured || !s.service.ingress().is_empty() || listed.balancer.is_some() {
            return None;
        }
    }
    let reason = CcmReason::BalancerNameTaken { holder: holder.to_owned() };
    let event = failed_event(&reason.to_string());
    let next = "choose another name for the load balancer in the annotation of the Service";
    let mut plan = Plan::idle(Why::new(reason, Step::Fix(next.to_owned())));
    plan.actions.extend(emit(s, event));
    // The holder may lose its claim when its call fails, and its answer wakes only the holder.
    Some(plan.no_later_than(plus(s.now, LOOK_AGAIN_AT_CLAIM)))
}

fn ensured(s: &Snapshot, wanted: &Wanted) -> Plan<Action> {
    if let Some((call, since)) = s.answers.in_flight {
        return Plan::idle(account::calling(call).since(since));
    }
    let Some((inputs, last)) = &s.answers.ensure else { return call_ensure(s, wanted) };
    let is_same = *inputs == wanted.inputs && last.account == s.account.id;
    match &last.answer {
        Ok(Progress::Done(ensured)) if is_same && !has_drifted(s, wanted, ensured, last.started) => {
            let renamed_at = claims::renamed_at(s, ensured, last);
            let due_at = [skipped::due_at(s, ensured, last), renamed_at].into_iter().flatten().min();
            if due_at.is_some_and(|due_at| due_at <= s.now) {
                call_ensure(s, wanted)
            } else {
                done(s, wanted, ensured, due_at)
            }
        }
        Ok(Progress::Done(_)) => call_ensure(s, wanted),
        Ok(Progress::Working(change)) => match working(s, change, last.ended) {
            Some(plan) => plan,
            None => call_ensure(s, wanted),
        },
        // A change of the Service or its Nodes may remove the cause.
        Err(_) if !is_same => call_ensure(s, wanted),
        Err(error) => {
            let now = wanted.inputs;
            let only_nodes_differ =
                s.answers.done.is_some_and(|done| done.shape == now.shape && done.targets != now.targets);
            let event = if only_nodes_differ {
                EventText::warning(
                    names::UPDATE_BALANCER_FAILED,
                    format!("Error changing the Nodes behind the load balancer: {}", error.message),
                )
            } else {
                failed_event(&error.message)
            };
            failed(s, ENSURE_BALANCER, error, last.ended, event).unwrap_or_else(|| call_ensure(s, wanted))
        }
    }
}

fn call_ensure(s: &Snapshot, wanted: &Wanted) -> Plan<Action> {
    if let Some(plan) = cannot_spend(s, failed_event) {
        return plan;
    }
    if let Some(plan) = record::before_the_first_call(s) {
        return plan;
    }
    // After a restart or with a renewed credential the call only reads, so it is not announced.
    let has_new_inputs = s.answers.done.is_some_and(|done| done != wanted.inputs);
    let is_drift = match &s.answers.ensure {
        Some((_, Answered { started, answer: Ok(Progress::Done(ensured)), .. })) => {
            has_drifted(s, wanted, ensured, *started)
        }
        Some(_) | None => false,
    };
    let is_change = s.service.ingress().is_empty() || has_new_inputs || is_drift;
    let event = EventText::normal(names::ENSURING_BALANCER, "Ensuring load balancer");
    let is_announced = s.emitted.is_open(names::ENSURING_BALANCER, &ENDS_OF_ENSURE);
    let mut actions: Vec<Action> =
        (is_change && !is_announced).then_some(Action::Tell(event)).into_iter().collect();
    actions.push(Action::Ensure { spec: Box::new(wanted.spec.clone()), inputs: wanted.inputs });
    Plan::act_all(actions, account::calling(ENSURE_BALANCER))
}

/// The Events that end an announced change.
const ENDS_OF_ENSURE: [&str; 2] = [names::ENSURED_BALANCER, names::UPDATED_BALANCER];

/// The load balancer is as wanted: writes the status and reports it.
fn done(s: &Snapshot, wanted: &Wanted, ensured: &Ensured, due_at: Option<Timestamp>) -> Plan<Action> {
    // No connection to an address would reach a port of the Service.
    let ingress: &[Ingress] =
        if forwards_nothing(wanted, &ensured.balancer) { &[] } else { &ensured.balancer.ingress };
    let mut actions: Vec<Action> =
        status::needed(&s.service, ingress).map(Action::SetStatus).into_iter().collect();
    // An object has one Event of each reason, so that the last of several would hide the others.
    let mut notes: BTreeMap<&'static str, Vec<String>> = BTreeMap::new();
    for note in &ensured.notes {
        notes.entry(note.reason).or_default().push(note.message.clone());
    }
    for (reason, messages) in notes {
        let Some(message) = joined(&messages) else { continue };
        actions.extend(match reason {
            // An adoption happens once, and is not a problem.
            BalancerNote::ADOPTED => s.emitted.if_new(EventText::normal(reason, message)).map(Action::Tell),
            _ => emit(s, EventText::warning(reason, message)),
        });
    }
    if s.emitted.is_open(names::ENSURING_BALANCER, &ENDS_OF_ENSURE) {
        let event = match s.answers.replaced {
            // Until the Service shows an address, its load balancer is new to its users.
            Some(before) if before.shape == wanted.inputs.shape && !s.service.ingress().is_empty() => {
                EventText::normal(names::UPDATED_BALANCER, "Changed the Nodes behind the load balancer")
            }
            Some(_) | None => EventText::normal(names::ENSURED_BALANCER, "Ensured load balancer"),
        };
        actions.push(Action::Tell(event));
    }
    let is_writing = actions.iter().any(|action| matches!(action, Action::SetStatus(_)));
    actions.extend(record::needed(s, &ensured.balancer));
    let why = if is_writing {
        Why::new(Reason::Writing("updating the addresses in the status"), Step::Nothing)
    } else if forwards_nothing(wanted, &ensured.balancer) {
        let next = "give the Service a port with a protocol that the cloud supports; the Events of the Service \
                    name the reason for each port";
        Why::new(CcmReason::NoPorts, Step::Fix(next.to_owned()))
    } else if let Some(silence) = &s.nodes_silence {
        silence.why()
    } else if wanted.own.is_empty() {
        Why::new(CcmReason::NoBackends, Step::Expect("a Node registers"))
    } else {
        let is_named = || claims::why(s, ensured, due_at);
        skipped::why(&ensured.skipped, due_at).or_else(is_named).unwrap_or_else(Why::up_to_date)
    };
    let plan = Plan::act_all(actions, why);
    match due_at {
        Some(due_at) => plan.no_later_than(due_at),
        None => plan,
    }
}

/// Whether the load balancer has none of the Service's ports, for example because the cloud does
/// not support their protocol.
fn forwards_nothing(wanted: &Wanted, balancer: &Balancer) -> bool {
    let has_ports = !wanted.spec.listeners.is_empty() || !wanted.skipped.is_empty();
    has_ports && !wanted.spec.listeners.iter().any(|listener| balancer.ports.contains(&listener.port))
}

/// Whether the load balancer is another one than after the last `ensure`, or lacks a target that
/// this `ensure` did not skip.
fn has_drifted(s: &Snapshot, wanted: &Wanted, ensured: &Ensured, ensured_at: Timestamp) -> bool {
    let Some(listed) = s.listed.as_ref().filter(|listed| ensured_at < listed.started) else { return false };
    let Ensured { balancer: ensured, skipped, notes: _ } = ensured;
    let Some(balancer) = &listed.balancer else { return true };
    // A protection matters only for the deletion.
    // How addresses are shown depends on annotations of the Service, which a list does not know.
    // Room matters only to skipped targets.
    let Balancer {
        id,
        native_id: _,
        key,
        name,
        ingress: _,
        ports,
        host_ports: _,
        targets,
        room: _,
        created: _,
        is_protected: _,
    } = balancer;
    let is_skipped = |target: &ProviderId| skipped.iter().any(|skipped| skipped.instance == *target);
    (id, key, name) != (&ensured.id, &ensured.key, &ensured.name)
        || sorted(ports) != sorted(&ensured.ports)
        || sorted(targets) != sorted(&ensured.targets)
        || wanted.own.iter().any(|target| !targets.contains(target) && !is_skipped(target))
}

fn sorted<T: Ord>(all: &[T]) -> Vec<&T> {
    let mut all: Vec<&T> = all.iter().collect();
    all.sort();
    all
}

fn delete(s: &Snapshot) -> Plan<Action> {
    if let Some((call, since)) = s.answers.in_flight {
        return Plan::idle(account::calling(call).since(since));
    }
    let Some(last) = s.answers.delete.as_ref().filter(|last| last.account == s.account.id) else {
        return call_delete(s);
    };
    match &last.answer {
        Ok(Progress::Done(ended @ (BalancerDeletion::Gone | BalancerDeletion::Absent))) => {
            match second_look(s, last, call_delete) {
                Some(again) => record_wait(s, last, again),
                None if *ended == BalancerDeletion::Absent => {
                    record::elsewhere(s).unwrap_or_else(|| release(s, *ended))
                }
                None => release(s, *ended),
            }
        }
        Ok(Progress::Done(ended @ BalancerDeletion::Retained)) => release(s, *ended),
        Ok(Progress::Working(change)) => working(s, change, last.ended).unwrap_or_else(|| call_delete(s)),
        // A change of the Service may remove the cause.
        Err(_) if s.answers.deleted_shape.is_some_and(|before| before != shape(&s.service)) => call_delete(s),
        Err(error) => {
            let event = deletion_failed_event(&error.message);
            failed(s, DELETE_BALANCER, error, last.ended, event).unwrap_or_else(|| call_delete(s))
        }
    }
}

/// Deletes the load balancer that a Service had before it got the class of another program.
fn hand_over(s: &Snapshot, class: &str) -> Plan<Action> {
    if let Some((call, since)) = s.answers.in_flight {
        return Plan::idle(account::calling(call).since(since));
    }
    let Some(last) = s.answers.delete.as_ref().filter(|last| last.account == s.account.id) else {
        return look_for_own(s);
    };
    match &last.answer {
        Ok(Progress::Done(BalancerDeletion::Absent)) => {
            second_look(s, last, look_for_own).unwrap_or_else(|| {
                let mut plan = left_to(s, class);
                plan.actions.extend(record::left_behind(s));
                plan
            })
        }
        // The type has changed, too, so the other program needs the finalizer for its own deletion.
        Ok(Progress::Done(_)) if !s.service.is_load_balancer => left_to(s, class),
        Ok(Progress::Done(ended @ (BalancerDeletion::Gone | BalancerDeletion::Retained))) => {
            let events = end_event(s, *ended).into_iter().chain(record::left_behind(s));
            let actions = [Action::HandOver].into_iter().chain(events).collect();
            Plan::act_all(actions, Why::new(Reason::Writing("removing the finalizer"), Step::Nothing))
        }
        Ok(Progress::Working(change)) => working(s, change, last.ended).unwrap_or_else(|| look_for_own(s)),
        Err(error) => {
            let event = deletion_failed_event(&error.message);
            failed(s, DELETE_BALANCER, error, last.ended, event).unwrap_or_else(|| look_for_own(s))
        }
    }
}

/// Deletes by key without an Event, because usually this program has no such load balancer.
fn look_for_own(s: &Snapshot) -> Plan<Action> {
    if let Some(plan) = record::renewed(s) {
        return plan;
    }
    if let Some(plan) = s.account.cannot_spend(s.now) {
        return plan;
    }
    // The addresses in the status belong to the other program, so they are not a trace of ours.
    let which = BalancerRef { id: None, key: s.service.key(), native_id: None, trace: None };
    Plan::act(Action::Delete(which), account::calling(DELETE_BALANCER))
}

/// Returns a plan that looks for the load balancer again, if its absence is not final yet.
fn second_look(
    s: &Snapshot,
    last: &Answered<Progress<BalancerDeletion>>,
    again: fn(&Snapshot) -> Plan<Action>,
) -> Option<Plan<Action>> {
    let counts_from = others_end(s, last).max(own_calls_end(s));
    if counts_from <= last.started {
        return None;
    }
    if counts_from <= s.now {
        return Some(again(s));
    }
    let next = Step::Expect("the controller looks for the load balancer again");
    Some(Plan::until(counts_from, Why::new(Reason::Awaiting(EARLIER_CALLS), next)))
}

/// Records the wait for the calls of earlier processes, so that later processes count from its
/// start, and reports it. Otherwise a process that restarts again and again would never end it.
fn record_wait(
    s: &Snapshot,
    last: &Answered<Progress<BalancerDeletion>>,
    mut plan: Plan<Action>,
) -> Plan<Action> {
    let until = others_end(s, last);
    if until <= s.now || until <= last.started {
        return plan;
    }
    if s.service.no_creation_since().is_none() {
        plan.actions.push(Action::RecordWait(s.now));
    }
    let message = format!(
        "The load balancer does not exist. A call of an earlier process may still create it, so the finalizer \
         stays until {until:.0}."
    );
    plan.actions.extend(emit(s, EventText::normal(names::AWAITING_EARLIER_CALLS, message)));
    plan
}

const EARLIER_CALLS: &str = "waiting until no earlier call can still create the load balancer";

fn call_delete(s: &Snapshot) -> Plan<Action> {
    if let Some(plan) = record::renewed(s) {
        return plan;
    }
    if let Some(plan) = cannot_spend(s, deletion_failed_event) {
        return plan;
    }
    let which =
        BalancerRef { id: None, key: s.service.key(), native_id: None, trace: Some(wanted::trace(s)) };
    let event = EventText::normal(names::DELETING_BALANCER, "Deleting load balancer");
    let ends = [names::DELETED_BALANCER, names::BALANCER_RETAINED];
    let is_announced = s.emitted.is_open(names::DELETING_BALANCER, &ends);
    let mut actions: Vec<Action> = (!is_announced).then_some(Action::Tell(event)).into_iter().collect();
    actions.push(Action::Delete(which));
    Plan::act_all(actions, account::calling(DELETE_BALANCER))
}

/// The load balancer no longer exists, or a user protected it.
fn release(s: &Snapshot, ended: BalancerDeletion) -> Plan<Action> {
    let events = end_event(s, ended).into_iter().chain(record::left_behind(s));
    let actions = [Action::Release].into_iter().chain(events).collect();
    Plan::act_all(actions, Why::new(Reason::Writing("removing the finalizer"), Step::Nothing))
}

/// Reports the end of a deletion: a load balancer that was kept, or did not exist, was not deleted.
fn end_event(s: &Snapshot, ended: BalancerDeletion) -> Option<Action> {
    match ended {
        BalancerDeletion::Absent => None,
        BalancerDeletion::Gone => {
            Some(Action::Tell(EventText::normal(names::DELETED_BALANCER, "Deleted load balancer")))
        }
        BalancerDeletion::Retained => {
            let message = "The load balancer is protected against deletion in the cloud, so it was kept. Its \
                           label was removed; delete it there if it is not needed.";
            emit(s, EventText::warning(names::BALANCER_RETAINED, message))
        }
    }
}

/// Waits while the cloud carries out a change. Absent when the next question is due.
fn working(s: &Snapshot, change: &str, ended: Timestamp) -> Option<Plan<Action>> {
    let since = s.answers.working_since.unwrap_or(ended);
    let takes = machinist_core::since(ended, since);
    let is_slow = SLOW <= takes;
    let most = if is_slow { WORKING_AGAIN_IF_SLOW } else { WORKING_AGAIN.1 };
    let look_at = plus(ended, takes.clamp(WORKING_AGAIN.0, most));
    if look_at <= s.now {
        return None;
    }
    let reason = CcmReason::BalancerWorking { change: change.to_owned() };
    let why = Why::new(reason, Step::Expect("the controller asks again")).since(since);
    let mut plan = Plan::until(look_at, why);
    if is_slow {
        let message = format!("The cloud has been changing the load balancer for minutes: {change}");
        plan.actions.extend(emit(s, failed_event(&message)));
    }
    Some(plan)
}

/// Waits after a failed call, and reports it. Absent when the retry is due.
fn failed(
    s: &Snapshot,
    call: Call,
    error: &Error,
    ended: Timestamp,
    event: EventText,
) -> Option<Plan<Action>> {
    if s.account.has_recovered_since(error, ended) {
        return None;
    }
    let failure = Failure { error: error.clone(), ended, count: s.answers.failures };
    let retry_at = plus(ended, account::failure_wait(&failure, FAILED_AGAIN));
    if retry_at <= s.now {
        return None;
    }
    let why = if error.is_by_driver() {
        let reason = CcmReason::BalancerInvalid { message: error.message.clone() };
        let next = "correct what the message names; a change of the Service is applied at once";
        Why::new(reason, Step::Fix(next.to_owned()))
    } else {
        Why::call_failed(call, error, s.answers.failures, retry_at)
    };
    let mut plan = Plan::until(retry_at, why);
    plan.actions.extend(emit(s, event));
    Some(plan)
}

/// Returns a plan that waits, if the call cannot be made now, and reports a limit of the cloud.
fn cannot_spend(s: &Snapshot, event: fn(&str) -> EventText) -> Option<Plan<Action>> {
    let mut plan = s.account.cannot_spend(s.now)?;
    let is_saved = matches!(plan.why.reason, Reason::Contract(CcmReason::CallsSaved { .. }));
    let limited = if plan.why.reason == Reason::AccountPaused {
        Some("the cloud limits the rate of calls")
    } else {
        // The numbers change with each call, so the Event does not contain them.
        is_saved.then_some("few calls of the account are left, and other calls are more urgent")
    };
    plan.actions.extend(limited.and_then(|limited| emit(s, event(limited))));
    Some(plan)
}

#[cfg(test)]
mod tests;
