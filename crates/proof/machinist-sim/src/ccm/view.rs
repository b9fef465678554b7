//! All existing objects at one moment, as a scenario sees them.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use machinist_standin_hcloud::{HcloudLoadBalancer, State};

use super::invariants::{UNINITIALIZED, external_addresses, has_taint};
use super::project::SERVICE_UID;
use crate::said::Said;
use crate::sight::{Item, SeenObject};

/// All existing objects at one moment.
#[derive(Debug, Clone)]
pub struct ServiceView {
    /// Nodes.
    pub nodes: Vec<Item>,
    /// Services.
    pub services: Vec<Item>,
    /// Machines.
    pub machines: Vec<Item>,
    /// The objects of the stand-in.
    pub cloud: State,
    /// The UIDs of Services with a load balancer that another actor or a restore has removed.
    pub lost: BTreeSet<String>,
    /// The messages about load balancers without a Service, if there are any.
    pub reports: Vec<String>,
    /// The answers of `why`, by `kind/namespace/name`.
    pub whys: BTreeMap<String, Said>,
}

impl ServiceView {
    /// The Node of that name.
    pub fn node(&self, name: &str) -> Option<SeenObject<'_>> {
        self.nodes.iter().map(Item::seen).find(|node| node.name() == name)
    }

    /// The Service of that name.
    pub fn service(&self, name: &str) -> Option<SeenObject<'_>> {
        self.services.iter().map(Item::seen).find(|service| service.name() == name)
    }

    /// The answer of `why` about a Service.
    pub fn said_of_service(&self, service: SeenObject<'_>) -> Option<&Said> {
        self.whys.get(&format!("service/{}/{}", service.namespace(), service.name()))
    }

    /// The answer of `why` about a Node.
    pub fn said_of_node(&self, node: SeenObject<'_>) -> Option<&Said> {
        self.whys.get(&format!("node/{}", node.name()))
    }

    /// The Service of a load balancer, if it exists.
    pub fn owner(&self, balancer: &HcloudLoadBalancer) -> Option<SeenObject<'_>> {
        let uid = balancer.labels.get(SERVICE_UID)?;
        self.services.iter().map(Item::seen).find(|service| service.uid() == uid)
    }

    /// The load balancer of a Service.
    pub fn balancer(&self, service: SeenObject<'_>) -> Option<&HcloudLoadBalancer> {
        let is_its = |balancer: &&HcloudLoadBalancer| {
            balancer.labels.get(SERVICE_UID).is_some_and(|uid| uid == service.uid())
        };
        self.cloud.load_balancers.values().find(is_its)
    }

    /// Whether the Service of a load balancer was removed by another actor or a restore, so that
    /// only a person deletes the load balancer.
    pub fn is_orphan(&self, balancer: &HcloudLoadBalancer) -> bool {
        let uid = balancer.labels.get(SERVICE_UID);
        self.owner(balancer).is_none() && uid.is_some_and(|uid| self.lost.contains(uid))
    }

    /// Whether the Nodes of these names exist, and are ready and initialised.
    pub fn are_initialized(&self, names: &[&str]) -> Result<(), String> {
        names.iter().try_for_each(|name| self.is_initialized(name))
    }

    fn is_initialized(&self, name: &str) -> Result<(), String> {
        let Some(node) = self.node(name) else { return Err(format!("Node {name} does not exist")) };
        if has_taint(node, UNINITIALIZED) {
            return Err(format!("Node {name} has the taint of uninitialised Nodes"));
        }
        match node.condition("Ready") {
            "True" => Ok(()),
            other => Err(format!("Node {name} has the condition Ready={other:?}")),
        }
    }

    /// Whether a Node has the identity and the public address of that server.
    pub fn is_of(&self, name: &str, server: i64) -> Result<(), String> {
        self.is_initialized(name)?;
        let Some(node) = self.node(name) else { return Err(format!("Node {name} does not exist")) };
        let Some(server) = self.cloud.servers.get(&server).filter(|server| server.is_alive()) else {
            return Err(format!("server {server} does not exist"));
        };
        if node.provider_id() != server.provider_id() {
            return Err(format!("Node {name} has the provider id {:?}", node.provider_id()));
        }
        let address = server.ipv4.as_ref().map(|ip| ip.ip.as_str()).unwrap_or_default();
        if external_addresses(node).any(|shown| shown == address) {
            Ok(())
        } else {
            Err(format!("Node {name} lacks the address {address}"))
        }
    }

    /// Whether the Service has a load balancer with that number of targets, and shows its address.
    pub fn has_balancer(&self, name: &str, targets: usize) -> Result<(), String> {
        let Some(service) = self.service(name) else { return Err(format!("Service {name} does not exist")) };
        let Some(balancer) = self.balancer(service) else { return Err("no load balancer exists".to_owned()) };
        if balancer.targets.len() != targets {
            return Err(format!("the load balancer has {} targets", balancer.targets.len()));
        }
        match service.list("/status/loadBalancer/ingress") {
            [] => Err(format!("Service {name} has no address")),
            [..] => Ok(()),
        }
    }
}

impl fmt::Display for ServiceView {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for node in self.nodes.iter().map(Item::seen) {
            let (name, id, ready) = (node.name(), node.provider_id(), node.condition("Ready"));
            let taint = if has_taint(node, UNINITIALIZED) { " (uninitialised)" } else { "" };
            let why = self.said_of_node(node).map_or("", |said| said.text.as_str());
            writeln!(f, "node {name} {id:?} Ready={ready}{taint} {why}")?;
        }
        for machine in self.machines.iter().map(Item::seen) {
            let (name, phase, text) = (machine.name(), machine.phase(), machine.operation_text());
            writeln!(f, "machine {name} {phase:?} deleting={} {text:?}", machine.is_deleting())?;
        }
        for service in self.services.iter().map(Item::seen) {
            let finalizers = service.list("/metadata/finalizers");
            let why = self.said_of_service(service).map_or("", |said| said.text.as_str());
            writeln!(
                f,
                "service {} deleting={} {finalizers:?} {why}",
                service.name(),
                service.is_deleting()
            )?;
        }
        for server in self.cloud.servers.values().filter(|server| server.is_alive()) {
            writeln!(f, "server {} {} {:?}", server.id, server.name, server.status)?;
        }
        for balancer in self.cloud.load_balancers.values() {
            writeln!(f, "load balancer {} {:?}", balancer.id, balancer.labels)?;
        }
        self.reports.iter().try_for_each(|report| writeln!(f, "reported: {report}"))
    }
}
