//! S7: identity. A provider id is set once and belongs to one object. A Node is deleted only
//! together with its own Machine.

use http::Method;
use machinist_apiserver::Commit;

use super::violation::{Id, Violations};
use crate::actor::{Side, TestedProcess};
use crate::history::{Event, Invariant, RunState};
use crate::sight::{MACHINES, NODES, SeenObject};

/// Provider ids never change, and no two objects of a kind share one.
pub(super) struct ProviderIds;

impl Invariant for ProviderIds {
    fn see(&mut self, state: &RunState, event: &Event<'_>, found: &mut Violations) {
        let Event::Committed { side, commit, .. } = event else { return };
        let kind = match (side, &*commit.resource) {
            (Side::Control, MACHINES) => "Machine",
            (Side::Target, NODES) => "Node",
            _ => return,
        };
        // A user may write any id into a Machine.
        if *side == Side::Control && TestedProcess::of_agent(&commit.user_agent).is_none() {
            return;
        }
        let Some(new) = commit.new.as_deref().map(|object| SeenObject(object.value())) else { return };
        let id = new.provider_id();
        let was = commit.old.as_deref().map_or("", |old| SeenObject(old.value()).provider_id());
        if !was.is_empty() && was != id {
            found.add(
                Id::S7,
                format!("the provider id of {kind} {} changes from {was} to {id:?}", new.name()),
            );
        }
        if id.is_empty() || was == id {
            return;
        }
        let twin = state
            .objects(*side, &commit.resource)
            .find(|other| other.provider_id() == id && other.uid() != new.uid() && !other.is_deleting());
        if let Some(twin) = twin {
            found.add(
                Id::S7,
                format!("{kind}s {} and {} have the same provider id, {id}", twin.name(), new.name()),
            );
        }
    }
}

/// The machine controller deletes a Node only if the Node belongs to a Machine that is being
/// deleted, or was.
pub(super) struct OwnNodesOnly;

impl Invariant for OwnNodesOnly {
    fn see(&mut self, state: &RunState, event: &Event<'_>, found: &mut Violations) {
        let Event::Committed { side: Side::Target, commit, cause } = event else { return };
        let is_ours = TestedProcess::of_agent(&commit.user_agent) == Some(TestedProcess::MachineController);
        let Some(node) = going_node(commit).filter(|_| is_ours) else { return };
        // A PATCH only removes the finalizer from a Node that another client deletes.
        if cause.is_some_and(|sent| sent.method != Method::DELETE) {
            return;
        }
        let is_owner = |machine: SeenObject<'_>| {
            if !machine.is_deleting() {
                return false;
            }
            match node.provider_id() {
                "" => node.machine_label() == machine.name() && machine.created() <= node.created(),
                id => id == machine.provider_id(),
            }
        };
        // A lost DELETE may be repeated after a deletion by force has released the Machine.
        let tracks = state.table(Side::Control, MACHINES);
        let mut ever = tracks.flat_map(|(_, track)| track.versions()).map(|(_, machine)| machine);
        if !ever.any(is_owner) {
            let (name, id) = (node.name(), node.provider_id());
            found.add(
                Id::S7,
                format!("Node {name} ({id:?}) is deleted, but belongs to no Machine that is being deleted"),
            );
        }
    }
}

/// The Node that this commit begins to delete, or deletes at once.
fn going_node(commit: &Commit) -> Option<SeenObject<'_>> {
    let old = commit.old.as_deref().filter(|_| *commit.resource == *NODES)?;
    let was_going = SeenObject(old.value()).is_deleting();
    let is_going = commit.new.as_deref().is_none_or(|new| SeenObject(new.value()).is_deleting());
    (!was_going && is_going).then_some(SeenObject(old.value()))
}
