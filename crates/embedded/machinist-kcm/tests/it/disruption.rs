//! Tests that evictions follow the status of budgets.

use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, DeleteParams, EvictParams};
use serde_json::{Value, json};

use crate::world::{World, at_once, controlled_by, define_scaled, pod, ready, workload};

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

/// Returns healthy, desired, expected and allowed.
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

/// Starts a world with the Node `n`, so that no other controller deletes its Pods.
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
    world.until("the budget is computed", 1, |world| numbers(world) == [2, 1, 2, 1]).await;
    assert_eq!(evict(&world, "p1").await, Ok(()));
    assert_eq!(evict(&world, "p2").await, Err(429));
    world.until("the budget counts the pod as deleted", 1, |world| numbers(world) == [1, 1, 2, 0]).await;
    assert_eq!(evict(&world, "p2").await, Err(429));
    world.delete("Pod", "default", "p1", &at_once()).await;
    ready_pods(&world, &["p3"]).await;
    world.until("the new pod counts", 1, |world| numbers(world) == [2, 1, 2, 1]).await;
    assert_eq!(evict(&world, "p2").await, Ok(()));
    let disrupted = |world: &World| {
        let budget = world.get("poddisruptionbudgets", "web").expect("there");
        budget["status"].get("disruptedPods").and_then(Value::as_object).map_or(0, serde_json::Map::len)
    };
    world
        .until("the completed eviction is removed from disruptedPods", 1, |world| disrupted(world) == 0)
        .await;
}

#[tokio::test(start_paused = true)]
async fn a_burst_of_pods_costs_few_writes_and_quiet_costs_none() {
    let mut world = with_node().await;
    budget(&world, json!({ "minAvailable": "50%" })).await;
    let names: Vec<String> = (0..20).map(|index| format!("p{index:02}")).collect();
    ready_pods(&world, &names.iter().map(String::as_str).collect::<Vec<_>>()).await;
    world.pass(10).await;
    let writes = world.requests();
    assert!(writes.iter().filter(|write| write.contains("poddisruptionbudgets")).count() <= 3, "{writes:#?}");
    assert!(writes.iter().all(|write| write.ends_with(" 200")), "{writes:#?}");
    world.pass(3600).await;
    assert_eq!(world.requests(), Vec::<String>::new());
}

/// Creates ready Pods with this controller, `group/version/Kind`.
async fn ready_pods_of(world: &World, controller: (&str, &str, &str), names: &[&str]) {
    let (kind, name, uid) = controller;
    let (api_version, kind) = kind.rsplit_once('/').expect("a kind with its version");
    for pod_name in names {
        world.create(controlled_by(pod(pod_name, "n"), api_version, kind, name, uid)).await;
        world.patch_status("Pod", "default", pod_name, ready()).await;
    }
}

/// Returns the message of a budget with the reason SyncFailed.
fn failure(world: &World) -> Option<String> {
    let budget = world.get("poddisruptionbudgets", "web").expect("there");
    let condition = &budget["status"]["conditions"][0];
    let failed = condition["reason"] == "SyncFailed";
    assert!(
        !failed || condition["status"] == "False" && budget["status"]["disruptionsAllowed"] == 0,
        "{budget:#}"
    );
    failed.then(|| condition["message"].as_str().expect("a message").to_owned())
}

#[tokio::test(start_paused = true)]
async fn percentages_refer_to_the_replicas_of_all_controllers() {
    let mut world = with_node().await;
    define_scaled(&world).await;
    let set = json!({ "apiVersion": "t.dev/v1", "kind": "Set", "metadata": { "name": "s", "namespace": "default" }, "spec": { "replicas": 4 } });
    let set = world.create(set).await;
    ready_pods_of(&world, ("t.dev/v1/Set", "s", &set), &["p1", "p2", "p3"]).await;
    budget(&world, json!({ "maxUnavailable": 1 })).await;
    world.until("the set wants 4", 1, |world| numbers(world) == [3, 3, 4, 0]).await;
    let stateful = world.create(workload("StatefulSet", "s", Some(2))).await;
    ready_pods_of(&world, ("apps/v1/StatefulSet", "s", &stateful), &["s-0", "s-1"]).await;
    world.until("and the StatefulSet 2", 1, |world| numbers(world) == [5, 5, 6, 0]).await;
    // A controller in a version that is no longer served is identified by its group.
    let single = world.create(workload("ReplicaSet", "r", Some(1))).await;
    ready_pods_of(&world, ("extensions/v1beta1/ReplicaSet", "r", &single), &["r1"]).await;
    world.until("and the ReplicaSet 1", 1, |world| numbers(world) == [6, 6, 7, 0]).await;
}

#[tokio::test(start_paused = true)]
async fn the_replicas_of_a_deployment_count_once_for_all_its_sets() {
    let mut world = with_node().await;
    let deployment = world.create(workload("Deployment", "d", Some(4))).await;
    for (set, pods) in [("d-old", ["o1", "o2"]), ("d-new", ["n1", "n2"])] {
        let object =
            controlled_by(workload("ReplicaSet", set, Some(3)), "apps/v1", "Deployment", "d", &deployment);
        let uid = world.create(object).await;
        ready_pods_of(&world, ("apps/v1/ReplicaSet", set, &uid), &pods).await;
    }
    budget(&world, json!({ "maxUnavailable": "25%" })).await;
    world.until("the deployment wants 4", 1, |world| numbers(world) == [4, 3, 4, 1]).await;
    assert_eq!(failure(&world), None);
}

