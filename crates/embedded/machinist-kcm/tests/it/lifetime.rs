//! Tests of all controllers together, and of the bootstrap token controller.

use kube::api::DeleteParams;
use serde_json::json;

use crate::world::{World, config_map, node, owner, pod, ready};

#[tokio::test(start_paused = true)]
async fn a_bootstrap_token_is_deleted_at_its_expiration() {
    let mut world = World::start().await;
    let token = |name: &str, expiration: Option<&str>| {
        json!({
            "apiVersion": "v1", "kind": "Secret", "type": "bootstrap.kubernetes.io/token",
            "metadata": { "name": format!("bootstrap-token-{name}"), "namespace": "kube-system" },
            "stringData": expiration.map(|time| json!({ "expiration": time })).unwrap_or(json!({})),
        })
    };
    world.create(token("aaaaaa", Some("2030-01-01T00:20:00Z"))).await;
    world.create(token("bbbbbb", None)).await;
    world.create(token("cccccc", Some("2030-01-01T00:10:00Z"))).await;
    world
        .create(json!({
            "apiVersion": "v1", "kind": "Secret", "metadata": { "name": "other", "namespace": "kube-system" },
            "stringData": { "expiration": "2029-01-01T00:00:00Z" },
        }))
        .await;
    // The expiration of one token is extended while the token is valid.
    let longer = json!({ "stringData": { "expiration": "2030-01-01T01:00:00Z" } });
    world.patch("Secret", "kube-system", "bootstrap-token-cccccc", longer).await;

    let seconds = world
        .until("the first token is deleted", 1300, |world| !world.exists("secrets", "bootstrap-token-aaaaaa"))
        .await;
    assert_eq!(seconds, 1200);
    assert!(world.exists("secrets", "bootstrap-token-cccccc"));
    world
        .until("the extended token is deleted, too", 2500, |world| {
            !world.exists("secrets", "bootstrap-token-cccccc")
        })
        .await;
    world.pass(3600).await;
    assert!(world.exists("secrets", "bootstrap-token-bbbbbb") && world.exists("secrets", "other"));
    let gone = ["aaaaaa", "cccccc"].map(|name| format!("delete secrets bootstrap-token-{name} 200"));
    assert_eq!(world.requests(), gone);
}

#[tokio::test(start_paused = true)]
async fn nothing_is_left_running_after_an_abort() {
    let mut world = World::start().await;
    world.pass(1).await;
    assert!(0 < world.server.open_watches());
    world.stop_controllers().await;
    world.pass(1).await;
    assert_eq!(world.server.open_watches(), 0);
    let owner = owner("v1", "ConfigMap", "gone", "11111111-0000-0000-0000-000000000000");
    world.create(config_map("a", &[owner])).await;
    world.pass(3600).await;
    assert!(world.exists("configmaps", "a"));
}

/// Returns the writes of the controllers in a short scenario.
async fn story() -> Vec<String> {
    let mut world = World::start().await;
    let a = world.create(config_map("a", &[])).await;
    for name in ["d", "c", "b"] {
        world.create(config_map(name, &[owner("v1", "ConfigMap", "a", &a)])).await;
    }
    for node_name in ["n2", "n1"] {
        world.create(node(node_name, "True")).await;
        for index in 0..3 {
            let name = format!("{node_name}-{index}");
            world.create(pod(&name, node_name)).await;
            world.patch_status("Pod", "default", &name, ready()).await;
        }
    }
    world.delete("ConfigMap", "default", "a", &DeleteParams::background()).await;
    world.pass(3600).await;
    world.requests()
}

#[tokio::test(start_paused = true)]
async fn the_same_scenario_gives_the_same_writes_in_order() {
    let first = story().await;
    assert!(20 < first.len(), "{first:#?}");
    assert_eq!(first, story().await);
}
