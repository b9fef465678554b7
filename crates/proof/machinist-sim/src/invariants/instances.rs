//! S1, S2, S3: the instances of a Machine, from the first to the last.

use std::time::Duration;

use jiff::Timestamp;
use machinist_api::constants::labels;
use machinist_cloud_sim as cloud;
use machinist_core::orphan::NAMESPACE_TAG;

use super::violation::{Id, Violations};
use crate::actor::{RESTORE, Side, USER};
use crate::history::{Event, InstanceTrack, Invariant, RunState};
use crate::sight::{MACHINES, NODES, OTHER_NAMESPACE, SeenObject};

/// S1: a key never has more than one instance, and a name has at most one at a time.
pub(super) struct OnePerMachine;

impl Invariant for OnePerMachine {
    fn see(&mut self, state: &RunState, event: &Event<'_>, found: &mut Violations) {
        let Event::Ledger(commit) = event else { return };
        let gives_a_key = matches!(
            commit,
            cloud::LedgerCommit::Made { .. }
                | cloud::LedgerCommit::Adopted { .. }
                | cloud::LedgerCommit::Rekeyed { .. }
        );
        if !gives_a_key {
            return;
        }
        let Some(made) = state.instance(commit.id().as_str()) else { return };
        let others = || state.instances().filter(|other| other.id != made.id);
        // A restored Machine may have lost the record of an instance that no longer exists.
        let is_forgotten = |other: &InstanceTrack| {
            state.restored_at().is_some_and(|at| other.created < at) && !other.is_alive_at(state.now)
        };
        let twin =
            others().find(|other| other.key.is_some() && other.key == made.key && !is_forgotten(other));
        if let Some(other) = twin {
            found.add(Id::S1, format!("{} and {} were made for the same key", other.id, made.id));
        }
        let same_name = others().find(|other| other.name == made.name && other.is_alive_at(state.now));
        if let Some(other) = same_name {
            found
                .add(Id::S1, format!("{} and {} exist with the same name, {}", other.id, made.id, made.name));
        }
    }
}

/// S2: an instance is deleted only if its Machine is being deleted, or if it is an orphan.
pub(super) struct OnlyWithCause;

impl Invariant for OnlyWithCause {
    fn see(&mut self, state: &RunState, event: &Event<'_>, found: &mut Violations) {
        let Event::Ledger(cloud::LedgerCommit::DeletionBegun { id, .. }) = event else { return };
        let Some(instance) = state.instance(id.as_str()) else { return };
        match owner_of(state, instance) {
            Some(machine) if machine.is_deleting() => {}
            Some(machine) => {
                let name = machine.name();
                found.add(Id::S2, format!("{id} is being deleted, but its Machine {name} is not"));
            }
            None if was_lost_while_deleting(state, instance) => {}
            None if is_orphan(state, instance) => {}
            None => found.add(Id::S2, format!("{id} is being deleted, but belongs to no Machine")),
        }
    }
}

/// S3: no instance exists without the finalizer, and the finalizer is removed only after the
/// instance is deleted.
pub(super) struct FinalizerTruth;

