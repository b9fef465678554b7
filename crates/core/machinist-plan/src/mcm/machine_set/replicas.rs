//! Decides how many Machines a set creates, and which Machines it deletes.
//!
//! A failed Machine is deleted unless it is preserved ([`MachineFacts::preserved`]), or is about to
//! be preserved automatically ([`super::preserve`]). A preserved
//! Machine counts as one of the set's Machines until it expires, so no replacement is created. If
//! the set has too many Machines, preserved ones are deleted last.
//!
//! A Machine whose instance was updated in place is not deleted here, because its new set will own
//! it. The Machine counts when the set looks for missing Machines, and not when it looks for
//! surplus Machines. The same applies to a Machine that cannot be parsed, because its instance may
//! run. If the strategy is Recreate now, the updated Machine is deleted like any other of an old
//! template: the new set may not exist before all old Machines are gone.
//!
//! A surplus Machine that is available stays while the deployment would have too few available
//! Machines without it: a user may have scaled the deployment up since it lowered this set.
//!
//! If the deployment wants a larger set now than the set's spec says, only Machines beyond that
//! larger size are surplus: the deployment is about to write it. If it wants a smaller set, no
//! Machine beyond that smaller size is created, and none while the deployment has as many Machines
//! as it may have.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use machinist_api::constants::{annotations, finalizers, labels};
use machinist_api::{Machine, MachinePriority, Phase};

use super::Action;
use super::freeze;
use super::names::{Reserved, child_name};
use super::preserve;
use super::snapshot::Snapshot;
use super::strays;
use crate::mcm::deletion_order::{is_marked, place};
use crate::mcm::facts::{MachineFacts, MachineSetFacts};
use crate::mcm::live::{is_available, is_live, number};
use crate::mcm::machine_deployment::is_same_template;
use crate::mcm::rollout::Bounds;
use machinist_core::just_past;

/// Maximum number of Machines that one pass creates or deletes.
const BURST: usize = 100;

/// Returns the calls that bring the number of live Machines to the desired number. No Machine is
/// created before `again`.
pub(super) fn plan(s: &Snapshot, again: Option<Timestamp>) -> Vec<Action> {
    let missing = missing(s).min(allowed(s));
    let may_grow =
        0 < missing && !freeze::stops_creation(s) && !s.set.is_scale_up_disabled() && again.is_none();
    // Deletions come first: while creations hang in a webhook, the facts for deletions would get
    // too old again and again.
    let due = victims(s).into_iter().filter(|machine| s.may_delete(machine)).take(BURST);
    let mut actions: Vec<_> = due.cloned().map(Action::Delete).collect();
    if may_grow {
        let most = if strays::limit(s).is_some() { 1 } else { BURST };
        actions.extend(grow(s, missing.min(most)));
    }
    actions
}

fn wanted(s: &Snapshot) -> usize {
    usize::try_from(s.set.replicas()).unwrap_or(usize::MAX)
}

pub(super) fn missing(s: &Snapshot) -> usize {
    wanted(s).saturating_sub(present(s))
}

/// Returns the number of Machines, without those that are being deleted.
fn present(s: &Snapshot) -> usize {
    s.machines.iter().filter(|machine| is_live(machine)).count() + s.unreadable.len()
}

/// Returns how many Machines the set may create: the deployment may want fewer now than the spec of
/// the set says.
fn allowed(s: &Snapshot) -> usize {
    let room = s.bounds().map_or(u32::MAX, |bounds| bounds.most.saturating_sub(bounds.live));
    let within = s.smaller_size().map_or(u32::MAX, |size| size.saturating_sub(number(present(s))));
    usize::try_from(room.min(within)).unwrap_or(usize::MAX)
}

/// Returns what keeps the set from creating Machines: the deployment has enough of them. Machines
/// of another set may still have to be deleted.
pub(super) fn without_room(s: &Snapshot) -> Option<Bounds> {
    s.bounds().filter(|bounds| 0 < missing(s) && bounds.most <= bounds.live)
}

