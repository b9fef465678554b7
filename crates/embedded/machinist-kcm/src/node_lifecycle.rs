//! Node lifecycle: handles Nodes that stop reporting, and the Pods on them.
//!
//! ```text
//! Lease, status -> Silence -> conditions Unknown -> taints -> Pods not ready, later deleted
//! ```
//!
//! A pass runs when a Node or a Pod on it changes, when the grace of a Node ends, and when the
//! toleration of a Pod ends. There is no periodic scan, and no write without a change. Before a
//! Node is declared lost, its Lease is read from the quorum, so that a lagging watch cannot cause a
//! false result.
//!
//! Deliberately absent: zones and eviction rates, the label-based exclusion from disruption, the
//! DisruptionTarget condition on Pods, and cloud instances (the driver decides whether an instance
//! exists).

pub(crate) mod decision;
pub(crate) mod silence;
pub(crate) mod taints;

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Node, NodeCondition, Pod, Taint};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::api::{DeleteParams, Patch, PatchParams, Preconditions};
use kube::{Api, Client};
use machinist_kube::{GuardedPatch, KeyQueue, ObjectKey, SharedClock, WriteOutcome};
use serde_json::{Value, json};
use tokio::time::MissedTickBehavior;

use crate::facts::node::NodeFacts;
use crate::facts::pod::PodFacts;
use crate::view::View;
use crate::work::{Controller, Next};
use decision::{Action, NodeSnapshot, Patience, Plan};
use silence::Silence;
use taints::Evicting;

/// Namespace of the kubelets' Leases. Each Lease has the name of its Node.
pub(crate) const LEASE_NAMESPACE: &str = "kube-node-lease";

/// Pods are often created and changed in bursts; one pass for the Node covers them all.
const MIN_INTERVAL: Duration = Duration::from_millis(100);

/// The renew time of a kubelet's Lease.
#[derive(Debug, PartialEq)]
pub(crate) struct LeaseFacts {
    renewed: Option<Timestamp>,
}

impl LeaseFacts {
    pub(crate) fn parse(lease: Lease) -> Self {
        Self { renewed: lease.spec.and_then(|spec| spec.renew_time).map(|time| time.0) }
    }
}

pub(crate) struct NodeLifecycle {
    client: Client,
    clock: SharedClock,
    patience: Patience,
    period: Duration,
    queue: KeyQueue<String>,
    nodes: Arc<View<NodeFacts>>,
    pods: Arc<View<PodFacts>>,
    memory: Arc<Mutex<Memory>>,
}

/// Knowledge about Nodes that is not stored in the API. Losing it gives every Node its whole grace
/// again.
struct Memory {
    silence: Silence,
    /// Per Node, the time when a taint without a time was first seen.
    taints_seen: BTreeMap<String, BTreeMap<String, Timestamp>>,
}

/// Feeds changes into the controller's queue. Created before the views that it listens to.
pub(crate) struct NodeListener {
    queue: KeyQueue<String>,
    memory: Arc<Mutex<Memory>>,
    period: Duration,
}

impl NodeListener {
    pub(crate) fn new(period: Duration, seed: u64) -> Self {
        let memory = Memory { silence: Silence::new(period), taints_seen: BTreeMap::new() };
        Self { queue: KeyQueue::new(|_| MIN_INTERVAL, seed), memory: Arc::new(Mutex::new(memory)), period }
    }

    pub(crate) fn listen(
        &self,
        nodes: &mut View<NodeFacts>,
        pods: &mut View<PodFacts>,
        leases: &mut View<LeaseFacts>,
    ) {
        let (queue, memory) = (self.queue.clone(), self.memory.clone());
        nodes.listen(move |change| {
            let name = &change.key.name;
            match &change.new {
                Some(node) => lock(&memory).silence.hear_status(name, node.heartbeat()),
                None => lock(&memory).forget(name),
            }
            queue.wake(name.clone());
        });
        let queue = self.queue.clone();
        pods.listen(move |change| {
            let node = change.new.as_ref().or(change.old.as_ref()).and_then(|pod| pod.node.clone());
            if let Some(node) = node {
                queue.wake(node);
            }
        });
        let (queue, memory) = (self.queue.clone(), self.memory.clone());
        leases.listen(move |change| match &change.new {
            // A renewal does not wake the Node: the pass at the end of the grace reads it.
            Some(lease) => lock(&memory).silence.hear_lease(&change.key.name, lease.renewed),
            None => queue.wake(change.key.name.clone()),
        });
    }
}

