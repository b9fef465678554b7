//! Preservation: keeps a failed or chosen Machine and its Node until an expiry, for debugging.
//!
//! ```text
//! starts:   expiry in the status -> annotations for the autoscaler, taint -> drain -> condition
//! ends:     condition -> annotations and taint of the Node -> annotations of the Machine -> expiry
//! ```
//!
//! The expiry comes first when a preservation starts and last when it ends, so a process that takes
//! over finds what is left to do. The set deletes a failed Machine whose expiry has passed. The
//! expiry of a failed Machine therefore stays, so that nothing preserves the Machine a second time.
//!
//! The Node of a failed Machine gets a taint instead of a cordon. So a Node that a user has
//! cordoned stays cordoned when the preservation ends. Only annotations that this program added are
//! removed.
//!
//! A preservation never changes the phase. Deliberately absent: which failed Machines are preserved
//! automatically ([`crate::mcm::machine_set`], [`crate::mcm::machine_deployment`]), and the value
//! of the Node's annotation, which [`super::join`] copies to the Machine.

mod drain;

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Taint;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use machinist_api::Phase;
use machinist_api::constants::{annotations, conditions, reasons, taints};

use super::action::{Action, PRESERVATION_ENDED, PRESERVED};
use super::identity::OwnNode;
use super::node_condition::PreservedCondition;
use super::node_patch::{change_taints, sync_of};
use super::snapshot::Snapshot;
use crate::event::Severity;
use crate::mcm::drain::end_or_later;
use crate::mcm::facts::NodeFacts;
use crate::mcm::why::{Plan, Reason, Step, Why};
use machinist_core::{is_past, just_past, plus};

/// Adds the calls of the preservation to the plan for a Machine that is not being deleted.
pub(super) fn attend(s: &Snapshot, plan: Plan<Action>) -> Plan<Action> {
    if plan.actions.iter().any(comes_first) {
        return plan;
    }
    let node = match s.own_node() {
        OwnNode::Ours(node) if !node.is_not_managed() && node.deleting_since.is_none() => Some(node),
        OwnNode::Ours(_) | OwnNode::Missing | OwnNode::NotOurs(..) => None,
    };
    if node.is_some_and(|node| node.preserve().is_none()) {
        // An unknown value on the Node changes nothing, as in Go MCM.
        return plan;
    }
    match course(s) {
        Course::Preserve => preserve(s, node, plan),
        Course::Stop(annotations) => stop(s, node, annotations, plan),
    }
}

/// Whether the preservation waits until the action has been performed. The action writes the same
/// fields, or a later decision depends on it.
fn comes_first(action: &Action) -> bool {
    match action {
        Action::CarryPreserve(_) | Action::DeleteMachine | Action::RemoveNodeFinalizer(_) => true,
        Action::SetStatus(write) => write.phase.is_some(),
        _ => false,
    }
}

/// The decision about the preservation of a Machine.
enum Course {
    /// The Machine is preserved.
    Preserve,
    /// The Machine is no longer preserved, or never was.
    Stop(StaleAnnotations),
}

/// Whether the annotations that ask for a preservation stay when the preservation ends.
#[derive(Clone, Copy, PartialEq, Eq)]
enum StaleAnnotations {
    /// They stay: they may ask for another preservation, or they ask for none.
    Keep,
    /// They are removed, because they would ask for the preservation that has ended.
    Remove,
}

fn course(s: &Snapshot) -> Course {
    let has_failed = s.machine.status.phase == Phase::Failed;
    let (value, _) = s.machine.preserve_value();
    match value {
        annotations::PRESERVE_NOW | annotations::PRESERVE_WHEN_FAILED if has_expired(s) => {
            Course::Stop(StaleAnnotations::Remove)
        }
        annotations::PRESERVE_NOW => Course::Preserve,
        annotations::PRESERVE_WHEN_FAILED if has_failed => Course::Preserve,
        annotations::PRESERVE_AUTO if has_failed && !has_expired(s) => Course::Preserve,
        annotations::PRESERVE_AUTO => Course::Stop(StaleAnnotations::Remove),
        _ => Course::Stop(StaleAnnotations::Keep),
    }
}

/// Whether the preservation has expired. During clock skew, none expires.
fn has_expired(s: &Snapshot) -> bool {
    let until = s.machine.status.preserve_until;
    s.process.may_enforce_deadlines() && until.is_some_and(|until| is_past(s.now, until))
}

// === start ===

fn preserve(s: &Snapshot, node: Option<&Arc<NodeFacts>>, plan: Plan<Action>) -> Plan<Action> {
    let Some(until) = s.machine.status.preserve_until else { return record_expiry(s, plan) };
    let ends = just_past(until);
    let mut plan = plan.no_later_than(end_or_later(s.now, ends));
    if matches!(plan.why.reason, Reason::Settled) {
        plan.why = plan.why.deadline(ends, Step::Expect("the preservation ends"));
    }
    let Some(node) = node else { return plan };
    protect_from_autoscaler(node, &mut plan);
    if s.machine.status.phase == Phase::Failed {
        return drain::attend(s, node, until, plan);
    }
    if s.machine.status.phase == Phase::Running {
        change_taints(node, &mut plan, |all| all.retain(|taint| !is_preserved(taint)));
    }
    // The message of an earlier failure must not stay. Otherwise the Node would count as drained
    // when the Machine fails again.
    if !has_condition(s, node) || drain::is_drained(node) {
        let message = format!("Machine preserved until {until:.0}.");
        plan.actions.push(set_condition(node, "True", reason(s), message));
    }
    plan
}

