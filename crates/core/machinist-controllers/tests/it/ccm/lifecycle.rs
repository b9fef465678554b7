//! Nodes of stopped and of deleted servers.

use k8s_openapi::api::core::v1::ConfigMap;
use machinist_plan::ccm::node::Options as NodeOptions;

use super::*;

/// The Node is deleted once, within 30 s, and the Event names it.
#[tokio::test(start_paused = true)]
async fn the_node_of_a_deleted_server_is_deleted_if_not_ready() {
    let world = World::new();
    let mut log = world.server.audit();
    let _process = world.start();
    let ids = world.nodes_with_servers(&["a", "b", "c", "d"]).await;
    tokio::time::sleep(Duration::from_secs(120)).await;
    world.standin.delete_server(ids["a"]).expect("deleted");
    tokio::time::sleep(Duration::from_secs(900)).await;
    let node = world.node("a").await.expect("a ready Node is kept");
    world.set_ready("a", false).await;
    let began = tokio::time::Instant::now();
    world.until("the Node is deleted", async |w| w.node("a").await.is_none()).await;
    assert!(began.elapsed() <= Duration::from_secs(30), "{:?}", began.elapsed());
    tokio::time::sleep(Duration::from_secs(600)).await;
    assert_eq!(node_writes(&mut log, Verb::Delete), 1);
    let events: Api<Event> = Api::namespaced(world.user.clone(), "default");
    let mut events = events.list(&ListParams::default()).await.expect("a list").items;
    events.retain(|event| event.reason.as_deref() == Some("DeletingNode"));
    let [event] = events.try_into().expect("one Event");
    let object = event.involved_object;
    assert_eq!(object.api_version.as_deref(), Some("v1"));
    assert_eq!(object.kind.as_deref(), Some("Node"));
    assert_eq!((object.name, object.uid), (node.metadata.name, node.metadata.uid));
    for name in ["b", "c", "d"] {
        assert!(world.node(name).await.is_some());
    }
}

/// The taint is removed although the Node is still not ready.
#[tokio::test(start_paused = true)]
async fn the_shutdown_taint_follows_the_power_of_the_server() {
    let world = World::new();
    let _process = world.start();
    let ids = world.nodes_with_servers(&["a"]).await;
    world.standin.power_off(ids["a"]).expect("stopped");
    world.set_ready("a", false).await;
    let tainted = async |w: &World| has_taint(&w.node("a").await.expect("the Node exists"), SHUTDOWN);
    world.until("the taint is set", async |w| tainted(w).await).await;
    world.standin.power_on(ids["a"]).expect("started");
    world.until("the taint is removed", async |w| !tainted(w).await).await;
    assert!(world.node("a").await.is_some());
}

/// The taint that detaches volumes follows the power, too, if the flag is set.
#[tokio::test(start_paused = true)]
async fn out_of_service_follows_the_power_of_the_server() {
    const OUT_OF_SERVICE: &str = "node.kubernetes.io/out-of-service";
    let world = World::new();
    let _process = world.start_with(|options| {
        let nodes = NodeOptions { out_of_service: true, ..NodeOptions::default() };
        options.nodes = Arc::new(nodes);
    });
    let ids = world.nodes_with_servers(&["a"]).await;
    let has = async |w: &World, key| has_taint(&w.node("a").await.expect("the Node exists"), key);
    world.standin.power_off(ids["a"]).expect("stopped");
    world.set_ready("a", false).await;
    world.until("the Node is tainted as stopped", async |w| has(w, SHUTDOWN).await).await;
    assert!(!has(&world, OUT_OF_SERVICE).await, "one answer is not enough");
    world.until("the second answer confirms it", async |w| has(w, OUT_OF_SERVICE).await).await;
    world.standin.power_on(ids["a"]).expect("started");
    world.set_ready("a", true).await;
    world
        .until("both taints are removed", async |w| !has(w, SHUTDOWN).await && !has(w, OUT_OF_SERVICE).await)
        .await;
}

