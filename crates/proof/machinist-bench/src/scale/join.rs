//! The thin join: when an instance is created, the benchmark posts its Node, and writes what a
//! kubelet writes.
//!
//! A real join needs a certificate, a Node and a Lease that is renewed. The benchmark would measure
//! certificates and Leases too, but they are not work of the controllers. Go MCM was measured with
//! plain Nodes: one POST of a Node that is Ready at once.

use anyhow::{Context, Result};
use futures::{StreamExt, TryStreamExt, stream};
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, Client};
use machinist_cloud_sim::{Cloud, LedgerCommit};
use machinist_kube::{Clock as _, SystemClock};
use serde_json::Value;

use super::node::{self, Content};
use crate::objects::{NAMESPACE, from_json};

/// Nodes that join concurrently: more than the controllers' calls in flight, so that they never
/// wait for the benchmark.
const JOINS_AT_ONCE: usize = 64;
/// Pods that are posted concurrently.
const PODS_AT_ONCE: usize = 32;

/// Joins a Node for each created instance, forever.
pub(super) async fn join_all(cloud: Cloud, client: Client, content: Content) {
    let commits = cloud.follow().commits;
    let commits = stream::unfold(commits, async |mut commits| {
        let commit = commits.recv().await?;
        Some((commit, commits))
    });
    commits
        .for_each_concurrent(JOINS_AT_ONCE, |commit| {
            let client = client.clone();
            async move {
                if let LedgerCommit::Made { entry } = commit.as_ref() {
                    // If a Node does not join, its Machine does not run, and the benchmark fails
                    // with that.
                    let _ = join(&client, entry.name.as_str(), entry.id.as_str(), content).await;
                }
            }
        })
        .await;
}

/// Performs the writes of one kubelet. Returns the Node as it was posted.
///
/// # Errors
/// When the server refuses a write.
pub(super) async fn join(client: &Client, name: &str, provider_id: &str, content: Content) -> Result<Node> {
    let nodes: Api<Node> = Api::all(client.clone());
    let now = SystemClock.now();
    let post = async |node: Value| nodes.create(&PostParams::default(), &from_json(node)).await;
    let write = async |status: Value| {
        let patch = Patch::Strategic(status);
        nodes.patch_status(name, &PatchParams::default(), &patch).await.map(drop)
    };
    let joined = async {
        match content {
            Content::Plain => post(node::plain(name, provider_id, now)).await,
            Content::Full => {
                let posted = post(node::registration(name, provider_id, now)).await?;
                write(node::with_images(now)).await?;
                write(node::ready(now)).await?;
                Ok(posted)
            }
        }
    };
    let joined: kube::Result<Node> = joined.await;
    joined.with_context(|| format!("Node {name} cannot join"))
}

/// Posts pods on each Node, as if a scheduler had placed them there.
///
/// # Errors
/// When the server refuses a pod.
pub(super) async fn fill(client: &Client, nodes: impl IntoIterator<Item = String>, pods: u32) -> Result<()> {
    let api: Api<Pod> = Api::namespaced(client.clone(), NAMESPACE);
    let all = nodes.into_iter().flat_map(|node| (0..pods).map(move |number| (node.clone(), number)));
    stream::iter(all.map(Ok))
        .try_for_each_concurrent(PODS_AT_ONCE, |(node, number)| {
            let api = api.clone();
            async move {
                let pod: Pod = from_json(node::pod(&pod_name(&node, number), &node));
                let created = api.create(&PostParams::default(), &pod).await;
                created.map(drop).with_context(|| format!("cannot create a pod on Node {node}"))
            }
        })
        .await
}

/// Name of a pod on a Node. The benchmark finds the Node of an evicted pod by it.
pub(super) fn pod_name(node: &str, number: u32) -> String {
    format!("{}{number}", pod_prefix(node))
}

/// The beginning of the names of a Node's pods.
pub(super) fn pod_prefix(node: &str) -> String {
    format!("{node}-pod-")
}
