//! The virtual capacity of a Node: resources that the MachineClass adds to `status.capacity`, which
//! no kubelet reports. An annotation of the Node names what was added last, so that a resource that
//! the class no longer has is removed. Resources of others stay.
//!
//! The status is written first, and the annotation in a later pass, when the Node shows the
//! capacity. Deliberately absent: `status.allocatable`, which the kubelet computes.

use std::collections::BTreeMap;
use std::sync::Arc;

use machinist_api::constants::annotations;

use super::action::Action;
use super::node_patch::sync_of;
use super::snapshot::Snapshot;
use crate::mcm::facts::{NodeFacts, is_same_quantity};
use crate::mcm::why::Plan;

/// Adds the writes of the virtual capacity to the plan for a Machine with that Node. A class
/// without `nodeTemplate` says nothing about it.
pub(super) fn attend(s: &Snapshot, node: &Arc<NodeFacts>, plan: &mut Plan<Action>) {
    let class = s.class.present().and_then(|class| class.virtual_capacity.as_ref());
    let Some(desired) = class else { return };
    let written = node.annotation(annotations::LAST_APPLIED_VIRTUAL_CAPACITY);
    // Only this program and Go MCM write the annotation. What cannot be parsed is written again.
    let last: Option<BTreeMap<String, String>> = written.and_then(|text| serde_json::from_str(text).ok());
    let last = last.unwrap_or_default();
    let is_news = |(key, value): &(&String, &String)| {
        node.capacity(key).is_none_or(|current| !is_same_quantity(current, value))
    };
    let set = desired.iter().filter(is_news).map(|(key, value)| (key.clone(), Some(value.clone())));
    let gone = last.keys().filter(|key| !desired.contains_key(*key) && node.capacity(key).is_some());
    let changes: BTreeMap<_, _> = set.chain(gone.map(|key| (key.clone(), None))).collect();
    if !changes.is_empty() {
        plan.actions.push(Action::SetCapacity { node: node.clone(), changes });
        return;
    }
    let annotation = match (desired.is_empty(), written) {
        (true, None) => return,
        (true, Some(_)) => None,
        (false, Some(_)) if last == *desired => return,
        (false, _) => Some(serde_json::to_string(desired).unwrap_or_default()),
    };
    let key = annotations::LAST_APPLIED_VIRTUAL_CAPACITY.to_owned();
    sync_of(node, plan).annotations.insert(key, annotation);
}