#[tokio::test(start_paused = true)]
async fn without_its_deployment_a_set_counts_its_own_replicas() {
    let mut world = with_node().await;
    let set = controlled_by(
        workload("ReplicaSet", "r", Some(3)),
        "u.dev/v1",
        "Deployment",
        "d",
        "22222222-0000-0000-0000-000000000000",
    );
    let uid = world.create(set).await;
    ready_pods_of(&world, ("apps/v1/ReplicaSet", "r", &uid), &["p1", "p2", "p3"]).await;
    budget(&world, json!({ "minAvailable": "50%" })).await;
    world.until("the set wants 3", 1, |world| numbers(world) == [3, 2, 3, 1]).await;
}

#[tokio::test(start_paused = true)]
async fn pods_without_a_controller_are_not_expected() {
    let mut world = with_node().await;
    let set = world.create(workload("ReplicaSet", "r", Some(2))).await;
    ready_pods_of(&world, ("apps/v1/ReplicaSet", "r", &set), &["p1", "p2"]).await;
    ready_pods(&world, &["alone"]).await;
    budget(&world, json!({ "maxUnavailable": 1 })).await;
    world.until("2 are expected of 3", 1, |world| numbers(world) == [3, 1, 2, 2]).await;
    assert_eq!(failure(&world), None);
}

#[tokio::test(start_paused = true)]
async fn a_budget_fails_while_the_replicas_are_unknown() {
    let mut world = with_node().await;
    ready_pods(&world, &["alone"]).await;
    budget(&world, json!({ "maxUnavailable": 1 })).await;
    world.until("the budget is computed", 1, |world| numbers(world) == [1, 0, 0, 0]).await;
    // The garbage collector cannot read an owner of a kind that is not served, so it does not
    // delete the pod.
    ready_pods_of(&world, ("t.dev/v1/Set", "s", "22222222-0000-0000-0000-000000000000"), &["p1"]).await;
    let message = "no matches for kind \"Set\" in version \"t.dev/v1\"";
    world.until("it failed", 1, |world| failure(world).as_deref() == Some(message)).await;
    assert_eq!(evict(&world, "p1").await, Err(429));
    assert_eq!(numbers(&world), [1, 0, 0, 0], "the numbers do not change");
    world.requests();
    world.pass(3600).await;
    assert_eq!(world.requests(), Vec::<String>::new(), "a failed budget is written only once");

    // A controller that is created later is found without a watch.
    define_scaled(&world).await;
    let set = json!({ "apiVersion": "t.dev/v1", "kind": "Set", "metadata": { "name": "s", "namespace": "default" }, "spec": { "replicas": 1 } });
    let set = world.create(set).await;
    world.delete("Pod", "default", "p1", &at_once()).await;
    ready_pods_of(&world, ("t.dev/v1/Set", "s", &set), &["p2"]).await;
    world.until("the budget is computed", 61, |world| numbers(world) == [2, 0, 1, 2]).await;
    assert_eq!(failure(&world), None);
}

#[tokio::test(start_paused = true)]
async fn a_budget_fails_if_a_controller_has_no_scale() {
    let mut world = with_node().await;
    let set = world.create(workload("DaemonSet", "d", None)).await;
    ready_pods_of(&world, ("apps/v1/DaemonSet", "d", &set), &["p1", "p2"]).await;
    budget(&world, json!({ "minAvailable": "50%" })).await;
    let message = "daemonsets.apps does not implement the scale subresource";
    world.until("it failed", 1, |world| failure(world).as_deref() == Some(message)).await;
    // A minAvailable count does not depend on a scale.
    world.patch(BUDGET, "default", "web", json!({ "spec": { "minAvailable": 1 } })).await;
    world.until("the budget is computed", 1, |world| numbers(world) == [2, 1, 2, 1]).await;
    assert_eq!(failure(&world), None);
}

#[tokio::test(start_paused = true)]
async fn a_budget_fails_if_the_controller_of_a_pod_is_deleted() {
    let mut world = with_node().await;
    let old = world.create(workload("StatefulSet", "s", Some(1))).await;
    ready_pods_of(&world, ("apps/v1/StatefulSet", "s", &old), &["s-0"]).await;
    // The finalizer blocks the deletion of the pod, as a kubelet would.
    world.patch("Pod", "default", "s-0", json!({ "metadata": { "finalizers": ["t.dev/held"] } })).await;
    world.delete("apps/v1/StatefulSet", "default", "s", &DeleteParams::background()).await;
    world.create(workload("StatefulSet", "s", Some(1))).await;
    budget(&world, json!({ "maxUnavailable": 1 })).await;
    let message = "found no controllers for pod \"s-0\"";
    world.until("it failed", 1, |world| failure(world).as_deref() == Some(message)).await;
}

#[tokio::test(start_paused = true)]
async fn an_eviction_that_never_happens_expires_after_two_minutes() {
    let mut world = with_node().await;
    ready_pods(&world, &["p1", "p2"]).await;
    budget(&world, json!({ "minAvailable": 1 })).await;
    world.until("the budget is computed", 1, |world| numbers(world) == [2, 1, 2, 1]).await;
    let granted = json!({ "disruptionsAllowed": 0, "disruptedPods": { "p1": "2030-01-01T00:00:00Z" } });
    world.patch_status(BUDGET, "default", "web", granted).await;
    world.until("the pod counts as evicted", 1, |world| numbers(world) == [1, 1, 2, 0]).await;
    let seconds =
        world.until("the pod counts as healthy again", 130, |world| numbers(world) == [2, 1, 2, 1]).await;
    assert!((115..=121).contains(&seconds), "{seconds}");
}
