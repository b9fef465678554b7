//! Tests of the deletion of namespaces, and of the objects that every namespace gets.

use kube::api::DeleteParams;
use serde_json::{Value, json};

use crate::objects::scaled_definition;
use crate::world::{World, config_map, define, define_scaled, pod};

fn namespace(name: &str) -> Value {
    json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": name } })
}

fn within(mut object: Value, namespace: &str, finalizers: &[&str]) -> Value {
    object["metadata"]["namespace"] = json!(namespace);
    object["metadata"]["finalizers"] = json!(finalizers);
    object
}

fn condition<'a>(namespace: &'a Value, of: &str) -> &'a Value {
    let conditions = namespace["status"]["conditions"].as_array().expect("conditions");
    conditions.iter().find(|condition| condition["type"] == of).expect("the condition")
}

#[tokio::test(start_paused = true)]
async fn a_namespace_starts_with_its_account_and_the_ca() {
    let mut world = World::start().await;
    world.create(namespace("a")).await;
    let in_a = |world: &World, resource: &str, name: &str| {
        let all = world.server.snapshot(resource);
        all.iter().any(|object| object.name() == name && object.value()["metadata"]["namespace"] == "a")
    };
    world.until("the account", 5, |world| in_a(world, "serviceaccounts", "default")).await;
    world.until("the CA", 5, |world| in_a(world, "configmaps", "kube-root-ca.crt")).await;

    world.delete("ConfigMap", "a", "kube-root-ca.crt", &DeleteParams::default()).await;
    world.until("the CA is recreated", 5, |world| in_a(world, "configmaps", "kube-root-ca.crt")).await;
    world.patch("ConfigMap", "a", "kube-root-ca.crt", json!({ "data": { "ca.crt": "forged" } })).await;
    let is_forged = |world: &World| {
        world.server.snapshot("configmaps").iter().any(|map| map.value()["data"]["ca.crt"] == "forged")
    };
    world.until("the CA is restored", 5, |world| !is_forged(world)).await;
}

#[tokio::test(start_paused = true)]
async fn the_ca_is_restored_and_foreign_labels_stay() {
    let mut world = World::start().await;
    world.create(namespace("a")).await;
    let the_map = |world: &World| {
        let all = world.server.snapshot("configmaps");
        let found = all.iter().find(|map| map.name() == "kube-root-ca.crt" && map.namespace() == "a");
        found.map(|map| map.value().clone())
    };
    world.until("the CA", 5, |world| the_map(world).is_some()).await;
    let before = the_map(&world).expect("the ConfigMap exists");
    let changed = json!({
        "metadata": { "labels": { "mine": "yes" }, "annotations": { "mine": "too", "kubernetes.io/description": null } },
        "data": { "ca.crt": "forged", "another.crt": "forged" },
    });
    world.patch("ConfigMap", "a", "kube-root-ca.crt", changed).await;
    world
        .until("the data is restored", 5, |world| {
            the_map(world).is_some_and(|map| map["data"] == before["data"])
        })
        .await;
    let after = the_map(&world).expect("the ConfigMap exists");
    assert_eq!(after["metadata"]["labels"], json!({ "mine": "yes" }));
    assert_eq!(after["metadata"]["annotations"]["mine"], "too");
    let description = |map: &Value| map["metadata"]["annotations"]["kubernetes.io/description"].clone();
    assert_eq!(description(&after), description(&before));
}

#[tokio::test(start_paused = true)]
async fn an_empty_namespace_is_deleted_immediately() {
    let mut world = World::start().await;
    world.create(namespace("a")).await;
    world.pass(1).await;
    world.delete("Namespace", "", "a", &DeleteParams::default()).await;
    let seconds = world.until("the namespace is deleted", 10, |world| !world.exists("namespaces", "a")).await;
    assert_eq!(seconds, 0);
    let left = |resource: &str| {
        world.server.snapshot(resource).iter().any(|object| object.value()["metadata"]["namespace"] == "a")
    };
    assert!(!left("serviceaccounts") && !left("configmaps"));
}

