//! Pods on the Nodes, as a workload controller, a scheduler and kubelets handle them, and the
//! checks of every change of a pod.
//!
//! ```text
//! deleted by an eviction -> ends a moment later -> removed by its "kubelet" -> another pod on another Node
//! ```
//!
//! A PodDisruptionBudget protects all pods. The tasks here remove a pod only after the API server
//! marked it as being deleted. So a pod that disappears in any other way was lost.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use anyhow::{Context, Result};
use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams, Preconditions};
use kube::{Api, Client};
use machinist_cloud_sim::LedgerCommit;
use serde_json::json;
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::cluster_state::{is_ready, report_changes, with_seen};
use crate::loopback;
use crate::objects::{NAMESPACE, from_json};

/// Number of pods that the budget lets be unavailable.
const MAY_MISS: u32 = 2;
/// Time from the eviction of a pod until its processes have ended.
const ENDS_AFTER: Duration = Duration::from_millis(300);
const LOOK_EVERY: Duration = Duration::from_millis(20);
const LABEL: (&str, &str) = ("app", "web");

/// The tasks that keep the pods running, until they are dropped.
pub(super) struct Workload {
    seen: Arc<Mutex<Seen>>,
    target: Client,
    tasks: JoinSet<()>,
}

/// Pods and Nodes, and what was observed of them.
#[derive(Debug, Clone, Default)]
pub(super) struct Seen {
    pods: BTreeMap<String, Facts>,
    /// Ready Nodes that accept pods.
    open_nodes: BTreeSet<String>,
    /// Names of Nodes by id of the instance.
    nodes_of: BTreeMap<String, String>,
    /// When each pod was first seen being deleted.
    deleting: BTreeMap<String, Instant>,
    /// Pods that a task here began to remove.
    ended: BTreeSet<String>,
    /// Pods that were perhaps bound after their Node was cordoned. No drain waits for them.
    late: BTreeSet<String>,
    wanted: u32,
    /// Whether all pods were ready once.
    was_complete: bool,
    /// The smallest number of ready pods since then.
    pub(super) fewest_ready: Option<u32>,
    /// Pods that disappeared, although they had not ended.
    pub(super) lost: Vec<String>,
    /// Pods that were on a Node when the deletion of its instance began.
    pub(super) left_behind: Vec<String>,
    /// Instances whose deletion began.
    pub(super) instances_deleted: u32,
}

#[derive(Debug, Clone)]
struct Facts {
    name: String,
    node: String,
    is_ready: bool,
    is_deleting: bool,
}

impl Workload {
    /// Creates the budget, and keeps `pods` pods running. `commits_url` is the stream of the
    /// cloud's commits.
    pub(super) async fn start(target: Client, commits_url: &str, pods: u32) -> Result<Self> {
        let budget = from_json(json!({
            "apiVersion": "policy/v1",
            "kind": "PodDisruptionBudget",
            "metadata": { "name": "web" },
            "spec": { "minAvailable": pods - MAY_MISS, "selector": { "matchLabels": { LABEL.0: LABEL.1 } } },
        }));
        let budgets: Api<PodDisruptionBudget> = Api::namespaced(target.clone(), NAMESPACE);
        let created = budgets.create(&PostParams::default(), &budget).await;
        created.context("cannot create the PodDisruptionBudget")?;

        let seen = Arc::new(Mutex::new(Seen { wanted: pods, ..Seen::default() }));
        let mut tasks = JoinSet::new();
        let changed = Arc::clone(&seen);
        tasks.spawn(report_changes(Api::namespaced(target.clone(), NAMESPACE), Facts::of, move |change| {
            with_seen(&changed, |seen| seen.change(change.uid, change.new.as_deref().cloned()));
        }));
        let changed = Arc::clone(&seen);
        tasks.spawn(report_changes(Api::all(target.clone()), accepts_pods, move |change| {
            let name = change.key.name.to_string();
            with_seen(&changed, |seen| match change.new.as_deref() {
                Some(true) => seen.open_nodes.insert(name),
                Some(false) | None => seen.open_nodes.remove(&name),
            });
        }));
        let changed = Arc::clone(&seen);
        let mut commits = loopback::follow(commits_url).await?;
        tasks.spawn(async move {
            while let Some(Ok(commit)) = commits.recv().await {
                with_seen(&changed, |seen| seen.commit(&commit));
            }
        });
        let (changed, client) = (Arc::clone(&seen), target.clone());
        tasks.spawn(async move {
            let mut number = 0;
            loop {
                // The next turn repeats what failed.
                let _ = turn(&client, &changed, &mut number).await;
                tokio::time::sleep(LOOK_EVERY).await;
            }
        });
        Ok(Self { seen, target, tasks })
    }

