//! The end state that every run must reach: the objects of the cluster and of the cloud agree.

use super::invariants::{UNINITIALIZED, external_addresses, has_taint};
use super::view::View;
use crate::invariants::{Id, Violations};
use crate::sight::Item;

/// The label of a load balancer with the UID of its Service.
pub(super) const SERVICE_UID: &str = "hcloud-ccm/service-uid";

/// Returns what is missing in the end state.
pub fn judge(view: &View) -> Violations {
    let mut found = Violations::default();
    nodes(view, &mut found);
    balancers(view, &mut found);
    found
}

fn nodes(view: &View, found: &mut Violations) {
    for node in view.nodes.iter().map(Item::seen) {
        let (name, id) = (node.name(), node.provider_id());
        if has_taint(node, UNINITIALIZED) {
            found.add(Id::L1, format!("Node {name} is not initialised"));
            continue;
        }
        let server = view.cloud.servers.values().find(|server| server.provider_id() == id);
        let Some(server) = server.filter(|server| server.is_alive()) else {
            found.add(Id::L2, format!("Node {name} exists, but its server {id} does not"));
            continue;
        };
        let address = server.ipv4.as_ref().map(|ip| ip.ip.as_str()).unwrap_or_default();
        if !external_addresses(node).any(|it| it == address) {
            found.add(Id::L1, format!("Node {name} lacks the address {address} of its server"));
        }
        for (label, value) in [
            ("node.kubernetes.io/instance-type", server.server_type.as_str()),
            ("topology.kubernetes.io/region", server.location.as_str()),
        ] {
            if node.label(label) != value {
                found.add(
                    Id::L1,
                    format!("Node {name} has {label}={:?}, expected {value}", node.label(label)),
                );
            }
        }
    }
    for server in view.cloud.servers.values().filter(|server| server.is_alive()) {
        let has_node = view.nodes.iter().any(|node| node.seen().provider_id() == server.provider_id());
        if !has_node {
            found.add(Id::L1, format!("server {} has no Node", server.name));
        }
    }
}

fn balancers(view: &View, found: &mut Violations) {
    let service_of = |balancer: &machinist_standin_hcloud::LoadBalancer| {
        let uid = balancer.labels.get(SERVICE_UID).cloned().unwrap_or_default();
        view.services.iter().map(Item::seen).find(|service| service.uid() == uid)
    };
    for balancer in view.cloud.load_balancers.values() {
        match service_of(balancer) {
            None => {
                found.add(Id::L2, format!("load balancer {} exists, but its Service does not", balancer.id))
            }
            Some(service) if balancer.targets.len() != view.nodes.len() => {
                let (name, targets, nodes) = (service.name(), balancer.targets.len(), view.nodes.len());
                found.add(Id::L1, format!("Service {name} has {targets} targets, expected {nodes}"));
            }
            Some(_) => {}
        }
    }
    for service in view.services.iter().map(Item::seen) {
        if service.text("/spec/type") != "LoadBalancer" {
            continue;
        }
        let has_balancer = view
            .cloud
            .load_balancers
            .values()
            .any(|balancer| service_of(balancer).is_some_and(|owner| owner.uid() == service.uid()));
        let has_address = !service.list("/status/loadBalancer/ingress").is_empty();
        if !has_balancer || !has_address || service.is_deleting() {
            found.add(Id::L1, format!("Service {} has no load balancer and address", service.name()));
        }
    }
}
