//! How many Machines a set makes, and which it deletes.
//!
//! A failed Machine is deleted, unless somebody promised to keep it ([`MachineFacts::preserved`]): then it counts as one of the
//! set's Machines until the promise ends, so nothing is made in its place, and it is the last to go when there are too many.
//!
//! A Machine whose instance was updated in place is never deleted here: its new set is about to own it. It counts when Machines are
//! missing, and not when there are too many.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use machinist_api::constants::{annotations, finalizers, labels};
use machinist_api::{Machine, MachinePriority, Phase};

use super::names::{Reserved, child_name};
use super::{Action, Snapshot};
use crate::facts::{MachineFacts, MachineSetFacts, Preserved};
use machinist_core::just_past;

/// The most Machines that one pass makes or deletes.
const BURST: usize = 100;

/// Whether a Machine still counts: it is not on its way out.
pub(crate) fn is_live(machine: &MachineFacts) -> bool {
    machine.deleting_since.is_none() && machine.status.phase != Phase::Terminating
}

/// Calls that bring the number of live Machines to what the set wants. Nothing is made before `again`.
pub(super) fn plan(s: &Snapshot, again: Option<Timestamp>) -> Vec<Action> {
    let live = || s.machines.iter().filter(|machine| is_live(machine));
    let wanted = usize::try_from(s.set.replicas()).unwrap_or(usize::MAX);
    let missing = wanted.saturating_sub(live().count());
    let candidates: Vec<_> = live().filter(|machine| !machine.is_updated_in_place()).collect();
    if 0 < missing {
        let may_grow = !s.set.is_frozen() && !s.set.is_scale_up_disabled() && again.is_none();
        let mut actions = if may_grow { grow(s, missing.min(BURST)) } else { Vec::new() };
        let failed = candidates.into_iter().filter(|machine| is_given_up(s, machine)).take(BURST);
        actions.extend(failed.cloned().map(Action::Delete));
        return actions;
    }
    let surplus = candidates.len().saturating_sub(wanted);
    shrink(s, candidates, surplus)
}

/// Whether a Machine has failed and nobody promised to keep it.
fn is_given_up(s: &Snapshot, machine: &MachineFacts) -> bool {
    machine.status.phase == Phase::Failed && s.preserved(machine).is_none()
}

/// When the next promise to keep a failed Machine ends.
pub(super) fn next_expiry(s: &Snapshot) -> Option<Timestamp> {
    let live = s.machines.iter().filter(|machine| is_live(machine));
    let ends = live.filter_map(|machine| s.failed_and_preserved(machine)?.until.map(just_past));
    // While clocks disagree, what has ended is looked at when they agree again.
    ends.filter(|end| s.now < *end).min()
}

fn grow(s: &Snapshot, missing: usize) -> Vec<Action> {
    let reserved = s.set.reserved();
    let used = used_numbers(s, &reserved);
    let open: Vec<u64> = reserved.pending.difference(&used).copied().take(missing).collect();
    if !open.is_empty() {
        return open.into_iter().map(|number| create(s, number)).collect();
    }
    let count = u64::try_from(missing).unwrap_or(u64::MAX);
    vec![Action::Reserve(reserved.with_more(count, &used))]
}

/// Pending numbers that are certainly in use: a Machine of that name was seen, now or before.
fn used_numbers(s: &Snapshot, reserved: &Reserved) -> BTreeSet<u64> {
    let names: BTreeSet<&str> = s.machines.iter().map(|machine| machine.name.as_str()).collect();
    let seen = |number: &u64| {
        s.settled_numbers.contains(number)
            || names.contains(child_name(&s.set.name, &s.set.uid, *number).as_str())
    };
    reserved.pending.iter().copied().filter(seen).collect()
}

/// When a child whose number is pending is on its way out, its number is written off, so that a later process cannot take it for
/// one that was never used.
pub(super) fn write_off(s: &Snapshot) -> Option<Action> {
    let reserved = s.set.reserved();
    if reserved.pending.is_empty() {
        return None;
    }
    let leaving: BTreeSet<&str> =
        s.machines.iter().filter(|machine| !is_live(machine)).map(|machine| machine.name.as_str()).collect();
    let is_leaving = |number: &u64| leaving.contains(child_name(&s.set.name, &s.set.uid, *number).as_str());
    let gone = |number: &u64| s.settled_numbers.contains(number);
    let pending = &reserved.pending;
    if !pending.iter().any(is_leaving) && !pending.iter().filter(|n| gone(n)).any(|n| !is_present(s, *n)) {
        return None;
    }
    let used = used_numbers(s, &reserved);
    Some(Action::Reserve(reserved.with_more(0, &used)))
}

fn is_present(s: &Snapshot, number: u64) -> bool {
    let name = child_name(&s.set.name, &s.set.uid, number);
    s.machines.iter().any(|machine| machine.name == name)
}

fn create(s: &Snapshot, number: u64) -> Action {
    Action::Create { number, name: child_name(&s.set.name, &s.set.uid, number) }
}

