//! The kinds that the cloud-controller-manager watches, and the keys that a change of each wakes.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{ConfigMap, Node, Service};
use kube::Api;
use machinist_api::Machine;
use machinist_core::Version;
use machinist_kube::watch::WatchOptions;
use machinist_kube::{Change, Cluster, Store};
use machinist_plan::ccm::facts::{CloudNodeFacts, ServiceFacts};
use machinist_plan::ccm::{backends, route};
use machinist_plan::mcm::facts::MachineFacts;
use machinist_runtime::Fed;

use super::contract::{Ccm, Runtime};
use super::key::Key;
use super::options::SETTINGS_NAMESPACE;
use super::seen::{Seen, Settings};
use super::service;

impl Fed<Ccm> for CloudNodeFacts {
    type Object = Node;
    const RESOURCE: &'static str = "nodes";

    fn cluster() -> Cluster {
        Cluster::Target
    }

    fn api(runtime: &Runtime, _: &str) -> Api<Node> {
        Api::all(runtime.clients.target.clone())
    }
    fn parse(object: &Node) -> Self {
        Self::parse(object)
    }
    fn store(seen: &Seen) -> &Store<Self> {
        &seen.nodes
    }
    fn store_mut(seen: &mut Seen) -> &mut Store<Self> {
        &mut seen.nodes
    }

    fn learn(seen: &mut Seen, change: &Change<Self>, _: Version, now: Timestamp) {
        let Some(node) = &change.new else { return };
        let memory = &mut seen.memory;
        if node.is_uninitialized() {
            memory.first_uninitialized.get_or_insert(now);
        }
        if node.is_ready() {
            memory.stopped.remove(&change.uid);
        }
        let is_affected = change.old.as_ref().is_none_or(|old| backends::is_affected_by(old, node));
        memory.node_changes += u64::from(is_affected);
    }
    fn forget(seen: &mut Seen, uid: &str) {
        seen.memory.forget_node(uid);
        seen.memory.node_changes += 1;
    }

    fn route(seen: &Seen, change: &Change<Self>, wake: &mut Vec<Key>) {
        wake.push(Key::Node(change.key.name.clone()));
        if seen.memory.suspects.contains_key(&change.uid) {
            wake.push(Key::NodeRemoval);
        }
        let is_other = change.old.is_none() || change.new.is_none();
        let (old, new) = (change.old.as_ref(), change.new.as_ref());
        let differs = |is_affected: fn(&Self, &Self) -> bool| {
            old.zip(new).is_some_and(|(old, new)| is_affected(old, new))
        };
        if is_other || differs(backends::is_affected_by) {
            wake.push(Key::Backends);
        }
        if is_other || differs(route::is_affected_by) {
            wake.push(Key::Routes);
        }
        let recorded =
            |node: Option<&std::sync::Arc<Self>>| node.map(|node| (node.provider_id.clone(), node.account()));
        if recorded(old) != recorded(new) {
            wake.push(Key::Account);
        }
    }
}

impl Fed<Ccm> for ServiceFacts {
    type Object = Service;
    const RESOURCE: &'static str = "services";

    fn cluster() -> Cluster {
        Cluster::Target
    }

    fn api(runtime: &Runtime, namespace: &str) -> Api<Service> {
        Api::namespaced(runtime.clients.target.clone(), namespace)
    }
    fn watched(runtime: &Runtime) -> (Api<Service>, WatchOptions) {
        (Api::all(runtime.clients.target.clone()), WatchOptions::default())
    }
    fn parse(object: &Service) -> Self {
        Self::parse(object)
    }
    fn store(seen: &Seen) -> &Store<Self> {
        &seen.services
    }
    fn store_mut(seen: &mut Seen) -> &mut Store<Self> {
        &mut seen.services
    }

    fn learn(seen: &mut Seen, change: &Change<Self>, _: Version, _: Timestamp) {
        if let Some(service) = &change.new {
            seen.memory.note_class(service);
        }
        if change.old.is_none() || change.new.is_none() {
            seen.memory.service_keys = Some(service::keys(seen));
        }
    }
    fn forget(seen: &mut Seen, uid: &str) {
        seen.memory.forget_service(uid);
    }

    fn route(seen: &Seen, change: &Change<Self>, wake: &mut Vec<Key>) {
        wake.push(Key::Service(change.key.clone()));
        for service in [&change.old, &change.new].into_iter().flatten() {
            wake.extend(service::rival_keys(seen, service));
        }
        let has_balancer = |service: &Self| service.is_load_balancer || service.has_finalizer;
        if [&change.old, &change.new].into_iter().flatten().any(|service| has_balancer(service)) {
            wake.push(Key::BalancerDrift);
        }
        let recorded = |service: &Option<std::sync::Arc<Self>>| service.as_ref()?.balancer_record.clone();
        if recorded(&change.old) != recorded(&change.new) {
            wake.push(Key::Account);
        }
    }
}

impl Fed<Ccm> for Settings {
    type Object = ConfigMap;
    const RESOURCE: &'static str = "configmaps";

    fn cluster() -> Cluster {
        Cluster::Target
    }

    fn api(runtime: &Runtime, namespace: &str) -> Api<ConfigMap> {
        Api::namespaced(runtime.clients.target.clone(), namespace)
    }
    fn watched(runtime: &Runtime) -> (Api<ConfigMap>, WatchOptions) {
        let name = &runtime.tools.options.settings_name;
        let field_selector = Some(format!("metadata.name={name}"));
        (Self::api(runtime, SETTINGS_NAMESPACE), WatchOptions { field_selector, ..WatchOptions::default() })
    }
    fn parse(object: &ConfigMap) -> Self {
        Self::parse(object)
    }
    fn store(seen: &Seen) -> &Store<Self> {
        &seen.settings
    }
    fn store_mut(seen: &mut Seen) -> &mut Store<Self> {
        &mut seen.settings
    }

    fn route(_: &Seen, _: &Change<Self>, wake: &mut Vec<Key>) {
        wake.push(Key::NodeRemoval);
    }
}

impl Fed<Ccm> for MachineFacts {
    type Object = Machine;
    const RESOURCE: &'static str = "machines";

    fn api(runtime: &Runtime, namespace: &str) -> Api<Machine> {
        Api::namespaced(runtime.clients.control.clone(), namespace)
    }
    fn watched(runtime: &Runtime) -> (Api<Machine>, WatchOptions) {
        let namespace = runtime.tools.options.machines.clone().unwrap_or_default();
        (Self::api(runtime, &namespace), WatchOptions::default())
    }
    fn parse(object: &Machine) -> Self {
        Self::parse(object)
    }
    fn store(seen: &Seen) -> &Store<Self> {
        &seen.machines
    }
    fn store_mut(seen: &mut Seen) -> &mut Store<Self> {
        &mut seen.machines
    }

    fn route(_: &Seen, change: &Change<Self>, wake: &mut Vec<Key>) {
        let names = [&change.old, &change.new].into_iter().flatten().map(|machine| machine.node_name());
        wake.extend(names.map(|name| Key::Node(name.to_owned())));
        wake.push(Key::NodeRemoval);
    }
}
