//! The thin join: when an instance is created, the benchmark posts its Node, already Ready.
//!
//! A real join needs a certificate, a Node and a Lease that is renewed. The benchmark would measure
//! these too, but they are not work of the controllers. Go MCM was measured with the same thin
//! join.

use futures::StreamExt;
use k8s_openapi::api::core::v1::Node;
use kube::api::PostParams;
use kube::{Api, Client};
use machinist_cloud_sim::{Cloud, LedgerCommit, LedgerEntry};
use serde_json::json;

/// Nodes posted concurrently: more than the controllers' calls in flight, so that they never wait
/// for the benchmark.
const POSTS_AT_ONCE: usize = 32;

/// Posts a Node for each created instance, forever.
pub(super) async fn join_all(cloud: Cloud, client: Client) {
    let nodes: Api<Node> = Api::all(client);
    let commits = cloud.follow().commits;
    let commits = futures::stream::unfold(commits, async |mut commits| {
        let commit = commits.recv().await?;
        Some((commit, commits))
    });
    commits
        .for_each_concurrent(POSTS_AT_ONCE, |commit| {
            let nodes = nodes.clone();
            async move {
                if let LedgerCommit::Made { entry } = commit.as_ref() {
                    // If a Node cannot be posted, its Machine does not run, and the benchmark fails
                    // with that.
                    let _ = nodes.create(&PostParams::default(), &node(entry)).await;
                }
            }
        })
        .await;
}

fn node(entry: &LedgerEntry) -> Node {
    let node = json!({
        "metadata": { "name": entry.name.as_str() },
        "spec": { "providerID": entry.id.as_str() },
        "status": { "conditions": [{
            "type": "Ready",
            "status": "True",
            "reason": "KubeletReady",
            "lastHeartbeatTime": entry.created.strftime("%Y-%m-%dT%H:%M:%SZ").to_string(),
            "lastTransitionTime": entry.created.strftime("%Y-%m-%dT%H:%M:%SZ").to_string(),
        }] },
    });
    serde_json::from_value(node).expect("this is a Node")
}
