//! Deletion of a DockerMachine: out of the load balancer, delete the container, prove its absence.
//!
//! Machine, Cluster and DockerCluster may be missing: the key, the engine and the id of the
//! container are on the object itself.
//!
//! A container with another key is never deleted because of its labels. Two namespaces, or two
//! management clusters, may have Clusters of the same name. A restored or moved object owns its
//! container through its annotations. If nothing is recorded, a container that another provider of
//! Cluster API created under the name of this machine is left to a user: it may be this machine's.

use std::time::Duration;

use jiff::Timestamp;
use machinist_api::capi::constants;
use machinist_core::instance::{Departure, Next, Shared, Unkeyed};
use machinist_core::ownership::Ownership;
use machinist_core::{Answers, Call, Evidence, Known, Process, Step, plus};
use machinist_instance::{Error, Foreign, InstanceRef, Sighting};

use super::status::{Container, Depth, recorded_deletion_error, with_status, with_taken_key};
use super::{Action, Snapshot, USE_THE_ENGINE, container_name, unusable_id};
use crate::capi::why::{CapiReason, Plan, Reason, Why};
use crate::capi::{gates, retry};

/// How often a container of another provider is looked up again.
const LOOK_AT_UNRECORDED_EVERY: Duration = Duration::from_secs(60);

pub(super) fn plan(s: &Snapshot, since: Timestamp) -> Plan<Action> {
    let object = &s.machine.object;
    if !object.has_finalizer(constants::DOCKER_MACHINE_FINALIZER) {
        // Without the finalizer no container was ever requested.
        return Plan::idle(Why::new(
            Reason::Awaiting("waiting for other clients to remove their finalizers"),
            Step::Expect("the object is deleted"),
        ));
    }
    if gates::is_abandoned(object) {
        return release("a user has given up the container", since);
    }
    if let Some(other) = &s.key_holder {
        return waiting_copy(s, other, since);
    }
    if let Some(why) = unusable_id(s) {
        return Plan::idle(why.since(since));
    }
    let Some(engine) = s.engine.clone() else {
        let why = Why::new(Reason::Looking("the engine"), Step::Expect("the engine answers"));
        return Plan::idle(why.since(since));
    };
    let recorded = gates::recorded_engine(object);
    if recorded.as_ref().is_some_and(|recorded| *recorded != engine) {
        let fix = format!("{USE_THE_ENGINE}, or set annotation {}=true", constants::ABANDON_ANNOTATION);
        return Plan::idle(Why::new(CapiReason::OtherEngine, Step::Fix(fix)).since(since));
    }
    let plan = drained(s, since).unwrap_or_else(|| remove_container(s, engine, recorded, since));
    let is_release = plan.actions.iter().any(|action| matches!(action, Action::Release));
    let is_taken = matches!(plan.why.reason, Reason::Contract(CapiReason::KeyTaken { .. }));
    if is_release || is_taken {
        plan
    } else {
        with_status(s, plan, Container::Deleting(last_error(s, since)), Depth::Nothing)
    }
}

/// Returns the error of the deletion. It stays until a call to delete succeeds: the look that
/// follows a refused call says only that the container is still there. Before the first answer,
/// the recorded error stays.
fn last_error(s: &Snapshot, since: Timestamp) -> String {
    let message = |error: &Error| if error.is_in_progress() { String::new() } else { error.message.clone() };
    let deleted = s.answers.delete.as_deref().map(|deleted| &deleted.answered);
    let deleted = deleted.filter(|answered| since < answered.ended);
    let found = s.answers.find.as_deref().map(|found| &found.answered);
    let found = found.filter(|answered| since < answered.ended && 1 < s.answers.failures);
    // One failed look is not a failed deletion.
    let look_error = found.and_then(|answered| answered.answer.as_ref().err());
    match deleted.map(|answered| &answered.answer) {
        Some(Err(error)) => message(error),
        Some(Ok(())) => look_error.map(message).unwrap_or_default(),
        None => look_error.map(message).or_else(|| recorded_deletion_error(s)).unwrap_or_default(),
    }
}

fn release(what: &'static str, since: Timestamp) -> Plan<Action> {
    Plan::act(
        Action::Release,
        Why::new(Reason::Writing(what), Step::Expect("the object is deleted")).since(since),
    )
}

