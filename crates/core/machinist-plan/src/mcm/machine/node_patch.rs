//! The one patch of a Node that a plan contains. Several rules add their changes to it, so that a
//! Node is written once in a pass.

use std::sync::Arc;

use k8s_openapi::api::core::v1::Taint;

use super::action::Action;
use super::node_sync::NodeSync;
use crate::mcm::facts::NodeFacts;
use crate::mcm::why::Plan;

/// Returns the patch of the Node that the plan contains already, or adds an empty one.
pub(super) fn sync_of<'p>(node: &Arc<NodeFacts>, plan: &'p mut Plan<Action>) -> &'p mut NodeSync {
    let is_sync = |action: &Action| matches!(action, Action::SyncNode(sync) if sync.node.uid == node.uid);
    let index = plan.actions.iter().position(is_sync).unwrap_or_else(|| {
        plan.actions.push(Action::SyncNode(Box::new(NodeSync::empty(node))));
        plan.actions.len() - 1
    });
    match &mut plan.actions[index] {
        Action::SyncNode(sync) => sync,
        other => unreachable!("{other} is not a patch of the Node"),
    }
}

/// Changes the taints of the Node, if the change has an effect.
pub(super) fn change_taints(
    node: &Arc<NodeFacts>,
    plan: &mut Plan<Action>,
    change: impl FnOnce(&mut Vec<Taint>),
) {
    let is_sync = |action: &&Action| matches!(action, Action::SyncNode(sync) if sync.node.uid == node.uid);
    let planned = plan.actions.iter().find(is_sync).and_then(|action| match action {
        Action::SyncNode(sync) => sync.taints.clone(),
        _ => None,
    });
    let before = planned.or_else(|| node.taints.clone()).unwrap_or_default();
    let mut after = before.clone();
    change(&mut after);
    if after != before {
        sync_of(node, plan).taints = Some(after);
    }
}
