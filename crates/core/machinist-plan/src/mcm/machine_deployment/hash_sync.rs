//! Gives a set that the deployment has adopted the label `machine-template-hash`.
//!
//! Sets that the deployment creates select their Machines by this label, so that no Machine is
//! selected by two sets. A set that a user has created may lack it. The label is added in an order
//! in which the set selects all its Machines at any moment:
//!
//! ```text
//! template -> Machines -> label and selector of the set
//! ```
//!
//! The selector changes only after the set has seen its new template, and has as many Machines as
//! replicas: a Machine that it was creating from the old template would lose its owner.

use std::sync::Arc;

use machinist_api::constants::labels;

use super::action::{Action, HashStep};
use super::snapshot::{Owned, Snapshot};
use super::template::template_hash;
use crate::mcm::facts::{MachineFacts, MachineSetFacts};
use crate::mcm::live::is_live;
use crate::mcm::why::{Plan, Reason, Step, Why};

/// Returns the next step for the sets that lack the label.
pub(super) fn plan(s: &Snapshot) -> Option<Plan<Action>> {
    let staying = s.sets.iter().filter(|owned| owned.set.deleting_since.is_none());
    let actions: Vec<_> =
        staying.filter(|owned| lacks_hash(&owned.set)).flat_map(|owned| steps(s, owned)).collect();
    let why = Why::new(Reason::Writing("labeling an adopted MachineSet"), Step::Nothing);
    (!actions.is_empty()).then(|| Plan::act_all(actions, why))
}

/// Whether a set selects its Machines without the label.
fn lacks_hash(set: &MachineSetFacts) -> bool {
    let selected = set.spec.selector.as_ref().and_then(|selector| selector.match_labels.as_ref());
    set.invalid.is_none() && selected.is_none_or(|labels| !labels.contains_key(labels::MACHINE_TEMPLATE_HASH))
}

/// Whether a set still selects the labels of its template when they have this hash.
fn selects_with(set: &MachineSetFacts, hash: &str) -> bool {
    let of_template = &set.spec.template.metadata.labels;
    let value_of = |key: &str| match key {
        labels::MACHINE_TEMPLATE_HASH => Some(hash),
        other => of_template.get(other).map(String::as_str),
    };
    set.selector.as_ref().is_some_and(|selector| selector.matches(value_of))
}

fn steps(s: &Snapshot, owned: &Owned) -> Vec<Action> {
    let set = &owned.set;
    let in_template = set.spec.template.metadata.labels.get(labels::MACHINE_TEMPLATE_HASH);
    let hash = in_template.cloned().unwrap_or_else(|| template_hash(&set.spec.template, 0).to_string());
    let action = |step: HashStep| Action::AddHash { step, hash: hash.clone() };
    if !selects_with(set, &hash) {
        return Vec::new();
    }
    if in_template.is_none() {
        return vec![action(HashStep::Template(set.clone()))];
    }
    let lacks = |machine: &&Arc<MachineFacts>| machine.label(labels::MACHINE_TEMPLATE_HASH) != Some(&hash);
    let unlabelled: Vec<_> = owned.machines.iter().filter(lacks).cloned().collect();
    if !unlabelled.is_empty() {
        return unlabelled.into_iter().map(|machine| action(HashStep::Machine(machine))).collect();
    }
    let has_seen_template = set.status.as_ref().is_some_and(|status| {
        set.generation.is_some_and(|generation| generation <= status.observed_generation)
    });
    let live = owned.machines.iter().filter(|machine| is_live(machine)).count();
    let is_complete = usize::try_from(set.replicas()) == Ok(live) && owned.unreadable == 0;
    let is_settled =
        has_seen_template && is_complete && s.predecessor_until.is_none_or(|until| until <= s.now);
    if is_settled { vec![action(HashStep::Selector(set.clone()))] } else { Vec::new() }
}
