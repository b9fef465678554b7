//! Tests of MachineSets and MachineDeployments that Go's machine-controller-manager froze.

use std::time::Duration;

use kube::Api;
use kube::api::{ListParams, Patch, PatchParams};
use machinist_api::{MachineDeployment, MachineSet};
use machinist_controllers::Clients;
use machinist_controllers::mcm::{Key, Manager, Running};
use machinist_kube::ObjectKey;
use serde_json::{Value, json};

use crate::{NAMESPACE, World};

const UNFREEZE: &str = "safety.machine.sapcloud.io/unfreeze";

fn manager(world: &World) -> Running {
    let clients = Clients { control: world.client("manager"), target: world.client("manager") };
    Manager::start(clients, world.options("manager"), None)
}

fn sets(world: &World) -> Api<MachineSet> {
    Api::namespaced(world.user.clone(), NAMESPACE)
}

async fn the_set(world: &World) -> MachineSet {
    let mut all = sets(world).list(&ListParams::default()).await.expect("a list").items;
    assert_eq!(all.len(), 1, "{all:#?}");
    all.remove(0)
}

/// Returns the marks of a freeze on the set and the deployment, as text.
async fn marks(world: &World) -> Vec<&'static str> {
    let set = the_set(world).await;
    let deployment: MachineDeployment = world.deployments().get("w").await.expect("the deployment exists");
    let has = |map: Option<&std::collections::BTreeMap<String, String>>, key: &str| {
        map.is_some_and(|map| map.contains_key(key))
    };
    let conditions = set.status.unwrap_or_default().conditions;
    let all = [
        ("set label", has(set.metadata.labels.as_ref(), "freeze")),
        ("set annotation", has(set.metadata.annotations.as_ref(), UNFREEZE)),
        ("set condition", conditions.iter().any(|condition| condition.type_ == "Frozen")),
        ("deployment label", has(deployment.metadata.labels.as_ref(), "freeze")),
        ("deployment annotation", has(deployment.metadata.annotations.as_ref(), UNFREEZE)),
        (
            "deployment condition",
            deployment
                .status
                .unwrap_or_default()
                .conditions
                .iter()
                .any(|condition| condition.type_ == "Frozen"),
        ),
    ];
    all.into_iter().filter(|(_, is_there)| *is_there).map(|(mark, _)| mark).collect()
}

/// Freezes the set and the deployment as Go's machine-controller-manager does.
async fn freeze(world: &World) {
    let params = PatchParams::default();
    let label = Patch::Merge(json!({"metadata": {"labels": {"freeze": "True"}}}));
    let condition = json!({
        "type": "Frozen", "status": "True", "reason": "OverShootingReplicaCount", "message": "6 >= 5",
        "lastTransitionTime": "2026-11-21T05:56:35Z",
    });
    let name = the_set(world).await.metadata.name.expect("a name");
    let status = |field: &str, conditions: Value| Patch::Merge(json!({"status": {field: conditions}}));
    let of_set = status("machineSetCondition", json!([condition]));
    sets(world).patch_status(&name, &params, &of_set).await.expect("patched");
    sets(world).patch(&name, &params, &label).await.expect("patched");
    let deployment = world.deployments().get("w").await.expect("the deployment exists");
    let others = serde_json::to_value(deployment.status.unwrap_or_default().conditions).expect("JSON");
    let mut conditions = others.as_array().cloned().unwrap_or_default();
    conditions.push(condition);
    let of_deployment = status("conditions", Value::from(conditions));
    world.deployments().patch_status("w", &params, &of_deployment).await.expect("patched");
    world.deployments().patch("w", &params, &label).await.expect("patched");
}

const ALL_MARKS: [&str; 4] = ["set label", "set condition", "deployment label", "deployment condition"];

