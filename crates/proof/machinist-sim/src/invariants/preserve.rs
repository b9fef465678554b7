//! S26: the manager deletes no failed Machine that is preserved, unless its set has too many
//! Machines.
//!
//! A Machine is preserved by its expiry, or without one by its annotation, as the manager had seen
//! it when it sent the request.

use jiff::Timestamp;
use machinist_api::constants::annotations;

use super::surge::{seen_by, track_of};
use super::violation::{Id, Violations};
use crate::actor::{Side, TestedProcess};
use crate::history::{Event, Invariant, RunState};
use crate::sight::{MACHINE_SETS, MACHINES, SeenObject};

pub(super) struct PreservedStay;

impl Invariant for PreservedStay {
    fn see(&mut self, state: &RunState, event: &Event<'_>, found: &mut Violations) {
        let Event::Committed { side: Side::Control, commit, cause: Some(sent) } = event else { return };
        if *commit.resource != *MACHINES || sent.process != TestedProcess::Manager {
            return;
        }
        let Some(old) = commit.old.as_deref().map(|object| SeenObject(object.value())) else { return };
        let is_leaving = commit.new.as_deref().is_none_or(|object| SeenObject(object.value()).is_deleting());
        if old.is_deleting() || !is_leaving {
            return;
        }
        let was_kept = seen_by(sent, state, old).is_some_and(|then| is_kept(then, sent.at));
        if was_kept && is_kept(old, sent.at) && !is_surplus(state, old) {
            found.add(Id::S26, format!("{} is deleted although it is preserved", old.name()));
        }
    }
}

/// Whether a failed Machine is preserved.
pub(super) fn is_kept(machine: SeenObject<'_>, now: Timestamp) -> bool {
    if machine.phase() != "Failed" {
        return false;
    }
    match machine.time("/status/currentStatus/preserveExpiryTime") {
        Some(until) => now <= until,
        None => {
            let of_node = machine.annotation(annotations::LAST_APPLIED_NODE_PRESERVE_VALUE);
            let value = if of_node.is_empty() { machine.annotation(annotations::PRESERVE) } else { of_node };
            let keeps =
                [annotations::PRESERVE_NOW, annotations::PRESERVE_WHEN_FAILED, annotations::PRESERVE_AUTO];
            keeps.contains(&value)
        }
    }
}

/// Whether the set of a Machine, which is being deleted by now, had more Machines than replicas, or
/// is being deleted.
fn is_surplus(state: &RunState, machine: SeenObject<'_>) -> bool {
    let Some(uid) = machine.owner_uid() else { return true };
    let set = track_of(state, MACHINE_SETS, uid).and_then(|set| set.now());
    let Some(set) = set.filter(|set| !set.is_deleting()) else { return true };
    let of_set = state.objects(Side::Control, MACHINES).filter(|other| other.owner_uid() == Some(uid));
    let left = of_set.filter(|other| !other.is_deleting()).count();
    usize::try_from(set.replicas()).is_ok_and(|replicas| replicas <= left)
}
