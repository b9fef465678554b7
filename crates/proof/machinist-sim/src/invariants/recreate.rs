//! S25: with the strategy `Recreate`, no Machine is made while the manager sees one of another
//! class, even one that is being deleted.
//!
//! A deployment counts if all its specs have that strategy that were current since the one that the
//! manager had seen when it sent the POST.

use super::surge::{deployment_of, machines_of_deployment, shown_at, track_of};
use super::{Id, Invariant, Violations};
use crate::actor::{Side, TestedProcess};
use crate::history::{Event, RunState};
use crate::sight::{MACHINE_DEPLOYMENTS, MACHINE_SETS, MACHINES, SeenObject};

pub(super) struct OneTemplate;

impl Invariant for OneTemplate {
    fn see(&mut self, state: &RunState, event: &Event<'_>, found: &mut Violations) {
        let Event::Committed { side: Side::Control, commit, cause: Some(sent) } = event else { return };
        let is_birth = *commit.resource == *MACHINES && commit.old.is_none();
        if !is_birth || sent.process != TestedProcess::Manager {
            return;
        }
        let Some(made) = commit.new.as_deref().map(|object| SeenObject(object.value())) else { return };
        let Some(set) = made.owner_uid().and_then(|uid| track_of(state, MACHINE_SETS, uid)) else { return };
        let Some((uid, deployment)) = deployment_of(state, set) else { return };
        let mut specs = deployment.since(shown_at(sent, MACHINE_DEPLOYMENTS, deployment));
        if !specs.all(SeenObject::recreates) {
            return;
        }
        let class = |machine: SeenObject<'_>| machine.text("/spec/class/name").to_owned();
        let was_seen = |machine: &SeenObject<'_>| {
            let key = format!("{}/{}", machine.namespace(), machine.name());
            let shown = sent.had_seen(Side::Control, MACHINES, &key);
            let then = state.track(Side::Control, MACHINES, &key).and_then(|track| track.at(shown));
            then.is_some_and(|then| then.uid() == machine.uid())
        };
        let mut others = machines_of_deployment(state, uid).filter(|other| class(*other) != class(made));
        if let Some(other) = others.find(was_seen) {
            let (name, other_class) = (other.name(), class(other));
            found.add(
                Id::S25,
                format!("{} was made beside {name}, which has the class {other_class}", made.name()),
            );
        }
    }
}
