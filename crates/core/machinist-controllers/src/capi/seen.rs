//! Everything that a process has seen: its stores and its memory.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use machinist_api::capi::{Beta1, Beta2, CoreVersion};
use machinist_core::{Answered, Answers};
use machinist_kube::{ObjectKey, Store};
use machinist_plan::capi::docker_cluster::BalancerAnswers;
use machinist_plan::capi::docker_machine::StepAnswers;
use machinist_plan::capi::facts::{
    ClusterFacts, CoreMachineFacts, DockerClusterFacts, DockerMachineFacts, MailgunClusterFacts,
    MailgunMachineFacts, ObjectFacts,
};
use machinist_plan::capi::is_paused;
use machinist_plan::capi::mail::SEND_BOUND;

use super::own_calls::MailCalls;
use super::versioned::CoreStores;
use super::workload_clusters::Connection;

/// Index: objects by `namespace/cluster` of their label.
pub(crate) const BY_CLUSTER: &str = "cluster";
/// Index: objects by the key that they claimed, and by the container that they recorded.
pub(crate) const BY_CLAIM: &str = "claim";

/// The stores and the memory of a process.
pub struct Seen {
    pub(crate) beta1: CoreStores<Beta1>,
    pub(crate) beta2: CoreStores<Beta2>,
    pub(crate) docker_clusters: Store<DockerClusterFacts>,
    pub(crate) docker_machines: Store<DockerMachineFacts>,
    pub(crate) mailgun_clusters: Store<MailgunClusterFacts>,
    pub(crate) mailgun_machines: Store<MailgunMachineFacts>,
    pub(crate) memory: Memory,
}

/// Memory besides the stores. A new process starts without it, and then looks mails up before it
/// sends them. `mail_calls` must live as long as the process: a process that lost only this field
/// could send a mail twice.
#[derive(Default)]
pub(crate) struct Memory {
    /// Answers about containers, by UID of the DockerMachine.
    pub answers: BTreeMap<String, Answers>,
    /// Answers about the work in containers, by UID of the DockerMachine.
    pub steps: BTreeMap<String, StepAnswers>,
    /// Answers about load balancers, by UID of the DockerCluster.
    pub balancers: BTreeMap<String, BalancerAnswers>,
    /// Answers about mails, by UID of the request.
    pub mails: BTreeMap<String, MailAnswers>,
    /// The calls that may have sent mails, including calls for deleted requests.
    pub mail_calls: MailCalls,
    /// Clients of workload clusters, by namespace and name of the Cluster.
    pub workloads: BTreeMap<ObjectKey, Connection>,
}

/// The answers of the mail service about one mail.
#[derive(Debug, Clone, Default)]
pub(crate) struct MailAnswers {
    /// Whether this process wrote the present intent and made no call of unknown effect since.
    pub may_send: bool,
    /// The last answer to the call that sends the mail.
    pub sent: Option<Answered<()>>,
    /// The last answer to a look-up.
    pub looked: Option<Answered<bool>>,
    /// Consecutive failures.
    pub failures: u32,
}

/// Returns the value of the index [`BY_CLUSTER`].
pub(crate) fn cluster_index(namespace: &str, cluster: &str) -> String {
    format!("{namespace}/{cluster}")
}

/// Returns what only one object may have, as values of the index [`BY_CLAIM`]: its key, and the id
/// of its container.
pub(crate) fn claims(object: &ObjectFacts) -> impl Iterator<Item = String> {
    let key = object.recorded_key().map(|key| format!("key {key}"));
    let container = object.recorded_container().map(|container| format!("container {container}"));
    [key, container].into_iter().flatten()
}

/// Returns another object with the key of this one. The object whose UID is the key is the
/// original, so no other object counts for it.
pub(crate) fn key_holder<F>(store: &Store<F>, object: &ObjectFacts) -> Option<String> {
    let key = object.recorded_key().filter(|key| *key != object.uid)?;
    let claim = format!("key {key}");
    let mut others = others(store, object, &claim);
    others.next().map(|(other, _)| other.to_string())
}

/// Returns another object that recorded the container of this one. An object of a Cluster with
/// another name does not count, because the labels of the container contradict one of them.
pub(crate) fn container_holder<F>(
    store: &Store<F>,
    object: &ObjectFacts,
    of: fn(&F) -> &ObjectFacts,
) -> Option<String> {
    fn cluster(object: &ObjectFacts) -> Option<&str> {
        object.owner("Cluster").or(object.cluster_label())
    }
    let container = object.recorded_container()?;
    let is_elsewhere = |other: &ObjectFacts| match (cluster(object), cluster(other)) {
        (Some(own), Some(other)) => own != other,
        (None, _) | (_, None) => false,
    };
    let claim = format!("container {container}");
    let mut others = others(store, object, &claim);
    others.find(|(_, facts)| !is_elsewhere(of(facts))).map(|(other, _)| other.to_string())
}

/// Returns the other objects with a claim.
fn others<'s, F>(
    store: &'s Store<F>,
    object: &'s ObjectFacts,
    claim: &'s str,
) -> impl Iterator<Item = (&'s ObjectKey, &'s F)> {
    let is_other =
        |key: &ObjectKey| (key.namespace.as_str(), key.name.as_str()) != (&object.namespace, &object.name);
    store
        .by_index(BY_CLAIM, claim)
        .filter(move |(key, _)| is_other(key))
        .map(|(key, entry)| (key, &*entry.facts))
}

impl Default for Seen {
    fn default() -> Self {
        Self {
            beta1: CoreStores::default(),
            beta2: CoreStores::default(),
            docker_clusters: Store::new(&[(BY_CLAIM, |cluster: &DockerClusterFacts, keys| {
                keys.extend(claims(&cluster.object));
            })]),
            docker_machines: Store::new(&[
                (BY_CLAIM, |machine: &DockerMachineFacts, keys| {
                    keys.extend(claims(&machine.object));
                }),
                (BY_CLUSTER, |machine, keys| {
                    let object = &machine.object;
                    keys.extend(
                        object.cluster_label().map(|cluster| cluster_index(&object.namespace, cluster)),
                    );
                }),
            ]),
            mailgun_clusters: Store::new(&[]),
            mailgun_machines: Store::new(&[(BY_CLUSTER, |machine: &MailgunMachineFacts, keys| {
                let object = &machine.mail.object;
                keys.extend(object.cluster_label().map(|cluster| cluster_index(&object.namespace, cluster)));
            })]),
            memory: Memory::default(),
        }
    }
}

impl Memory {
    /// Forgets a deleted object, except its mail: a restore of the store may bring it back.
    pub(crate) fn forget(&mut self, uid: &str) {
        self.answers.remove(uid);
        self.steps.remove(uid);
        self.balancers.remove(uid);
        self.mails.remove(uid);
    }

    /// Forgets the facts that depend on the time at which they were learned. Whether a mail may be
    /// sent is forgotten too: then the mail is looked up.
    pub(crate) fn forget_moments(&mut self, now: Timestamp) {
        for answers in self.answers.values_mut() {
            *answers = Answers {
                ever_ensured: answers.ever_ensured,
                made_in: answers.made_in.clone(),
                shown: answers.shown.clone(),
                ..Answers::default()
            };
        }
        self.steps.clear();
        for answers in self.balancers.values_mut() {
            *answers = BalancerAnswers { ever_ensured: answers.ever_ensured, ..BalancerAnswers::default() };
        }
        self.mails.clear();
        self.mail_calls.forget_moments(now, SEND_BOUND);
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
    use serde_json::json;

    use super::*;
    use crate::capi::versioned::Core;

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