impl Invariant for FinalizerTruth {
    fn see(&mut self, state: &RunState, event: &Event<'_>, found: &mut Violations) {
        match event {
            Event::Ledger(cloud::LedgerCommit::Made { entry }) => {
                let is_of_another = entry.tags.get(NAMESPACE_TAG).is_some_and(|uid| uid == OTHER_NAMESPACE);
                let Some(key) = entry.key.as_ref().filter(|_| !is_of_another) else { return };
                match state.by_uid(Side::Control, MACHINES, key.as_str()) {
                    Some(machine) if machine.has_intent() || is_just_stripped(state, machine.uid()) => {}
                    Some(machine) => found.add(
                        Id::S3,
                        format!(
                            "{} was made for Machine {}, which has no finalizer",
                            entry.id,
                            machine.name()
                        ),
                    ),
                    None if is_just_stripped(state, key.as_str()) => {}
                    None => found.add(
                        Id::S3,
                        format!("{} was made for {}, which does not exist", entry.id, entry.name),
                    ),
                }
            }
            Event::Committed { side: Side::Control, commit, .. } if *commit.resource == *MACHINES => {
                let Some(old) = commit.old.as_deref().map(|object| SeenObject(object.value())) else {
                    return;
                };
                let keeps_it = commit.new.as_deref().is_some_and(|new| SeenObject(new.value()).has_intent());
                let forced = labels::parse_bool(old.label(labels::FORCE_DELETION)) == Some(true);
                // Users who remove a finalizer and then the object accept the risk. Only writes of
                // the processes, and the server's removal of an object without finalizers, are
                // judged.
                let is_ours = crate::actor::TestedProcess::of_agent(&commit.user_agent).is_some();
                let is_erased = match &*commit.user_agent {
                    USER => !old.has_intent(),
                    RESTORE => true,
                    _ => is_just_stripped(state, old.uid()),
                };
                let judged = (old.has_intent() && is_ours) || (commit.new.is_none() && !is_erased);
                if keeps_it || forced || !judged {
                    return;
                }
                let made = old.created().unwrap_or(Timestamp::MIN);
                let left = state.instances().find(|instance| {
                    instance.is_alive_at(state.now)
                        && match &instance.key {
                            Some(key) => key == old.uid(),
                            None => instance.name == old.name() && made <= instance.created,
                        }
                });
                if let Some(instance) = left {
                    let name = old.name();
                    found.add(
                        Id::S3,
                        format!("Machine {name} is released while its instance {} exists", instance.id),
                    );
                }
            }
            Event::Committed { .. }
            | Event::Ledger(_)
            | Event::Arrived(_)
            | Event::Called(_)
            | Event::Hcloud(_)
            | Event::Outside(..) => {}
        }
    }
}

/// The time in which a process may not know yet that another actor took the finalizer off: the
/// longest age of facts that count as fresh, and the time in which watches and writes may be late.
const UNKNOWN_FOR: Duration = Duration::from_secs(120 + 120);

/// Whether another actor has just taken the finalizer off the Machine of that UID.
fn is_just_stripped(state: &RunState, uid: &str) -> bool {
    let stripped = state.stripped_at(uid);
    stripped.is_some_and(|at| state.now.duration_since(at).unsigned_abs() <= UNKNOWN_FOR)
}

/// Whether the Machine of an instance was being deleted when another actor released it.
fn was_lost_while_deleting(state: &RunState, instance: &InstanceTrack) -> bool {
    let Some(key) = instance.key.as_deref().filter(|key| state.lost_at(key).is_some()) else { return false };
    let versions = state.table(Side::Control, MACHINES).flat_map(|(_, track)| track.versions());
    versions.filter(|(_, machine)| machine.uid() == key).any(|(_, machine)| machine.is_deleting())
}

/// Whether an instance may be collected: another actor removed its Machine, which this invariant
/// knows for certain, and it has no Node.
fn is_orphan(state: &RunState, instance: &InstanceTrack) -> bool {
    /// Between the two lists that show the instance without a Machine.
    const SEEN_FOR: Duration = Duration::from_secs(600);
    /// The creation timeout.
    const AGE: Duration = Duration::from_secs(1200);
    let age = |from: Timestamp| Duration::try_from(state.now.duration_since(from)).unwrap_or_default();
    let is_lost =
        instance.key.as_deref().and_then(|key| state.lost_at(key)).is_some_and(|at| SEEN_FOR <= age(at));
    let has_node =
        state.objects(Side::Target, NODES).any(|node| node.text("/spec/providerID") == instance.id);
    is_lost && AGE <= age(instance.created) && instance.tags.contains_key(NAMESPACE_TAG) && !has_node
}

/// The Machine of an instance: found by the key, or by name if others made the instance. A Machine
/// that was created after the instance does not count.
fn owner_of<'s>(state: &'s RunState, instance: &InstanceTrack) -> Option<SeenObject<'s>> {
    match &instance.key {
        Some(key) => state.by_uid(Side::Control, MACHINES, key),
        None => state.objects(Side::Control, MACHINES).find(|machine| {
            let made = machine.created().unwrap_or(Timestamp::MIN);
            machine.name() == instance.name && made <= instance.created
        }),
    }
}
