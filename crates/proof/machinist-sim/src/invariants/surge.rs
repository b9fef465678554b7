//! S4: no Machine is created beyond the largest number that the manager may still have considered
//! allowed.
//!
//! A deployment's number reaches a Machine in two steps: from the deployment to the set, and from
//! the set to the Machine. So all specs count that were current since the older of two moments. The
//! first is the newest deployment that the manager had seen when it sent the POST. The second is
//! the commit that gave the set the number of replicas that the manager had seen.

use super::violation::{Id, Violations};
use crate::actor::{Side, TestedProcess};
use crate::ask::WriteInFlight;
use crate::history::{Event, Invariant, RunState, Track};
use crate::sight::{MACHINE_DEPLOYMENTS, MACHINE_SETS, MACHINES, SeenObject};

pub(super) struct SurgeBound;

impl Invariant for SurgeBound {
    fn see(&mut self, state: &RunState, event: &Event<'_>, found: &mut Violations) {
        let Some((sent, made)) = made_by_manager(event) else { return };
        let Some(set) = made.owner_uid().and_then(|uid| track_of(state, MACHINE_SETS, uid)) else {
            return found
                .add(Id::S4, format!("Machine {} was created for a set that does not exist", made.name()));
        };
        let (allowed, live) = match deployment_of(state, set) {
            Some((uid, deployment)) => {
                let decided = replicas_decided_at(set, shown_at(sent, MACHINE_SETS, set));
                let since = decided.min(shown_at(sent, MACHINE_DEPLOYMENTS, deployment));
                let allowed = deployment.since(since).map(|spec| spec.replicas() + spec.max_surge()).max();
                (allowed, live_of_deployment(state, uid))
            }
            None => {
                let since = shown_at(sent, MACHINE_SETS, set);
                (
                    set.since(since).map(SeenObject::replicas).max(),
                    live_of_set(state, made.owner_uid().unwrap_or_default()),
                )
            }
        };
        let Some(allowed) = allowed else {
            return found.add(
                Id::S4,
                format!("Machine {} was created for a deployment that does not exist", made.name()),
            );
        };
        // `live` includes the new Machine.
        if allowed < live {
            let name = made.name();
            found.add(
                Id::S4,
                format!("Machine {name} is Machine number {live}, but only {allowed} are allowed"),
            );
        }
    }
}

/// The Machine that the manager has just made, with the request.
pub(super) fn made_by_manager<'e>(event: &'e Event<'_>) -> Option<(&'e WriteInFlight, SeenObject<'e>)> {
    let Event::Committed { side: Side::Control, commit, cause: Some(sent) } = event else { return None };
    let is_birth = *commit.resource == *MACHINES && commit.old.is_none();
    let made = commit.new.as_deref().filter(|_| is_birth && sent.process == TestedProcess::Manager)?;
    Some((sent, SeenObject(made.value())))
}

/// A Machine as the sender of a write had last seen it.
pub(super) fn seen_by<'s>(
    sent: &WriteInFlight,
    state: &'s RunState,
    machine: SeenObject<'_>,
) -> Option<SeenObject<'s>> {
    let key = format!("{}/{}", machine.namespace(), machine.name());
    let shown = sent.had_seen(Side::Control, MACHINES, &key);
    let then = state.track(Side::Control, MACHINES, &key)?.at(shown)?;
    (then.uid() == machine.uid()).then_some(then)
}

/// All versions of the object that has that UID, or had it last.
pub(super) fn track_of<'s>(state: &'s RunState, table: &str, uid: &str) -> Option<&'s Track> {
    let mut tracks = state.table(Side::Control, table);
    tracks
        .find(|(_, track)| track.versions().next_back().is_some_and(|(_, object)| object.uid() == uid))
        .map(|(_, t)| t)
}

/// The deployment of a set, and its UID.
pub(super) fn deployment_of<'s>(state: &'s RunState, set: &'s Track) -> Option<(&'s str, &'s Track)> {
    let (_, set) = set.versions().next_back()?;
    let uid = set.owner_uid()?;
    Some((uid, track_of(state, MACHINE_DEPLOYMENTS, uid)?))
}

/// The revision at which a set was given the replicas that it had at `seen`.
fn replicas_decided_at(set: &Track, seen: u64) -> u64 {
    let mut decided = 0;
    let mut current = None;
    for (revision, version) in set.versions().filter(|(revision, _)| *revision <= seen) {
        if current != Some(version.replicas()) {
            current = Some(version.replicas());
            decided = revision;
        }
    }
    // The manager computed this number from a deployment that it had seen before the commit, so the
    // commit's own revision is one too high.
    decided.saturating_sub(1)
}

fn live_of_set(state: &RunState, uid: &str) -> u32 {
    let live = state.objects(Side::Control, MACHINES);
    count(live.filter(|machine| is_live(state, *machine) && machine.owner_uid() == Some(uid)))
}

fn live_of_deployment(state: &RunState, uid: &str) -> u32 {
    let live = machines_of_deployment(state, uid);
    count(live.filter(|machine| is_live(state, *machine)))
}

/// Whether a Machine counts. The manager may not know yet a Machine that another actor replaced.
fn is_live(state: &RunState, machine: SeenObject<'_>) -> bool {
    !machine.is_deleting() && !state.was_replaced(machine.uid())
}

/// The existing Machines of all sets of a deployment.
pub(super) fn machines_of_deployment<'s>(
    state: &'s RunState,
    uid: &'s str,
) -> impl Iterator<Item = SeenObject<'s>> {
    state.objects(Side::Control, MACHINES).filter(move |machine| deployment_uid(state, *machine) == Some(uid))
}

/// The UID of the deployment that a Machine belongs to.
pub(super) fn deployment_uid<'s>(state: &'s RunState, machine: SeenObject<'s>) -> Option<&'s str> {
    let set = track_of(state, MACHINE_SETS, machine.owner_uid()?)?;
    let (_, set) = set.versions().next_back()?;
    set.owner_uid()
}

fn count<'s>(machines: impl Iterator<Item = SeenObject<'s>>) -> u32 {
    u32::try_from(machines.count()).unwrap_or(u32::MAX)
}

/// The newest revision of an object of the control cluster that the sender had seen when it sent a
/// write.
pub(super) fn shown_at(sent: &WriteInFlight, table: &str, track: &Track) -> u64 {
    let key =
        track.versions().next_back().map(|(_, object)| format!("{}/{}", object.namespace(), object.name()));
    sent.had_seen(Side::Control, table, &key.unwrap_or_default())
}
