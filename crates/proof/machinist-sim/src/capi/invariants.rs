//! K1 to K9: the rules of the providers of Cluster API. The table is in [`crate::invariants`].

use std::sync::Arc;

use jiff::SignedDuration;
use machinist_api::capi::constants::{
    CLUSTER_NAME_LABEL, CONTAINER_ID_ANNOTATION, DOCKER_CLUSTER_FINALIZER, DOCKER_MACHINE_FINALIZER,
    SEND_INTENT_ANNOTATION,
};

use super::core::is_control_plane;
use super::outside::{By, ContainerTrack, EngineBalancerTrack, OutsideChange};
use super::tables::{MAILGUN_CLUSTERS, MAILGUN_MACHINES};
use crate::actor::{Side, TestedProcess};
use crate::history::{Event, RunState};
use crate::invariants::{Id, Invariant, Violations, no_circles};
use crate::lives::HostClock;
use crate::sight::SeenObject;
use crate::sight::{DOCKER_CLUSTERS, DOCKER_MACHINES};
use crate::world::NAMESPACE;

/// A deletion waits so long for the load balancer: the product's default, less the second by which
/// the clock of the provider may drift without counting as a step.
const BALANCER_PATIENCE: SignedDuration = SignedDuration::from_secs(29);

/// All rules that are checked during the run, for a provider with that clock.
pub fn all(clock: Arc<HostClock>) -> Vec<Box<dyn Invariant>> {
    vec![
        Box::new(OneEach),
        Box::new(OnlyWithCause),
        Box::new(FinalizerTruth),
        Box::new(RecordedFirst),
        Box::new(OneMail),
        Box::new(NoLostTraffic { clock }),
        Box::new(WrittenOnce),
        no_circles(),
    ]
}

/// K1: one container per DockerMachine, ever; one load balancer per DockerCluster at a time.
struct OneEach;

impl Invariant for OneEach {
    fn see(&mut self, state: &RunState, event: &Event<'_>, found: &mut Violations) {
        let Event::Outside(change, _) = event else { return };
        let outside = state.outside();
        match change {
            OutsideChange::Made(id) => {
                let Some(made) = outside.container(id).filter(|made| !made.key.is_empty()) else { return };
                // A restored object may have lost the record of a container that no longer exists.
                let is_forgotten = |track: &ContainerTrack| {
                    track.gone.is_some() && state.restored_at().is_some_and(|at| track.made < at)
                };
                let twin = outside
                    .containers()
                    .find(|(other, track)| other != id && track.key == made.key && !is_forgotten(track));
                if let Some((twin, _)) = twin {
                    let key = &made.key;
                    found.add(
                        Id::K1,
                        format!("containers {twin} and {id} both belong to DockerMachine {key}"),
                    );
                }
            }
            OutsideChange::BalancerMade(name) => {
                let Some(made) = outside.balancer(name) else { return };
                let twin = outside.balancers().find(|(other, track)| other != name && track.key == made.key);
                if let Some((twin, _)) = twin {
                    let key = &made.key;
                    found.add(
                        Id::K1,
                        format!("load balancers {twin} and {name} both belong to DockerCluster {key}"),
                    );
                }
            }
            _ => {}
        }
    }
}

/// K2 and K4: the provider deletes only what belongs to an object that is being deleted, and
/// changes nothing of another owner.
struct OnlyWithCause;

