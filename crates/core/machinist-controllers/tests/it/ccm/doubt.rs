//! Clouds that say the wrong thing: nothing is deleted on a doubt.

use machinist_standin_hcloud::{Fault, FaultRule};

use super::*;

/// Scenario 6: FL-01, TL-16.
#[tokio::test(start_paused = true)]
async fn a_token_of_another_project_deletes_no_node() {
    let world = World::new();
    let process = world.start();
    world.nodes_with_servers(&["a", "b", "c", "d", "e"]).await;
    world.set_token(2, OTHER_TOKEN);
    world.set_ready("a", false).await;
    tokio::time::sleep(Duration::from_secs(3600)).await;
    assert!(world.node("a").await.is_some());
    let told = why(&process.inspector(), &Key::Node("a".to_owned()));
    assert!(told.contains("account"), "{told}");
    // The right token again: the server exists.
    world.set_token(3, TOKEN);
    tokio::time::sleep(Duration::from_secs(600)).await;
    assert!(world.node("a").await.is_some());
}

/// The same after a restart: a new process has not seen the right account.
#[tokio::test(start_paused = true)]
async fn a_restart_with_another_projects_token_deletes_no_node() {
    let world = World::new();
    let process = world.start();
    world.nodes_with_servers(&["a", "b", "c"]).await;
    drop(process);
    world.set_token(2, OTHER_TOKEN);
    for name in ["a", "b", "c"] {
        world.set_ready(name, false).await;
    }
    let _process = world.start();
    tokio::time::sleep(Duration::from_secs(7200)).await;
    for name in ["a", "b", "c"] {
        assert!(world.node(name).await.is_some(), "{name}");
    }
}

/// Scenario 5, TL-15.
#[tokio::test(start_paused = true)]
async fn a_revoked_token_deletes_nothing_and_recovers() {
    let world = World::new();
    let _process = world.start();
    world.nodes_with_servers(&["a", "b", "c"]).await;
    world.standin.revoke_token(TOKEN);
    world.set_ready("a", false).await;
    tokio::time::sleep(Duration::from_secs(3600)).await;
    assert!(world.node("a").await.is_some());
    world.standin.configure(|settings| settings.tokens.set("renewed", PROJECT, Access::ReadWrite));
    world.server("late");
    world.join("late").await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    world.set_token(2, "renewed");
    tokio::time::sleep(Duration::from_secs(5)).await;
    let late = world.node("late").await.expect("the Node exists");
    assert!(!has_taint(&late, UNINITIALIZED), "initialised within seconds");
}

/// Scenario 9, TL-14: LC-20.
#[tokio::test(start_paused = true)]
async fn a_list_that_omits_a_server_deletes_no_node() {
    let world = World::new();
    let _process = world.start();
    let ids = world.nodes_with_servers(&["a", "b", "c"]).await;
    let omits = Fault::Omit { id: ids["a"] };
    world.standin.add_fault(FaultRule::always("GET", "/servers", omits));
    world.set_ready("a", false).await;
    tokio::time::sleep(Duration::from_secs(3600)).await;
    assert!(world.node("a").await.is_some());
}

/// TL-15: answers that prove nothing.
#[tokio::test(start_paused = true)]
async fn failing_lookups_delete_no_node() {
    for fault in [Fault::Html404, Fault::Reset] {
        let world = World::new();
        let _process = world.start();
        world.nodes_with_servers(&["a", "b", "c"]).await;
        world.standin.add_fault(FaultRule::everywhere(fault.clone()));
        world.set_ready("a", false).await;
        tokio::time::sleep(Duration::from_secs(3600)).await;
        assert!(world.node("a").await.is_some(), "{fault:?}");
    }
}
