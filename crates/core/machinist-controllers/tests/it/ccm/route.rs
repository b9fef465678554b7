//! Routes to the pods of Nodes.

use kube::api::DeleteParams;

use super::*;

fn routes(world: &World) -> Vec<String> {
    let state = world.standin.dump();
    let mut routes: Vec<String> =
        state.networks[&NETWORK].routes.iter().map(|route| route.destination.clone()).collect();
    routes.sort_unstable();
    routes
}

async fn give_pods(world: &World, name: &str, network: &str) {
    let networks = json!({"spec": {"podCIDR": network, "podCIDRs": [network]}});
    let params = PatchParams::default();
    world.nodes().patch(name, &params, &Patch::Strategic(networks)).await.expect("accepted");
}

/// Scenario 14: TR-02, TR-06.
#[tokio::test(start_paused = true)]
async fn each_node_gets_its_route_and_a_dead_one_is_deleted() {
    let world = World::new();
    let _process = world.start();
    let ids = world.nodes_with_servers(&["a", "b"]).await;
    give_pods(&world, "a", "10.244.1.0/24").await;
    give_pods(&world, "b", "10.244.2.0/24").await;
    world.until("both routes exist", async |w| routes(w) == ["10.244.1.0/24", "10.244.2.0/24"]).await;
    world
        .until("the Nodes have networks", async |w| {
            let all = w.nodes().list(&ListParams::default()).await.expect("a list").items;
            all.iter().all(|node| {
                let status = node.status.iter().flat_map(|status| status.conditions.iter().flatten());
                status.into_iter().any(|it| it.type_ == "NetworkUnavailable" && it.status == "False")
            })
        })
        .await;
    world.standin.delete_server(ids["b"]).expect("deleted");
    world.nodes().delete("b", &DeleteParams::default()).await.expect("deleted");
    world.until("its route is deleted", async |w| routes(w) == ["10.244.1.0/24"]).await;
}

/// Scenario 14: the address of the server in the network changes.
#[tokio::test(start_paused = true)]
async fn the_gateway_of_a_route_follows_its_server() {
    let world = World::new();
    let _process = world.start();
    let ids = world.nodes_with_servers(&["a"]).await;
    give_pods(&world, "a", "10.244.1.0/24").await;
    world.until("the route exists", async |w| routes(w) == ["10.244.1.0/24"]).await;
    let address = "10.0.77.7";
    let moves = |server: &mut machinist_standin_hcloud::Server| server.private_net[0].ip = address.to_owned();
    world.standin.change_server(ids["a"], moves).expect("the server exists");
    world
        .until("the gateway follows", async |w| {
            let routes = w.standin.dump().networks[&NETWORK].routes.clone();
            routes.len() == 1 && routes[0].gateway == address
        })
        .await;
}

/// TR-11: RC-04.
#[tokio::test(start_paused = true)]
async fn a_failed_route_is_retried_without_an_event() {
    let world = World::new();
    let _process = world.start();
    world.nodes_with_servers(&["a"]).await;
    world.standin.fail_next_action(Some("add_route"), "server_error", "try again");
    give_pods(&world, "a", "10.244.1.0/24").await;
    world.until("the route exists", async |w| routes(w) == ["10.244.1.0/24"]).await;
}

/// A user asks about the Node whose pods are not reached.
#[tokio::test(start_paused = true)]
async fn a_node_without_its_route_says_so() {
    let world = World::new();
    let process = world.start();
    let inspector = process.inspector();
    world.nodes_with_servers(&["a"]).await;
    world.standin.create_server(&NewServer::new(PROJECT, "b")).expect("a server");
    tokio::time::sleep(Duration::from_secs(10)).await;
    world.join("b").await;
    give_pods(&world, "a", "10.244.1.0/24").await;
    give_pods(&world, "b", "10.244.2.0/24").await;
    let of = |name: &str| why(&inspector, &Key::Node(name.to_owned()));
    world
        .until("the Node names its route", async |_| {
            of("b").starts_with("the cloud failed to create the route to 10.244.2.0/24 over hcloud://")
        })
        .await;
    world.until("the other route exists", async |w| routes(w) == ["10.244.1.0/24"]).await;
    world.until("the other Node is settled", async |_| of("a") == "up to date").await;
}
