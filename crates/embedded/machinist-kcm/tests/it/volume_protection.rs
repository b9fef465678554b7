//! Tests that claims stay while Pods use them, and volumes while they are bound.

use kube::api::DeleteParams;
use serde_json::{Value, json};

use crate::world::{World, at_once, owner, pod};

const CLAIM: &str = "PersistentVolumeClaim";
const VOLUME: &str = "PersistentVolume";

fn claim(name: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": CLAIM, "metadata": { "name": name, "namespace": "default" },
        "spec": { "accessModes": ["ReadWriteOnce"], "resources": { "requests": { "storage": "1Gi" } } },
    })
}

fn volume(name: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": VOLUME, "metadata": { "name": name },
        "spec": {
            "accessModes": ["ReadWriteOnce"], "capacity": { "storage": "1Gi" },
            "persistentVolumeReclaimPolicy": "Retain", "hostPath": { "path": "/data" },
        },
    })
}

/// Builds a Pod on the Node `n` with volumes from these claims.
fn pod_with(name: &str, claims: &[&str]) -> Value {
    let mut pod = pod(name, "n");
    let volumes =
        claims.iter().map(|claim| json!({ "name": claim, "persistentVolumeClaim": { "claimName": claim } }));
    pod["spec"]["volumes"] = volumes.collect();
    pod
}

/// Starts a world with the Node `n`, so that no other controller deletes its Pods.
async fn with_node() -> World {
    let world =
        World::start_with(|config| config.node_startup_grace = std::time::Duration::from_secs(1 << 30)).await;
    world.create(json!({ "apiVersion": "v1", "kind": "Node", "metadata": { "name": "n" } })).await;
    world
}

fn is_going(world: &World, resource: &str, name: &str) -> bool {
    world.get(resource, name).is_some_and(|object| object["metadata"]["deletionTimestamp"].is_string())
}

async fn delete_claim(world: &World, name: &str) {
    world.delete(CLAIM, "default", name, &DeleteParams::default()).await;
}

#[tokio::test(start_paused = true)]
async fn an_unused_claim_is_deleted_immediately() {
    let mut world = with_node().await;
    world.create(claim("c")).await;
    world.create(pod_with("p", &["other"])).await;
    world.pass(60).await;
    assert_eq!(world.requests(), Vec::<String>::new(), "no writes before the claim is deleted");
    delete_claim(&world, "c").await;
    let seconds =
        world.until("the claim is deleted", 1, |world| !world.exists("persistentvolumeclaims", "c")).await;
    assert_eq!(seconds, 0);
    world.pass(60).await;
    assert_eq!(world.requests(), ["patch persistentvolumeclaims c 200"]);
}

#[tokio::test(start_paused = true)]
async fn a_claim_in_use_stays_until_the_last_pod_is_deleted() {
    let mut world = with_node().await;
    world.create(claim("c")).await;
    for name in ["p1", "p2"] {
        world.create(pod_with(name, &["c"])).await;
    }
    world.pass(1).await;
    delete_claim(&world, "c").await;
    // The kubelet may not have unmounted the volume of a finished Pod yet.
    world.patch_status("Pod", "default", "p2", json!({ "phase": "Succeeded" })).await;
    world.delete("Pod", "default", "p1", &at_once()).await;
    world.pass(600).await;
    assert!(is_going(&world, "persistentvolumeclaims", "c"));
    assert_eq!(world.requests(), Vec::<String>::new(), "no writes while waiting");
    world.delete("Pod", "default", "p2", &at_once()).await;
    world.until("the claim is deleted", 1, |world| !world.exists("persistentvolumeclaims", "c")).await;
}

#[tokio::test(start_paused = true)]
async fn a_pod_without_a_node_does_not_protect_a_claim() {
    let mut world = with_node().await;
    world.create(claim("c")).await;
    let mut waiting = pod_with("p", &["c"]);
    waiting["spec"].as_object_mut().expect("a spec").remove("nodeName");
    world.create(waiting).await;
    world.pass(1).await;
    delete_claim(&world, "c").await;
    world.until("the claim is deleted", 1, |world| !world.exists("persistentvolumeclaims", "c")).await;
}

#[tokio::test(start_paused = true)]
async fn a_pods_own_claim_stays_until_the_kubelet_is_done() {
    let mut world = with_node().await;
    let mut user = pod("p", "n");
    let template = json!({ "spec": claim("c")["spec"] });
    user["spec"]["volumes"] = json!([{ "name": "v", "ephemeral": { "volumeClaimTemplate": template } }]);
    // The finalizer keeps the Pod even after its kubelet has finished.
    user["metadata"]["finalizers"] = json!(["t.dev/held"]);
    let uid = world.create(user).await;
    let mut made = claim("p-v");
    let mut of_pod = owner("v1", "Pod", "p", &uid);
    of_pod["controller"] = json!(true);
    made["metadata"]["ownerReferences"] = json!([of_pod]);
    world.create(made).await;
    world.pass(1).await;
    delete_claim(&world, "p-v").await;
    world.pass(60).await;
    assert!(is_going(&world, "persistentvolumeclaims", "p-v"));
    world.delete("Pod", "default", "p", &at_once()).await;
    world.until("the claim is deleted", 1, |world| !world.exists("persistentvolumeclaims", "p-v")).await;
    assert!(is_going(&world, "pods", "p"));
}

