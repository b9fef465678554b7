//! Nodes of stopped and of deleted servers.

use super::*;

/// Scenario 3: LC-02, LC-21.
#[tokio::test(start_paused = true)]
async fn the_node_of_a_deleted_server_is_deleted_if_not_ready() {
    let world = World::new();
    let _process = world.start();
    let ids = world.nodes_with_servers(&["a", "b", "c", "d"]).await;
    tokio::time::sleep(Duration::from_secs(120)).await;
    world.standin.delete_server(ids["a"]).expect("deleted");
    tokio::time::sleep(Duration::from_secs(900)).await;
    assert!(world.node("a").await.is_some(), "a ready Node is kept");
    world.set_ready("a", false).await;
    let began = tokio::time::Instant::now();
    world.until("the Node is deleted", async |w| w.node("a").await.is_none()).await;
    assert!(began.elapsed() <= Duration::from_secs(60), "{:?}", began.elapsed());
    assert_eq!(world.events("DeletingNode").await.len(), 1);
    for name in ["b", "c", "d"] {
        assert!(world.node(name).await.is_some());
    }
}

/// Scenario 4: TL-06, TL-22.
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

/// TL-17: LC-20, LC-25.
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
    tokio::time::sleep(Duration::from_secs(3600)).await;
    for name in ["talos", "malformed", "robot"] {
        assert!(world.node(name).await.is_some(), "{name}");
    }
}

/// TL-20: LC-23.
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
    let told = why(&process.inspector(), &Key::NodeRemoval);
    assert!(told.contains("no Node is deleted"), "{told}");
}