/// Waits until the load balancer sends no connection to a machine of the control plane. A load
/// balancer that cannot be changed does not hold the deletion for long. The wait leaves out the
/// time in which no process could change it.
fn drained(s: &Snapshot, since: Timestamp) -> Option<Plan<Action>> {
    let balancer = s.infrastructure.as_ref().filter(|cluster| cluster.object.deleting_since.is_none())?;
    let until = s.gaps.deadline(since, s.options.balancer_patience);
    if !balancer.balances(&s.machine.object.name) || until <= s.now {
        return None;
    }
    let why = Why::new(
        Reason::Awaiting("waiting for the load balancer to leave this machine out"),
        Step::Expect("the container is deleted"),
    );
    Some(Plan::until(until, why.since(since)))
}

#[expect(clippy::disallowed_methods, reason = "this planner weighs the evidence for a Permit")]
fn remove_container(
    s: &Snapshot,
    engine: machinist_instance::AccountId,
    recorded: Option<machinist_instance::AccountId>,
    since: Timestamp,
) -> Plan<Action> {
    let (which, object) = (which(s), &s.machine.object);
    if let Some(plan) = unrecorded(s, &which) {
        return plan;
    }
    if let Some(plan) = claimed_twice(s, &which, since) {
        return plan;
    }
    let container = which.to_string();
    let ownership = Ownership {
        account: Some(engine),
        recorded: recorded.clone(),
        intended: recorded,
        ..Ownership::default()
    };
    let shared = Shared::default();
    let answers = answers(s);
    let process = process(s);
    let unkeyed = Unkeyed::default();
    let departure = Departure {
        which: which.clone(),
        owner: s.machine.object.key(),
        // No container has this tag, so the key of another object is never used.
        cluster: "",
        key_holder: s.key_holder.as_deref(),
        unkeyed: &unkeyed,
        created: s.machine.object.created,
        no_creation_since: object.no_creation_since(),
        evidence: Some(Evidence::ClusterApi),
        answers: &answers,
        ownership: &ownership,
        shared: &shared,
        inputs: 0,
        process: &process,
        now: s.now,
    };
    let why = |reason: Reason| Why::new(reason, Step::Expect("the finalizer is removed")).since(since);
    match departure.next() {
        Next::Gone(_) => release("removing the finalizer", since),
        Next::Wait { call, since: asked, until } => Plan::until(
            until,
            Why::new(Reason::Calling(call), Step::Expect("the engine answers")).since(asked),
        ),
        Next::Find | Next::List | Next::AwaitList { .. } => {
            Plan::act(Action::Find(which), why(Reason::Calling(Call::FIND)))
        }
        Next::Record { instance, .. } => {
            let reason = Reason::Writing("writing the provider id of the container that was found");
            Plan::act(Action::RecordProviderId(instance.id), why(reason))
        }
        Next::Delete(permit) => Plan::act(Action::Delete(permit), why(Reason::Calling(Call::DELETE))),
        Next::Going { look_at, .. } => {
            Plan::until(look_at, why(CapiReason::ContainerLeaving { container }.into()))
        }
        // An object that another program claimed records no engine.
        Next::NotProven { look_at } | Next::LookTwice { look_at } => {
            let mut plan = Plan::until(look_at, why(CapiReason::AbsenceNotProven.into()));
            // Later processes count from this time, so that restarts do not begin the wait again.
            if which.id.is_none() && object.no_creation_since().is_none() {
                plan.actions.push(Action::RecordWait(s.now));
            }
            plan
        }
        Next::Failed { call, error, retry_at } => {
            Plan::until(retry_at, Why::call_failed(call, &error, s.answers.failures, retry_at).since(since))
        }
        Next::NotOurs { look_at, .. } => {
            let fix = format!(
                "delete the container yourself if it is not needed, and set annotation {}=true",
                constants::ABANDON_ANNOTATION
            );
            let why = Why::new(CapiReason::ContainerNotOurs { container }, Step::Fix(fix));
            Plan::until(look_at, why.since(since))
        }
        // There is evidence from the start, the keys of containers are fixed, and the engine was
        // compared before.
        Next::NeedsEvidence | Next::Rekey { .. } | Next::OtherAccount { .. } => {
            Plan::idle(why(CapiReason::OtherEngine.into()))
        }
    }
}

/// Nothing is deleted for one of two objects with the same key or container.
fn waiting_copy(s: &Snapshot, other: &str, since: Timestamp) -> Plan<Action> {
    with_taken_key(s, Plan::idle(gates::deleted_with_key_taken(other).since(since)))
}

/// Wait before a failed look at a container that two objects recorded is repeated.
const LOOK_AGAIN_AT_CLAIM: Duration = Duration::from_secs(5);