fn lock(memory: &Mutex<Memory>) -> MutexGuard<'_, Memory> {
    memory.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Memory {
    fn forget(&mut self, node: &str) {
        self.silence.forget(node);
        self.taints_seen.remove(node);
    }
}

impl Controller for NodeLifecycle {
    type Key = String;

    const NAME: &'static str = "node-lifecycle";

    fn queue(&self) -> &KeyQueue<String> {
        &self.queue
    }

    async fn pass(&self, name: &String) -> Next {
        if self.nodes.lacks_own_write(&ObjectKey::cluster_scoped(name)) {
            return Next::In(crate::view::OVERDUE_AFTER);
        }
        let Some((snapshot, resource_version)) = self.observe(name) else {
            // The Lease may have been renewed after the Node was deleted.
            lock(&self.memory).forget(name);
            return Next::Idle;
        };
        let Plan { actions, look_again_in } = decision::plan(&snapshot);
        let mut next = look_again_in.map_or(Next::Idle, Next::In);
        for action in &actions {
            tracing::info!(node = name, %action, "Acting on a node");
            next = next.sooner(self.act(name, &snapshot.node, resource_version, action).await);
        }
        next
    }
}

impl NodeLifecycle {
    pub(crate) fn new(
        client: Client,
        clock: SharedClock,
        patience: Patience,
        listener: &NodeListener,
        nodes: Arc<View<NodeFacts>>,
        pods: Arc<View<PodFacts>>,
    ) -> Self {
        let NodeListener { queue, memory, period } = listener;
        let (queue, memory, period) = (queue.clone(), memory.clone(), *period);
        Self { client, clock, patience, period, queue, nodes, pods, memory }
    }

