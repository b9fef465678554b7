//! The kinds that a provider watches, and the keys that a change of each wakes.

use k8s_openapi::NamespaceResourceScope;
use kube::{Api, Resource};
use machinist_api::capi::{
    Cluster, DockerCluster, DockerMachine, Machine, MailgunCluster, MailgunMachine, constants,
};
use machinist_kube::watch::WatchOptions;
use machinist_kube::{Change, ObjectKey, Store};
use machinist_plan::capi::facts::{
    ClusterFacts, CoreMachineFacts, DockerClusterFacts, DockerMachineFacts, MailgunClusterFacts,
    MailgunMachineFacts, ObjectFacts,
};
use machinist_runtime::{Fed, stored};

use super::contract::{Capi, Runtime};
use super::key::Key;
use super::seen::{BY_CLAIM, BY_CLUSTER, Seen, Stored, claims, cluster_index};
use super::versioned::Core;

/// Returns the client of a namespace, or of all namespaces for the empty name.
fn api<K: Resource<Scope = NamespaceResourceScope, DynamicType = ()>>(
    runtime: &Runtime,
    namespace: &str,
) -> Api<K> {
    let client = runtime.clients.control.clone();
    if namespace.is_empty() { Api::all(client) } else { Api::namespaced(client, namespace) }
}

/// Selects the objects of this process by the label of `--watch-filter`.
fn filtered(runtime: &Runtime) -> WatchOptions {
    let filter = runtime.tools.options.watch_filter.as_ref();
    let label_selector = filter.map(|value| format!("{}={value}", constants::WATCH_FILTER_LABEL));
    WatchOptions { label_selector, ..WatchOptions::default() }
}

/// The keys of our objects that belong to a Cluster.
fn wake_cluster(seen: &Seen, cluster: &ClusterFacts, wake: &mut Vec<Key>) {
    let namespace = &cluster.object.namespace;
    if let Some(reference) = &cluster.infrastructure {
        let id = |name: &str| ObjectKey::new(namespace, name);
        wake.extend(reference.names("DockerCluster").map(|name| Key::DockerCluster(id(name))));
        wake.extend(reference.names("MailgunCluster").map(|name| Key::MailgunCluster(id(name))));
    }
    let index = cluster_index(namespace, &cluster.object.name);
    let machines = seen.docker_machines.by_index(BY_CLUSTER, &index);
    wake.extend(machines.map(|(key, _)| Key::DockerMachine(key.clone())));
    let machines = seen.mailgun_machines.by_index(BY_CLUSTER, &index);
    wake.extend(machines.map(|(key, _)| Key::MailgunMachine(key.clone())));
}

/// The key of the DockerCluster of a Cluster, by the name of the Cluster.
fn infrastructure_of(seen: &Seen, namespace: &str, cluster: Option<&str>) -> Option<Key> {
    let cluster = seen.cluster(&ObjectKey::new(namespace, cluster?))?;
    let name = cluster.infrastructure.as_ref()?.names("DockerCluster")?;
    Some(Key::DockerCluster(ObjectKey::new(namespace, name)))
}

impl<V: Stored> Fed<Capi> for Core<V, ClusterFacts> {
    type Object = Cluster<V>;
    const RESOURCE: &'static str = "clusters";

    fn api(runtime: &Runtime, namespace: &str) -> Api<Cluster<V>> {
        api(runtime, namespace)
    }
    fn parse(object: &Cluster<V>) -> Self {
        Self::new(ClusterFacts::parse(object))
    }
    fn store(seen: &Seen) -> &Store<Self> {
        &V::stores(seen).clusters
    }
    fn store_mut(seen: &mut Seen) -> &mut Store<Self> {
        &mut V::stores_mut(seen).clusters
    }
    fn route(seen: &Seen, change: &Change<Self>, wake: &mut Vec<Key>) {
        for cluster in [&change.old, &change.new].into_iter().flatten() {
            wake_cluster(seen, &cluster.facts, wake);
        }
        // An object whose owner was missing until now names the Cluster, not the other way round.
        let is_of = |object: &ObjectFacts| {
            object.namespace == change.key.namespace && object.owner("Cluster") == Some(&change.key.name)
        };
        let docker = seen.docker_clusters.iter().filter(|(_, cluster)| is_of(&cluster.facts.object));
        wake.extend(docker.map(|(key, _)| Key::DockerCluster(key.clone())));
        let mailgun = seen.mailgun_clusters.iter().filter(|(_, cluster)| is_of(&cluster.facts.mail.object));
        wake.extend(mailgun.map(|(key, _)| Key::MailgunCluster(key.clone())));
    }
    fn learn(seen: &mut Seen, change: &Change<Self>, _: machinist_core::Succession, _: jiff::Timestamp) {
        if change.new.is_none() {
            // The client of a deleted cluster is closed.
            seen.memory.workloads.remove(&change.key);
        }
    }
}

