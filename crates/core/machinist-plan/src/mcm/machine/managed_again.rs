//! Removes the annotation `not-managed-by-mcm` from the Node of a Machine.
//!
//! Go's machine-controller-manager annotates a Node that no Machine has, and removes the annotation
//! at its next look for orphans if a Machine has the Node. Users set the annotation, too, to delete
//! a Node without its Machine. So the annotation stays for `--machine-safety-orphan-vms-period`
//! after this process has seen it. Meanwhile it excludes the Node from management. A Node whose
//! mark names another installation is left alone, unless the Machine records its instance.

use std::sync::Arc;

use machinist_api::constants::annotations;
use machinist_core::{is_past, just_past, plus};

use super::Action;
use super::node_sync::NodeSync;
use super::snapshot::Snapshot;
use crate::mcm::facts::NodeFacts;
use crate::mcm::why::Plan;

/// Adds the removal of the annotation to the plan of a Machine that has the Node.
pub(super) fn attend(s: &Snapshot, node: &Arc<NodeFacts>, mut plan: Plan<Action>) -> Plan<Action> {
    let Some(period) = s.defaults.orphan_period.filter(|_| node.is_not_managed()) else { return plan };
    let is_own = |cluster: &str, namespace: &str| (cluster, namespace) == (&s.cluster, &s.machine.namespace);
    let is_of_another = node.mark().is_some_and(|mark| !is_own(&mark.cluster, &mark.namespace));
    if node.deleting_since.is_some() || (is_of_another && !s.identity.same_instance) || !s.may_mark() {
        return plan;
    }
    let end = plus(s.node_seen.not_managed.unwrap_or(s.now), period);
    if !is_past(s.now, end) {
        return plan.no_later_than(just_past(end));
    }
    let mut sync = s.node_sync(node).unwrap_or_else(|| NodeSync::empty(node));
    sync.annotations.insert(annotations::NOT_MANAGED_BY_MCM.to_owned(), None);
    plan.actions.push(Action::SyncNode(Box::new(sync)));
    plan
}
