//! From a deletion timestamp to nothing: drain, delete the instance, see it gone, then the Node, then the finalizer.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use machinist_api::constants::markers::DeletionMarker;
use machinist_api::constants::{conditions, labels, reasons};
use machinist_api::{OperationState, OperationType, Phase};
use machinist_instance::{Error, Instance, NodeName};

use super::status::{code_of, code_text};
use super::{Action, DELETE_FAILED, DRAIN_BLOCKED, OperationWrite, OwnNode, Snapshot};
use crate::drain::{Drain, Manner, Progress};
use crate::facts::{NodeFacts, Token};
use crate::instance::{Departure, Next};
use crate::snapshot::{Call, Known, is_past, just_past, plus, since};
use crate::why::{Reason, Step};
use crate::{Plan, Why};

/// A forced drain need not wait for anybody, but its calls take a moment.
const FORCED_DRAIN_TAKES: Duration = Duration::from_secs(60);
/// The text about a failing drain is written at most this often.
const DRAIN_TEXT_EVERY: Duration = Duration::from_secs(30);

pub(super) fn plan(s: &Snapshot, since: Timestamp) -> Plan<Action> {
    if !s.machine.has_finalizer {
        let why = Why::new(
            Reason::Acting("finalizers of others"),
            Step::Expect("whoever put them there removes them"),
        );
        return Plan::idle(why.since(since));
    }
    if let Some((call, started, until)) = s.answers.waiting(&s.process, s.now) {
        return Plan::until(
            until,
            Why::new(Reason::Calling(call), Step::Expect("the answer")).since(started),
        );
    }
    if s.machine.status.phase != Phase::Terminating {
        return begin(s, since);
    }
    if let Some(name) = unrecorded_node(s) {
        // Go MCM leaves a Node whose Machine has no label behind, so the label comes before the drain.
        return label_node(name);
    }
    if !is_drained(s)
        && let OwnNode::Ours(node) = s.own_node()
    {
        return drain(s, node, since);
    }
    remove_instance(s, since)
}

/// Says that it is going, with the marker of the stage that Go MCM would have to begin with.
fn begin(s: &Snapshot, since: Timestamp) -> Plan<Action> {
    let marker = match s.machine.node {
        Some(_) => DeletionMarker::DrainNode,
        None => DeletionMarker::FindInstance,
    };
    let operation = OperationWrite::processing(OperationType::Delete, marker.as_str());
    let write = s.status(Phase::Terminating, operation).map(|write| Action::SetStatus(Box::new(write)));
    let why =
        Why::new(Reason::Acting("its deletion to begin"), Step::Expect("its node is drained")).since(since);
    Plan::act_all(write.into_iter().collect(), why)
}

/// The Node that carries our label while the Machine does not name it.
fn unrecorded_node(s: &Snapshot) -> Option<NodeName> {
    if s.machine.node.is_some() || s.machine.provider_id.is_none() {
        return None;
    }
    match s.own_node() {
        OwnNode::Ours(node) if labels::is_value(&node.name) => NodeName::new(&node.name),
        OwnNode::Ours(_) => None,
        OwnNode::Missing | OwnNode::NotOurs(..) => None,
    }
}

fn label_node(node: NodeName) -> Plan<Action> {
    let why = Why::new(Reason::Acting("the record of its Node"), Step::Expect("its node is drained"));
    Plan::act(Action::LabelNode(node), why)
}

/// Whether somebody finished the drain, or gave it up: then it is not begun again, whatever pods are there.
fn is_drained(s: &Snapshot) -> bool {
    s.machine.status.operation.type_ == Some(OperationType::Delete)
        && s.machine.deletion_marker().is_some_and(|marker| DeletionMarker::DrainNode < marker)
}

