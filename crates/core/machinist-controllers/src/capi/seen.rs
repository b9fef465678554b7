//! Everything that a process has seen: its stores and its memory.

use std::collections::BTreeMap;

use jiff::Timestamp;
use machinist_api::capi::{Beta1, Beta2};
use machinist_core::{Answered, Answers};
use machinist_kube::{ObjectKey, Store};
use machinist_plan::capi::docker_cluster::BalancerAnswers;
use machinist_plan::capi::docker_machine::StepAnswers;
use machinist_plan::capi::mail::SEND_BOUND;
use machinist_plan::facts::{
    DockerClusterFacts, DockerMachineFacts, MailgunClusterFacts, MailgunMachineFacts, ObjectFacts,
};

use super::core::CoreStores;
use super::own_calls::MailCalls;
use super::workload::Connection;

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
                    keys.extend(object.cluster_label().map(|it| cluster_index(&object.namespace, it)));
                }),
            ]),
            mailgun_clusters: Store::new(&[]),
            mailgun_machines: Store::new(&[(BY_CLUSTER, |machine: &MailgunMachineFacts, keys| {
                let object = &machine.mail.object;
                keys.extend(object.cluster_label().map(|it| cluster_index(&object.namespace, it)));
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
