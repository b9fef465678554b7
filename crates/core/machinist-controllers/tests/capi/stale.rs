//! Creations while the API server of the management cluster does not answer, so that objects may
//! have been deleted meanwhile.

use std::time::Duration;

use machinist_controllers::capi::{CapiOptions, CoreApi, Serves};
use machinist_standin_docker::{Engine, Speed};

use super::docker::Docker;
use super::gate::{Link, Switch};
use super::pass;

/// The machines wait for their turns: the engine creates one container every 25 seconds.
#[tokio::test(start_paused = true)]
async fn a_queued_creation_needs_a_fresh_watch_in_its_turn() {
    let mut docker = Docker::new().await;
    let clock = docker.world.clock.clone();
    let (create, none) = (Duration::from_secs(25), Duration::ZERO);
    let speed = Speed { at_once: 1, create, delete: none, exec: none, request: none };
    docker.engine = Engine::with_speed("a", speed).with_clock(move || clock.now());
    let mut options = docker.options(&docker.engine);
    options.calls_at_once = 1;
    let link = Switch::new();
    let client = link.client(&docker.world, "capi");
    let capi = CapiOptions::new(Serves::Docker(options), CoreApi::Beta2);
    let _running = docker.world.start_over(client, "", capi);
    docker.world.docker_cluster("c").await;
    docker.world.run_for(10).await;
    for number in 0..12 {
        docker.world.machine("c", &format!("c-w-{number}"), false).await;
    }
    docker.world.run_for(20).await;
    let created = || docker.engine.state().created.len();
    let before = created();
    link.set(Link::Frozen);
    // The watch counts as fresh for two minutes, and a call that has begun ends.
    pass(150).await;
    let by_fresh_facts = created();
    assert!(before < by_fresh_facts && by_fresh_facts < 10, "the queue is long: {by_fresh_facts}");
    pass(900).await;
    assert_eq!(created(), by_fresh_facts, "no creation begins by old facts");
    link.set(Link::Up);
    docker.world.run_for(400).await;
    assert_eq!(created(), 12, "the rest is created after the outage");
}