/// Returns the Machines that the set has to delete.
pub(super) fn victims(s: &Snapshot) -> Vec<&Arc<MachineFacts>> {
    let live = s.machines.iter().filter(|machine| is_live(machine));
    let mut candidates: Vec<_> = live.filter(|machine| !moves(s, machine)).collect();
    if 0 < missing(s) {
        candidates.retain(|machine| is_given_up(s, machine));
        return candidates;
    }
    let larger = s.larger_size().map_or(0, |size| usize::try_from(size).unwrap_or(usize::MAX));
    let surplus = candidates.len().saturating_sub(wanted(s).max(larger));
    let chosen = shrink(s, candidates, surplus);
    let Some(bounds) = s.bounds() else { return chosen };
    affordable(s, chosen, bounds)
}

/// Whether a Machine was updated in place and is about to move to its new set.
pub(super) fn moves(s: &Snapshot, machine: &MachineFacts) -> bool {
    // Templates are compared only for the few Machines with the label.
    let is_old = || {
        let deployment = s.deployment.as_ref().filter(|deployment| deployment.recreates());
        deployment
            .is_some_and(|deployment| !is_same_template(&deployment.spec.template, &s.set.spec.template))
    };
    machine.is_updated_in_place() && !is_old()
}

/// Leaves out the available Machines without which the deployment would have too few. The choice of
/// the autoscaler stands.
fn affordable<'s>(
    s: &Snapshot,
    chosen: Vec<&'s Arc<MachineFacts>>,
    bounds: Bounds,
) -> Vec<&'s Arc<MachineFacts>> {
    let mut spare = bounds.available.saturating_sub(bounds.fewest);
    let mut is_affordable = |machine: &&Arc<MachineFacts>| {
        let is_kept = is_available(machine) && spare == 0 && !is_marked(&s.set, machine);
        spare = spare.saturating_sub(u32::from(is_available(machine)));
        !is_kept
    };
    chosen.into_iter().filter(|machine| is_affordable(machine)).collect()
}

/// Returns what keeps surplus Machines: the deployment has too few available ones without them.
pub(super) fn kept_available(s: &Snapshot) -> Option<Bounds> {
    let live = s.machines.iter().filter(|machine| is_live(machine));
    let surplus = live.filter(|machine| !moves(s, machine)).count();
    let bounds = s.bounds().filter(|bounds| bounds.available <= bounds.fewest)?;
    let is_short = wanted(s) < surplus && s.larger_size().is_none() && victims(s).is_empty();
    is_short.then_some(bounds)
}

/// Whether a Machine has failed and is not preserved, now or soon.
fn is_given_up(s: &Snapshot, machine: &MachineFacts) -> bool {
    let is_lost = machine.status.phase == Phase::Failed && s.preserved(machine).is_none();
    is_lost && !preserve::is_about_to_be(s, machine)
}

/// Returns the first failed Machine that stays because the deployment is about to preserve it.
pub(super) fn awaiting_preservation(s: &Snapshot) -> Option<&Arc<MachineFacts>> {
    let is_kept = |machine: &&Arc<MachineFacts>| preserve::is_about_to_be(s, machine);
    s.machines.iter().filter(|machine| is_live(machine)).find(is_kept)
}

/// Returns when the next preserved Machine expires.
pub(super) fn next_expiry(s: &Snapshot) -> Option<Timestamp> {
    let live = s.machines.iter().filter(|machine| is_live(machine));
    let ends = live.filter_map(|machine| s.failed_and_preserved(machine)?.until.map(just_past));
    // During clock skew, passed expiries are handled later, when the clocks agree again.
    ends.filter(|end| s.now < *end).min()
}

fn grow(s: &Snapshot, missing: usize) -> Vec<Action> {
    let reserved = Reserved::of(&s.set);
    let used = used_numbers(s, &reserved);
    let open: Vec<u64> = reserved.pending.difference(&used).copied().take(missing).collect();
    if !open.is_empty() {
        return open.into_iter().map(|number| create(s, number)).collect();
    }
    let count = u64::try_from(missing).unwrap_or(u64::MAX);
    vec![Action::Reserve(reserved.with_more(count, &used))]
}