fn drain(s: &Snapshot, node: &Arc<NodeFacts>, deleting_since: Timestamp) -> Plan<Action> {
    let timeout = s.machine.spec.configuration.drain_timeout().and_then(|timeout| timeout.to_std());
    let patience_ends = plus(deleting_since, timeout.unwrap_or(s.defaults.drain_timeout));
    let (manner, deadline) = manner(s, node, patience_ends);
    let progress = Drain {
        now: s.now,
        pods: &s.pods,
        budgets: &s.budgets,
        attempts: &s.evictions,
        deadline,
        manner,
        max_evictions: max_evictions(s, timeout),
    }
    .progress();
    let mut actions = prepare(node);
    let (calls, left, blocked, look_at) = match progress {
        Progress::Done | Progress::GivenUp { .. } => {
            let mut plan = drained(s, deleting_since);
            actions.append(&mut plan.actions);
            plan.actions = actions;
            return plan;
        }
        Progress::Leaving { calls, left, blocked, look_at } => (calls, left, blocked, look_at),
    };
    let reason = Reason::Draining { left, blocked: blocked.clone() };
    if blocked.is_some() {
        actions.extend(say_blocked(s, &reason));
    }
    actions.extend(calls.into_iter().map(Action::Drain));
    let never = blocked.filter(|blocked| blocked.never).and_then(|blocked| blocked.budget);
    let next = match never {
        // More pods would not help where all of them are to stay: `maxUnavailable: 0`, `minAvailable: 100%`.
        Some(budget) => Step::Mend(format!("let PodDisruptionBudget {budget} allow one of its pods to go")),
        None => Step::Expect("the pods leave"),
    };
    let why = Why::new(reason, next).since(deleting_since);
    let why = match manner {
        Manner::Polite => {
            why.deadline(just_past(deadline), Step::Expect("the pods are deleted without grace"))
        }
        Manner::Forced => why.deadline(just_past(deadline), Step::Expect("the instance is deleted")),
    };
    Plan::act_all(actions, why).no_later_than(look_at)
}

/// How pods leave, and when patience ends. A node that has been dead for a while is not drained politely: nobody there
/// would stop the pods, and budgets count them as disrupted already.
fn manner(s: &Snapshot, node: &NodeFacts, patience_ends: Timestamp) -> (Manner, Timestamp) {
    let forced_until = |begin: Timestamp| (Manner::Forced, plus(begin, FORCED_DRAIN_TAKES));
    if s.machine.wants_force_deletion() {
        return forced_until(s.machine.deleting_since.unwrap_or(s.now));
    }
    let dead_since = |kind: &str, fine: &str| {
        let condition = node.condition(kind)?;
        (condition.status != fine).then_some(condition.since).flatten()
    };
    let dead = dead_since(conditions::NODE_READY, "True")
        .into_iter()
        .chain(dead_since(conditions::NODE_READONLY_FILESYSTEM, "False"))
        .map(|at| plus(at, s.defaults.dead_node_after))
        .min();
    let may_force = s.process.may_enforce_deadlines();
    match dead {
        Some(given_up_at) if may_force && is_past(s.now, given_up_at) => {
            forced_until(s.machine.deleting_since.map_or(given_up_at, |since| since.max(given_up_at)))
        }
        _ if may_force && is_past(s.now, patience_ends) => forced_until(patience_ends),
        // The node may turn out to be dead before patience ends: then look earlier.
        Some(given_up_at) => (Manner::Polite, given_up_at.min(patience_ends)),
        None => (Manner::Polite, patience_ends),
    }
}

fn max_evictions(s: &Snapshot, drain_timeout: Option<Duration>) -> u32 {
    const EVICTION_RETRY_SECONDS: u64 = 20;
    let own = s.machine.spec.configuration.max_evict_retries.and_then(|most| u32::try_from(most).ok());
    let fits = drain_timeout.unwrap_or(s.defaults.drain_timeout).as_secs() / EVICTION_RETRY_SECONDS;
    own.unwrap_or(s.defaults.max_evictions).min(u32::try_from(fits).unwrap_or(u32::MAX)).max(1)
}

/// Tells the Node and the scheduler before the first pod is asked to leave.
fn prepare(node: &Arc<NodeFacts>) -> Vec<Action> {
    let mut actions = Vec::new();
    if node.condition(conditions::NODE_TERMINATING).is_none_or(|condition| condition.status != "True") {
        actions.push(Action::SetTerminating { node: node.clone(), reason: reasons::SCALE_DOWN });
    }
    if node.unschedulable != Some(true) {
        actions.push(Action::Cordon(node.clone()));
    }
    actions
}

