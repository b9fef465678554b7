//! S5: no voluntary deletion reduces the number of available Machines below the deployment's
//! promise.
//!
//! Deaths caused by the environment are not voluntary, and the choice of the autoscaler is not the
//! choice of the program: a Machine that it names is deleted in every state of the others. A
//! Machine counts as available if the manager had last seen it as available. The promise is the
//! smallest of all specs that were current since that revision. With `Recreate` there is no promise
//! while Machines of another class exist.

use machinist_api::constants::annotations;

use super::surge::{deployment_of, machines_of_deployment, seen_by, shown_at, track_of};
use super::violation::{Id, Violations};
use crate::actor::{Side, TestedProcess};
use crate::history::{Event, Invariant, RunState};
use crate::sight::{MACHINE_DEPLOYMENTS, MACHINE_SETS, MACHINES, SeenObject};

pub(super) struct Availability;

const RUNNING: &str = "Running";

impl Invariant for Availability {
    fn see(&mut self, state: &RunState, event: &Event<'_>, found: &mut Violations) {
        let Event::Committed { side: Side::Control, commit, cause: Some(sent) } = event else { return };
        if *commit.resource != *MACHINES || sent.process != TestedProcess::Manager {
            return;
        }
        let Some(old) = commit.old.as_deref().map(|object| SeenObject(object.value())) else { return };
        let is_going = commit.new.as_deref().is_none_or(|object| SeenObject(object.value()).is_deleting());
        let is_chosen = !old.annotation(annotations::MARKED_FOR_DELETION_TIME).is_empty();
        if old.is_deleting() || !is_going || is_chosen || old.phase() != RUNNING {
            return;
        }
        let Some(set) = old.owner_uid().and_then(|uid| track_of(state, MACHINE_SETS, uid)) else { return };
        let Some((uid, deployment)) = deployment_of(state, set) else { return };
        let specs = || deployment.since(shown_at(sent, MACHINE_DEPLOYMENTS, deployment));
        let is_wanted = specs().all(|spec| !spec.is_deleting()) && deployment.now().is_some();
        let promise = |spec: SeenObject<'_>| {
            let of_another_class = |machine: SeenObject<'_>| {
                machine.text("/spec/class/name") != spec.text("/spec/template/spec/class/name")
            };
            let machines = || machines_of_deployment(state, uid);
            // All old Machines go before the first new one exists.
            let is_recreating =
                spec.recreates() && (of_another_class(old) || machines().any(of_another_class));
            if is_recreating { 0 } else { spec.replicas().saturating_sub(spec.max_unavailable()) }
        };
        let Some(promised) = specs().map(promise).min().filter(|_| is_wanted) else {
            return;
        };
        let was_available = |machine: SeenObject<'_>| {
            seen_by(sent, state, machine).is_some_and(|then| then.phase() == RUNNING)
        };
        if !was_available(old) {
            return;
        }
        let left = machines_of_deployment(state, uid).filter(|machine| !machine.is_deleting());
        let left = left.filter(|machine| was_available(*machine)).count();
        if u32::try_from(left).is_ok_and(|left| left < promised) {
            let name = old.name();
            found.add(
                Id::S5,
                format!("deleting {name} leaves {left} Machines available, expected at least {promised}"),
            );
        }
    }
}
