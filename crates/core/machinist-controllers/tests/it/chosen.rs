//! Tests of Machines that the cluster-autoscaler selected for deletion.

use std::time::Duration;

use kube::api::{Patch, PatchParams};
use machinist_apiserver::Verb;
use machinist_controllers::mcm::Key;
use machinist_kube::ObjectKey;
use serde_json::json;

use crate::{NAMESPACE, World};

const TRIGGER: &str = "node.machine.sapcloud.io/trigger-deletion-by-mcm";

async fn names(world: &World) -> Vec<String> {
    world.machines().await.into_iter().filter_map(|machine| machine.metadata.name).collect()
}

/// Writes the annotation as the cluster-autoscaler does.
async fn choose(world: &World, name: &str, replicas: u32) {
    let now = jiff::Timestamp::from_second(world.clock.now().as_second()).expect("a moment").to_string();
    let patch = Patch::Merge(json!({
        "metadata": {"annotations": {
            TRIGGER: format!("{name}~{now}"),
            "machine.sapcloud.io/last-deployment-replica-change-by-scaler-time": now,
        }},
        "spec": {"replicas": replicas},
    }));
    world.deployments().patch("w", &PatchParams::default(), &patch).await.expect("patched");
}

async fn named(world: &World) -> Option<String> {
    let deployment = world.deployments().get("w").await.expect("the deployment exists");
    deployment.metadata.annotations.and_then(|all| all.get(TRIGGER).cloned())
}

#[tokio::test(start_paused = true)]
async fn the_selected_machine_is_deleted() {
    for index in 0..3 {
        let world = World::new().await;
        let _processes = world.start();
        world.apply(3).await;
        world.until_running(3).await;
        let before = names(&world).await;
        let mut requests = world.server.audit();
        choose(&world, &before[index], 2).await;
        world.until("2 are left", async |w| w.machines().await.len() == 2).await;
        let left: Vec<_> = before.iter().filter(|name| **name != before[index]).cloned().collect();
        assert_eq!(names(&world).await, left);
        world.until("the annotation is empty", async |w| named(w).await.is_none()).await;

        let writes: Vec<_> = requests
            .drain()
            .into_iter()
            .filter(|request| {
                request.user_agent == "manager"
                    && [Verb::Patch, Verb::Delete].iter().any(|verb| request.verb == *verb)
            })
            .filter(|request| request.subresource.is_empty())
            .map(|request| format!("{} {}", request.verb, request.resource))
            .collect();
        assert_eq!(writes[..3], ["patch machines", "patch machinesets", "delete machines"], "{writes:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_name_without_a_machine_is_reported_and_removed() {
    let world = World::new().await;
    let (_machine_controller, manager) = world.start();
    world.apply(2).await;
    world.until_running(2).await;
    choose(&world, "stranger", 1).await;
    world.until("one is left", async |w| w.machines().await.len() == 1).await;
    tokio::time::sleep(Duration::from_secs(120)).await;
    let why =
        manager.inspector().why(&Key::Deployment(ObjectKey::new(NAMESPACE, "w"))).expect("a reason").why;
    assert!(
        why.to_string().starts_with(
            "Machine stranger not found in this deployment (named by the annotation \
             node.machine.sapcloud.io/trigger-deletion-by-mcm); next: correct the annotation"
        ),
        "{why}"
    );
    let [event] = world.events("ChosenMachineUnknown").await.try_into().expect("one Event");
    assert_eq!(
        event.message.as_deref(),
        Some(
            "Machine stranger in annotation node.machine.sapcloud.io/trigger-deletion-by-mcm is not a Machine of this \
             MachineDeployment: it is deleted already, or the name is wrong. Nothing was deleted now."
        )
    );
    tokio::time::sleep(Duration::from_secs(240)).await;
    assert_eq!(named(&world).await, None);
}