impl Invariant for OnlyWithCause {
    fn see(&mut self, state: &RunState, event: &Event<'_>, found: &mut Violations) {
        let Event::Outside(change, By::Provider) = event else { return };
        let outside = state.outside();
        let is_wanted = |table, key: &str| {
            state.by_uid(Side::Control, table, key).is_some_and(|object| !object.is_deleting())
        };
        match change {
            OutsideChange::Gone(id) | OutsideChange::Changed(id) | OutsideChange::Bootstrapped(id) => {
                let Some(track) = outside.container(id) else { return };
                if track.key.is_empty() {
                    found.add(Id::K4, format!("container {id} of another owner was changed: {change}"));
                } else if matches!(change, OutsideChange::Gone(_)) && is_wanted(DOCKER_MACHINES, &track.key) {
                    found.add(Id::K2, format!("container {id} was deleted, but its DockerMachine is not"));
                }
            }
            OutsideChange::BalancerGone(name) => {
                let Some(track) = outside.balancer(name) else { return };
                if is_wanted(DOCKER_CLUSTERS, &track.key) {
                    found.add(
                        Id::K2,
                        format!("load balancer {name} was deleted, but its DockerCluster is not"),
                    );
                }
            }
            OutsideChange::Made(_)
            | OutsideChange::BalancerMade(_)
            | OutsideChange::Backends { .. }
            | OutsideChange::Mail(_) => {}
        }
    }
}

/// K3: the finalizer means "something may exist".
struct FinalizerTruth;

impl Invariant for FinalizerTruth {
    fn see(&mut self, state: &RunState, event: &Event<'_>, found: &mut Violations) {
        let outside = state.outside();
        match event {
            Event::Outside(OutsideChange::Made(id), _) => {
                let Some(made) = outside.container(id).filter(|made| !made.key.is_empty()) else { return };
                appears(state, DOCKER_MACHINES, DOCKER_MACHINE_FINALIZER, &made.key, id, found);
            }
            Event::Outside(OutsideChange::BalancerMade(name), _) => {
                let Some(made) = outside.balancer(name) else { return };
                appears(state, DOCKER_CLUSTERS, DOCKER_CLUSTER_FINALIZER, &made.key, name, found);
            }
            Event::Committed { side: Side::Control, commit, .. } => {
                let finalizer = match &*commit.resource {
                    DOCKER_MACHINES => DOCKER_MACHINE_FINALIZER,
                    DOCKER_CLUSTERS => DOCKER_CLUSTER_FINALIZER,
                    _ => return,
                };
                let Some(old) = commit.old.as_deref().map(|object| SeenObject(object.value())) else {
                    return;
                };
                if commit.new.as_deref().is_some_and(|new| SeenObject(new.value()).has_finalizer(finalizer)) {
                    return;
                }
                let is_ours = TestedProcess::of_agent(&commit.user_agent).is_some();
                let was_stripped = state.stripped_at(old.uid()).is_some();
                if was_stripped && !(is_ours && old.has_finalizer(finalizer)) {
                    return;
                }
                let containers = outside.containers().filter(|(_, track)| track.gone.is_none());
                let container = containers.into_iter().find(|(_, track)| track.key == old.uid());
                let balancer = outside.balancers().find(|(_, track)| track.key == old.uid());
                let left = container.map(|(id, _)| id).or(balancer.map(|(name, _)| name));
                if let Some(left) = left {
                    found.add(Id::K3, format!("{} is released while {left} exists", old.name()));
                }
            }
            _ => {}
        }
    }
}

fn appears(state: &RunState, table: &str, finalizer: &str, key: &str, what: &str, found: &mut Violations) {
    match state.by_uid(Side::Control, table, key) {
        Some(object) if object.has_finalizer(finalizer) => {}
        // A call may be in flight, or the process may not see yet what another actor has done.
        _ if state.stripped_at(key).is_some() => {}
        Some(object) => {
            found.add(Id::K3, format!("{what} appears for {}, which has no finalizer", object.name()));
        }
        None => found.add(Id::K3, format!("{what} appears for {key}, which does not exist")),
    }
}

/// K5: a container is bootstrapped only when it is recorded, and one of the control plane only when
/// the load balancer has it.
struct RecordedFirst;

