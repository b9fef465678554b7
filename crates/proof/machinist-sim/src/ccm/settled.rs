//! The end state that every run must reach: the objects of the cluster and of the cloud agree. And
//! L9: an object counts as up to date if and only if nothing of it is missing.

use machinist_standin_hcloud::HcloudLoadBalancer;

use super::invariants::{UNINITIALIZED, external_addresses, has_taint};
use super::project::FINALIZER;
use super::view::ServiceView;
use crate::invariants::{Id, Violations};
use crate::said::Said;
use crate::sight::{Item, SeenObject};

/// Returns what is missing in the end state.
pub fn judge(view: &ServiceView) -> Violations {
    let mut found = Violations::default();
    for node in view.nodes.iter().map(Item::seen) {
        if let Some(id) = without_server(view, node) {
            found.add(Id::L2, format!("Node {} exists, but its server {id} does not", node.name()));
            continue;
        }
        let what = format!("Node {}", node.name());
        add(&mut found, &what, missing_of_node(view, node), view.said_of_node(node));
    }
    for server in view.cloud.servers.values().filter(|server| server.is_alive()) {
        let has_node = view.nodes.iter().any(|node| node.seen().provider_id() == server.provider_id());
        if !has_node {
            found.add(Id::L1, format!("server {} has no Node", server.name));
        }
    }
    for service in view.services.iter().map(Item::seen) {
        let what = format!("Service {}", service.name());
        add(&mut found, &what, missing_of_service(view, service), view.said_of_service(service));
    }
    for balancer in view.cloud.load_balancers.values().filter(|balancer| view.owner(balancer).is_none()) {
        orphan(view, balancer, &mut found);
    }
    found
}

fn add(found: &mut Violations, what: &str, missing: Option<String>, said: Option<&Said>) {
    let is_settled = said.is_some_and(|said| said.is_settled);
    let text = said.map(|said| said.text.as_str());
    match missing {
        Some(missing) if is_settled => {
            found.add(Id::L9, format!("{what} counts as up to date, but {missing}"))
        }
        Some(missing) => found.add(Id::L1, format!("{what}: {missing}; why says {text:?}")),
        None if !is_settled => found.add(Id::L9, format!("{what} has everything, and why says {text:?}")),
        None => {}
    }
}

/// The server of an initialised Node that no longer exists.
fn without_server<'v>(view: &ServiceView, node: SeenObject<'v>) -> Option<&'v str> {
    let id = node.provider_id();
    let mut servers = view.cloud.servers.values();
    let exists = servers.any(|server| server.is_alive() && server.provider_id() == id);
    (!exists && !has_taint(node, UNINITIALIZED)).then_some(id)
}

fn missing_of_node(view: &ServiceView, node: SeenObject<'_>) -> Option<String> {
    if has_taint(node, UNINITIALIZED) {
        return Some("it is not initialised".to_owned());
    }
    let server = view.cloud.servers.values().find(|server| server.provider_id() == node.provider_id())?;
    let address = server.ipv4.as_ref().map(|ip| ip.ip.as_str()).unwrap_or_default();
    if !external_addresses(node).any(|shown| shown == address) {
        return Some(format!("it lacks the address {address} of its server"));
    }
    let labels = [
        ("node.kubernetes.io/instance-type", server.server_type.as_str()),
        ("topology.kubernetes.io/region", server.location.as_str()),
    ];
    let wrong = labels.into_iter().find(|(label, value)| node.label(label) != *value);
    wrong.map(|(label, value)| format!("it has {label}={:?}, expected {value}", node.label(label)))
}

fn missing_of_service(view: &ServiceView, service: SeenObject<'_>) -> Option<String> {
    if service.text("/spec/type") != "LoadBalancer" {
        return None;
    }
    if service.is_deleting() {
        return Some("it is still being deleted".to_owned());
    }
    let Some(balancer) = view.balancer(service) else { return Some("it has no load balancer".to_owned()) };
    let (targets, nodes) = (balancer.targets.len(), view.nodes.len());
    if targets != nodes {
        return Some(format!("it has {targets} targets, expected {nodes}"));
    }
    if service.list("/status/loadBalancer/ingress").is_empty() {
        return Some("it shows no address".to_owned());
    }
    (!service.has_finalizer(FINALIZER)).then(|| "it has no finalizer".to_owned())
}

/// C9: a load balancer that lost its Service to another actor is named in an Event. Others do not
/// exist without their Service.
fn orphan(view: &ServiceView, balancer: &HcloudLoadBalancer, found: &mut Violations) {
    let (id, name) = (balancer.id, &balancer.name);
    if !view.is_orphan(balancer) {
        found.add(Id::L2, format!("load balancer {id} exists, but its Service does not"));
    } else if !view.reports.iter().any(|report| report.contains(&format!("{name} ({id})"))) {
        let what = format!("load balancer {id} ({name}) has lost its Service, and no Event names it");
        found.add(Id::C9, what);
    }
}
