//! Cluster and Machine, in the version that the management cluster serves.
//!
//! Each version has its own stores, because it has its own URL. A process fills the stores of one
//! version, and the functions here read both.

use std::marker::PhantomData;
use std::sync::Arc;

use machinist_api::capi::{Beta1, Beta2, CoreVersion};
use machinist_kube::{ObjectKey, Store};
use machinist_plan::capi::facts::{ClusterFacts, CoreMachineFacts, ObjectFacts};
use machinist_plan::capi::is_paused;

use super::seen::Seen;

/// Facts that were read in the version `V`.
#[derive(Debug)]
pub(crate) struct Core<V, F> {
    pub facts: Arc<F>,
    version: PhantomData<fn() -> V>,
}

impl<V, F> Core<V, F> {
    pub(crate) fn new(facts: F) -> Self {
        Self { facts: Arc::new(facts), version: PhantomData }
    }
}

/// The stores of one version.
#[derive(Debug)]
pub(crate) struct CoreStores<V> {
    pub clusters: Store<Core<V, ClusterFacts>>,
    pub machines: Store<Core<V, CoreMachineFacts>>,
}

impl<V> Default for CoreStores<V> {
    fn default() -> Self {
        Self { clusters: Store::new(&[]), machines: Store::new(&[]) }
    }
}

/// A version with stores.
pub(crate) trait Stored: CoreVersion {
    fn stores(seen: &Seen) -> &CoreStores<Self>;
    fn stores_mut(seen: &mut Seen) -> &mut CoreStores<Self>;
}

impl Stored for Beta1 {
    fn stores(seen: &Seen) -> &CoreStores<Self> {
        &seen.beta1
    }
    fn stores_mut(seen: &mut Seen) -> &mut CoreStores<Self> {
        &mut seen.beta1
    }
}

impl Stored for Beta2 {
    fn stores(seen: &Seen) -> &CoreStores<Self> {
        &seen.beta2
    }
    fn stores_mut(seen: &mut Seen) -> &mut CoreStores<Self> {
        &mut seen.beta2
    }
}

impl Seen {
    /// Returns a Cluster.
    pub(crate) fn cluster(&self, key: &ObjectKey) -> Option<Arc<ClusterFacts>> {
        let newer = self.beta2.clusters.get(key).map(|entry| entry.facts.facts.clone());
        newer.or_else(|| self.beta1.clusters.get(key).map(|entry| entry.facts.facts.clone()))
    }

    /// Returns a Machine.
    pub(crate) fn machine(&self, key: &ObjectKey) -> Option<Arc<CoreMachineFacts>> {
        let newer = self.beta2.machines.get(key).map(|entry| entry.facts.facts.clone());
        newer.or_else(|| self.beta1.machines.get(key).map(|entry| entry.facts.facts.clone()))
    }

    /// Whether a DockerMachine or a MailgunMachine, or its Cluster, is paused now.
    pub(crate) fn machine_is_paused(&self, object: &ObjectFacts) -> bool {
        let owner = object.owner("Machine").map(|name| ObjectKey::new(&object.namespace, name));
        let owner = owner.and_then(|key| self.machine(&key));
        is_paused(object, self.cluster_of(object, owner.as_deref()).as_deref())
    }

    /// Whether a DockerCluster or a MailgunCluster, or its Cluster, is paused now.
    pub(crate) fn cluster_is_paused(&self, object: &ObjectFacts) -> bool {
        let owner = object.owner("Cluster").map(|name| ObjectKey::new(&object.namespace, name));
        is_paused(object, owner.and_then(|key| self.cluster(&key)).as_deref())
    }

    /// Returns the Cluster of an object: the label names it, else the owning Machine.
    pub(crate) fn cluster_of(
        &self,
        object: &ObjectFacts,
        owner: Option<&CoreMachineFacts>,
    ) -> Option<Arc<ClusterFacts>> {
        let named = owner.and_then(|owner| owner.object.cluster_label().or(owner.cluster.as_deref()));
        let name = object.cluster_label().or(named)?;
        self.cluster(&ObjectKey::new(&object.namespace, name))
    }
}

#[cfg(test)]
mod tests {
    use machinist_api::capi::{Cluster, DockerCluster, DockerMachine};
    use machinist_kube::{Delta, Entry};
    use machinist_plan::capi::facts::{DockerClusterFacts, DockerMachineFacts};
    use serde_json::json;

    use super::*;

    #[test]
    fn a_paused_cluster_pauses_its_machines_and_infrastructure() {
        let mut seen = Seen::default();
        let machine: DockerMachine = serde_json::from_value(json!({
            "metadata": {
                "name": "w", "namespace": "n", "labels": {"cluster.x-k8s.io/cluster-name": "c"},
            },
            "spec": {},
        }))
        .expect("a DockerMachine");
        let infrastructure: DockerCluster = serde_json::from_value(json!({
            "metadata": {"name": "c", "namespace": "n", "ownerReferences": [
                {"apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Cluster", "name": "c", "uid": "u"},
            ]},
            "spec": {},
        }))
        .expect("a DockerCluster");
        let machine = DockerMachineFacts::parse(&machine).object;
        let infrastructure = DockerClusterFacts::parse(&infrastructure).object;
        for (resource_version, is_paused) in [(1, false), (2, true)] {
            let cluster: Cluster<Beta2> = serde_json::from_value(json!({
                "metadata": {"name": "c", "namespace": "n"}, "spec": {"paused": is_paused}, "status": {},
            }))
            .expect("a Cluster");
            let facts = Arc::new(Core::new(ClusterFacts::parse(&cluster)));
            let entry = Entry { uid: "u".to_owned(), resource_version, deleting: false, facts };
            seen.beta2.clusters.apply(Delta::Upsert(ObjectKey::new("n", "c"), entry));
            let paused = (seen.machine_is_paused(&machine), seen.cluster_is_paused(&infrastructure));
            assert_eq!(paused, (is_paused, is_paused));
        }
    }
}