/// Deletes the Machines that the autoscaler chose, as many others as are left of the surplus, and the Machines that failed.
fn shrink(s: &Snapshot, mut ranked: Vec<&Arc<MachineFacts>>, surplus: usize) -> Vec<Action> {
    ranked.sort_by_key(|machine| (s.preserved(machine).map(rank_of_preserved), rank(machine)));
    // A chosen Machine is part of the surplus, also one that is preserved: another is not deleted in its place.
    let (marked, others): (Vec<&Arc<_>>, Vec<&Arc<_>>) =
        ranked.into_iter().partition(|machine| is_marked(s, machine));
    let (surplus, others) = others.split_at(surplus.saturating_sub(marked.len()));
    let failed = others.iter().copied().filter(|machine| is_given_up(s, machine));
    let victims = marked.into_iter().chain(surplus.iter().copied()).chain(failed);
    victims.take(BURST).cloned().map(Action::Delete).collect()
}

/// Of those that are kept, a set's own choice goes first, then what would end first.
fn rank_of_preserved(preserved: Preserved) -> (bool, Timestamp) {
    (!preserved.by_itself, preserved.until.unwrap_or(Timestamp::MAX))
}

/// Earlier means deleted first.
type Rank = (i64, (bool, Option<Timestamp>), u8, Timestamp, Reverse<String>);

fn rank(machine: &MachineFacts) -> Rank {
    let priority = machine.annotation(annotations::MACHINE_PRIORITY);
    let priority = priority.map_or(MachinePriority::DEFAULT, MachinePriority::parse_or_default);
    let marked = marked_at(machine);
    let phase = match &machine.status.phase {
        Phase::Failed => 1,
        Phase::CrashLoopBackOff => 2,
        Phase::Unknown => 3,
        Phase::Pending => 4,
        Phase::Available => 5,
        Phase::Running => 6,
        _ => 0,
    };
    (priority.0, (marked.is_none(), marked), phase, machine.created, Reverse(machine.name.clone()))
}

/// When the autoscaler chose this Machine.
pub(crate) fn marked_at(machine: &MachineFacts) -> Option<Timestamp> {
    machine.annotation(annotations::MARKED_FOR_DELETION_TIME)?.parse().ok()
}

/// Whether this Machine is marked as chosen by the autoscaler: by its priority, and a time.
pub(crate) fn is_chosen(machine: &MachineFacts) -> bool {
    let priority = machine.annotation(annotations::MACHINE_PRIORITY).map(MachinePriority::parse_or_default);
    priority == Some(MachinePriority::DELETE_FIRST) && marked_at(machine).is_some()
}

/// Whether the autoscaler chose this Machine, no later than it changed the number of replicas.
fn is_marked(s: &Snapshot, machine: &MachineFacts) -> bool {
    let changed: Option<Timestamp> =
        s.set.annotation(annotations::LAST_REPLICA_CHANGE_BY_SCALER_TIME).and_then(|text| text.parse().ok());
    let marked = marked_at(machine).filter(|_| is_chosen(machine));
    marked.zip(changed).is_some_and(|(marked, changed)| marked <= changed)
}

/// A child of a set: the template, our finalizer (the intent, so that it costs no write of its own) and the priority.
pub fn child(set: &MachineSetFacts, name: &str) -> Machine {
    let template = &set.spec.template;
    let mut annotations = template.metadata.annotations.clone();
    annotations
        .entry(annotations::MACHINE_PRIORITY.to_owned())
        .or_insert_with(|| MachinePriority::DEFAULT.0.to_string());
    if let Some(timeout) = set.annotation(annotations::EFFECTIVE_CREATION_TIMEOUT) {
        annotations.insert(annotations::EFFECTIVE_CREATION_TIMEOUT.to_owned(), timeout.to_owned());
    }
    let mut all_finalizers = template.metadata.finalizers.clone();
    if !all_finalizers.iter().any(|finalizer| finalizer == finalizers::MACHINE_CONTROLLER_MANAGER) {
        all_finalizers.push(finalizers::MACHINE_CONTROLLER_MANAGER.to_owned());
    }
    let metadata = ObjectMeta {
        name: Some(name.to_owned()),
        namespace: Some(set.namespace.clone()),
        labels: Some(child_labels(set)),
        annotations: Some(annotations),
        finalizers: Some(all_finalizers),
        owner_references: Some(vec![owner_reference(set)]),
        ..ObjectMeta::default()
    };
    Machine { metadata, spec: template.spec.clone(), status: None }
}

fn child_labels(set: &MachineSetFacts) -> BTreeMap<String, String> {
    let mut all = set.spec.template.metadata.labels.clone();
    // The label names the Node of one Machine; a template that carries it would claim one Node for all.
    all.remove(labels::NODE);
    all
}

/// The reference that makes a set the controller of a Machine.
pub fn owner_reference(set: &MachineSetFacts) -> OwnerReference {
    OwnerReference {
        api_version: "machine.sapcloud.io/v1alpha1".to_owned(),
        kind: "MachineSet".to_owned(),
        name: set.name.clone(),
        uid: set.uid.clone(),
        controller: Some(true),
        block_owner_deletion: Some(true),
    }
}
