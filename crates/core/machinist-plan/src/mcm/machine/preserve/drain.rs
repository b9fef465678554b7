//! Drains the Node of a preserved Machine that has failed.
//!
//! The drain begins with the taint, which records its start. The condition `Preserved` reports a
//! Node as drained only after a list of its pods, which began after the taint was observed.

use std::sync::Arc;

use jiff::Timestamp;
use machinist_api::constants::{conditions, markers};

use super::{change_taints, reason, set_condition, taint};
use crate::mcm::facts::NodeFacts;
use crate::mcm::machine::action::Action;
use crate::mcm::machine::hindrance;
use crate::mcm::machine::living_drain::{DrainState, LivingDrain};
use crate::mcm::machine::snapshot::Snapshot;
use crate::mcm::why::{BlockedPod, McmReason, Plan};

/// Adds the calls of the drain to the plan, until the condition reports the Node as drained.
pub(super) fn attend(
    s: &Snapshot,
    node: &Arc<NodeFacts>,
    until: Timestamp,
    mut plan: Plan<Action>,
) -> Plan<Action> {
    let Some(tainted) = node.preserved_taint() else {
        change_taints(node, &mut plan, |all| all.push(taint(s.now)));
        return plan;
    };
    if is_drained(node) {
        return plan;
    }
    // A taint without a time counts from its observation.
    let closed = s.node_seen.tainted.unwrap_or(s.now);
    let began = tainted.time_added.as_ref().map_or(closed, |time| time.0);
    let why = |left, blocked: Option<BlockedPod>| {
        let machine = s.machine.name.clone();
        McmReason::PreservedDraining { machine, until, left, blocked }
    };
    match (LivingDrain { s, node, began, closed, reason: &why }).step(&mut plan) {
        DrainState::Draining => {}
        DrainState::Blocked(blocked) => plan.actions.extend(say_blocked(s, node, &blocked)),
        DrainState::Drained(events) => {
            let message = format!("{} Machine preserved until {until:.0}.", markers::PRESERVED_NODE_DRAINED);
            plan.actions.push(set_condition(node, "True", reason(s), message));
            plan.actions.extend(events);
        }
    }
    plan
}

/// Whether the condition reports that the Node was drained.
pub(super) fn is_drained(node: &NodeFacts) -> bool {
    says(node, "True", markers::PRESERVED_NODE_DRAINED)
}

/// Whether the condition reports that the drain is blocked.
pub(super) fn is_blocked(node: &NodeFacts) -> bool {
    says(node, "False", markers::PRESERVED_NODE_NOT_DRAINED)
}

fn says(node: &NodeFacts, status: &str, marker: &str) -> bool {
    let condition = node.condition(conditions::NODE_PRESERVED);
    condition.is_some_and(|condition| condition.status == status && condition.message().starts_with(marker))
}

/// Reports a blocked drain in the condition and by an Event, at most every 30 seconds.
fn say_blocked(s: &Snapshot, node: &Arc<NodeFacts>, blocked: &McmReason) -> Vec<Action> {
    let message = format!("{} {blocked}", markers::PRESERVED_NODE_NOT_DRAINED);
    let current = node.condition(conditions::NODE_PRESERVED);
    let written = current.and_then(|condition| condition.written);
    let is_blocked = is_blocked(node);
    let is_said = is_blocked && current.is_some_and(|condition| condition.message() == message);
    let write = (!is_said).then(|| set_condition(node, "False", reason(s), message.clone()));
    hindrance::report(s.now, written.filter(|_| is_blocked), write, message)
}