/// Writes until when the Machine is preserved. The time of the phase stays, because the health
/// timeout counts from it.
fn record_expiry(s: &Snapshot, mut plan: Plan<Action>) -> Plan<Action> {
    if s.machine.status.phase == Phase::Empty {
        // Without a status, the Machine has nothing to keep yet.
        return plan;
    }
    let own = s.machine.spec.configuration.machine_preserve_timeout();
    let timeout = own.and_then(|timeout| timeout.to_std()).unwrap_or(s.defaults.preserve_timeout);
    let until = whole_seconds(plus(s.now, timeout.min(LONGEST)));
    let message = format!("Machine {} is preserved until {until:.0}", s.machine.name);
    let said = Action::Tell { severity: Severity::Normal, reason: PRESERVED, message };
    plan.actions.splice(0..0, [Action::SetPreserveExpiry(Some(until)), said]);
    plan.why = Why::new(Reason::Writing("recording until when the Machine is preserved"), Step::Nothing);
    plan
}

/// The longest preservation. A longer timeout may lie beyond the moments that a timestamp can have.
const LONGEST: Duration = Duration::from_secs(100 * 365 * 24 * 3600);

fn whole_seconds(at: Timestamp) -> Timestamp {
    Timestamp::from_second(at.as_second()).unwrap_or(at)
}

/// Keeps the autoscaler from removing the Node, unless a user does that already.
fn protect_from_autoscaler(node: &Arc<NodeFacts>, plan: &mut Plan<Action>) {
    if node.annotation(annotations::SCALE_DOWN_DISABLED) == Some("true") {
        return;
    }
    let sync = sync_of(node, plan);
    for key in [annotations::SCALE_DOWN_DISABLED, annotations::SCALE_DOWN_DISABLED_BY_MCM] {
        sync.annotations.insert(key.to_owned(), Some("true".to_owned()));
    }
}

fn taint(now: Timestamp) -> Taint {
    Taint {
        key: taints::PRESERVED.to_owned(),
        effect: taints::EFFECT_NO_SCHEDULE.to_owned(),
        time_added: Some(Time(whole_seconds(now))),
        value: None,
    }
}

fn is_preserved(taint: &Taint) -> bool {
    taint.key == taints::PRESERVED && taint.effect == taints::EFFECT_NO_SCHEDULE
}

/// Returns the reason of the condition: who asked for the preservation.
fn reason(s: &Snapshot) -> &'static str {
    match s.machine.preserve_value() {
        (annotations::PRESERVE_AUTO, _) => reasons::PRESERVED_BY_MCM,
        _ => reasons::PRESERVED_BY_USER,
    }
}

/// Whether the Node reports that it is preserved, for today's reason.
fn has_condition(s: &Snapshot, node: &NodeFacts) -> bool {
    let condition = node.condition(conditions::NODE_PRESERVED);
    condition.is_some_and(|condition| condition.status == "True" && condition.reason() == reason(s))
}

// === end ===

fn stop(
    s: &Snapshot,
    node: Option<&Arc<NodeFacts>>,
    stale: StaleAnnotations,
    mut plan: Plan<Action>,
) -> Plan<Action> {
    let is_recorded = s.machine.status.preserve_until.is_some();
    // The set deletes a failed Machine because its expiry has passed.
    let is_given_up = has_expired(s) && s.machine.status.phase == Phase::Failed;
    let ended = || {
        let message = format!("Machine {} is no longer preserved", s.machine.name);
        Action::Tell { severity: Severity::Normal, reason: PRESERVATION_ENDED, message }
    };
    let removes = stale == StaleAnnotations::Remove;
    if let Some(node) = node {
        let reports =
            node.condition(conditions::NODE_PRESERVED).filter(|condition| condition.status == "True");
        if is_recorded && (reports.is_some() || drain::is_blocked(node)) {
            let message = "The Machine is no longer preserved.".to_owned();
            plan.actions.push(set_condition(node, "False", reasons::PRESERVATION_STOPPED, message));
            plan.actions.extend(is_given_up.then(ended));
        }
        if is_recorded {
            release_to_autoscaler(s, node, &mut plan);
            change_taints(node, &mut plan, |all| all.retain(|taint| !is_preserved(taint)));
        }
        if removes && node.annotation(annotations::PRESERVE).is_some() {
            sync_of(node, &mut plan).annotations.insert(annotations::PRESERVE.to_owned(), None);
        }
    }
    let asks = [annotations::PRESERVE, annotations::LAST_APPLIED_NODE_PRESERVE_VALUE];
    if removes && asks.iter().any(|key| s.machine.annotation(key).is_some()) {
        plan.actions.push(Action::ForgetPreserve);
    }
    if is_recorded && !is_given_up {
        plan.actions.push(Action::SetPreserveExpiry(None));
        plan.actions.push(ended());
        plan.why = Why::new(Reason::Writing("ending the preservation"), Step::Nothing);
    }
    plan
}

/// Removes the annotations for the autoscaler if this program, or Go MCM, added them, and no
/// rollout needs them.
fn release_to_autoscaler(s: &Snapshot, node: &Arc<NodeFacts>, plan: &mut Plan<Action>) {
    let is_rolling = s.node_marks.is_some_and(|marks| marks.is_protected != Some(false));
    if is_rolling || node.annotation(annotations::SCALE_DOWN_DISABLED_BY_MCM) != Some("true") {
        return;
    }
    let sync = sync_of(node, plan);
    for key in [annotations::SCALE_DOWN_DISABLED, annotations::SCALE_DOWN_DISABLED_BY_MCM] {
        if node.annotation(key) == Some("true") {
            sync.annotations.insert(key.to_owned(), None);
        }
    }
}

// === writes to the Node ===

fn set_condition(
    node: &Arc<NodeFacts>,
    status: &'static str,
    reason: &'static str,
    message: String,
) -> Action {
    let condition = PreservedCondition { status, reason, message };
    Action::SetPreserved { node: node.clone(), condition }
}
