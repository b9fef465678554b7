//! Deletes Pods that are bound to a Node that does not exist. No kubelet will ever terminate them,
//! so they are deleted immediately, without grace period.
//!
//! A Pod may be seen before its Node, and a Node may be registered again under its name. So a Node
//! has to be missing for a while, and its absence is read from the quorum before anything is
//! deleted.
//!
//! Deliberately absent: the limit on terminated Pods; Pods that were never scheduled (the server
//! itself deletes those without grace period); and the phase Failed before the deletion, which no
//! client here reads.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::{DeleteParams, Preconditions};
use kube::{Api, Client};
use machinist_kube::{KeyQueue, ObjectKey, WriteOutcome};
use tokio::time::Instant;

use crate::facts::node::NodeFacts;
use crate::facts::pod::PodFacts;
use crate::view::View;
use crate::work::{Controller, Next};

/// The keys of this controller are names of Nodes.
pub(crate) struct LostPods {
    client: Client,
    quarantine: Duration,
    queue: KeyQueue<String>,
    nodes: Arc<View<NodeFacts>>,
    pods: Arc<View<PodFacts>>,
    /// Missing Nodes that Pods are bound to, and when their absence was first seen.
    missing: Mutex<BTreeMap<String, Instant>>,
}

/// Returns a queue that is woken for each Node that may be missing while Pods are bound to it.
pub(crate) fn listen(nodes: &mut View<NodeFacts>, pods: &mut View<PodFacts>, seed: u64) -> KeyQueue<String> {
    /// Pods are created in bursts; one pass for the Node covers them all.
    const MIN_INTERVAL: Duration = Duration::from_millis(500);
    let queue = KeyQueue::new(|_| MIN_INTERVAL, seed);
    let on_node = queue.clone();
    nodes.listen(move |change| {
        if change.new.is_none() || change.old.is_none() {
            on_node.wake(change.key.name.clone());
        }
    });
    let on_pod = queue.clone();
    pods.listen(move |change| {
        let node = |pod: Option<&Arc<PodFacts>>| pod.and_then(|pod| pod.node.clone());
        let bound_to = node(change.new.as_ref());
        if bound_to != node(change.old.as_ref())
            && let Some(name) = bound_to
        {
            on_pod.wake(name);
        }
    });
    queue
}

impl Controller for LostPods {
    type Key = String;

    const NAME: &'static str = "lost-pods";

    fn queue(&self) -> &KeyQueue<String> {
        &self.queue
    }

    async fn pass(&self, name: &String) -> Next {
        let pods = self.pods_of_missing(name);
        if pods.is_empty() {
            self.missing().remove(name);
            return Next::Idle;
        }
        let missing_for = self.missing().entry(name.clone()).or_insert_with(Instant::now).elapsed();
        if missing_for < self.quarantine {
            return Next::In(self.quarantine - missing_for);
        }
        let nodes: Api<Node> = Api::all(self.client.clone());
        match nodes.get_metadata_opt(name).await {
            // The watch will show the Node.
            Ok(Some(_)) => return Next::In(self.quarantine),
            Ok(None) => {}
            Err(error) => return Next::after_failed_read("read the node", &error),
        }
        let mut next = Next::Idle;
        for (pod, uid) in pods {
            tracing::info!(%pod, node = name, "Deleting a pod whose node does not exist");
            next = next.sooner(self.delete(&pod, uid).await);
        }
        // A deletion that waits for a finalizer shows as a change. All other cases are looked at
        // once more.
        next.sooner(Next::In(self.quarantine))
    }
}

impl LostPods {
    pub(crate) fn new(
        client: Client,
        quarantine: Duration,
        queue: KeyQueue<String>,
        nodes: Arc<View<NodeFacts>>,
        pods: Arc<View<PodFacts>>,
    ) -> Self {
        Self { client, quarantine, queue, nodes, pods, missing: Mutex::default() }
    }

    /// Returns the Pods bound to this Node, if the Node does not exist.
    fn pods_of_missing(&self, name: &str) -> Vec<(ObjectKey, String)> {
        if self.nodes.store().get(&ObjectKey::cluster_scoped(name)).is_some() {
            return Vec::new();
        }
        let store = self.pods.store();
        let pods = store.by_index(PodFacts::BY_NODE, name);
        pods.map(|(key, entry)| (key.clone(), entry.uid.clone())).collect()
    }

    async fn delete(&self, pod: &ObjectKey, uid: String) -> Next {
        let preconditions = Some(Preconditions { uid: Some(uid), resource_version: None });
        let params = DeleteParams { preconditions, grace_period_seconds: Some(0), ..DeleteParams::default() };
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), &pod.namespace);
        let result = pods.delete(&pod.name, &params).await;
        Next::after_write("delete a pod", WriteOutcome::of(&result))
    }

    fn missing(&self) -> std::sync::MutexGuard<'_, BTreeMap<String, Instant>> {
        self.missing.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
