//! An instance with the name of a Node that exists already. Clouds that name Nodes after IP
//! addresses give a name out again, and the Node of the earlier instance may still be there. Two
//! instances would then write the same Node, so the Machine fails and its set replaces it, as in Go
//! MCM.
//!
//! The id of the instance is recorded before. So the ordinary deletion of the Machine removes the
//! instance, also if the process dies in between. Go MCM deletes the instance first, and loses it
//! if that call fails.
//!
//! A Node of that name is not enough: the instance may have joined before its creation was
//! answered. The Node must be proven to be another's, or be older than the Machine, and a GET must
//! have just shown it.

use std::sync::Arc;

use machinist_api::constants::markers;
use machinist_api::{OperationType, Phase};

use super::action::{Action, CREATE_FAILED};
use super::identity::OwnNode;
use super::snapshot::Snapshot;
use super::status::OperationWrite;
use crate::mcm::facts::NodeFacts;
use crate::mcm::why::{Plan, Reason, Step, Why};
use machinist_core::plus;

/// Marks a Machine as Failed if the Node with the name of its new instance is another's.
pub(super) fn fail(s: &Snapshot) -> Option<Plan<Action>> {
    let (node, evidence) = stale(s)?;
    if let Some(frozen) = &s.frozen {
        return Some(frozen.wait(s.now));
    }
    let look = s.reads.node_now(&node.name, s.now);
    let Some(look) = look else {
        let next = Step::Expect("the Machine is marked Failed if the Node is another instance's");
        let why = Why::new(Reason::Looking("the Node with the name of the instance"), next);
        return Some(Plan::act(Action::LookForNode(node.name.clone()), why));
    };
    if look.uid.as_ref() != Some(&node.uid) {
        // The store is about to show this.
        return None;
    }
    let operation = OperationWrite::failed(OperationType::Create, markers::STALE_NODE, None);
    let write = s.status(Phase::Failed, operation)?;
    let message = format!(
        "Instance {} is deleted: Node {} existed before and belongs to another instance ({evidence})",
        s.instance(),
        node.name
    );
    let actions = vec![Action::SetStatus(Box::new(write)), Action::warn(CREATE_FAILED, message)];
    let why = Why::new(
        Reason::Writing("marking a Machine as Failed whose Node is another instance's"),
        Step::Expect("the MachineSet deletes and replaces the Machine"),
    );
    Some(Plan::act_all(actions, why))
}

/// Returns the Node with the recorded name if it is another's, with the evidence. The name differs
/// from the Machine's: as in Go MCM, other names are not given out again.
fn stale(s: &Snapshot) -> Option<(&Arc<NodeFacts>, String)> {
    let named = s.machine.node.as_ref().filter(|name| name.as_str() != s.machine.name)?;
    let OwnNode::NotOurs(node, evidence) = s.joined_node() else { return None };
    if node.name != named.as_str() || s.identity.held_by.is_some() {
        return None;
    }
    if let Some(evidence) = s.of_another(node) {
        return Some((node, evidence));
    }
    let is_older = plus(node.created, s.process.skew) < s.machine.created;
    let is_marked_ours = node.machine_name() == Some(&s.machine.name);
    (is_older && !is_marked_ours).then_some((node, evidence))
}
