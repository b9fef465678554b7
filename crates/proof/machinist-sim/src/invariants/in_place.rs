//! S27: an update in place deletes no Machine, and takes no more Machines out of service at a time
//! than the deployment allows. A Machine whose update has failed is out of service, so it stops the
//! other updates.
//!
//! The rule counts for updates without surge, which need no other instance. Of the updates that a
//! user orchestrates, it judges only the deletions.

use machinist_api::constants::{annotations, labels};

use super::surge::{deployment_of, machines_of_deployment, seen_by, shown_at, track_of};
use super::violation::{Id, Violations};
use crate::actor::{Side, TestedProcess};
use crate::ask::WriteInFlight;
use crate::history::{Event, Invariant, RunState, Track};
use crate::sight::{MACHINE_DEPLOYMENTS, MACHINE_SETS, MACHINES, SeenObject};

pub(super) struct InstancesStay;

impl Invariant for InstancesStay {
    fn see(&mut self, state: &RunState, event: &Event<'_>, found: &mut Violations) {
        let Event::Committed { side: Side::Control, commit, cause: Some(sent) } = event else { return };
        if *commit.resource != *MACHINES || sent.process != TestedProcess::Manager {
            return;
        }
        let Some(old) = commit.old.as_deref().map(|object| SeenObject(object.value())) else { return };
        let new = commit.new.as_deref().map(|object| SeenObject(object.value()));
        let Some(set) = old.owner_uid().and_then(|uid| track_of(state, MACHINE_SETS, uid)) else { return };
        let Some((uid, deployment)) = deployment_of(state, set) else { return };
        let specs = || deployment.since(shown_at(sent, MACHINE_DEPLOYMENTS, deployment));
        let is_update = |spec: SeenObject<'_>| spec.updates_in_place() && spec.max_surge() == 0;
        if old.is_deleting() || !specs().all(|spec| is_update(spec) && !spec.is_deleting()) {
            return;
        }
        let change = Change { state, uid, deployment, sent, old };
        if new.is_none_or(SeenObject::is_deleting) {
            change.see_deletion(found);
        } else if !is_selected(old) && new.is_some_and(is_selected) {
            change.see_selection(found);
        }
    }
}

/// A change of a Machine by the manager.
struct Change<'e> {
    state: &'e RunState,
    /// The UID of the deployment.
    uid: &'e str,
    deployment: &'e Track,
    sent: &'e WriteInFlight,
    /// The Machine before the change.
    old: SeenObject<'e>,
}

impl Change<'_> {
    /// Checks that the deletion of a Machine is not a part of the update: the deployment wants
    /// fewer Machines, the Machine has failed, or the autoscaler chose it.
    fn see_deletion(&self, found: &mut Violations) {
        let is_chosen = !self.old.annotation(annotations::MARKED_FOR_DELETION_TIME).is_empty();
        let left = self.machines().filter(|machine| !machine.is_deleting()).count();
        let wanted = self.specs().map(SeenObject::replicas).min().unwrap_or_default();
        if !is_chosen && self.old.phase() != "Failed" && u32::try_from(left).is_ok_and(|left| left < wanted) {
            found.add(Id::S27, format!("{} is deleted by an update in place", self.old.name()));
        }
    }

    /// Checks that enough Machines are in service after the selection of another one, as the
    /// manager had seen them.
    fn see_selection(&self, found: &mut Violations) {
        let is_in_service = |machine: &SeenObject<'_>| {
            let seen = seen_by(self.sent, self.state, *machine);
            let was_running = seen.is_some_and(|then| then.phase() == "Running");
            was_running && !machine.is_deleting() && !is_selected(*machine)
        };
        let left = self.machines().filter(is_in_service).count();
        let promised = |spec: SeenObject<'_>| spec.replicas().saturating_sub(spec.max_unavailable());
        let promised = self.specs().map(promised).min().unwrap_or_default();
        if u32::try_from(left).is_ok_and(|left| left < promised) {
            let name = self.old.name();
            found.add(
                Id::S27,
                format!("selecting {name} leaves {left} Machines in service, expected at least {promised}"),
            );
        }
    }

    fn machines(&self) -> impl Iterator<Item = SeenObject<'_>> {
        machines_of_deployment(self.state, self.uid)
    }

    /// The specs that were current since the manager had last seen the deployment.
    fn specs(&self) -> impl Iterator<Item = SeenObject<'_>> {
        self.deployment.since(shown_at(self.sent, MACHINE_DEPLOYMENTS, self.deployment))
    }
}

/// Whether the program has selected a Machine for the update.
fn is_selected(machine: SeenObject<'_>) -> bool {
    !machine.label(labels::SELECTED_FOR_UPDATE).is_empty()
}
