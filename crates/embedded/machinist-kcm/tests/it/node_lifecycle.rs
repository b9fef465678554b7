//! Tests of Nodes that stop reporting and come back.

use std::time::Duration;

use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use kube::Client;
use kube::api::{Api, DeleteParams, Patch, PatchParams};
use serde_json::{Value, json};
use tokio::task::JoinHandle;

use crate::world::{World, epoch, node, pod, ready};

/// Creates a Node with its Lease.
async fn join(world: &World, name: &str) {
    world.create(node(name, "True")).await;
    world
        .create(json!({
            "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
            "metadata": { "name": name, "namespace": "kube-node-lease" }, "spec": { "leaseDurationSeconds": 40 },
        }))
        .await;
}

/// Renews the Lease every 10 s until the task is aborted.
fn beat(client: Client, name: &'static str) -> JoinHandle<()> {
    let started = tokio::time::Instant::now();
    tokio::spawn(async move {
        let leases: Api<Lease> = Api::namespaced(client, "kube-node-lease");
        loop {
            let renewed = MicroTime(epoch() + started.elapsed());
            let patch = Patch::Merge(json!({ "spec": { "renewTime": renewed } }));
            leases.patch(name, &PatchParams::default(), &patch).await.expect("renewed");
            tokio::time::sleep(Duration::from_secs(10)).await;
        }
    })
}

fn condition(world: &World, node: &str, kind: &str) -> Option<Value> {
    let node = world.get("nodes", node)?;
    let conditions = node["status"]["conditions"].as_array().cloned().unwrap_or_default();
    conditions.into_iter().find(|condition| condition["type"] == kind)
}

fn ready_status(world: &World, node: &str) -> String {
    condition(world, node, "Ready")
        .map(|condition| condition["status"].as_str().unwrap_or_default().to_owned())
        .unwrap_or_default()
}

fn taints(world: &World, node: &str) -> Vec<String> {
    let node = world.get("nodes", node).expect("there");
    let taints = node["spec"]["taints"].as_array().cloned().unwrap_or_default();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    taints
        .iter()
        .map(|taint| {
            format!("{}:{}", text(&taint["key"]).replace("node.kubernetes.io/", ""), text(&taint["effect"]))
        })
        .collect()
}

#[tokio::test(start_paused = true)]
async fn a_node_that_renews_its_lease_causes_one_write() {
    let mut world = World::start().await;
    join(&world, "a").await;
    let beating = beat(world.client.clone(), "a");
    let seconds = world.until("the node is schedulable", 5, |world| taints(world, "a").is_empty()).await;
    assert_eq!(seconds, 0);
    world.pass(24 * 3600).await;
    assert_eq!(world.requests(), ["patch nodes a 200"]);
    assert_eq!(ready_status(&world, "a"), "True");
    beating.abort();
}

#[tokio::test(start_paused = true)]
async fn a_silent_node_is_declared_lost_and_its_pods_are_evicted() {
    let mut world = World::start_with(|config| config.node_monitor_grace = Duration::from_secs(40)).await;
    join(&world, "a").await;
    join(&world, "b").await;
    let beating = [beat(world.client.clone(), "a"), beat(world.client.clone(), "b")];
    for (name, on) in [("pa", "a"), ("pb", "b")] {
        world.create(pod(name, on)).await;
        world.patch_status("Pod", "default", name, ready()).await;
    }
    world.pass(300).await;
    world.requests();

    beating[0].abort();
    let seconds = world.until("a is lost", 60, |world| ready_status(world, "a") == "Unknown").await;
    assert!((30..=41).contains(&seconds), "{seconds}");
    let lost = condition(&world, "a", "Ready").expect("the condition exists");
    assert_eq!(lost["reason"], "NodeStatusUnknown");
    assert_eq!(lost["message"], "Kubelet stopped posting node status.");
    assert_eq!(lost["lastHeartbeatTime"], "2030-01-01T00:00:00Z");
    let unreachable = ["unreachable:NoSchedule", "unreachable:NoExecute"];
    world.until("the node is tainted", 1, |world| taints(world, "a") == unreachable).await;
    let is_ready = |world: &World, name: &str| {
        world
            .get("pods", name)
            .is_some_and(|pod| pod["status"]["conditions"].to_string().contains("\"True\""))
    };
    world.until("the pod is not ready", 1, |world| !is_ready(world, "pa")).await;
    assert_eq!(
        world.requests(),
        ["patch nodes/status a 200", "patch pods/status pa 200", "patch nodes a 200"]
    );

    let is_deleting = |world: &World, name: &str| {
        world.get("pods", name).is_some_and(|pod| pod["metadata"]["deletionTimestamp"].is_string())
    };
    let seconds = world.until("the pod is deleted", 310, |world| is_deleting(world, "pa")).await;
    assert!((299..=302).contains(&seconds), "{seconds}");
    world.pass(3600).await;
    assert_eq!(world.requests(), ["delete pods pa 200"]);
    assert!(is_ready(&world, "pb") && !is_deleting(&world, "pb") && taints(&world, "b").is_empty());
    beating[1].abort();
}

