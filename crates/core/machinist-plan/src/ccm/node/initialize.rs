//! Initialises a Node: looks up its instance, writes the addresses, then provider id, labels and
//! taints in one patch.

use std::time::Duration;

use jiff::Timestamp;
use machinist_core::{Call, Step, is_past, plus, since};
use machinist_instance::{Error, ErrorKind, Instance, RecordedId};

use super::action::Action;
use super::action::NodePatch;
use super::newest_sighting::NewestSighting;
use super::snapshot::Snapshot;
use super::{emit, ip_mismatch, label_events, other_id};
use crate::ccm::account::{Proof, calling};
use crate::ccm::why::{CcmReason, Plan, Reason, Why};
use crate::ccm::{addresses, names, node_labels, taints};
use crate::event::EventText;

/// A sighting of this age is young enough to initialise a Node with it.
const YOUNG: Duration = Duration::from_secs(60);
/// The first of several new Nodes waits this long for the others, so that one list serves all.
const SIBLINGS_WITHIN: Duration = Duration::from_millis(250);
/// First and longest wait before the next lookup of an instance that the cloud does not show yet.
const NOT_FOUND_AGAIN: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(30));
/// An Event reports a missing instance after this time.
const REPORTED_AFTER: Duration = Duration::from_secs(60);
/// Wait after a failed lookup. It is short, because all new Nodes wait for the end of an outage.
const FAILED_AGAIN: Duration = Duration::from_secs(4);
/// The longest wait after a failed lookup, unless the cloud asks for more.
const FAILED_AT_MOST: Duration = Duration::from_secs(30);
/// Wait before a problem that a user must correct is looked at again.
const CORRECTED_WITHIN: Duration = Duration::from_secs(60);

pub(super) fn plan(s: &Snapshot) -> Plan<Action> {
    if s.which().is_none() {
        return other_id(s);
    }
    if let Some((call, started)) = s.answers.in_flight {
        return Plan::idle(calling(call).since(started));
    }
    if let Some(plan) = doubtful(s) {
        return plan;
    }
    match s.sight() {
        NewestSighting::Present { instance, ended } if since(s.now, ended) <= YOUNG => {
            with_instance(s, instance)
        }
        NewestSighting::Failed { error, ended } => after_failure(s, Call::FIND, error, ended),
        NewestSighting::Absent { ended } | NewestSighting::NotListed { ended } => not_found(s, ended),
        NewestSighting::Present { .. } | NewestSighting::Foreign { .. } | NewestSighting::Unknown => ask(s),
    }
}

/// Waits if the Node could only be found by its name, and the account may be a wrong one: a server
/// of another project may have the same name. The Node would record that account, and the record
/// would prove it for all other Nodes and Services. An id names one server of all projects.
fn doubtful(s: &Snapshot) -> Option<Plan<Action>> {
    if s.recorded.ours().is_some() {
        return None;
    }
    let mut plan: Plan<Action> = s.account.is_doubtful()?;
    // Until the first list ends, there is no proof, and nothing to report.
    if s.account.proof == Proof::Missing {
        let message = format!("{}. The Node is not initialized.", plan.why.reason);
        plan.actions.extend(emit(s, EventText::warning(names::ACCOUNT_UNPROVEN, message)));
    }
    Some(plan)
}

/// Plans a lookup: of this Node, or a list if several Nodes wait.
fn ask(s: &Snapshot) -> Plan<Action> {
    if let Some(mut plan) = s.account.cannot_call(s.now) {
        if s.account.paused_until.is_some_and(|until| s.now < until) {
            let message =
                "Could not look up the instance of the Node: the cloud limits the rate of calls".to_owned();
            plan.actions.extend(emit(s, EventText::warning(names::CLOUD_INSTANCE_LOOKUP_FAILED, message)));
        }
        return plan;
    }
    if let Some(first) = s.crowd.since {
        let begins_at = plus(first, SIBLINGS_WITHIN);
        if s.now < begins_at {
            let why = Why::new(CcmReason::LookupBatched, Step::Expect("the controller asks the cloud"));
            return Plan::until(begins_at, why);
        }
    }
    if s.account.list_cost <= s.crowd.uninitialized {
        return list(s);
    }
    match s.which() {
        Some(which) => Plan::act(Action::Find(which), calling(Call::FIND)),
        None => other_id(s),
    }
}

fn list(s: &Snapshot) -> Plan<Action> {
    if let Some(since) = s.account.list_since {
        return Plan::idle(calling(Call::LIST).since(since));
    }
    match &s.account.list_failed {
        Some(failure) if s.now < retry_at(s, &failure.error, failure.ended) => {
            after_failure(s, Call::LIST, &failure.error, failure.ended)
        }
        Some(_) | None => Plan::act(Action::List, calling(Call::LIST)),
    }
}