    /// Number of pods that the budget keeps ready.
    pub(super) fn budget(&self) -> u32 {
        self.now().wanted - MAY_MISS
    }

    /// Whether all pods are ready on Nodes that accept pods.
    pub(super) fn is_complete(&self) -> bool {
        with_seen(&self.seen, |seen| {
            let at_home =
                seen.pods.values().filter(|pod| pod.counts() && seen.open_nodes.contains(&pod.node));
            at_home.count() == seen.wanted as usize && seen.pods.len() == seen.wanted as usize
        })
    }

    pub(super) fn now(&self) -> Seen {
        with_seen(&self.seen, |seen| seen.clone())
    }

    /// Stops the workload controller, and removes all pods.
    pub(super) async fn end(mut self) -> Result<()> {
        self.tasks.shutdown().await;
        let pods: Api<Pod> = Api::namespaced(self.target.clone(), NAMESPACE);
        for pod in self.now().pods.values() {
            let removed = pods.delete(&pod.name, &DeleteParams::default().grace_period(0)).await;
            removed.with_context(|| format!("cannot remove the pod {}", pod.name))?;
        }
        Ok(())
    }
}

/// Removes pods that have ended, lets new pods become ready, and creates missing pods.
async fn turn(target: &Client, shared: &Mutex<Seen>, number: &mut u32) -> Result<()> {
    let pods: Api<Pod> = Api::namespaced(target.clone(), NAMESPACE);
    for (uid, name) in with_seen(shared, Seen::take_ended) {
        let exactly = Preconditions { uid: Some(uid.clone()), resource_version: None };
        let removal = DeleteParams::default().grace_period(0).preconditions(exactly);
        if pods.delete(&name, &removal).await.is_err() {
            // Repeated, unless the watch has reported meanwhile that the pod was removed.
            with_seen(shared, |seen| seen.deleting.insert(uid, Instant::now()));
        }
    }
    for name in with_seen(shared, |seen| seen.starting()) {
        let ready = json!({ "status": {
            "phase": "Running",
            "conditions": [{ "type": "Ready", "status": "True" }],
        }});
        pods.patch_status(&name, &PatchParams::default(), &Patch::Merge(ready)).await?;
    }
    if let Some(node) = with_seen(shared, |seen| seen.node_for_new_pod()) {
        *number += 1;
        create(target, &format!("web-{number}"), &node, shared).await?;
    }
    Ok(())
}

async fn create(target: &Client, name: &str, node: &str, shared: &Mutex<Seen>) -> Result<()> {
    let pod = from_json(json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": { "name": name, "labels": { LABEL.0: LABEL.1 } },
        "spec": {
            "nodeName": node,
            "terminationGracePeriodSeconds": 1,
            "automountServiceAccountToken": false,
            "containers": [{ "name": "web", "image": "web" }],
        },
    }));
    let pods: Api<Pod> = Api::namespaced(target.clone(), NAMESPACE);
    let created: Pod = pods.create(&PostParams::default(), &pod).await?;
    let uid = created.metadata.uid.clone().unwrap_or_default();
    // If the Node accepts pods after the pod was bound, the cordon came later than the pod.
    let nodes: Api<Node> = Api::all(target.clone());
    let came_late = !nodes.get_opt(node).await?.is_some_and(accepts_pods);
    with_seen(shared, |seen| {
        if came_late {
            seen.late.insert(uid.clone());
        }
        // The watch may report the pod after the next turn.
        seen.pods.entry(uid).or_insert_with(|| Facts::of(created));
    });
    Ok(())
}

impl Seen {
    fn change(&mut self, uid: String, new: Option<Facts>) {
        let old = self.pods.remove(&uid);
        match new {
            Some(new) => {
                if new.is_deleting {
                    self.deleting.entry(uid.clone()).or_insert_with(Instant::now);
                }
                self.pods.insert(uid, new);
            }
            None if !self.ended.contains(&uid) => self.lost.extend(old.map(|pod| pod.name)),
            None => {}
        }
        let ready = self.pods.values().filter(|pod| pod.counts()).count();
        let ready = u32::try_from(ready).unwrap_or(u32::MAX);
        self.was_complete |= ready == self.wanted;
        if self.was_complete {
            self.fewest_ready = Some(self.fewest_ready.map_or(ready, |fewest| fewest.min(ready)));
        }
    }