#[tokio::test(start_paused = true)]
async fn objects_with_finalizers_are_reported_and_waited_for() {
    let mut world = World::start().await;
    define_scaled(&world).await;
    world.create(namespace("a")).await;
    let set = json!({ "apiVersion": "t.dev/v1", "kind": "Set", "metadata": { "name": "s" } });
    world.create(within(set, "a", &["t.dev/held"])).await;
    world.create(within(config_map("c", &[]), "a", &[])).await;
    world.delete("Namespace", "", "a", &DeleteParams::default()).await;
    world.pass(20).await;
    let held = world.get("namespaces", "a").expect("the namespace stays");
    assert!(!world.exists("configmaps", "c"));
    let remaining = condition(&held, "NamespaceContentRemaining");
    assert_eq!((&remaining["status"], &remaining["reason"]), (&json!("True"), &json!("SomeResourcesRemain")));
    assert_eq!(remaining["message"], "Some resources are remaining: sets.t.dev has 1 resource instances");
    let finalizers = condition(&held, "NamespaceFinalizersRemaining");
    let told = "Some content in the namespace has finalizers remaining: t.dev/held in 1 resource instances";
    assert_eq!(finalizers["message"], told);

    world.patch("t.dev/v1/Set", "a", "s", json!({ "metadata": { "finalizers": null } })).await;
    world.until("the namespace is deleted", 30, |world| !world.exists("namespaces", "a")).await;
}

#[tokio::test(start_paused = true)]
async fn a_kind_missing_in_the_preferred_version_is_found() {
    let mut world = World::start().await;
    define_scaled(&world).await;
    let mut old = scaled_definition();
    old["metadata"]["name"] = json!("bags.t.dev");
    old["spec"]["names"] = json!({ "plural": "bags", "kind": "Bag" });
    old["spec"]["versions"][0]["name"] = json!("v1alpha1");
    define(&world, old).await;
    world.create(namespace("a")).await;
    for name in ["held", "free"] {
        let bag = json!({ "apiVersion": "t.dev/v1alpha1", "kind": "Bag", "metadata": { "name": name } });
        world.create(within(bag, "a", if name == "held" { &["t.dev/held"] } else { &[] })).await;
    }
    world.delete("Namespace", "", "a", &DeleteParams::default()).await;
    world.pass(20).await;
    assert!(!world.exists("bags.t.dev", "free"), "an object without finalizer is deleted");
    let held = world.get("namespaces", "a").expect("the namespace stays while an object is left");
    let remaining = condition(&held, "NamespaceContentRemaining");
    assert_eq!(remaining["message"], "Some resources are remaining: bags.t.dev has 1 resource instances");

    world.patch("t.dev/v1alpha1/Bag", "a", "held", json!({ "metadata": { "finalizers": null } })).await;
    world.until("the namespace is deleted", 30, |world| !world.exists("namespaces", "a")).await;
}

#[tokio::test(start_paused = true)]
async fn all_remaining_objects_are_counted() {
    let world = World::start().await;
    define_scaled(&world).await;
    world.create(namespace("a")).await;
    for index in 0..501 {
        let set =
            json!({ "apiVersion": "t.dev/v1", "kind": "Set", "metadata": { "name": format!("s{index}") } });
        world.create(within(set, "a", &["t.dev/held"])).await;
    }
    world.delete("Namespace", "", "a", &DeleteParams::default()).await;
    world.pass(20).await;
    let held = world.get("namespaces", "a").expect("the namespace stays");
    let remaining = condition(&held, "NamespaceContentRemaining");
    assert_eq!(remaining["message"], "Some resources are remaining: sets.t.dev has 501 resource instances");
}

#[tokio::test(start_paused = true)]
async fn a_pod_on_a_missing_node_does_not_block_its_namespace() {
    let mut world = World::start().await;
    world.create(namespace("a")).await;
    world.pass(1).await;
    world.create(within(pod("p", "nowhere"), "a", &[])).await;
    world.create(within(config_map("c", &[]), "a", &[])).await;
    world.delete("Namespace", "", "a", &DeleteParams::default()).await;
    world.pass(10).await;
    // The objects that a pod uses outlive it.
    assert!(world.exists("pods", "p") && world.exists("configmaps", "c"));
    world.until("the namespace is deleted", 90, |world| !world.exists("namespaces", "a")).await;
    assert!(!world.exists("configmaps", "c"));
}