impl<V: Stored> Fed<Capi> for Core<V, CoreMachineFacts> {
    type Object = Machine<V>;
    const RESOURCE: &'static str = "machines";

    fn api(runtime: &Runtime, namespace: &str) -> Api<Machine<V>> {
        api(runtime, namespace)
    }
    fn parse(object: &Machine<V>) -> Self {
        Self::new(CoreMachineFacts::parse(object))
    }
    fn store(seen: &Seen) -> &Store<Self> {
        &V::stores(seen).machines
    }
    fn store_mut(seen: &mut Seen) -> &mut Store<Self> {
        &mut V::stores_mut(seen).machines
    }
    fn route(seen: &Seen, change: &Change<Self>, wake: &mut Vec<Key>) {
        for machine in [&change.old, &change.new].into_iter().flatten() {
            let (machine, namespace) = (&machine.facts, &machine.facts.object.namespace);
            let id = |name: &str| ObjectKey::new(namespace, name);
            if let Some(reference) = &machine.infrastructure {
                wake.extend(reference.names("DockerMachine").map(|name| Key::DockerMachine(id(name))));
                wake.extend(reference.names("MailgunMachine").map(|name| Key::MailgunMachine(id(name))));
            }
            let cluster = machine.object.cluster_label().or(machine.cluster.as_deref());
            // The weight of a backend depends on its Machine.
            wake.extend(infrastructure_of(seen, namespace, cluster));
        }
    }
}

impl Fed<Capi> for DockerClusterFacts {
    stored! { Capi; docker_clusters: DockerCluster as "dockerclusters", namespaced in control }

    fn watched(runtime: &Runtime) -> (Api<DockerCluster>, WatchOptions) {
        (api(runtime, &runtime.options.namespace), filtered(runtime))
    }
    fn route(seen: &Seen, change: &Change<Self>, wake: &mut Vec<Key>) {
        wake.push(Key::DockerCluster(change.key.clone()));
        for docker in [&change.old, &change.new].into_iter().flatten() {
            let object = &docker.object;
            // A copy waits for the end of the claim of another object.
            for claim in claims(object) {
                let others = seen.docker_clusters.by_index(BY_CLAIM, &claim);
                wake.extend(others.map(|(key, _)| Key::DockerCluster(key.clone())));
            }
            let cluster = object.cluster_label().or(object.owner("Cluster"));
            let cluster = cluster.and_then(|name| seen.cluster(&ObjectKey::new(&object.namespace, name)));
            if let Some(cluster) = cluster {
                wake_cluster(seen, &cluster, wake);
            }
        }
    }
    fn forget(seen: &mut Seen, uid: &str) {
        seen.memory.forget(uid);
    }
}

impl Fed<Capi> for DockerMachineFacts {
    stored! { Capi; docker_machines: DockerMachine as "dockermachines", namespaced in control }

    fn watched(runtime: &Runtime) -> (Api<DockerMachine>, WatchOptions) {
        (api(runtime, &runtime.options.namespace), filtered(runtime))
    }
    fn route(seen: &Seen, change: &Change<Self>, wake: &mut Vec<Key>) {
        wake.push(Key::DockerMachine(change.key.clone()));
        for machine in [&change.old, &change.new].into_iter().flatten() {
            let object = &machine.object;
            // A copy waits for the end of the claim of another object.
            for claim in claims(object) {
                let others = seen.docker_machines.by_index(BY_CLAIM, &claim);
                wake.extend(others.map(|(key, _)| Key::DockerMachine(key.clone())));
            }
            wake.extend(infrastructure_of(seen, &object.namespace, object.cluster_label()));
        }
    }
    fn forget(seen: &mut Seen, uid: &str) {
        seen.memory.forget(uid);
    }
}

impl Fed<Capi> for MailgunClusterFacts {
    stored! { Capi; mailgun_clusters: MailgunCluster as "mailgunclusters", namespaced in control }

    fn watched(runtime: &Runtime) -> (Api<MailgunCluster>, WatchOptions) {
        (api(runtime, &runtime.options.namespace), filtered(runtime))
    }
    fn route(_: &Seen, change: &Change<Self>, wake: &mut Vec<Key>) {
        wake.push(Key::MailgunCluster(change.key.clone()));
    }
    fn forget(seen: &mut Seen, uid: &str) {
        seen.memory.forget(uid);
    }
}

impl Fed<Capi> for MailgunMachineFacts {
    stored! { Capi; mailgun_machines: MailgunMachine as "mailgunmachines", namespaced in control }

    fn watched(runtime: &Runtime) -> (Api<MailgunMachine>, WatchOptions) {
        (api(runtime, &runtime.options.namespace), filtered(runtime))
    }
    fn route(_: &Seen, change: &Change<Self>, wake: &mut Vec<Key>) {
        wake.push(Key::MailgunMachine(change.key.clone()));
    }
    fn forget(seen: &mut Seen, uid: &str) {
        seen.memory.forget(uid);
    }
}
