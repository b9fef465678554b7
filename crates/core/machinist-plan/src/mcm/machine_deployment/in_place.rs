//! Updates in place: selects Machines, and moves those that were updated to the new set.
//!
//! The instance of a Machine stays, and a program on it updates it. The steps of one Machine:
//!
//! ```text
//! manager              label selected-for-update on the Machine (Manual: a user labels the Node)
//! machine controller   drains the Node; phase InPlaceUpdating; the Node is ready for the update
//! program on the Node  updates it, and labels the Node with the result
//! machine controller   label update-result=successful on the Machine
//! manager              moves the Machine to the new set, counts it there, removes the label
//! machine controller   lets pods run on the Node again
//! ```
//!
//! While the Machine has the label `update-result`, no set deletes it
//! ([`crate::mcm::machine_set`]), and sets of old templates create no Machines. So neither set
//! replaces a Machine between its move and the change of both sizes, which [`crate::mcm::rollout`]
//! decides.

use std::collections::BTreeMap;
use std::sync::Arc;

use machinist_api::constants::{labels, reasons};

use super::action::{Action, Relabel};
use super::snapshot::{Owned, Snapshot};
use crate::mcm::deletion_order::place;
use crate::mcm::facts::{MachineFacts, MachineSetFacts};
use crate::mcm::live::{is_available, is_live, number};
use crate::mcm::rollout;

/// Returns the next changes of Machines. `new` is the index of the set of the template.
pub(super) fn steps(s: &Snapshot, new: usize) -> Vec<Action> {
    let mut steps = moves(s, new);
    steps.extend(accounted(&s.sets[new]));
    steps.extend(deselected(&s.sets[new]));
    if steps.is_empty() && s.deployment.is_in_place() && !s.deployment.spec.is_paused() {
        steps.extend(selected(s, new));
    }
    steps.into_iter().map(|step| Action::Relabel(Box::new(step))).collect()
}

/// Moves the Machines that were updated from sets of old templates to the new set.
fn moves(s: &Snapshot, new: usize) -> Vec<Relabel> {
    let to = &s.sets[new].set;
    let moved = old(s, new).flat_map(|owned| {
        let updated = owned.machines.iter().filter(|m| is_live(m) && m.is_updated_in_place());
        let moved = updated.map(|machine| Relabel {
            machine: machine.clone(),
            labels: labels_after_move(&owned.set, to),
            owner: Some(to.clone()),
            what: "move to the new set",
        });
        // A set releases a Machine that it does not select.
        moved.filter(|step| to.selector.as_ref().is_some_and(|all| all.selects(&step.labels_after())))
    });
    moved.collect()
}

/// The old set no longer selects the Machine, and the new one does.
fn labels_after_move(from: &MachineSetFacts, to: &MachineSetFacts) -> BTreeMap<String, Option<String>> {
    let selected = |set: &MachineSetFacts| {
        let labels = set.spec.selector.as_ref().and_then(|selector| selector.match_labels.clone());
        labels.unwrap_or_default()
    };
    let mut changes: BTreeMap<_, _> = selected(from).into_keys().map(|key| (key, None)).collect();
    changes.extend(selected(to).into_iter().map(|(key, value)| (key, Some(value))));
    changes.insert(labels::SELECTED_FOR_UPDATE.to_owned(), None);
    changes
}

/// Removes the label of the moved Machines after the size of the new set counts them.
fn accounted(new: &Owned) -> Vec<Relabel> {
    let live = new.machines.iter().filter(|machine| is_live(machine));
    if new.set.replicas() < number(live.clone().count()).saturating_add(new.unreadable) {
        return Vec::new();
    }
    let moved = live.filter(|machine| machine.is_updated_in_place());
    moved.map(|machine| without(machine, labels::UPDATE_RESULT, "end the move")).collect()
}

/// Takes back the selection of Machines whose template has become the present one again.
fn deselected(new: &Owned) -> Vec<Relabel> {
    let selected = new.machines.iter().filter(|machine| is_live(machine) && machine.is_selected_for_update());
    selected.map(|machine| without(machine, labels::SELECTED_FOR_UPDATE, "deselect")).collect()
}

fn without(machine: &Arc<MachineFacts>, label: &str, what: &'static str) -> Relabel {
    let labels = BTreeMap::from([(label.to_owned(), None)]);
    Relabel { machine: machine.clone(), labels, owner: None, what }
}

/// Selects as many Machines as may be unavailable, oldest set first.
fn selected(s: &Snapshot, new: usize) -> Vec<Relabel> {
    // A former leader may still select Machines.
    if !s.deployment.selects_for_update() || s.predecessor_until.is_some_and(|until| s.now < until) {
        return Vec::new();
    }
    let count = usize::try_from(budget(s, new)).unwrap_or(usize::MAX);
    let candidates = old(s, new).flat_map(|owned| {
        let mut machines: Vec<_> = owned.machines.iter().filter(|machine| is_candidate(machine)).collect();
        machines.sort_by_cached_key(|machine| place(machine, machine.preserved(s.now)));
        machines
    });
    let labels = || BTreeMap::from([(labels::SELECTED_FOR_UPDATE.to_owned(), Some("true".to_owned()))]);
    let select = |machine: &Arc<MachineFacts>| Relabel {
        machine: machine.clone(),
        labels: labels(),
        owner: None,
        what: "select for the update in place",
    };
    candidates.take(count).map(select).collect()
}

/// Returns how many more Machines may be selected.
fn budget(s: &Snapshot, new: usize) -> u32 {
    let machines = || s.sets.iter().flat_map(|owned| &owned.machines);
    let count = |test: &dyn Fn(&MachineFacts) -> bool| number(machines().filter(|m| test(m)).count());
    let undergoing = count(&|machine| is_live(machine) && machine.undergoes_update());
    // A selected Machine is available until it is drained, but not for long. A user, or Go MCM, may
    // have selected a Node of an old template whose stage the Machine does not show yet.
    let may_be_selected = old(s, new).flat_map(|owned| &owned.machines);
    let may_be_selected = may_be_selected.filter(|machine| is_available(machine) && !shows_stage(machine));
    let available = count(&|machine| is_available(machine) && !machine.undergoes_update())
        .saturating_sub(number(may_be_selected.count()));
    let fewest = s.deployment.replicas().saturating_sub(s.deployment.max_unavailable());
    let updated = rollout::specified(&s.sets[new]);
    let left = s.deployment.replicas().saturating_sub(updated).saturating_sub(undergoing);
    available.saturating_sub(fewest).min(left)
}

/// Whether the Machine shows at which stage its Node is in this update.
pub(crate) fn shows_stage(machine: &MachineFacts) -> bool {
    machine.undergoes_update()
        || machine.is_updated_in_place()
        || machine.update_stage() == Some(reasons::CANDIDATE_FOR_UPDATE)
}

fn is_candidate(machine: &MachineFacts) -> bool {
    is_available(machine)
        && shows_stage(machine)
        && machine.node.is_some()
        && !machine.undergoes_update()
        && !machine.is_updated_in_place()
}

/// Returns the sets of old templates, oldest first.
fn old(s: &Snapshot, new: usize) -> impl Iterator<Item = &Owned> {
    let others = s.sets.iter().enumerate().filter(move |(index, _)| *index != new);
    others.map(|(_, owned)| owned).filter(|owned| owned.set.deleting_since.is_none())
}
