//! A machine runs as long as its instance has power.

use std::time::Duration;

use machinist_apiserver::Verb;
use machinist_cloud_sim::{Clock, Cloud, Settings};

use crate::world::{SOON, TOKEN, World, epoch, is_ready};

#[tokio::test(start_paused = true)]
async fn a_machine_stops_when_its_instance_stops() {
    let mut world = World::new().await;
    let deleted = world.make("deleted", TOKEN).await;
    let killed = world.make("killed", TOKEN).await;
    let stopped = world.make("stopped", TOKEN).await;
    tokio::time::sleep(SOON).await;
    world.delete(&deleted).await;
    world.cloud.kill(&killed.id).expect("the instance exists");
    world.cloud.power_off(&stopped.id).expect("the instance exists");
    tokio::time::sleep(Duration::from_millis(1)).await;
    world.machine_requests();
    tokio::time::sleep(Duration::from_secs(600)).await;
    let requests = world.machine_requests();
    assert!(requests.is_empty(), "{requests:?}");
    assert!(
        !is_ready(&world.nodes().get("stopped").await.expect("the Node exists")),
        "a stopped machine's Node is not ready"
    );
}

#[tokio::test(start_paused = true)]
async fn a_machine_that_gets_power_again_needs_no_token() {
    let mut world = World::new().await;
    let made = world.make("w-1", TOKEN).await;
    tokio::time::sleep(SOON).await;
    world.cloud.power_off(&made.id).expect("the instance exists");
    tokio::time::sleep(Duration::from_secs(120)).await;
    assert!(!is_ready(&world.nodes().get("w-1").await.expect("the Node exists")));
    world.machine_requests();
    world.cloud.power_on(&made.id).expect("the instance exists");
    tokio::time::sleep(SOON).await;
    assert!(is_ready(&world.nodes().get("w-1").await.expect("the Node exists")));
    let requests = world.machine_requests();
    assert!(requests.iter().all(|request| request.user == "system:node:w-1"), "{requests:?}");
    assert!(world.console(&made.id).contains("is Node w-1 again"));
}

#[tokio::test(start_paused = true)]
async fn a_restarted_cloud_process_resumes_its_machines() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut world = World::on_disk(folder.path()).await;
    world.make("w-1", TOKEN).await;
    world.make("stays-away", "626a68.0000000000000000").await;
    tokio::time::sleep(SOON).await;
    drop(world.fleet.take());
    // Replaces the cloud in the world, so that the first cloud is dropped and releases its folder.
    world.cloud = Cloud::in_memory(Settings::default(), Clock::starting_at(epoch()));
    tokio::time::sleep(Duration::from_secs(120)).await;
    assert!(!is_ready(&world.nodes().get("w-1").await.expect("the Node exists")));
    world.machine_requests();

    let clock = Clock::from_fn({
        let server = world.server.clone();
        move || server.clock().now()
    });
    world.cloud =
        Cloud::open(folder.path(), Settings::default(), clock).expect("the first cloud was dropped");
    world.start_fleet();
    tokio::time::sleep(SOON).await;
    assert!(is_ready(&world.nodes().get("w-1").await.expect("the Node exists")));
    let requests = world.machine_requests();
    let expected = |user: &str, code: u16| user == "system:node:w-1" || code == 401;
    assert!(requests.iter().all(|request| expected(&request.user, request.code)), "{requests:?}");
    assert_eq!(world.nodes().list(&Default::default()).await.expect("listed").items.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_deleted_node_stays_deleted_while_its_machine_runs() {
    let mut world = World::new().await;
    world.make("w-1", TOKEN).await;
    tokio::time::sleep(SOON).await;
    world.nodes().delete("w-1", &Default::default()).await.expect("deleted");
    tokio::time::sleep(Duration::from_secs(900)).await;
    assert!(world.nodes().get_opt("w-1").await.expect("an answer").is_none());
    let created =
        world.machine_requests().iter().filter(|r| r.resource == "nodes" && r.verb == Verb::Create).count();
    assert_eq!(created, 1);
}