#[tokio::test(start_paused = true)]
async fn a_node_that_comes_back_is_schedulable_and_keeps_its_pods() {
    let mut world = World::start().await;
    join(&world, "a").await;
    world.create(pod("p", "a")).await;
    world.until("the node is lost", 60, |world| ready_status(world, "a") == "Unknown").await;
    world.until("the node is tainted", 1, |world| taints(world, "a").len() == 2).await;
    world.pass(200).await;
    let beating = beat(world.client.clone(), "a");
    let back = json!({ "conditions": [{ "type": "Ready", "status": "True", "lastHeartbeatTime": "2030-01-01T00:05:00Z" }] });
    world.patch_status("Node", "", "a", back).await;
    world.until("the taints are removed", 1, |world| taints(world, "a").is_empty()).await;
    world.pass(3600).await;
    assert!(world.get("pods", "p").is_some_and(|pod| pod["metadata"].get("deletionTimestamp").is_none()));
    beating.abort();
}

#[tokio::test(start_paused = true)]
async fn a_node_that_never_posted_is_declared_lost() {
    let mut world = World::start().await;
    world.create(json!({ "apiVersion": "v1", "kind": "Node", "metadata": { "name": "a" } })).await;
    let seconds = world.until("the node is lost", 70, |world| ready_status(world, "a") == "Unknown").await;
    assert_eq!(seconds, 60);
    assert_eq!(condition(&world, "a", "Ready").expect("there")["reason"], "NodeStatusNeverUpdated");
}

#[tokio::test(start_paused = true)]
async fn a_node_is_tainted_while_it_is_cordoned() {
    let mut world = World::start().await;
    join(&world, "a").await;
    let beating = beat(world.client.clone(), "a");
    world.patch("Node", "", "a", json!({ "spec": { "unschedulable": true } })).await;
    world.until("the node is tainted", 1, |world| taints(world, "a") == ["unschedulable:NoSchedule"]).await;
    world.patch("Node", "", "a", json!({ "spec": { "unschedulable": null } })).await;
    world.until("the taint is removed", 1, |world| taints(world, "a").is_empty()).await;
    beating.abort();
}

#[tokio::test(start_paused = true)]
async fn pods_of_a_missing_node_are_deleted_after_a_while() {
    let mut world = World::start().await;
    join(&world, "a").await;
    let beating = beat(world.client.clone(), "a");
    world.create(pod("stays", "a")).await;
    world.create(pod("early", "late")).await;
    world.create(pod("lost", "never")).await;
    world.pass(20).await;
    join(&world, "late").await;
    let seconds = world.until("the lost pod is deleted", 60, |world| !world.exists("pods", "lost")).await;
    assert_eq!(seconds, 20, "40 s after the pod was seen");
    world.delete("Node", "", "a", &DeleteParams::default()).await;
    beating.abort();
    let seconds = world
        .until("the other pod is deleted with its node", 60, |world| !world.exists("pods", "stays"))
        .await;
    assert_eq!(seconds, 40);
    assert!(world.exists("pods", "early"));
}

#[tokio::test(start_paused = true)]
async fn after_a_restart_every_node_has_its_whole_grace() {
    let mut world = World::start().await;
    join(&world, "a").await;
    world.until("the node is schedulable", 5, |world| taints(world, "a").is_empty()).await;
    world.pass(45).await;
    world.stop_controllers().await;
    world.start_controllers(|_| {});
    let seconds = world.until("the node is lost", 60, |world| ready_status(world, "a") == "Unknown").await;
    assert_eq!(seconds, 50);
}

#[tokio::test(start_paused = true)]
async fn a_lagging_watch_does_not_declare_a_node_lost() {
    let mut world = World::start().await;
    join(&world, "a").await;
    let beating = beat(world.client.clone(), "a");
    world.until("the node is schedulable", 5, |world| taints(world, "a").is_empty()).await;
    world.pass(60).await;
    world.requests();
    world.replica.freeze_at(world.server.revision());
    world.pass(600).await;
    assert_eq!((ready_status(&world, "a").as_str(), world.requests()), ("True", Vec::new()));

    beating.abort();
    let seconds = world.until("the node is lost", 120, |world| ready_status(world, "a") == "Unknown").await;
    assert!((40..=100).contains(&seconds), "{seconds}");
    world.pass(600).await;
    assert_eq!(world.requests(), ["patch nodes/status a 200"], "our own write is awaited, not repeated");
    world.replica.thaw();
    world.until("the node is tainted", 15, |world| taints(world, "a").len() == 2).await;
}
