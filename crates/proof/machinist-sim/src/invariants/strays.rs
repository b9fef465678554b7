//! S32: a set that has lost three new Machines to another program waits before it creates the next,
//! and creates no other one while that one is young.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;

use super::surge::made_by_manager;
use super::violation::{Id, Violations};
use crate::actor::{Side, TestedProcess};
use crate::history::{Event, Invariant, RunState};
use crate::sight::{MACHINES, SeenObject};

/// A Machine that is released at a lower age counts as lost.
const YOUNG: Duration = Duration::from_secs(600);
/// Shorter than the wait of a minute after the third lost Machine: a release may be committed up to
/// half a minute after the manager has stopped waiting for its answer.
const WAIT: Duration = Duration::from_secs(25);
const ALLOWED: usize = 3;

/// Remembers when each set lost young Machines.
#[derive(Default)]
pub(super) struct FewStrays {
    lost: BTreeMap<String, Vec<Timestamp>>,
}

impl Invariant for FewStrays {
    fn see(&mut self, state: &RunState, event: &Event<'_>, found: &mut Violations) {
        if let Some(set) = lost_by(state, event) {
            self.lost.entry(set.to_owned()).or_default().push(state.now);
            return;
        }
        let Some((_, made)) = made_by_manager(event) else { return };
        let Some(lost) = made.owner_uid().and_then(|set| self.lost.get_mut(set)) else { return };
        // A new process knows nothing of them.
        let born = state.born(TestedProcess::Manager);
        lost.retain(|at| born.is_none_or(|born| born < *at));
        let Some(last) = lost.last().filter(|_| ALLOWED <= lost.len()) else { return };
        let later = later_ones(state, made, *last);
        let has_stayed = |machine: &SeenObject<'_>| machine.created().is_some_and(|at| !is_young(state, at));
        if later.iter().any(has_stayed) {
            lost.clear();
            return;
        }
        let after = state.now.duration_since(*last).unsigned_abs();
        let (name, count) = (made.name(), lost.len());
        if after < WAIT {
            found
                .add(Id::S32, format!("Machine {name} was made {after:?} after its set lost {count} others"));
        }
        if let Some(later) = later.first() {
            let later = later.name();
            found.add(Id::S32, format!("Machine {name} was made although {later} is young"));
        }
    }
}

/// The other Machines of its set that were made after that time.
fn later_ones<'s>(state: &'s RunState, made: SeenObject<'_>, last: Timestamp) -> Vec<SeenObject<'s>> {
    let machines = state.objects(Side::Control, MACHINES);
    let others =
        machines.filter(|machine| machine.uid() != made.uid() && machine.owner_uid() == made.owner_uid());
    others.filter(|machine| !machine.is_deleting() && machine.created().is_some_and(|at| last < at)).collect()
}

/// The set whose young Machine the manager has just released.
fn lost_by<'e>(state: &RunState, event: &'e Event<'_>) -> Option<&'e str> {
    let Event::Committed { side: Side::Control, commit, cause: Some(sent) } = event else { return None };
    let is_release = *commit.resource == *MACHINES && sent.process == TestedProcess::Manager;
    let old = SeenObject(commit.old.as_deref().filter(|_| is_release)?.value());
    let new = SeenObject(commit.new.as_deref()?.value());
    let is_lost = new.owner_uid().is_none() && is_young(state, new.created()?);
    old.owner_uid().filter(|_| is_lost)
}

fn is_young(state: &RunState, created: Timestamp) -> bool {
    state.now.duration_since(created).unsigned_abs() < YOUNG
}