#[tokio::test(start_paused = true)]
async fn a_foreign_claim_with_the_name_of_a_pods_own_is_released() {
    let mut world = with_node().await;
    let mut other = pod("p", "n");
    let template = json!({ "spec": claim("c")["spec"] });
    other["spec"]["volumes"] = json!([{ "name": "v", "ephemeral": { "volumeClaimTemplate": template } }]);
    world.create(other).await;
    world.create(claim("p-v")).await;
    world.pass(1).await;
    delete_claim(&world, "p-v").await;
    world.until("the claim is deleted", 1, |world| !world.exists("persistentvolumeclaims", "p-v")).await;
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_the_watch_has_not_shown_keeps_its_claim() {
    let mut world = with_node().await;
    world.create(claim("c")).await;
    world.pass(1).await;
    world.replica.freeze_at(world.server.revision());
    delete_claim(&world, "c").await;
    let deleted = world.server.revision();
    world.create(pod_with("p", &["c"])).await;
    // The controllers see the deletion, but not the Pod.
    world.replica.freeze_at(deleted);
    world.pass(60).await;
    assert!(is_going(&world, "persistentvolumeclaims", "c"));
    world.replica.thaw();
    world.pass(60).await;
    assert!(is_going(&world, "persistentvolumeclaims", "c"));
    world.delete("Pod", "default", "p", &at_once()).await;
    world.until("the claim is deleted", 1, |world| !world.exists("persistentvolumeclaims", "c")).await;
}

#[tokio::test(start_paused = true)]
async fn a_volume_is_deleted_unless_it_is_bound() {
    let mut world = with_node().await;
    for name in ["free", "bound"] {
        world.create(volume(name)).await;
    }
    world.patch_status(VOLUME, "", "bound", json!({ "phase": "Bound" })).await;
    for name in ["free", "bound"] {
        world.delete(VOLUME, "", name, &DeleteParams::default()).await;
    }
    world.until("the free volume is deleted", 1, |world| !world.exists("persistentvolumes", "free")).await;
    world.pass(600).await;
    assert!(is_going(&world, "persistentvolumes", "bound"));
    world.patch_status(VOLUME, "", "bound", json!({ "phase": "Released" })).await;
    world
        .until("the released volume is deleted, too", 1, |world| !world.exists("persistentvolumes", "bound"))
        .await;
    let lifted = ["free", "bound"].map(|name| format!("patch persistentvolumes {name} 200"));
    assert_eq!(world.requests(), lifted);
}

#[tokio::test(start_paused = true)]
async fn a_volume_that_was_bound_meanwhile_stays() {
    let mut world = with_node().await;
    world.create(volume("v")).await;
    world.pass(1).await;
    world.replica.freeze_at(world.server.revision());
    world.delete(VOLUME, "", "v", &DeleteParams::default()).await;
    let deleted = world.server.revision();
    world.patch_status(VOLUME, "", "v", json!({ "phase": "Bound" })).await;
    // The controllers see the deletion, but not the binding.
    world.replica.freeze_at(deleted);
    world.pass(10).await;
    assert!(is_going(&world, "persistentvolumes", "v"));
    let refused = world.requests();
    assert!(refused.iter().any(|line| line == "patch persistentvolumes v 422"), "{refused:#?}");
    world.replica.thaw();
    world.pass(60).await;
    assert!(is_going(&world, "persistentvolumes", "v"));
}

#[tokio::test(start_paused = true)]
async fn foreign_finalizers_of_a_claim_stay() {
    let mut world = with_node().await;
    let mut held = claim("c");
    held["metadata"]["finalizers"] = json!(["t.dev/held"]);
    world.create(held).await;
    delete_claim(&world, "c").await;
    let finalizers = |world: &World| {
        world.get("persistentvolumeclaims", "c").map(|claim| claim["metadata"]["finalizers"].clone())
    };
    world
        .until("our finalizer is removed", 1, |world| finalizers(world) == Some(json!(["t.dev/held"])))
        .await;
    world.pass(60).await;
    assert_eq!(world.requests(), ["patch persistentvolumeclaims c 200"]);
}

#[tokio::test(start_paused = true)]
async fn a_namespace_with_claims_is_deleted() {
    let mut world = with_node().await;
    world.create(json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": "a" } })).await;
    world.pass(1).await;
    for object in [claim("used"), claim("free"), pod_with("p", &["used"])] {
        let mut object = object;
        object["metadata"]["namespace"] = json!("a");
        world.create(object).await;
    }
    world.pass(1).await;
    world.delete("Namespace", "", "a", &DeleteParams::default()).await;
    // The kubelet has to terminate the Pod first.
    world.pass(60).await;
    assert!(world.exists("pods", "p") && world.exists("persistentvolumeclaims", "used"));
    world.delete("Pod", "a", "p", &at_once()).await;
    world.until("the namespace is deleted", 10, |world| !world.exists("namespaces", "a")).await;
    assert!(!world.exists("persistentvolumeclaims", "used"));
}