    /// Measures the time in which this process was able to listen.
    pub(crate) async fn keep_listening(&self) -> Infallible {
        let mut ticks = tokio::time::interval(self.period);
        // After a pause of the process, one tick suffices. Making up for missed ticks would count
        // the pause as listening.
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            lock(&self.memory).silence.tick();
        }
    }

    /// Returns the facts about a Node, and the resourceVersion that they belong to; `None` if the
    /// Node was deleted.
    fn observe(&self, name: &str) -> Option<(NodeSnapshot, u64)> {
        let (node, resource_version) = {
            let store = self.nodes.store();
            let entry = store.get(&ObjectKey::cluster_scoped(name))?;
            (entry.facts.clone(), entry.resource_version)
        };
        let mut pods: Vec<(ObjectKey, Arc<PodFacts>)> = {
            let store = self.pods.store();
            let pods = store.by_index(PodFacts::BY_NODE, name);
            pods.map(|(key, entry)| (key.clone(), entry.facts.clone())).collect()
        };
        // The watch wakes the Node when it shows our writes.
        pods.retain(|(key, _)| !self.pods.lacks_own_write(key));
        let now = self.clock.now();
        let mut memory = lock(&self.memory);
        let silent_for = memory.silence.of(name);
        let evicting = Evicting::of(&node, memory.taints_seen.entry(name.to_owned()).or_default(), now);
        let patience = self.patience;
        Some((NodeSnapshot { now, node, silent_for, evicting, pods, patience }, resource_version))
    }

    async fn act(&self, name: &str, node: &NodeFacts, resource_version: u64, action: &Action) -> Next {
        match action {
            Action::MarkUnknown(conditions) => {
                self.mark_unknown(name, node, resource_version, conditions).await
            }
            Action::SetTaints(taints) => self.set_taints(name, node, taints).await,
            Action::MarkPodNotReady { pod, uid } => self.mark_pod_not_ready(pod, uid).await,
            Action::DeletePod { pod, uid } => self.delete_pod(pod, uid).await,
        }
    }

    async fn mark_unknown(
        &self,
        name: &str,
        node: &NodeFacts,
        resource_version: u64,
        conditions: &[NodeCondition],
    ) -> Next {
        let leases: Api<Lease> = Api::namespaced(self.client.clone(), LEASE_NAMESPACE);
        let lease = match leases.get_opt(name).await {
            Ok(lease) => lease.map(LeaseFacts::parse),
            Err(error) => return Next::after_failed_read("read the node's lease", &error),
        };
        let was_heard = lease.is_some_and(|lease| {
            let mut memory = lock(&self.memory);
            let before = memory.silence.of(name);
            memory.silence.hear_lease(name, lease.renewed);
            memory.silence.of(name) < before
        });
        if was_heard {
            return Next::In(self.patience.grace);
        }
        // The kubelet writes the same conditions, so the patch requires the version that was
        // decided on.
        let patch = json!({
            "metadata": { "uid": node.uid, "resourceVersion": resource_version.to_string() },
            "status": { "conditions": conditions },
        });
        let nodes: Api<Node> = Api::all(self.client.clone());
        let result = nodes.patch_status(name, &PatchParams::default(), &Patch::Strategic(patch)).await;
        self.note_node_written(name, &result);
        Next::after_write("mark the node Unknown", WriteOutcome::of(&result))
    }

    async fn set_taints(&self, name: &str, node: &NodeFacts, taints: &[Taint]) -> Next {
        const TAINTS: [&str; 2] = ["spec", "taints"];
        let read = node.taints.as_ref().map(|taints| json!(taints));
        let patch = GuardedPatch::new(&node.uid).test(&TAINTS, read.as_ref());
        let patch = match (taints, &read) {
            ([], Some(_)) => patch.remove(&TAINTS),
            (taints, _) => patch.add(&TAINTS, json!(taints)),
        };
        let nodes: Api<Node> = Api::all(self.client.clone());
        let result = nodes.patch(name, &PatchParams::default(), &patch.into_kube()).await;
        self.note_node_written(name, &result);
        Next::after_write("set the node's taints", WriteOutcome::of(&result))
    }

    fn note_node_written(&self, name: &str, result: &Result<Node, kube::Error>) {
        if let Ok(node) = result {
            let key = ObjectKey::cluster_scoped(name);
            self.nodes.note_written(key, node.metadata.resource_version.as_deref());
        }
    }

    async fn mark_pod_not_ready(&self, pod: &ObjectKey, uid: &str) -> Next {
        let now: Value = json!(Time(self.clock.now()));
        let patch = json!({
            "metadata": { "uid": uid },
            "status": { "conditions": [{ "type": "Ready", "status": "False", "lastTransitionTime": now }] },
        });
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), &pod.namespace);
        let result = pods.patch_status(&pod.name, &PatchParams::default(), &Patch::Strategic(patch)).await;
        if let Ok(written) = &result {
            self.pods.note_written(pod.clone(), written.metadata.resource_version.as_deref());
        }
        Next::after_write("mark a pod not ready", WriteOutcome::of(&result))
    }

    async fn delete_pod(&self, pod: &ObjectKey, uid: &str) -> Next {
        let preconditions = Some(Preconditions { uid: Some(uid.to_owned()), resource_version: None });
        let params = DeleteParams { preconditions, ..DeleteParams::default() };
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), &pod.namespace);
        let result = pods.delete(&pod.name, &params).await;
        if let Some(written) = result.as_ref().ok().and_then(|answer| answer.as_ref().left()) {
            self.pods.note_written(pod.clone(), written.metadata.resource_version.as_deref());
        }
        Next::after_write("delete a pod", WriteOutcome::of(&result))
    }
}