impl Invariant for RecordedFirst {
    fn see(&mut self, state: &RunState, event: &Event<'_>, found: &mut Violations) {
        let Event::Outside(OutsideChange::Bootstrapped(id), By::Provider) = event else { return };
        let Some(track) = state.outside().container(id) else { return };
        let mut tracks = state.table(Side::Control, DOCKER_MACHINES).map(|(_, track)| track);
        let Some(machine) = tracks.find_map(|machine| {
            machine.versions().rev().map(|(_, seen)| seen).find(|seen| seen.uid() == track.key)
        }) else {
            return;
        };
        let name = machine.name();
        let is_recorded = machine.annotation(CONTAINER_ID_ANNOTATION).ends_with(&format!("/{id}"));
        if !is_recorded || machine.provider_id().is_empty() {
            // A user may have taken the annotation off since.
            let key = format!("{NAMESPACE}/{name}");
            let versions = state.track(Side::Control, DOCKER_MACHINES, &key).into_iter();
            let was_recorded = versions.flat_map(|track| track.versions()).any(|(_, seen)| {
                seen.annotation(CONTAINER_ID_ANNOTATION).ends_with(&format!("/{id}"))
                    && !seen.provider_id().is_empty()
            });
            if !was_recorded {
                found.add(Id::K5, format!("container {id} of {name} is bootstrapped, but not recorded"));
            }
        }
        if !is_control_plane(machine) {
            return;
        }
        let key = format!("{NAMESPACE}/{}", machine.label(CLUSTER_NAME_LABEL));
        let versions = state.track(Side::Control, DOCKER_CLUSTERS, &key).into_iter();
        let was_behind = versions.flat_map(|track| track.versions()).any(|(_, seen)| {
            seen.list("/status/loadBalancer/backends").iter().any(|backend| backend == name)
        });
        if !was_behind {
            found.add(
                Id::K5,
                format!("container {id} of {name} is bootstrapped, but never was behind the load balancer"),
            );
        }
    }
}

/// K6 and K7: a request is sent by one mail, ever, and only after its intent.
struct OneMail;

impl Invariant for OneMail {
    fn see(&mut self, state: &RunState, event: &Event<'_>, found: &mut Violations) {
        let Event::Outside(OutsideChange::Mail(mail), _) = event else { return };
        let same = |other: &&machinist_standin_mailgun::Accepted| {
            other.uid == mail.uid && other.purpose == mail.purpose
        };
        let times = state.outside().mails().iter().filter(same).count();
        if 1 < times {
            let (uid, purpose) = (&mail.uid, &mail.purpose);
            found.add(Id::K6, format!("the mail {purpose} of {uid} was accepted {times} times"));
        }
        let id = mail.message_id.trim_matches(['<', '>']);
        let is_intent = |seen: SeenObject<'_>| {
            seen.uid() == mail.uid
                && seen.text("/spec/messageID") == id
                && !seen.annotation(SEND_INTENT_ANNOTATION).is_empty()
        };
        let mut tracks = [MAILGUN_CLUSTERS, MAILGUN_MACHINES]
            .into_iter()
            .flat_map(|table| state.table(Side::Control, table).map(|(_, track)| track));
        if !tracks.any(|track| track.versions().any(|(_, seen)| is_intent(seen))) {
            found.add(Id::K7, format!("the mail {id} was sent without its intent"));
        }
    }
}

/// K8: the load balancer loses a container of the control plane only with a cause, and before the
/// container is deleted.
///
/// A configuration that takes effect after a newer one is not a decision of the provider. That the
/// next comparison repairs it is part of the end state.
struct NoLostTraffic {
    /// A clock that is ahead ends waits early.
    clock: Arc<HostClock>,
}