/// Writes what holds the drain up, at most every half minute, keeping the marker that Go MCM would go on from.
fn say_blocked(s: &Snapshot, reason: &Reason) -> Vec<Action> {
    let description = format!("Drain waits for {reason}. {}", DeletionMarker::DrainNode);
    let operation = OperationWrite {
        kind: OperationType::Delete,
        state: OperationState::Failed,
        description: description.clone(),
        code: None,
    };
    let current = &s.machine.status.operation;
    let written = current.last_update_time.as_ref().map_or(Timestamp::MIN, |time| time.0);
    let already_failing = current.state == Some(OperationState::Failed);
    if already_failing && since(s.now, written) < DRAIN_TEXT_EVERY {
        return Vec::new();
    }
    let Some(write) = s.status(Phase::Terminating, operation) else { return Vec::new() };
    vec![Action::SetStatus(Box::new(write)), Action::warn(DRAIN_BLOCKED, description)]
}

/// The node is empty: say so, and go on with the instance in the same pass. The marker lags the fact, so whoever takes over
/// repeats a deletion, not a drain.
fn drained(s: &Snapshot, deleting_since: Timestamp) -> Plan<Action> {
    let operation =
        OperationWrite::processing(OperationType::Delete, DeletionMarker::DeleteInstance.as_str());
    let said = s.status(Phase::Terminating, operation).map(|write| Action::SetStatus(Box::new(write)));
    let mut plan = remove_instance(s, deleting_since);
    let mut actions: Vec<_> = said.into_iter().collect();
    actions.append(&mut plan.actions);
    plan.actions = actions;
    plan
}

fn remove_instance(s: &Snapshot, deleting_since: Timestamp) -> Plan<Action> {
    let departure = Departure {
        which: s.instance(),
        owner: s.key(),
        created: s.machine.created,
        deleting_since,
        answers: &s.answers,
        inputs: s.inputs,
        process: &s.process,
        now: s.now,
    };
    let instance = departure.which.to_string();
    let next = departure.next();
    if let Next::Gone = next {
        return remove_node(s, deleting_since);
    }
    if let Some(plan) = cannot_call(s, deleting_since) {
        return plan;
    }
    if let Next::Find | Next::Delete(_) = next
        && let Some(wait) = s.paused()
    {
        return wait;
    }
    let why = |reason| {
        Why::new(reason, Step::Expect("its Node and its finalizer are removed")).since(deleting_since)
    };
    match next {
        Next::Gone => remove_node(s, deleting_since),
        Next::Wait { call, since, until } => {
            Plan::until(until, Why::new(Reason::Calling(call), Step::Expect("the answer")).since(since))
        }
        Next::Find => Plan::act(Action::Find(departure.which), why(Reason::Calling(Call::Find))),
        Next::Record(found) => record(&found, deleting_since),
        Next::Delete(permit) => Plan::act(Action::Delete(permit), why(Reason::Calling(Call::Delete))),
        Next::Going { look_at } => Plan::until(look_at, why(Reason::InstanceDeleting { instance })),
        Next::NotProven { look_at } => Plan::until(look_at, why(Reason::AbsenceNotProven { instance })),
        Next::Failed { call, error, retry_at } => call_failed(s, call, &error, retry_at, deleting_since),
    }
}

/// Records an instance that was found on the way out, so that it is deleted by its id. Nothing else is said: the Machine is going.
fn record(found: &Instance, deleting_since: Timestamp) -> Plan<Action> {
    let record = Action::Record { node: found.name.clone(), provider_id: found.id.clone() };
    let why = Why::new(Reason::Acting("the record of its instance"), Step::Expect("it is deleted"));
    Plan::act(record, why.since(deleting_since))
}

