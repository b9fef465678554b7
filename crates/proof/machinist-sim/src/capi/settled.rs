//! The end state that every run must reach: objects, engine, workload cluster and mails agree. And
//! K10: while something is missing, no object counts as up to date. And L9: an object that has
//! everything does.

use machinist_api::capi::constants::{CLOUD_TAINT, CLUSTER_NAME_LABEL};

use super::core::is_control_plane;
use super::view::ProviderView;
use crate::invariants::{Id, Violations};
use crate::sight::{Item, SeenObject};

/// Whether an object may stay as it is if a person must act.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Persons {
    /// A person may have to act, because a person took off marks.
    MayHaveToAct,
    /// No step of a person is missing.
    HaveNothingToDo,
}

/// Returns what is missing in the end state.
pub fn judge(view: &ProviderView, persons: Persons) -> Violations {
    let mut found = Violations::default();
    for object in view.clusters.iter().chain(&view.machines).map(Item::seen) {
        if object.is_deleting() {
            found.add(Id::L2, format!("{} {} is still being deleted", object.text("/kind"), object.name()));
        }
    }
    let infrastructure = view.cluster_infrastructure.iter().chain(&view.machine_infrastructure);
    for object in infrastructure.map(Item::seen) {
        let said = view.said(object);
        let (kind, name) = (object.text("/kind"), object.name());
        let Some(missing) = missing(view, object) else {
            if !said.is_some_and(|said| said.is_settled) {
                found.add(Id::L9, format!("{kind} {name} has everything, and why says {said:?}"));
            }
            continue;
        };
        if said.is_some_and(|said| said.needs_person) && persons == Persons::MayHaveToAct {
            continue;
        }
        match said.filter(|said| said.is_settled) {
            Some(_) => found.add(Id::K10, format!("{kind} {name} counts as up to date, but {missing}")),
            None => found.add(Id::L1, format!("{kind} {name}: {missing}; {said:?}")),
        }
    }
    left_over(view, &mut found);
    found
}

fn missing(view: &ProviderView, object: SeenObject<'_>) -> Option<String> {
    if object.is_deleting() {
        return Some("it is still being deleted".to_owned());
    }
    let special = match object.text("/kind") {
        "DockerCluster" => balancer(view, object),
        "DockerMachine" => container(view, object),
        _ => mail(view, object),
    };
    let is_ready = object.condition("Ready") == "True";
    special.or_else(|| (!is_ready).then(|| "its condition Ready is not True".to_owned()))
}

/// The load balancer has every container of the control plane.
fn balancer(view: &ProviderView, cluster: SeenObject<'_>) -> Option<String> {
    let Some((_, backends)) = view.balancers.values().find(|(key, _)| key == cluster.uid()) else {
        return Some("its load balancer does not exist".to_owned());
    };
    let machines = view.machine_infrastructure.iter().map(Item::seen).filter(|machine| {
        is_control_plane(*machine)
            && machine.label(CLUSTER_NAME_LABEL) == cluster.name()
            && !machine.is_deleting()
            && view.containers.values().any(|container| container.key == machine.uid())
    });
    let mut expected: Vec<&str> = machines.map(SeenObject::name).collect();
    let mut backends: Vec<&str> = backends.iter().map(String::as_str).collect();
    expected.sort_unstable();
    backends.sort_unstable();
    (backends != expected).then(|| format!("its load balancer has {backends:?}, expected {expected:?}"))
}

/// The container exists and is bootstrapped, and its Node is complete.
fn container(view: &ProviderView, machine: SeenObject<'_>) -> Option<String> {
    let container = view.containers.iter().find(|(_, container)| container.key == machine.uid());
    let Some((name, container)) = container else { return Some("its container does not exist".to_owned()) };
    if !container.is_bootstrapped {
        return Some("its container is not bootstrapped".to_owned());
    }
    let Some(node) = view.nodes.iter().map(Item::seen).find(|node| node.name() == name) else {
        return Some("its Node does not exist".to_owned());
    };
    let has_taint = node.list("/spec/taints").iter().any(|taint| taint["key"] == CLOUD_TAINT);
    let is_complete = node.provider_id() == machine.provider_id() && !node.provider_id().is_empty();
    (has_taint || !is_complete).then(|| "its Node is not complete".to_owned())
}

/// The mail was sent.
fn mail(view: &ProviderView, request: SeenObject<'_>) -> Option<String> {
    let is_sent = view.mails.iter().any(|mail| mail.uid == request.uid());
    (!is_sent).then(|| "its mail was not sent".to_owned())
}

fn left_over(view: &ProviderView, found: &mut Violations) {
    let exists = |items: &[Item], uid: &str| items.iter().any(|item| item.seen().uid() == uid);
    for (name, container) in &view.containers {
        if !container.key.is_empty() && !exists(&view.machine_infrastructure, &container.key) {
            found.add(Id::L2, format!("container {name} exists, but its DockerMachine does not"));
        }
    }
    for (name, (key, _)) in &view.balancers {
        if !exists(&view.cluster_infrastructure, key) {
            found.add(Id::L2, format!("load balancer {name} exists, but its DockerCluster does not"));
        }
    }
}