#[tokio::test(start_paused = true)]
async fn a_freeze_ends_when_enough_machines_are_deleted() {
    let world = World::new().await;
    let (_machine_controller, first) = world.start();
    world.apply(6).await;
    world.until_running(6).await;
    drop(first);
    world.scale(2).await;
    freeze(&world).await;
    assert_eq!(marks(&world).await, ALL_MARKS);

    let _manager = manager(&world);
    world.until("the freeze has ended", async |w| marks(w).await.is_empty()).await;
    world.until("2 are left", async |w| w.machines().await.len() == 2).await;
    let [event] = world.events("UnfrozeMachineSet").await.try_into().expect("one Event");
    assert_eq!(event.count.unwrap_or(1), 1, "the Event is emitted once");
    world.scale(4).await;
    world.until_running(4).await;
    let conditions = world
        .deployments()
        .get("w")
        .await
        .expect("the deployment exists")
        .status
        .unwrap_or_default()
        .conditions;
    assert!(
        conditions.iter().any(|condition| condition.type_ == "Available"),
        "other conditions stay: {conditions:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn the_annotation_unfreeze_ends_a_lasting_freeze() {
    let world = World::new().await;
    let (machine_controller, first) = world.start();
    world.apply(6).await;
    world.until_running(6).await;
    // No machine controller drains the Machines, so they stay.
    drop((machine_controller, first));
    world.scale(2).await;
    freeze(&world).await;

    let manager = manager(&world);
    tokio::time::sleep(Duration::from_secs(120)).await;
    assert_eq!(marks(&world).await, ALL_MARKS, "6 Machines are left, and the freeze ends at 4");
    let name = the_set(&world).await.metadata.name.expect("a name");
    let why = manager.inspector().why(&Key::Set(ObjectKey::new(NAMESPACE, &name))).expect("a reason").why;
    assert_eq!(
        why.to_string(),
        "frozen (OverShootingReplicaCount); the set has 6 machines, and the freeze is \
         lifted at 4 or fewer; since 2026-11-21T05:56:35Z; next: wait until Machines are deleted, or set the annotation \
         safety.machine.sapcloud.io/unfreeze on the MachineSet to lift the freeze now"
    );

    let unfreeze = Patch::Merge(json!({"metadata": {"annotations": {UNFREEZE: ""}}}));
    world.deployments().patch("w", &PatchParams::default(), &unfreeze).await.expect("annotated");
    world.until("the freeze has ended", async |w| marks(w).await.is_empty()).await;
    assert_eq!(world.events("UnfrozeMachineSet").await.len(), 1);
    world.scale(3).await;
    world.until("one Machine is created", async |w| w.machines().await.len() == 7).await;

    // The same for the set alone.
    freeze(&world).await;
    sets(&world).patch(&name, &PatchParams::default(), &unfreeze).await.expect("annotated");
    world.until("the second freeze has ended", async |w| marks(w).await.is_empty()).await;
}

/// Go's own suite scales from 6 to 2 and counts one Event for the freeze and one for its end.
#[tokio::test(start_paused = true)]
async fn a_slow_scale_down_freezes_once_and_thaws_once() {
    let world = World::new().await;
    let processes = world.start();
    world.apply(6).await;
    world.until_running(6).await;
    // No machine controller drains the Machines, so they stay.
    drop(processes);
    let first = manager(&world);
    world.scale(2).await;
    tokio::time::sleep(Duration::from_secs(55)).await;
    assert_eq!(marks(&world).await, [""; 0], "the period has not passed");
    tokio::time::sleep(Duration::from_secs(15)).await;
    assert_eq!(marks(&world).await, ALL_MARKS);
    let deleted = world.machines().await.iter().filter(|m| m.metadata.deletion_timestamp.is_some()).count();
    assert_eq!(deleted, 4, "a frozen set deletes its surplus");
    drop(first);

    // Another process finds the freeze, and neither repeats nor ends it.
    let second = manager(&world);
    tokio::time::sleep(Duration::from_secs(300)).await;
    assert_eq!(marks(&world).await, ALL_MARKS);
    drop(second);
    let _processes = world.start();
    world.until("2 are left", async |w| w.machines().await.len() == 2).await;
    world.until("the freeze has ended", async |w| marks(w).await.is_empty()).await;
    tokio::time::sleep(Duration::from_secs(300)).await;
    for reason in ["FrozeMachineSet", "UnfrozeMachineSet"] {
        let [event] = world.events(reason).await.try_into().expect("one Event");
        assert_eq!(event.count.unwrap_or(1), 1, "{reason}");
    }
    world.scale(3).await;
    world.until_running(3).await;
}

#[tokio::test(start_paused = true)]
async fn a_fast_scale_down_costs_no_freeze() {
    let world = World::new().await;
    let _processes = world.start();
    world.apply(6).await;
    world.until_running(6).await;
    world.scale(2).await;
    world.until("2 are left", async |w| w.machines().await.len() == 2).await;
    tokio::time::sleep(Duration::from_secs(120)).await;
    assert!(world.events("FrozeMachineSet").await.is_empty());
}