/// The load balancer still gets the Nodes of this cloud.
#[tokio::test(start_paused = true)]
async fn nodes_of_other_clouds_are_never_deleted() {
    let world = World::new();
    let _process = world.start();
    world.nodes_with_servers(&["ours-1", "ours-2"]).await;
    for (name, id) in [("talos", "talos://x"), ("malformed", "hcloud://x"), ("robot", "hrobot://7")] {
        let node = json!({
            "apiVersion": "v1", "kind": "Node", "metadata": {"name": name}, "spec": {"providerID": id},
        });
        world.nodes().create(&PostParams::default(), &parse(node)).await.expect("accepted");
        world.set_ready(name, false).await;
    }
    let service = json!({
        "apiVersion": "v1", "kind": "Service", "metadata": {"name": "web"},
        "spec": {"type": "LoadBalancer", "ports": [{"port": 80}]},
    });
    world.services().create(&PostParams::default(), &parse(service)).await.expect("accepted");
    tokio::time::sleep(Duration::from_secs(3600)).await;
    for name in ["talos", "malformed", "robot"] {
        assert!(world.node(name).await.is_some(), "{name}");
    }
    let balancers = world.standin.dump().load_balancers;
    let targets: Vec<usize> = balancers.values().map(|balancer| balancer.targets.len()).collect();
    assert_eq!(targets, [2], "the load balancer has the Nodes of this cloud");
}

/// The brake holds until a user releases it.
#[tokio::test(start_paused = true)]
async fn no_node_is_deleted_when_many_servers_vanish() {
    let world = World::new();
    let process = world.start();
    let names: Vec<String> = (0..10).map(|number| format!("node-{number}")).collect();
    let ids = world.nodes_with_servers(&names.iter().map(String::as_str).collect::<Vec<_>>()).await;
    tokio::time::sleep(Duration::from_secs(120)).await;
    for name in &names[..5] {
        world.standin.delete_server(ids[name]).expect("deleted");
    }
    for name in &names[..5] {
        world.set_ready(name, false).await;
    }
    tokio::time::sleep(Duration::from_secs(1800)).await;
    for name in &names {
        assert!(world.node(name).await.is_some(), "{name}");
    }
    assert!(!world.events("NodeDeletionSuspended").await.is_empty());
    let message = why(&process.inspector(), &Key::NodeRemoval);
    assert!(message.contains("no Node is deleted"), "{message}");
    let message = why(&process.inspector(), &Key::Node(names[0].clone()));
    assert!(message.contains("no Node is deleted"), "the Node names the brake: {message}");

    // A user releases the brake for an hour, as docs/src/ccm/troubleshooting.md says.
    let hour = Duration::from_secs(3600);
    let settings = json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {
            "name": "machinist-cloud-controller-manager",
            "annotations": {"machinist.dev/allow-node-deletion-until": (world.standin.now() + hour).to_string()},
        },
    });
    let maps: Api<ConfigMap> = Api::namespaced(world.user.clone(), "kube-system");
    maps.create(&PostParams::default(), &parse(settings)).await.expect("accepted");
    world
        .until("only the Nodes with servers are left", async |w| {
            let all = w.nodes().list(&ListParams::default()).await.expect("a list").items;
            let left: Vec<String> = all.into_iter().filter_map(|node| node.metadata.name).collect();
            left == names[5..]
        })
        .await;
}

/// The Machine exists, and no machine controller replaces it.
#[tokio::test(start_paused = true)]
async fn the_node_of_a_machine_waits_for_its_controller() {
    let world = World::new();
    let crds = Api::all(world.user.clone());
    for crd in machinist_api::crd::all_crds() {
        crds.create(&PostParams::default(), &crd).await.expect("accepted");
    }
    let machine = json!({
        "apiVersion": "machine.sapcloud.io/v1alpha1", "kind": "Machine",
        "metadata": {"name": "m", "labels": {"node": "a"}},
        "spec": {"class": {"kind": "MachineClass", "name": "c"}},
    });
    let machines: Api<machinist_api::Machine> = Api::namespaced(world.user.clone(), "default");
    machines.create(&PostParams::default(), &parse(machine)).await.expect("accepted");
    let mut log = world.server.audit();
    let process = world.start_with(|options| options.machines = Some("default".to_owned()));
    let ids = world.nodes_with_servers(&["a", "b", "c"]).await;
    tokio::time::sleep(Duration::from_secs(120)).await;
    world.standin.delete_server(ids["a"]).expect("deleted");
    world.set_ready("a", false).await;
    tokio::time::sleep(Duration::from_secs(110)).await;
    assert!(world.node("a").await.is_some(), "the machine controller has two minutes");
    let message = why(&process.inspector(), &Key::Node("a".to_owned()));
    assert!(message.contains("waiting for Machine default/m"), "{message}");
    tokio::time::sleep(Duration::from_secs(40)).await;
    assert!(world.node("a").await.is_none());
    tokio::time::sleep(Duration::from_secs(600)).await;
    assert_eq!(node_writes(&mut log, Verb::Delete), 1);
}
