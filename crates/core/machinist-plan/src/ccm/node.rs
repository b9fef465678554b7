//! Node: initialises it, keeps its addresses and labels as the cloud shows them, and taints it
//! while its instance is stopped.
//!
//! ```text
//! uninitialized:  look up the instance -> addresses -> provider id, labels and taint in one patch
//! initialized:    addresses, labels, account (from the shared list; no call of its own)
//! not ready:      look up the instance -> shutdown taint, or a row of absences by id
//! ```
//!
//! Addresses are written before the taint is removed, so that no pod starts on a Node without them.
//!
//! Deleting the Node of a missing instance is deliberately absent. All Nodes share the limit on
//! deletions, so [`super::node_removal`] decides it from the absences that this planner collects.

mod action;
mod initialize;
mod lifecycle;
mod newest_sighting;
mod refresh;
pub(super) mod snapshot;

pub use self::action::{Action, NodePatch};
pub use self::snapshot::{Brake, Crowd, ListedNode, Options, Owner, SharedReasons, Snapshot};

use machinist_core::Step;
use machinist_instance::RecordedId;

use self::lifecycle::Lifecycle;
pub use self::newest_sighting::{take_listed, take_power};
use self::refresh::Refresh;
use super::addresses::NodeIpError;
use super::names;
use crate::ccm::facts::CloudNodeFacts;
use crate::ccm::why::{CcmReason, Plan, Reason, Why};
use crate::event::EventText;

/// Decides the next actions for one Node.
pub fn plan(s: &Snapshot) -> Plan<Action> {
    let mut plan = plan_alone(s);
    let is_unrouted = plan.why.reason == Reason::Settled || plan.why.reason == Reason::Awaiting(NO_ROUTES);
    let is_removable = matches!(plan.why.reason, Reason::Contract(CcmReason::NodeRemovable { .. }));
    let shared = match (is_unrouted, is_removable) {
        (true, _) => s.shared.unrouted.clone(),
        (false, true) => s.shared.brake.clone(),
        (false, false) => None,
    };
    plan.why = shared.unwrap_or(plan.why);
    plan
}

/// Decides from the facts about the Node alone.
fn plan_alone(s: &Snapshot) -> Plan<Action> {
    if s.node.deleting_since.is_some() {
        let next = Step::Expect("the Node is deleted");
        return Plan::idle(Why::new(Reason::Awaiting(OTHER_FINALIZERS), next).since(s.node.deleting_since));
    }
    if s.node.is_uninitialized() {
        return if s.options.initializes {
            initialize::plan(s)
        } else {
            let next = Step::Expect("the other program initializes the Node");
            Plan::idle(Why::new(Reason::Awaiting(OTHER_INITIALIZER), next))
        };
    }
    let refresh = if s.options.initializes { refresh::needed(s) } else { Refresh::default() };
    let Lifecycle { taints, mut plan } = if s.options.follows_lifecycle {
        lifecycle::plan(s)
    } else {
        Lifecycle { taints: None, plan: Plan::idle(Why::up_to_date()) }
    };
    let mut writes = refresh.events;
    if let Some(addresses) = refresh.addresses {
        writes.push(Action::SetAddresses { node: s.node.clone(), addresses });
    }
    if taints.is_some() || !refresh.labels.is_empty() || refresh.account.is_some() {
        let patch = NodePatch {
            node: s.node.clone(),
            provider_id: None,
            labels: refresh.labels,
            account: refresh.account,
            taints,
        };
        writes.push(Action::Patch(Box::new(patch)));
    }
    let is_writing = writes.iter().any(|action| !matches!(action, Action::Tell(_)));
    if is_writing && plan.why.reason == Reason::Settled {
        plan.why = Why::new(Reason::Writing("updating the Node from its instance"), Step::Nothing);
    }
    if plan.why.reason == Reason::Settled && lacks_routes(&s.node) {
        let next = Step::Expect("the route controller of the cluster creates the routes");
        plan.why = Why::new(Reason::Awaiting(NO_ROUTES), next)
            .since(s.node.network.as_ref().and_then(|network| network.since));
    }
    plan.actions.splice(0..0, writes);
    plan
}

/// Whether the condition of a Node shows that its routes do not exist. With another reason, the
/// condition belongs to a network plugin.
fn lacks_routes(node: &CloudNodeFacts) -> bool {
    node.network
        .as_ref()
        .is_some_and(|network| network.status == "True" && network.reason == NO_ROUTE_CREATED)
}

/// Reason of the condition NetworkUnavailable of a Node whose routes do not exist.
const NO_ROUTE_CREATED: &str = "NoRouteCreated";
/// The reason if only that condition shows the missing routes. The route controller knows more.
const NO_ROUTES: &str = "waiting for the routes of the Node: its condition NetworkUnavailable is True with the reason NoRouteCreated";
const OTHER_FINALIZERS: &str = "waiting for other clients to remove their finalizers";
const OTHER_INITIALIZER: &str =
    "waiting for another program to initialize the Node: the cloud-node-controller is disabled here";

/// Leaves a Node alone whose provider id is not one of this cloud.
fn other_id(s: &Snapshot) -> Plan<Action> {
    let id = s.node.provider_id().unwrap_or_default().to_owned();
    match &s.recorded {
        RecordedId::NotOurs { expected } => Plan::idle(Why::new(
            CcmReason::NodeOfAnotherCloud { id, expected: expected.clone() },
            Step::Expect("another program takes care of the Node"),
        )),
        RecordedId::Malformed { expected } => {
            let reason = CcmReason::NodeIdMalformed { id, expected: expected.clone() };
            let event = EventText::warning(names::PROVIDER_ID_MALFORMED, reason.to_string());
            let next = "delete the Node and let its kubelet register it again".to_owned();
            let mut plan = Plan::idle(Why::new(reason, Step::Fix(next)));
            plan.actions.extend(s.emitted.if_new(event).map(Action::Tell));
            plan
        }
        RecordedId::Unset | RecordedId::Ours(_) => {
            let next = "delete the Node and let its kubelet register it again".to_owned();
            Plan::idle(Why::new(CcmReason::NodeWithoutId, Step::Fix(next)))
        }
    }
}

fn emit(s: &Snapshot, event: EventText) -> Option<Action> {
    s.emitted.if_due(event, s.now).map(Action::Tell)
}

/// Returns the Event and the reason for an annotation that does not fit the instance.
fn ip_mismatch(error: &NodeIpError) -> (EventText, Why) {
    let reason = CcmReason::NodeIpMismatch { message: error.to_string() };
    let next = "start the kubelet with an address of the instance in --node-ip, connect the instance to that \
                network, or start this program with --trusted-node-cidrs";
    let event = EventText::warning(names::NODE_IP_MISMATCH, format!("{error}. To fix it, {next}."));
    (event, Why::new(reason, Step::Fix(next.to_owned())))
}

/// Returns the Event for addresses that are accepted although the cloud does not offer them.
fn trusted_event(s: &Snapshot, trusted: &[NodeIpError]) -> Option<Action> {
    let first = trusted.first()?;
    let message = format!("{first}. It is accepted because --trusted-node-cidrs contains it.");
    emit(s, EventText::warning(names::NODE_IP_MISMATCH, message))
}

fn label_events(s: &Snapshot, refused: &[String]) -> Option<Action> {
    if refused.is_empty() {
        return None;
    }
    let message = format!("Labels of the instance were not added to the Node: {}", refused.join("; "));
    emit(s, EventText::warning(names::INVALID_NODE_LABEL, message))
}

#[cfg(test)]
mod tests;
