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
                status
                    .into_iter()
                    .any(|condition| condition.type_ == "NetworkUnavailable" && condition.status == "False")
            })
        })
        .await;
    world.standin.delete_server(ids["b"]).expect("deleted");
    world.nodes().delete("b", &DeleteParams::default()).await.expect("deleted");
    world.until("its route is deleted", async |w| routes(w) == ["10.244.1.0/24"]).await;
    world.until("it is named", async |w| w.events("DeletedAbandonedRoute").await.len() == 1).await;
    let events = world.events("DeletedAbandonedRoute").await;
    assert!(events[0].contains("belongs: 10.244.2.0/24 over 10."), "{events:?}");
}

/// A user made the route to a dedicated server, and the program could not create it again.
#[tokio::test(start_paused = true)]
async fn the_route_of_a_node_elsewhere_outlasts_it() {
    let world = World::new();
    let mut state = world.standin.dump();
    let network = state.networks.get_mut(&NETWORK).expect("the network");
    let mut route = |destination: &str, gateway: &str| {
        let (destination, gateway) = (destination.to_owned(), gateway.to_owned());
        network.routes.push(machinist_standin_hcloud::NetworkRoute { destination, gateway });
    };
    route("10.244.7.0/24", "10.0.7.7");
    route("10.244.8.0/24", "10.0.99.8");
    network.subnets.push(Subnet {
        kind: "vswitch".to_owned(),
        ip_range: "10.0.99.0/24".to_owned(),
        network_zone: "eu-central".to_owned(),
        gateway: "10.0.0.1".to_owned(),
        vswitch_id: Some(1000),
    });
    world.standin.load(state).expect("in memory");
    let _process = world.start();
    let robot: Node = parse(json!({
        "apiVersion": "v1", "kind": "Node", "metadata": {"name": "robot"},
        "spec": {"providerID": "hrobot://4321", "podCIDR": "10.244.7.0/24", "podCIDRs": ["10.244.7.0/24"]},
    }));
    world.nodes().create(&PostParams::default(), &robot).await.expect("accepted");
    world.nodes_with_servers(&["a"]).await;
    give_pods(&world, "a", "10.244.1.0/24").await;
    let all = ["10.244.1.0/24", "10.244.7.0/24", "10.244.8.0/24"];
    world.until("the route exists", async |w| routes(w) == all).await;
    world.nodes().delete("robot", &DeleteParams::default()).await.expect("deleted");
    tokio::time::sleep(Duration::from_secs(3600)).await;
    assert_eq!(routes(&world), all, "neither route is deleted: of the Node, and behind the vSwitch");
    assert_eq!(world.events("DeletedAbandonedRoute").await, Vec::<String>::new());
}

/// A kubelet that restarts with another `--node-ip` reports only an address of a VPN. The cloud
/// would accept no route over that address.
#[tokio::test(start_paused = true)]
async fn a_good_route_outlasts_the_address_of_its_node() {
    let world = World::new();
    let _process = world.start();
    world.nodes_with_servers(&["a"]).await;
    give_pods(&world, "a", "10.244.1.0/24").await;
    world.until("the route exists", async |w| routes(w) == ["10.244.1.0/24"]).await;
    let gateway = |w: &World| w.standin.dump().networks[&NETWORK].routes[0].gateway.clone();
    let before = gateway(&world);
    for _ in 0..120 {
        // As the kubelet does, with each status.
        let addresses = json!([
            {"type": "Hostname", "address": "a"}, {"type": "InternalIP", "address": "100.64.0.7"},
        ]);
        let replaced = json!({"status": {"addresses": addresses}});
        let params = PatchParams::default();
        world.nodes().patch_status("a", &params, &Patch::Merge(replaced)).await.expect("accepted");
        tokio::time::sleep(Duration::from_secs(10)).await;
        assert_eq!(routes(&world), ["10.244.1.0/24"]);
    }
    assert_eq!(gateway(&world), before);
    assert_eq!(world.requests(|label| label.contains("delete_route")), 0);
}

/// The address of the server in the network changes.
#[tokio::test(start_paused = true)]
async fn the_gateway_of_a_route_follows_its_server() {
    let world = World::new();
    let _process = world.start();
    let ids = world.nodes_with_servers(&["a"]).await;
    give_pods(&world, "a", "10.244.1.0/24").await;
    world.until("the route exists", async |w| routes(w) == ["10.244.1.0/24"]).await;
    let address = "10.0.77.7";
    let moves =
        |server: &mut machinist_standin_hcloud::HcloudServer| server.private_net[0].ip = address.to_owned();
    world.standin.change_server(ids["a"], moves).expect("the server exists");
    world
        .until("the gateway follows", async |w| {
            let routes = w.standin.dump().networks[&NETWORK].routes.clone();
            routes.len() == 1 && routes[0].gateway == address
        })
        .await;
}

/// The action of the cloud fails after its call was accepted.
#[tokio::test(start_paused = true)]
async fn a_failed_route_is_retried() {
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
