//! S31: an instance of a class that asks for it is initialized after its id is recorded, and a
//! Machine is Pending or Running only after the cloud has answered that this is done.

use super::violation::{Id, Violations};
use crate::actor::Side;
use crate::history::{Event, Invariant, RunState};
use crate::sight::{MACHINE_CLASSES, MACHINES, SeenObject};

pub(super) struct InitializedFirst;

/// The phases of a Machine whose instance is complete.
const COMPLETE: [&str; 2] = ["Pending", "Running"];

impl Invariant for InitializedFirst {
    fn see(&mut self, state: &RunState, event: &Event<'_>, found: &mut Violations) {
        let Event::Committed { side: Side::Control, commit, cause: Some(_) } = event else { return };
        if *commit.resource != *MACHINES {
            return;
        }
        let Some(machine) = commit.new.as_deref().map(|new| SeenObject(new.value())) else { return };
        let was_complete =
            commit.old.as_deref().is_some_and(|old| COMPLETE.contains(&SeenObject(old.value()).phase()));
        if was_complete || !COMPLETE.contains(&machine.phase()) || !asks_for_it(state, machine) {
            return;
        }
        if !state.is_initialized(machine.provider_id()) {
            let (name, phase, id) = (machine.name(), machine.phase(), machine.provider_id());
            found.add(Id::S31, format!("Machine {name} is {phase}, but {id:?} is not initialized"));
        }
    }
}

/// Whether the class of a Machine asks for an initialization.
fn asks_for_it(state: &RunState, machine: SeenObject<'_>) -> bool {
    let key = format!("{}/{}", machine.namespace(), machine.text("/spec/class/name"));
    let class = state.track(Side::Control, MACHINE_CLASSES, &key).and_then(|track| track.now());
    class.and_then(|class| class.0.pointer("/providerSpec/initialize")) == Some(&true.into())
}

/// Checks a call that initializes an instance now.
pub fn judge(state: &RunState, id: &str) -> Violations {
    let mut found = Violations::default();
    let is_recorded = state.objects(Side::Control, MACHINES).any(|machine| machine.provider_id() == id);
    if !is_recorded {
        found.add(Id::S31, format!("{id} is initialized, but no Machine records it"));
    }
    found
}
