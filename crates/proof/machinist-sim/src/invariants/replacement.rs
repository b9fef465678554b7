//! S13: of all Machines of a deployment, one at a time is replaced because of its unhealthy Node.
//! S15: a Machine is given up only while its Node is not healthy. S16: no Machine is replaced while
//! its set cannot create instances. S19: a Machine whose instance exists is not given up as a
//! Machine that was never created. S20: a Machine is given up as a Machine that cannot be created
//! only if an attempt has failed.

use std::time::Duration;

use machinist_api::constants::markers;
use machinist_apiserver::Commit;

use super::preserve::is_kept;
use super::surge::{deployment_uid, machines_of_deployment, seen_by};
use super::violation::{Id, Violations};
use crate::actor::Side;
use crate::ask::WriteInFlight;
use crate::history::{Event, Invariant, RunState};
use crate::sight::{MACHINES, NODES, SeenObject};

pub(super) struct OneAtATime;

const FAILED: &str = "Failed";
const HEALTH_CHECK: &str = "HealthCheck";
const CREATE: &str = "Create";

/// S15: a Machine is marked Failed only if its Node is missing, or was not ready a short time ago.
pub(super) struct NoHealthyVictim;

/// The longest age of facts that count as fresh, and the time in which watches and writes may be
/// late.
const FRESH: Duration = Duration::from_secs(120 + 120);

impl Invariant for NoHealthyVictim {
    fn see(&mut self, state: &RunState, event: &Event<'_>, found: &mut Violations) {
        let Some((machine, _)) = marked_failed(event) else { return };
        if machine.provider_id().is_empty() {
            return;
        }
        let healthy = state.objects(Side::Target, NODES).find(|node| {
            let since = node.condition_since("Ready").map(|since| state.now.duration_since(since));
            node.provider_id() == machine.provider_id()
                && node.condition("Ready") == "True"
                && since.is_some_and(|since| FRESH <= Duration::try_from(since).unwrap_or_default())
        });
        if let Some(node) = healthy {
            let since = node.condition_since("Ready").unwrap_or_default();
            let (name, node) = (machine.name(), node.name());
            let what = machine.operation_text();
            found.add(
                Id::S15,
                format!("{name} is marked Failed, but its Node {node} is ready since {since}: {what:?}"),
            );
        }
    }
}

/// S16: an unhealthy Machine is not marked Failed while its set has a Machine that cannot be
/// created.
pub(super) struct NothingToReplaceWith;

impl Invariant for NothingToReplaceWith {
    fn see(&mut self, state: &RunState, event: &Event<'_>, found: &mut Violations) {
        let Some((machine, sent)) = marked_failed(event) else { return };
        let Some(set) = machine.owner_uid() else { return };
        if machine.text("/status/lastOperation/type") != HEALTH_CHECK {
            return;
        }
        for other in state.objects(Side::Control, MACHINES).filter(|other| other.owner_uid() == Some(set)) {
            let stuck = |then: SeenObject<'_>| {
                then.provider_id().is_empty()
                    && !then.is_deleting()
                    && then.text("/status/lastOperation/type") == CREATE
                    && then.text("/status/lastOperation/state") == FAILED
            };
            if stuck(other) && seen_by(sent, state, other).is_some_and(stuck) {
                let (name, other) = (machine.name(), other.name());
                found.add(Id::S16, format!("{name} is marked Failed while {other} cannot be created"));
            }
        }
    }
}

/// S19: a Machine without a recorded instance is given up only if the cloud shows no instance of
/// it.
pub(super) struct NoForgottenInstance;

impl Invariant for NoForgottenInstance {
    fn see(&mut self, state: &RunState, event: &Event<'_>, found: &mut Violations) {
        let Some((machine, _)) = marked_failed(event) else { return };
        if !machine.provider_id().is_empty() {
            return;
        }
        let exists = state.instances().find(|instance| {
            let age = Duration::try_from(state.now.duration_since(instance.created)).unwrap_or_default();
            instance.key.as_deref() == Some(machine.uid()) && instance.is_alive_at(state.now) && FRESH <= age
        });
        if let Some(instance) = exists {
            let (name, id, what) = (machine.name(), &instance.id, machine.operation_text());
            found.add(Id::S19, format!("{name} is marked Failed without its instance {id}: {what:?}"));
        }
    }
}

/// S20: a Machine without a recorded instance is given up only if its status ever said that its
/// creation failed or is blocked. The time in which it waits for its first attempt says nothing.
pub(super) struct NoUntriedVictim;

/// The beginnings of the reasons in the description of a creation that failed.
const OBSTACLES: [&str; 2] = ["Creation is blocked: ", markers::CREATE_FAILURE_PREFIX];

impl Invariant for NoUntriedVictim {
    fn see(&mut self, state: &RunState, event: &Event<'_>, found: &mut Violations) {
        let Some((machine, _)) = marked_failed(event) else { return };
        let what = machine.operation_text();
        if !machine.provider_id().is_empty() || OBSTACLES.iter().any(|obstacle| what.contains(obstacle)) {
            return;
        }
        let key = format!("{}/{}", machine.namespace(), machine.name());
        let track = state.track(Side::Control, MACHINES, &key);
        let had_failed = track.is_some_and(|track| {
            track.versions().any(|(_, then)| {
                then.uid() == machine.uid()
                    && then.phase() != FAILED
                    && then.text("/status/lastOperation/type") == CREATE
                    && then.text("/status/lastOperation/state") == FAILED
            })
        });
        if !had_failed {
            let name = machine.name();
            found.add(Id::S20, format!("{name} is given up, but no attempt to create it failed: {what:?}"));
        }
    }
}

/// The Machine that this commit marks Failed, and the write of the process.
fn marked_failed<'e>(event: &Event<'e>) -> Option<(SeenObject<'e>, &'e WriteInFlight)> {
    let Event::Committed { side: Side::Control, commit, cause: Some(sent) } = event else { return None };
    if *commit.resource != *MACHINES {
        return None;
    }
    let commit: &'e Commit = commit;
    let new = commit.new.as_deref().map(|object| SeenObject(object.value()))?;
    let was_failed = commit.old.as_deref().is_some_and(|old| SeenObject(old.value()).phase() == FAILED);
    (!was_failed && new.phase() == FAILED).then_some((new, *sent))
}

impl Invariant for OneAtATime {
    fn see(&mut self, state: &RunState, event: &Event<'_>, found: &mut Violations) {
        let Some((new, sent)) = marked_failed(event) else { return };
        if new.text("/status/lastOperation/type") != HEALTH_CHECK {
            return;
        }
        let Some(deployment) = deployment_uid(state, new) else { return };
        let others = machines_of_deployment(state, deployment).filter(|other| other.uid() != new.uid());
        for other in others {
            let had_failed = || {
                let key = format!("{}/{}", other.namespace(), other.name());
                state.track(Side::Control, MACHINES, &key).is_some_and(|track| {
                    track.versions().any(|(_, then)| then.phase() == FAILED && then.uid() == other.uid())
                })
            };
            let is_old_news = seen_by(sent, state, other).is_some_and(SeenObject::is_deleting);
            let was_given_up = is_old_news && had_failed();
            // The machine controller writes these marks itself, so it knows each of them, even if
            // no watch has shown it yet.
            // A preserved Machine is not being replaced.
            let is_failed = other.phase() == FAILED && !is_kept(other, sent.at);
            if is_failed || was_given_up {
                let (name, other) = (new.name(), other.name());
                found.add(Id::S13, format!("{name} is marked Failed while {other} is being replaced"));
            }
        }
    }
}