    fn commit(&mut self, commit: &LedgerCommit) {
        match commit {
            LedgerCommit::Made { entry } => {
                self.nodes_of.insert(entry.id.to_string(), entry.name.to_string());
            }
            LedgerCommit::DeletionBegun { id, .. } => {
                self.instances_deleted += 1;
                let Some(node) = self.nodes_of.get(&id.to_string()) else { return };
                let is_left = |uid: &String, pod: &Facts| {
                    pod.node == *node && !self.ended.contains(uid) && !self.late.contains(uid)
                };
                let left = self.pods.iter().filter(|(uid, pod)| is_left(uid, pod));
                let left = left.map(|(_, pod)| format!("{} on {node}", pod.name));
                self.left_behind.extend(left.collect::<Vec<_>>());
            }
            LedgerCommit::Adopted { .. }
            | LedgerCommit::Rekeyed { .. }
            | LedgerCommit::Stopped { .. }
            | LedgerCommit::Started { .. }
            | LedgerCommit::Gone { .. } => {}
        }
    }

    /// Pods whose time to end is over, each once.
    fn take_ended(&mut self) -> Vec<(String, String)> {
        let is_over = |uid: &&String| self.deleting[*uid].elapsed() >= ENDS_AFTER;
        let over: Vec<String> = self.deleting.keys().filter(is_over).cloned().collect();
        let mut ended = Vec::new();
        for uid in over {
            self.deleting.remove(&uid);
            if let Some(pod) = self.pods.get(&uid) {
                ended.push((uid.clone(), pod.name.clone()));
            }
            self.ended.insert(uid);
        }
        ended
    }

    fn starting(&self) -> Vec<String> {
        let starting = self.pods.values().filter(|pod| !pod.is_ready && !pod.is_deleting);
        starting.map(|pod| pod.name.clone()).collect()
    }

    /// The open Node with the fewest pods, if a pod is missing.
    fn node_for_new_pod(&self) -> Option<String> {
        let live = || self.pods.values().filter(|pod| !pod.is_deleting);
        if self.wanted as usize <= live().count() {
            return None;
        }
        let pods_of = |node: &&String| live().filter(|pod| pod.node == **node).count();
        self.open_nodes.iter().min_by_key(pods_of).cloned()
    }
}

impl Facts {
    fn of(pod: Pod) -> Self {
        let conditions = pod.status.and_then(|status| status.conditions).unwrap_or_default();
        Self {
            name: pod.metadata.name.unwrap_or_default(),
            node: pod.spec.and_then(|spec| spec.node_name).unwrap_or_default(),
            is_ready: conditions.iter().any(|found| found.type_ == "Ready" && found.status == "True"),
            is_deleting: pod.metadata.deletion_timestamp.is_some(),
        }
    }

    /// Whether the budget counts the pod.
    fn counts(&self) -> bool {
        self.is_ready && !self.is_deleting
    }
}

fn accepts_pods(node: Node) -> bool {
    let cordoned = node.spec.as_ref().and_then(|spec| spec.unschedulable) == Some(true);
    let is_deleting = node.metadata.deletion_timestamp.is_some();
    !cordoned && !is_deleting && is_ready(node)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(is_ready: bool, is_deleting: bool) -> Option<Facts> {
        Some(Facts { name: "web".to_owned(), node: "n".to_owned(), is_ready, is_deleting })
    }

    #[test]
    fn a_pod_that_disappears_before_its_end_is_lost() {
        let mut seen = Seen { wanted: 2, ..Seen::default() };
        seen.change("a".to_owned(), pod(true, false));
        seen.change("b".to_owned(), pod(true, false));
        seen.change("a".to_owned(), pod(true, true));
        seen.ended.insert("a".to_owned());
        seen.change("a".to_owned(), None);
        assert_eq!((seen.fewest_ready, seen.lost.len()), (Some(1), 0));
        seen.change("b".to_owned(), None);
        assert_eq!((seen.fewest_ready, seen.lost.len()), (Some(0), 1));
    }
}