/// Another object recorded the same container. The container is deleted only if it has the key of
/// this object, so it is looked at first.
fn claimed_twice(s: &Snapshot, which: &InstanceRef, since: Timestamp) -> Option<Plan<Action>> {
    if s.container_holder.is_none() || s.answers.in_flight.is_some() {
        return None;
    }
    let look = || {
        let why = Why::new(Reason::Calling(Call::FIND), Step::Expect("the engine answers")).since(since);
        Some(Plan::act(Action::Find(which.clone()), why))
    };
    let found = s.answers.find.as_deref().filter(|found| found.by.native_id == which.native_id);
    let Some(found) = found else { return look() };
    let instance = match &found.answered.answer {
        Ok(Sighting::Present(instance)) => instance,
        Ok(_) => return None,
        // No answer shows whose container it is.
        Err(error) => {
            let retry_at = plus(found.answered.ended, LOOK_AGAIN_AT_CLAIM);
            if retry_at <= s.now {
                return look();
            }
            let why = Why::call_failed(Call::FIND, error, s.answers.failures, retry_at).since(since);
            return Some(Plan::until(retry_at, why));
        }
    };
    let other = s.other_claim_on(instance)?;
    Some(waiting_copy(s, other, since))
}

/// Leaves the decision to a user if nothing is recorded and another provider created a container of
/// this name. That container has no key, so only a user knows whose it is.
fn unrecorded(s: &Snapshot, which: &InstanceRef) -> Option<Plan<Action>> {
    if which.id.is_some() || s.answers.in_flight.is_some() {
        return None;
    }
    // A recorded id may be incomplete. Then the container of that name may be the recorded one.
    let found = s.answers.find.as_deref().filter(|found| found.by.native_id == which.native_id)?;
    let found = &found.answered;
    let Ok(Sighting::Foreign(Foreign { id, key: None, .. })) = &found.answer else { return None };
    let look_at = plus(found.ended, LOOK_AT_UNRECORDED_EVERY);
    if look_at <= s.now {
        let why = Why::new(Reason::Calling(Call::FIND), Step::Expect("the engine answers"));
        return Some(Plan::act(Action::Find(which.clone()), why));
    }
    let fix = format!(
        "if the container is of this machine, set annotation {}={}/{}/ID with its complete id (64 digits), and it is \
         deleted; if not, set annotation {}=true",
        constants::CONTAINER_ID_ANNOTATION,
        s.machine.object.namespace,
        s.machine.object.name,
        constants::ABANDON_ANNOTATION
    );
    let container = which.name.as_ref().map_or_else(|| id.to_string(), ToString::to_string);
    let why = Why::new(CapiReason::ContainerUnrecorded { container }, Step::Fix(fix));
    Some(Plan::until(look_at, why))
}

/// Returns the answers with their meaning for this object.
///
/// The driver finds a recorded container by its id, even under another name. So a container of
/// another object proves that the recorded one does not exist.
fn answers(s: &Snapshot) -> Answers {
    let mut answers = s.answers.clone();
    let object = &s.machine.object;
    // The container of a restored object is older than the object, so its age proves nothing.
    let has_container = object.annotation(constants::CONTAINER_ID_ANNOTATION).is_some();
    answers.ever_ensured |= has_container || gates::has_another_birth(object);
    let deleted = answers.delete.as_deref().and_then(|deleted| deleted.answered.answer.as_ref().err());
    let found = answers.find.as_deref().and_then(|found| found.answered.answer.as_ref().err());
    if let Some(error) = found.or(deleted) {
        answers.failures = retry::counted(error, answers.failures);
    }
    // A user may have recorded the container after the lookup, which then proves nothing about it.
    answers.find = answers.find.filter(|found| found.by.native_id == s.native_id());
    if s.native_id().is_some()
        && let Some(found) = &mut answers.find
        && matches!(found.answered.answer, Ok(Sighting::Foreign(Foreign { key: Some(_), .. })))
    {
        found.answered.answer = Ok(Sighting::Absent);
    }
    answers
}

/// Returns the process with its meaning for this object. Before a move, a process of another
/// management cluster acted, so this one counts only since the object exists here.
fn process(s: &Snapshot) -> Process {
    let object = &s.machine.object;
    let started = if gates::has_another_birth(object) {
        s.process.started.max(object.created)
    } else {
        s.process.started
    };
    Process { started, ..s.process.clone() }
}

/// Returns the identity of the container, as far as it is known without owner and Cluster.
fn which(s: &Snapshot) -> InstanceRef {
    let object = &s.machine.object;
    let machine = match &s.owner {
        Known::Present(owner) => owner.object.name.as_str(),
        Known::Unasked | Known::Absent => object.owner("Machine").unwrap_or(&object.name),
    };
    s.which(object.cluster_label().map(|cluster| container_name(cluster, machine)))
}
