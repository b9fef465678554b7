//! Evictions go by the status of budgets.

use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, DeleteParams, EvictParams};
use serde_json::{Value, json};

use crate::world::{World, define_scaled, owner, pod, ready};

const BUDGET: &str = "policy/v1/PodDisruptionBudget";

async fn budget(world: &World, bound: Value) {
    let mut spec = bound;
    spec["selector"] = json!({ "matchLabels": { "app": "web" } });
    let budget = json!({
        "apiVersion": "policy/v1", "kind": "PodDisruptionBudget",
        "metadata": { "name": "web", "namespace": "default" }, "spec": spec,
    });
    world.create(budget).await;
}

async fn ready_pods(world: &World, names: &[&str]) {
    for name in names {
        world.create(pod(name, "n")).await;
        world.patch_status("Pod", "default", name, ready()).await;
    }
}

/// healthy, desired, expected, allowed
fn numbers(world: &World) -> [i64; 4] {
    let budget = world.get("poddisruptionbudgets", "web").expect("there");
    ["currentHealthy", "desiredHealthy", "expectedPods", "disruptionsAllowed"]
        .map(|field| budget["status"][field].as_i64().expect("a number"))
}

async fn evict(world: &World, name: &str) -> Result<(), u16> {
    let pods: Api<Pod> = Api::default_namespaced(world.client.clone());
    match pods.evict(name, &EvictParams::default()).await {
        Ok(_) => Ok(()),
        Err(kube::Error::Api(status)) => Err(status.code),
        Err(error) => panic!("{error}"),
    }
}

/// The Node `n`, so that nothing else happens to its Pods.
async fn with_node() -> World {
    let world =
        World::start_with(|config| config.node_startup_grace = std::time::Duration::from_secs(1 << 30)).await;
    world.create(json!({ "apiVersion": "v1", "kind": "Node", "metadata": { "name": "n" } })).await;
    world
}

#[tokio::test(start_paused = true)]
async fn evictions_are_granted_one_by_one_as_pods_come_back() {
    let mut world = with_node().await;
    ready_pods(&world, &["p1", "p2"]).await;
    budget(&world, json!({ "minAvailable": 1 })).await;
    world.until("it is counted", 1, |world| numbers(world) == [2, 1, 2, 1]).await;
    assert_eq!(evict(&world, "p1").await, Ok(()));
    assert_eq!(evict(&world, "p2").await, Err(429));
    world.until("the pod is seen going", 1, |world| numbers(world) == [1, 1, 2, 0]).await;
    assert_eq!(evict(&world, "p2").await, Err(429));
    world
        .delete(
            "Pod",
            "default",
            "p1",
            &DeleteParams { grace_period_seconds: Some(0), ..DeleteParams::default() },
        )
        .await;
    ready_pods(&world, &["p3"]).await;
    world.until("the new pod counts", 1, |world| numbers(world) == [2, 1, 2, 1]).await;
    assert_eq!(evict(&world, "p2").await, Ok(()));
    let disrupted = |world: &World| {
        let budget = world.get("poddisruptionbudgets", "web").expect("there");
        budget["status"].get("disruptedPods").and_then(Value::as_object).map_or(0, serde_json::Map::len)
    };
    world.until("what shows is no longer noted", 1, |world| disrupted(world) == 0).await;
}

#[tokio::test(start_paused = true)]
async fn a_burst_of_pods_costs_few_writes_and_quiet_costs_none() {
    let mut world = with_node().await;
    budget(&world, json!({ "minAvailable": "50%" })).await;
    let names: Vec<String> = (0..20).map(|index| format!("p{index:02}")).collect();
    ready_pods(&world, &names.iter().map(String::as_str).collect::<Vec<_>>()).await;
    world.pass(10).await;
    let writes = world.requests();
    assert!(writes.iter().filter(|it| it.contains("poddisruptionbudgets")).count() <= 3, "{writes:#?}");
    assert!(writes.iter().all(|it| it.ends_with(" 200")), "{writes:#?}");
    world.pass(3600).await;
    assert_eq!(world.requests(), Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn shares_are_of_what_the_controllers_of_the_pods_want() {
    let mut world = with_node().await;
    define_scaled(&world).await;
    let set = json!({ "apiVersion": "t.dev/v1", "kind": "Set", "metadata": { "name": "s", "namespace": "default" }, "spec": { "replicas": 4 } });
    let uid = world.create(set).await;
    let owned_by = |api_version: &str, kind: &str, name: &str, uid: &str| {
        let mut owner = owner(api_version, kind, name, uid);
        owner["controller"] = json!(true);
        json!([owner])
    };
    for name in ["p1", "p2", "p3"] {
        let mut pod = pod(name, "n");
        pod["metadata"]["ownerReferences"] = owned_by("t.dev/v1", "Set", "s", &uid);
        world.create(pod).await;
        world.patch_status("Pod", "default", name, ready()).await;
    }
    budget(&world, json!({ "maxUnavailable": 1 })).await;
    world.until("the set wants 4", 1, |world| numbers(world) == [3, 3, 4, 0]).await;
    // A kind that is not served wants what it has; it cannot be looked for either, so nothing collects the pod.
    let mut other = pod("p4", "n");
    other["metadata"]["ownerReferences"] =
        owned_by("apps/v1", "ReplicaSet", "r", "22222222-0000-0000-0000-000000000000");
    world.create(other).await;
    world.patch_status("Pod", "default", "p4", ready()).await;
    world.until("the other pod counts once", 1, |world| numbers(world) == [4, 4, 5, 0]).await;
}

#[tokio::test(start_paused = true)]
async fn an_eviction_that_never_happens_is_forgotten_after_two_minutes() {
    let mut world = with_node().await;
    ready_pods(&world, &["p1", "p2"]).await;
    budget(&world, json!({ "minAvailable": 1 })).await;
    world.until("it is counted", 1, |world| numbers(world) == [2, 1, 2, 1]).await;
    let granted = json!({ "disruptionsAllowed": 0, "disruptedPods": { "p1": "2030-01-01T00:00:00Z" } });
    world.patch_status(BUDGET, "default", "web", granted).await;
    world.until("it counts as gone", 1, |world| numbers(world) == [1, 1, 2, 0]).await;
    let seconds = world.until("it counts again", 130, |world| numbers(world) == [2, 1, 2, 1]).await;
    assert!((115..=121).contains(&seconds), "{seconds}");
}
