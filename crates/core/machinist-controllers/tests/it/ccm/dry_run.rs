//! `--dry-run`: what the program would do, without a change.

use machinist_controllers::ccm::Controllers;
use machinist_kube::ObjectKey;

use super::*;

/// Returns the planned actions of a key.
fn actions(inspector: &Inspector, key: &Key) -> Vec<String> {
    inspector.why(key).map(|record| record.actions).unwrap_or_default()
}

fn web() -> Key {
    Key::Service(ObjectKey::new("default", "web"))
}

#[tokio::test(start_paused = true)]
async fn a_dry_run_says_how_it_would_change_a_balancer() {
    let world = World::new();
    let real = world.start();
    world.nodes_with_servers(&["a"]).await;
    drop(real);
    let made = world.services().create(&PostParams::default(), &service(&[80])).await.expect("accepted");
    let changes = world.changes();

    let rehearsal = world.start_with(|options| options.dry_run = true);
    let inspector = rehearsal.inspector();
    let foreseen = |text: &'static str| {
        let inspector = inspector.clone();
        async move |_: &World| actions(&inspector, &web()).iter().any(|action| action.contains(text))
    };
    world.until("the creation is foreseen", foreseen("create_load_balancer a")).await;
    assert_eq!(actions(&inspector, &web()).first().map(String::as_str), Some("service: add finalizer"));
    let message = why(&inspector, &web());
    assert!(message.starts_with("this is a dry run"), "{message}");
    tokio::time::sleep(Duration::from_secs(3600)).await;
    assert_eq!(world.changes(), changes, "the cloud was only read");
    let read = world.services().get("web").await.expect("the Service exists");
    assert_eq!(read.metadata.resource_version, made.metadata.resource_version);
    assert_eq!(world.events("EnsuringLoadBalancer").await, Vec::<String>::new());
    drop(rehearsal);

    let real = world.start();
    world.until("the balancer exists", async |w| w.events("EnsuredLoadBalancer").await.len() == 1).await;
    drop(real);
    let ports = json!({"spec": {"ports": [{"name": "p80", "port": 80}, {"name": "p443", "port": 443}]}});
    let params = PatchParams::default();
    world.services().patch("web", &params, &Patch::Strategic(ports)).await.expect("changed");
    let changes = world.changes();
    let rehearsal = world.start_with(|options| options.dry_run = true);
    let inspector = rehearsal.inspector();
    world
        .until("the new port is foreseen", async |_| {
            actions(&inspector, &web()).iter().any(|action| action.ends_with(": add_service port 443"))
        })
        .await;
    assert_eq!(world.changes(), changes);
}

/// The account would be recorded on each Node, and in a dry run it never is.
#[tokio::test(start_paused = true)]
async fn a_dry_run_is_no_action_without_effect() {
    let world = World::new();
    let real = world.start();
    world.nodes_with_servers(&["a"]).await;
    drop(real);
    let forget = json!({"metadata": {"annotations": {"machinist.dev/account": null}}});
    world.nodes().patch("a", &PatchParams::default(), &Patch::Merge(forget)).await.expect("changed");
    let rehearsal = world.start_with(|options| {
        options.dry_run = true;
        options.controllers = Controllers { service: false, route: false, ..Controllers::ALL };
    });
    let inspector = rehearsal.inspector();
    let key = Key::Node("a".to_owned());
    world
        .until("the record is planned", async |_| {
            actions(&inspector, &key).iter().any(|action| action.starts_with("node: account "))
        })
        .await;
    tokio::time::sleep(Duration::from_secs(3600)).await;
    let message = why(&inspector, &key);
    assert!(message.starts_with("updating the Node from its instance"), "{message}");
    let without_effect: Vec<_> = inspector
        .metrics()
        .into_iter()
        .filter(|(name, _)| name.starts_with("machinist_passes_without_effect_total"))
        .collect();
    assert_eq!(without_effect, [], "a rehearsed action is not tried");
}
