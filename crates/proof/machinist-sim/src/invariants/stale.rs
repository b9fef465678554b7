//! S21: a write changes or deletes only the object that its sender has seen, and none that has the
//! same name by now.

use super::violation::{Id, Violations};
use crate::history::{Event, Invariant, RunState};
use crate::sight::{
    MACHINE_CLASSES, MACHINE_DEPLOYMENTS, MACHINE_SETS, MACHINES, NODES, PODS, SECRETS, SeenObject,
};

pub(super) struct SameObject;

/// The tables of objects that the processes change.
const CHANGED: [&str; 7] =
    [MACHINES, MACHINE_SETS, MACHINE_DEPLOYMENTS, MACHINE_CLASSES, NODES, PODS, SECRETS];

impl Invariant for SameObject {
    fn see(&mut self, state: &RunState, event: &Event<'_>, found: &mut Violations) {
        let Event::Committed { side, commit, cause: Some(sent) } = event else { return };
        let table = &*commit.resource;
        let Some(old) = commit.old.as_deref().map(|old| SeenObject(old.value())) else { return };
        if !CHANGED.contains(&table) {
            return;
        }
        let key = commit.key.as_str();
        let shown = sent.had_seen(*side, table, key);
        let Some(then) = state.track(*side, table, key).and_then(|track| track.at(shown)) else { return };
        if then.uid() != old.uid() {
            let (process, method, at) = (sent.process, &sent.method, sent.at);
            found.add(
                Id::S21,
                format!("the {process} sent a {method} at {at} about an older object named {table} {key}"),
            );
        }
    }
}
