//! The kinds that the cloud-controller-manager watches, and the keys that a change of each wakes.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{ConfigMap, Node, Service};
use kube::Api;
use machinist_api::Machine;
use machinist_core::Succession;
use machinist_kube::Change;
use machinist_kube::watch::WatchOptions;
use machinist_plan::ccm::facts::{CloudNodeFacts, OwningMachineFacts, ServiceFacts};
use machinist_plan::ccm::{backends, route};
use machinist_runtime::{Fed, stored};

use super::contract::{Ccm, Runtime};
use super::key::Key;
use super::options::SETTINGS_NAMESPACE;
use super::seen::{Seen, Settings};
use super::service;

impl Fed<Ccm> for CloudNodeFacts {
    stored! { Ccm; nodes: Node as "nodes", all in target }

    fn learn(seen: &mut Seen, change: &Change<Self>, _: Succession, now: Timestamp) {
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
    stored! { Ccm; services: Service as "services", namespaced in target }

    fn watched(runtime: &Runtime) -> (Api<Service>, WatchOptions) {
        (Api::all(runtime.clients.target.clone()), WatchOptions::default())
    }

    fn learn(seen: &mut Seen, change: &Change<Self>, _: Succession, _: Timestamp) {
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
    stored! { Ccm; settings: ConfigMap as "configmaps", namespaced in target }

    fn watched(runtime: &Runtime) -> (Api<ConfigMap>, WatchOptions) {
        let name = &runtime.tools.options.settings_name;
        let field_selector = Some(format!("metadata.name={name}"));
        (Self::api(runtime, SETTINGS_NAMESPACE), WatchOptions { field_selector, ..WatchOptions::default() })
    }

    fn route(_: &Seen, _: &Change<Self>, wake: &mut Vec<Key>) {
        wake.push(Key::NodeRemoval);
    }
}

impl Fed<Ccm> for OwningMachineFacts {
    stored! { Ccm; machines: Machine as "machines", namespaced in control }

    fn watched(runtime: &Runtime) -> (Api<Machine>, WatchOptions) {
        let namespace = runtime.tools.options.machines.clone().unwrap_or_default();
        (Self::api(runtime, &namespace), WatchOptions::default())
    }

    fn route(_: &Seen, change: &Change<Self>, wake: &mut Vec<Key>) {
        let names = [&change.old, &change.new].into_iter().flatten().map(|machine| machine.node_name.clone());
        wake.extend(names.map(Key::Node));
        wake.push(Key::NodeRemoval);
    }
}