/// Without class or credential the cloud cannot be called. Then deletion waits, and says so, until a person brings them back or
/// takes the responsibility with the label force-deletion.
///
/// A credential that is there and refused is a call that failed, and the label does not end it: people set the label to skip a
/// drain, and a typing error in a Secret must not cost an instance that nobody knows of any more.
fn cannot_call(s: &Snapshot, deleting_since: Timestamp) -> Option<Plan<Action>> {
    let (missing, mend) = match &s.class {
        Known::Present(class) => {
            let need = s.secrets.iter().find(|need| !matches!(need.facts, Known::Present(_)))?;
            match need.facts {
                Known::Unasked => (
                    format!("Secret {} (only namespace {} is read)", need.name, s.machine.namespace),
                    format!(
                        "let MachineClass {} refer to one of namespace {}",
                        class.name, s.machine.namespace
                    ),
                ),
                Known::Absent | Known::Present(_) => {
                    (format!("Secret {}", need.name), format!("create Secret {} again", need.name))
                }
            }
        }
        Known::Absent | Known::Unasked => {
            let class = format!("MachineClass {}", s.machine.spec.class.name());
            let mend = format!("create {class} again");
            (class, mend)
        }
    };
    if s.machine.wants_force_deletion() {
        return Some(leave_behind(s, &missing, deleting_since));
    }
    let reason = Reason::CannotDeleteInstance { missing: missing.clone() };
    let mend = format!("{mend}, or set label {}=true to leave the instance behind", labels::FORCE_DELETION);
    let marker = s.machine.deletion_marker().unwrap_or(DeletionMarker::DeleteInstance);
    let description = format!("Deletion waits for {reason}. {marker}");
    let operation = OperationWrite::failed(OperationType::Delete, &description, None);
    let why = Why::new(reason, Step::Mend(mend)).since(deleting_since);
    let Some(write) = s.status(Phase::Terminating, operation) else { return Some(Plan::idle(why)) };
    let actions = vec![Action::SetStatus(Box::new(write)), Action::warn(DELETE_FAILED, description)];
    Some(Plan::act_all(actions, why))
}

/// Lets the Machine go without its instance, and tells people that there may be one: nothing else will.
fn leave_behind(s: &Snapshot, missing: &str, deleting_since: Timestamp) -> Plan<Action> {
    let mut plan = remove_node(s, deleting_since);
    if plan.actions.iter().any(|action| matches!(action, Action::RemoveFinalizer)) {
        let message = format!(
            "Instance {} may be left behind: {missing} is missing, and label {} is set",
            s.instance(),
            labels::FORCE_DELETION
        );
        plan.actions.insert(0, Action::warn(DELETE_FAILED, message));
    }
    plan
}

fn call_failed(
    s: &Snapshot,
    call: Call,
    error: &Error,
    retry_at: Timestamp,
    deleting_since: Timestamp,
) -> Plan<Action> {
    let marker = s.machine.deletion_marker().unwrap_or(DeletionMarker::DeleteInstance);
    let description = format!("{}. {marker}", code_text(error));
    let operation = OperationWrite::failed(OperationType::Delete, &description, Some(code_of(error)));
    let reason = Reason::CallFailed {
        call,
        kind: error.kind,
        message: error.message.clone(),
        failures: s.answers.failures,
    };
    let why = Why::new(reason, Step::Repeat(call, retry_at)).since(deleting_since);
    let mut plan = Plan::until(retry_at, why);
    if let Some(write) = s.status(Phase::Terminating, operation) {
        plan.actions.push(Action::SetStatus(Box::new(write)));
        plan.actions.push(Action::warn(DELETE_FAILED, description));
    }
    plan
}

/// The instance is gone: what it left behind goes, and then the Machine.
fn remove_node(s: &Snapshot, deleting_since: Timestamp) -> Plan<Action> {
    let mut actions = Vec::new();
    match s.own_node() {
        OwnNode::Ours(node) => {
            if node.has_finalizer {
                actions.push(Action::RemoveNodeFinalizer(node.clone()));
            }
            if node.deleting_since.is_none() {
                actions.push(Action::DeleteNode(node.clone()));
            }
        }
        // A Node may have registered a moment before its instance went, and our store may be older than that. Nobody would ever
        // remove it, so ask the API server itself once.
        OwnNode::Missing if may_have_registered(s) && s.answers.node_absent.is_none() => {
            let name = s.machine.node_name().to_owned();
            let why = Why::new(
                Reason::NodeLeaving { node: name.clone() },
                Step::Expect("the finalizer is removed"),
            );
            return Plan::act(Action::LookForNode(name), why.since(deleting_since));
        }
        OwnNode::Missing | OwnNode::NotOurs(..) => {}
    }
    if let Token::Ours(token) = &s.token {
        actions.push(Action::DeleteToken(token.clone()));
    }
    actions.push(Action::RemoveFinalizer);
    let why = Why::new(Reason::Acting("its Node and its finalizer to be removed"), Step::Nothing)
        .since(deleting_since);
    Plan::act_all(actions, why)
}

/// Whether an instance existed that may have registered a Node.
fn may_have_registered(s: &Snapshot) -> bool {
    s.machine.provider_id.is_some()
        || s.answers.ever_ensured
        || !s.process.saw_the_birth_of(s.machine.created)
}