impl Invariant for NoLostTraffic {
    fn see(&mut self, state: &RunState, event: &Event<'_>, found: &mut Violations) {
        let Event::Outside(change, By::Provider) = event else { return };
        match change {
            OutsideChange::Backends { balancer, before } => {
                let is_decided = |track: &&EngineBalancerTrack| track.exists && !track.is_overtaken;
                let Some(track) = state.outside().balancer(balancer).filter(is_decided) else { return };
                for name in before.keys().filter(|name| !track.backends.contains_key(*name)) {
                    if serves(state, name)
                        .is_some_and(|machine| !machine.is_deleting() && !forgot(state, machine))
                    {
                        found.add(Id::K8, format!("load balancer {balancer} loses {name} without a cause"));
                    }
                }
            }
            OutsideChange::Gone(id) => {
                let Some(container) = state.outside().container(id) else { return };
                let Some(machine) = state.by_uid(Side::Control, DOCKER_MACHINES, &container.key) else {
                    return;
                };
                let Some(since) = machine.deleting_since() else { return };
                let name = machine.name();
                let has_it = state.outside().balancers().find(|(_, track)| {
                    let owner = state.by_uid(Side::Control, DOCKER_CLUSTERS, &track.key);
                    let is_wanted = owner.is_some_and(|owner| !owner.is_deleting());
                    is_wanted && !track.is_overtaken && track.backends.contains_key(name)
                });
                let waited = state.now.duration_since(since) + self.clock.most_ahead_since(since);
                if let Some((balancer, _)) = has_it
                    && waited < BALANCER_PATIENCE
                {
                    found.add(Id::K8, format!("{name} is deleted while load balancer {balancer} has it"));
                }
            }
            OutsideChange::BalancerGone(balancer) => {
                let Some(track) = state.outside().balancer(balancer) else { return };
                for name in track.backends.keys() {
                    if serves(state, name).is_some() {
                        found.add(Id::K8, format!("load balancer {balancer} is deleted while it has {name}"));
                    }
                }
            }
            _ => {}
        }
    }
}

/// The DockerMachine of that name, if it is one of the control plane and its container exists.
fn serves<'s>(state: &'s RunState, name: &str) -> Option<SeenObject<'s>> {
    let key = format!("{NAMESPACE}/{name}");
    let machine = state.track(Side::Control, DOCKER_MACHINES, &key)?.now()?;
    let mut alive = state.outside().containers().filter(|(_, track)| track.gone.is_none());
    let exists = alive.any(|(_, track)| track.key == machine.uid());
    (exists && is_control_plane(machine)).then_some(machine)
}

/// Whether a restore has lost the record of the container. Until the provider finds the container,
/// the load balancer may miss it.
fn forgot(state: &RunState, machine: SeenObject<'_>) -> bool {
    state.restored_at().is_some() && machine.annotation(CONTAINER_ID_ANNOTATION).is_empty()
}

/// K9: the endpoint, and the ids of container and mail, are written once.
struct WrittenOnce;

impl Invariant for WrittenOnce {
    fn see(&mut self, _: &RunState, event: &Event<'_>, found: &mut Violations) {
        let Event::Committed { side: Side::Control, commit, .. } = event else { return };
        if TestedProcess::of_agent(&commit.user_agent) != Some(TestedProcess::Provider) {
            return;
        }
        let (Some(old), Some(new)) = (commit.old.as_deref(), commit.new.as_deref()) else { return };
        let (old, new) = (SeenObject(old.value()), SeenObject(new.value()));
        let field: fn(SeenObject<'_>) -> String = match &*commit.resource {
            DOCKER_CLUSTERS => |seen| seen.text("/spec/controlPlaneEndpoint/host").to_owned(),
            DOCKER_MACHINES => |seen| {
                [seen.provider_id(), seen.annotation(CONTAINER_ID_ANNOTATION)].join(" ").trim().to_owned()
            },
            MAILGUN_CLUSTERS | MAILGUN_MACHINES => |seen| seen.text("/spec/messageID").to_owned(),
            _ => return,
        };
        let (was, is) = (field(old), field(new));
        let (was, is): (Vec<&str>, Vec<&str>) = (was.split(' ').collect(), is.split(' ').collect());
        let is_kept = was.iter().all(|part| part.is_empty() || is.contains(part));
        if !is_kept {
            found.add(Id::K9, format!("{} {} changes from {was:?} to {is:?}", commit.resource, new.name()));
        }
    }
}
