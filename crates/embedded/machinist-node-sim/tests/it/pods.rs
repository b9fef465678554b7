//! Tests of the pods of a machine.

use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use machinist_apiserver::Verb;
use machinist_node_sim::{Fleet, FleetOptions, PodWatch};

use crate::world::{SOON, TOKEN, World};

fn runs_ready(pod: &Pod) -> bool {
    let status = pod.status.as_ref().expect("a status");
    let conditions = status.conditions.as_deref().unwrap_or_default();
    status.phase.as_deref() == Some("Running")
        && conditions.iter().any(|condition| condition.type_ == "Ready" && condition.status == "True")
}

async fn life_of_pods(mut world: World) {
    world.make("w-1", TOKEN).await;
    world.make("w-2", TOKEN).await;
    world.bind_pod("early", "w-1", 30).await;
    tokio::time::sleep(SOON).await;
    world.bind_pod("late", "w-2", 0).await;
    world.bind_pod("elsewhere", "nowhere", 30).await;
    tokio::time::sleep(Duration::from_millis(100)).await;
    for name in ["early", "late"] {
        assert!(runs_ready(&world.pods().get(name).await.expect("the pod exists")), "{name}");
    }
    assert!(!runs_ready(&world.pods().get("elsewhere").await.expect("the pod exists")));

    world.machine_requests();
    world.pods().delete("early", &Default::default()).await.expect("deleted");
    tokio::time::sleep(Duration::from_millis(900)).await;
    let ending = world.pods().get("early").await.expect("the pod takes a second to end");
    assert_eq!(ending.metadata.deletion_grace_period_seconds, Some(30));
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert!(world.pods().get_opt("early").await.expect("an answer").is_none());
    let requests = world.machine_requests();
    let deletions: Vec<_> =
        requests.iter().filter(|r| r.resource == "pods" && r.verb == Verb::Delete).collect();
    assert!(deletions.iter().all(|request| request.user == "system:node:w-1") && deletions.len() == 1);
}

#[tokio::test(start_paused = true)]
async fn bound_pods_run_and_deleted_pods_end() {
    life_of_pods(World::new().await).await;
}

#[tokio::test(start_paused = true)]
async fn one_shared_watch_serves_all_machines() {
    let mut world = World::new().await;
    let options = FleetOptions { pods: PodWatch::Shared(world.client()), ..world.fleet_options() };
    world.fleet = Some(Fleet::start(&world.cloud, options));
    life_of_pods(world).await;
}

#[tokio::test(start_paused = true)]
async fn a_new_pod_with_the_name_of_an_old_pod_is_not_ended() {
    let world = World::new().await;
    world.make("w-1", TOKEN).await;
    world.bind_pod("p", "w-1", 30).await;
    tokio::time::sleep(SOON).await;
    // The pod is deleted for good and created again while the machine still ends the first pod.
    world.pods().delete("p", &Default::default()).await.expect("deleted");
    tokio::time::sleep(Duration::from_millis(500)).await;
    let now = kube::api::DeleteParams::default().grace_period(0);
    world.pods().delete("p", &now).await.expect("deleted");
    let second = world.bind_pod("p", "w-1", 30).await;
    tokio::time::sleep(SOON).await;
    let found = world.pods().get("p").await.expect("the second pod lives");
    assert_eq!(found.metadata.uid, second.metadata.uid);
    assert!(runs_ready(&found));
}
