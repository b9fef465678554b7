//! Tests of the thin join for benchmarks.

use machinist_apiserver::{Identity, Verb};
use machinist_kube::{ClientOptions, layer_client};
use machinist_node_sim::{Fleet, FleetOptions, Join, NODE_USER_AGENT};

use crate::world::{SOON, World, is_ready};

#[tokio::test(start_paused = true)]
async fn a_thin_join_is_one_post() {
    let mut world = World::new().await;
    let service = world.server.service_as(Identity::admin());
    let client = layer_client(service, &ClientOptions::new(NODE_USER_AGENT));
    let options = FleetOptions { join: Join::Thin(client), ..world.fleet_options() };
    world.fleet = Some(Fleet::start(&world.cloud, options));
    for number in 0..100 {
        world.make_from(&format!("w-{number}"), "").await;
    }
    tokio::time::sleep(SOON).await;
    let nodes = world.nodes().list(&Default::default()).await.expect("listed").items;
    assert_eq!(nodes.iter().filter(|node| is_ready(node)).count(), 100);
    let requests = world.machine_requests();
    assert!(requests.iter().all(|request| request.resource == "nodes" && request.verb == Verb::Create));
    assert_eq!(requests.len(), 100);
}
