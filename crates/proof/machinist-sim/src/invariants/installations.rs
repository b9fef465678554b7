//! S29: objects in the cluster of the Nodes that carry the mark of another installation stay as
//! they are. The other installation may have the same names, and only the UID of its namespace
//! differs.
//!
//! S30: a Node is annotated as not managed only if it is older than the creation timeout and no
//! Machine has it.

use std::time::Duration;

use jiff::Timestamp;
use machinist_apiserver::Commit;
use machinist_core::orphan::NAMESPACE_TAG;

use super::violation::{Id, Violations};
use crate::actor::{Side, TestedProcess};
use crate::history::{Event, Invariant, RunState};
use crate::sight::{MACHINES, NODES, OTHER_NAMESPACE, SECRETS, SeenObject};

/// S29.
pub(super) struct OthersStay;

impl Invariant for OthersStay {
    fn see(&mut self, _: &RunState, event: &Event<'_>, found: &mut Violations) {
        let Some((table, old, _)) = written(event) else { return };
        if [NODES, SECRETS].contains(&table) && old.annotation(NAMESPACE_TAG) == OTHER_NAMESPACE {
            let name = old.name();
            found.add(Id::S29, format!("the controller writes {table} {name} of another installation"));
        }
    }
}

/// S30.
pub(super) struct ManagedStay;

/// `--machine-creation-timeout`; the timeout of a Machine may be longer.
const CREATION_TIMEOUT: Duration = Duration::from_secs(20 * 60);

impl Invariant for ManagedStay {
    fn see(&mut self, state: &RunState, event: &Event<'_>, found: &mut Violations) {
        let Some((NODES, old, Some(new))) = written(event) else { return };
        if old.is_not_managed() || !new.is_not_managed() {
            return;
        }
        let name = new.name();
        let age = state.now.duration_since(new.created().unwrap_or(Timestamp::MIN)).unsigned_abs();
        if age < CREATION_TIMEOUT {
            found.add(Id::S30, format!("Node {name} is annotated as not managed at the age of {age:?}"));
        }
        let has_it = |machine: &SeenObject<'_>| {
            machine.name() == name
                || machine.node_label() == name
                || (!new.provider_id().is_empty() && machine.provider_id() == new.provider_id())
        };
        if let Some(machine) = state.objects(Side::Control, MACHINES).find(has_it) {
            let machine = machine.name();
            found.add(
                Id::S30,
                format!("Node {name} is annotated as not managed, but Machine {machine} has it"),
            );
        }
    }
}

/// The table of an object in the cluster of the Nodes that the machine controller wrote, the object
/// before, and the object after.
fn written<'e>(event: &Event<'e>) -> Option<(&'e str, SeenObject<'e>, Option<SeenObject<'e>>)> {
    let Event::Committed { side: Side::Target, commit, .. } = event else { return None };
    let commit: &'e Commit = commit;
    let process = TestedProcess::of_agent(&commit.user_agent)?;
    let old = commit.old.as_deref().filter(|_| process == TestedProcess::MachineController)?;
    let new = commit.new.as_deref().map(|new| SeenObject(new.value()));
    Some((&*commit.resource, SeenObject(old.value()), new))
}
