//! S17: no object is written again and again within seconds, and S18: an orphaned object stays.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use jiff::Timestamp;

use super::violation::{Id, Violations};
use crate::actor::Side;
use crate::history::{Event, Invariant, RunState};
use crate::sight::{MACHINE_DEPLOYMENTS, MACHINE_SETS, MACHINES, SeenObject};

/// S17: a process does not write one object in a circle. It sees creations and deletions under one
/// name, too.
#[derive(Default)]
pub(super) struct NoCircles {
    writes: BTreeMap<(Side, String), VecDeque<Timestamp>>,
}

/// More writes of one object than any sequence of steps needs.
const WRITES: usize = 30;
/// The time in which they count.
const WINDOW: Duration = Duration::from_secs(15);

impl Invariant for NoCircles {
    fn see(&mut self, state: &RunState, event: &Event<'_>, found: &mut Violations) {
        let Event::Committed { side, commit, cause: Some(sent) } = event else { return };
        let key = format!("{} {}", commit.resource, commit.key.as_str());
        let times = self.writes.entry((*side, key.clone())).or_default();
        times.push_back(state.now);
        while times.front().is_some_and(|first| *first + WINDOW < state.now) {
            times.pop_front();
        }
        if WRITES < times.len() {
            found.add(Id::S17, format!("the {} wrote {key} {WRITES} times in {WINDOW:?}", sent.process));
            times.clear();
        }
    }
}

/// S18: while a user deletes an object with `--cascade=orphan`, no process deletes its dependents,
/// and none deletes an object that no longer has an owner.
pub(super) struct OrphansStay;

/// The finalizer of a deletion that leaves the dependents.
const ORPHAN: &str = "orphan";

impl Invariant for OrphansStay {
    fn see(&mut self, state: &RunState, event: &Event<'_>, found: &mut Violations) {
        let Event::Committed { side: Side::Control, commit, cause: Some(sent) } = event else { return };
        let owners = match &*commit.resource {
            MACHINES => MACHINE_SETS,
            MACHINE_SETS => MACHINE_DEPLOYMENTS,
            _ => return,
        };
        let Some(old) = commit.old.as_deref().map(|object| SeenObject(object.value())) else { return };
        let is_deleted = commit.new.as_deref().is_none_or(|new| SeenObject(new.value()).is_deleting());
        if old.is_deleting() || !is_deleted {
            return;
        }
        let (process, name) = (sent.process, old.name());
        let Some(owner) = old.owner_uid() else {
            found.add(Id::S18, format!("the {process} deletes {name}, which has no owner"));
            return;
        };
        let owner = state.by_uid(Side::Control, owners, owner);
        if let Some(owner) = owner.filter(|owner| owner.has_finalizer(ORPHAN)) {
            let owner = owner.name();
            found.add(Id::S18, format!("the {process} deletes {name} while {owner} is being orphaned"));
        }
    }
}