/// Waits after a failed lookup or list. When the cloud answers again, all Nodes continue at once.
fn after_failure(s: &Snapshot, call: Call, error: &Error, ended: Timestamp) -> Plan<Action> {
    let retry_at = retry_at(s, error, ended);
    if retry_at <= s.now {
        return ask(s);
    }
    let mut plan = Plan::until(retry_at, Why::call_failed(call, error, s.answers.failures, retry_at));
    let message = format!("Could not look up the instance of the Node: {}", error.message);
    plan.actions.extend(emit(s, EventText::warning(names::CLOUD_INSTANCE_LOOKUP_FAILED, message)));
    plan
}

fn retry_at(s: &Snapshot, error: &Error, ended: Timestamp) -> Timestamp {
    if s.account.has_recovered_since(error, ended) {
        return s.now;
    }
    let wait = match error.kind {
        ErrorKind::Throttled { retry_after: Some(asked) } => asked.min(machinist_core::MAX_RETRY_AFTER),
        // The Nodes share the calls: together they ask about once in this time.
        ErrorKind::Unavailable
        | ErrorKind::Ambiguous
        | ErrorKind::Denied
        | ErrorKind::Throttled { retry_after: None } => {
            let calls = s.crowd.uninitialized.clamp(1, s.account.list_cost.max(1));
            (FAILED_AGAIN * calls).min(FAILED_AT_MOST)
        }
        ErrorKind::InvalidSpec | ErrorKind::Exhausted | ErrorKind::Unsupported | ErrorKind::Bug => {
            FAILED_AT_MOST
        }
    };
    plus(ended, wait)
}

/// Waits for the instance to appear. The wait doubles, because it is as long as the Node has
/// waited.
fn not_found(s: &Snapshot, ended: Timestamp) -> Plan<Action> {
    let begun = s.node.created.max(s.process.acting_since());
    let waited = since(ended, begun);
    let look_at = plus(ended, waited.clamp(NOT_FOUND_AGAIN.0, NOT_FOUND_AGAIN.1));
    if look_at <= s.now {
        return ask(s);
    }
    let instance = s.which().map(|which| which.to_string()).unwrap_or_default();
    let reason = CcmReason::InstanceNotFound { instance };
    let message = format!("{reason}. Expected an instance with the name or provider id of the Node.");
    let why = Why::new(reason, Step::Expect("the cloud shows the instance")).since(begun);
    let mut plan = Plan::until(look_at, why);
    if is_past(s.now, plus(begun, REPORTED_AFTER)) {
        plan.actions.extend(emit(s, EventText::warning(names::CLOUD_INSTANCE_LOOKUP_FAILED, message)));
    }
    plan
}

fn with_instance(s: &Snapshot, instance: &Instance) -> Plan<Action> {
    if let Some(other) = &s.claimed_by {
        let reason = CcmReason::InstanceClaimed { instance: instance.id.to_string(), node: other.clone() };
        let event = EventText::warning(names::INSTANCE_CLAIMED, reason.to_string());
        let next = format!("delete Node {other} or Node {}, so that each instance has one Node", s.node.name);
        let mut plan = Plan::until(plus(s.now, CORRECTED_WITHIN), Why::new(reason, Step::Fix(next)));
        plan.actions.extend(emit(s, event));
        return plan;
    }
    let node = &s.node;
    let desired =
        addresses::of_node(&instance.addresses, node.addresses(), node.provided_ips(), &s.options.trusted);
    let desired = match desired {
        Ok(desired) => desired,
        Err(error) => {
            let (event, why) = ip_mismatch(&error);
            let mut plan = Plan::until(plus(s.now, CORRECTED_WITHIN), why);
            plan.actions.extend(emit(s, event));
            return plan;
        }
    };
    let labels = node_labels::for_initialization(node.labels.as_ref(), instance);
    let mut actions: Vec<Action> = super::trusted_event(s, &desired.trusted).into_iter().collect();
    actions.extend(label_events(s, &labels.refused));
    if !desired.addresses.is_empty() && desired.addresses != node.addresses() {
        actions.push(Action::SetAddresses { node: node.clone(), addresses: desired.addresses });
    }
    actions.push(Action::Patch(Box::new(NodePatch {
        node: node.clone(),
        provider_id: matches!(s.recorded, RecordedId::Unset).then(|| instance.id.clone()),
        labels: labels.set,
        account: s.account_to_record(),
        taints: taints::initialized(node.taints()),
    })));
    actions.push(Action::Tell(EventText::normal(names::SYNCED, "Node synced successfully")));
    let why = Why::new(Reason::Writing("initializing the Node"), Step::Expect("pods may start on the Node"));
    Plan::act_all(actions, why)
}