/// Returns the pending numbers that are certainly in use: a Machine with that name was seen, now or
/// before.
fn used_numbers(s: &Snapshot, reserved: &Reserved) -> BTreeSet<u64> {
    let names: BTreeSet<&str> = names(s).collect();
    let seen = |number: &u64| {
        s.finished_numbers.contains(number)
            || names.contains(child_name(&s.set.name, &s.set.uid, *number).as_str())
    };
    reserved.pending.iter().copied().filter(seen).collect()
}

/// Removes a number from the pending numbers when its child is being deleted, so that a later
/// process does not treat it as unused.
pub(super) fn write_off(s: &Snapshot) -> Option<Action> {
    let reserved = Reserved::of(&s.set);
    if reserved.pending.is_empty() {
        return None;
    }
    let leaving: BTreeSet<&str> =
        s.machines.iter().filter(|machine| !is_live(machine)).map(|machine| machine.name.as_str()).collect();
    let is_leaving = |number: &u64| leaving.contains(child_name(&s.set.name, &s.set.uid, *number).as_str());
    let gone = |number: &u64| s.finished_numbers.contains(number);
    let pending = &reserved.pending;
    if !pending.iter().any(is_leaving) && !pending.iter().filter(|n| gone(n)).any(|n| !is_present(s, *n)) {
        return None;
    }
    let used = used_numbers(s, &reserved);
    Some(Action::Reserve(reserved.with_more(0, &used)))
}

fn is_present(s: &Snapshot, number: u64) -> bool {
    let name = child_name(&s.set.name, &s.set.uid, number);
    names(s).any(|present| present == name)
}

/// Returns the names of all Machines of the set.
fn names(s: &Snapshot) -> impl Iterator<Item = &str> {
    s.machines.iter().map(|machine| &machine.name).chain(&s.unreadable).map(String::as_str)
}

fn create(s: &Snapshot, number: u64) -> Action {
    Action::Create { number, name: child_name(&s.set.name, &s.set.uid, number) }
}

/// Returns the Machines that the autoscaler chose, the remaining surplus, and the failed Machines.
fn shrink<'s>(
    s: &Snapshot,
    candidates: Vec<&'s Arc<MachineFacts>>,
    surplus: usize,
) -> Vec<&'s Arc<MachineFacts>> {
    let (mut marked, mut others): (Vec<&Arc<_>>, Vec<&Arc<_>>) =
        candidates.into_iter().partition(|machine| is_marked(&s.set, machine));
    // A chosen Machine is part of the surplus, even if it is preserved: no other Machine is deleted
    // in its place.
    let surplus = surplus.saturating_sub(marked.len());
    if surplus == 0 {
        // A set with thousands of Machines is sorted only when it has to choose among them.
        others.retain(|machine| is_given_up(s, machine));
    }
    for machines in [&mut marked, &mut others] {
        machines.sort_by_cached_key(|machine| place(machine, s.preserved(machine)));
    }
    let (surplus, others) = others.split_at(surplus);
    let failed = others.iter().copied().filter(|machine| is_given_up(s, machine));
    marked.into_iter().chain(surplus.iter().copied()).chain(failed).collect()
}

/// Returns a child of a set: the template, our finalizer (the intent, which then needs no separate
/// write) and the priority.
pub fn child(set: &MachineSetFacts, name: &str) -> Machine {
    let template = &set.spec.template;
    let mut annotations = template.metadata.annotations.clone();
    // The manager writes it on one Machine that it is about to delete.
    annotations.remove(annotations::MARKED_FOR_DELETION_TIME);
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
    // The label names the Node of one Machine. In a template it would claim one Node for all
    // Machines.
    all.remove(labels::NODE);
    all
}

/// Returns the owner reference that makes a set the controller of a Machine.
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
