//! S13: of all Machines of a deployment, one at a time is replaced because of its unhealthy Node.

use super::surge::{deployment_uid, machines_of_deployment};
use super::{Id, Invariant, Violations};
use crate::actor::Side;
use crate::history::{Event, State};
use crate::sight::{MACHINES, Seen};

pub(super) struct OneAtATime;

const FAILED: &str = "Failed";
const HEALTH_CHECK: &str = "HealthCheck";

impl Invariant for OneAtATime {
    fn see(&mut self, state: &State, event: &Event<'_>, found: &mut Violations) {
        let Event::Committed { side: Side::Control, commit, cause: Some(sent) } = event else { return };
        if *commit.resource != *MACHINES {
            return;
        }
        let Some(new) = commit.new.as_deref().map(|object| Seen(object.value())) else { return };
        let was_failed = commit.old.as_deref().is_some_and(|old| Seen(old.value()).phase() == FAILED);
        let is_health = new.text("/status/lastOperation/type") == HEALTH_CHECK;
        if was_failed || new.phase() != FAILED || !is_health {
            return;
        }
        let Some(deployment) = deployment_uid(state, new) else { return };
        let others = machines_of_deployment(state, deployment).filter(|other| other.uid() != new.uid());
        for other in others {
            let key = format!("{}/{}", other.namespace(), other.name());
            let shown = sent.had_seen(Side::Control, MACHINES, &key);
            let was_given_up = state.track(Side::Control, MACHINES, &key).is_some_and(|track| {
                let is_old_news =
                    track.at(shown).is_some_and(|then| then.is_deleting() && then.uid() == other.uid());
                let had_failed =
                    track.versions().any(|(_, then)| then.phase() == FAILED && then.uid() == other.uid());
                is_old_news && had_failed
            });
            // The machine controller writes these marks itself, so it knows each of them, even if
            // no watch has shown it yet.
            if other.phase() == FAILED || was_given_up {
                let (name, other) = (new.name(), other.name());
                found.add(Id::S13, format!("{name} is marked Failed while {other} is being replaced"));
            }
        }
    }
}
