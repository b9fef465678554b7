//! S25: with the strategy `Recreate`, no Machine is made while the manager sees a Machine of
//! another class, even a Machine that is being deleted.
//!
//! A deployment counts if all its specs have that strategy: the spec that the manager had seen when
//! it sent the POST, and every later spec.

use super::surge::{deployment_of, machines_of_deployment, made_by_manager, seen_by, shown_at, track_of};
use super::violation::{Id, Violations};
use crate::history::{Event, Invariant, RunState};
use crate::sight::{MACHINE_DEPLOYMENTS, MACHINE_SETS, SeenObject};

/// Where a Machine names its class.
const CLASS: &str = "/spec/class/name";

pub(super) struct OneTemplate;

impl Invariant for OneTemplate {
    fn see(&mut self, state: &RunState, event: &Event<'_>, found: &mut Violations) {
        let Some((sent, made)) = made_by_manager(event) else { return };
        let Some(set) = made.owner_uid().and_then(|uid| track_of(state, MACHINE_SETS, uid)) else { return };
        let Some((uid, deployment)) = deployment_of(state, set) else { return };
        let mut specs = deployment.since(shown_at(sent, MACHINE_DEPLOYMENTS, deployment));
        if !specs.all(SeenObject::recreates) {
            return;
        }
        let mut others =
            machines_of_deployment(state, uid).filter(|other| other.text(CLASS) != made.text(CLASS));
        if let Some(other) = others.find(|other| seen_by(sent, state, *other).is_some()) {
            let (name, other_class) = (other.name(), other.text(CLASS));
            found.add(
                Id::S25,
                format!("{} was made while {name} exists, which has the class {other_class}", made.name()),
            );
        }
    }
}
