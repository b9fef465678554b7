//! The process: readiness, and its Events about rejected writes.

use machinist_controllers::ccm::Controllers;
use machinist_standin_hcloud::{Fault, FaultRule};

use super::*;

/// A rejected token makes the process not ready, with the reason.
#[tokio::test(start_paused = true)]
async fn a_rejected_token_makes_the_process_not_ready() {
    let world = World::new();
    let process = world.start();
    let inspector = process.inspector();
    let message = inspector.not_ready().expect("nothing was listed yet");
    assert!(message.starts_with("not all watched kinds have been listed yet: "), "{message}");
    world.nodes_with_servers(&["a"]).await;
    assert_eq!(inspector.not_ready(), None);
    world.set_token(2, "revoked");
    world.until("the process is not ready", async |_| inspector.not_ready().is_some()).await;
    let message = inspector.not_ready().expect("not ready");
    assert!(message.starts_with("the cloud rejects the credential: "), "{message}");
    assert!(!message.contains("revoked"), "the token is secret: {message}");
    world.set_token(3, TOKEN);
    world.until("the process is ready", async |_| inspector.not_ready().is_none()).await;
}

/// A token that the cloud has never accepted.
#[tokio::test(start_paused = true)]
async fn a_process_with_a_rejected_token_starts_and_waits() {
    let world = World::new();
    world.set_token(2, "revoked");
    let process = world.start();
    let inspector = process.inspector();
    world.server("a");
    world.join("a").await;
    world
        .until("the process says that the token is rejected", async |_| {
            inspector.not_ready().is_some_and(|message| message.contains("unauthorized"))
        })
        .await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert!(has_taint(&world.node("a").await.expect("the Node exists"), UNINITIALIZED));
    world.set_token(3, TOKEN);
    world.until("the process is ready", async |_| inspector.not_ready().is_none()).await;
    world
        .until("the Node is initialised", async |w| {
            !has_taint(&w.node("a").await.expect("the Node exists"), UNINITIALIZED)
        })
        .await;
}

/// A platform engineer reads `/readyz` before the first Node exists.
#[tokio::test(start_paused = true)]
async fn a_wrong_token_is_seen_without_nodes() {
    let world = World::new();
    world.set_token(2, "revoked");
    let process = world.start();
    let inspector = process.inspector();
    world
        .until("the process says that the token is rejected", async |_| {
            inspector.not_ready().is_some_and(|message| message.contains("unauthorized"))
        })
        .await;
    world.set_token(3, "two\nlines");
    world
        .until("the process says that the token is not a token", async |_| {
            inspector.not_ready().is_some_and(|message| message.contains("cannot be used"))
        })
        .await;
    world.set_token(4, TOKEN);
    let renewed = tokio::time::Instant::now();
    world.until("the process is ready", async |_| inspector.not_ready().is_none()).await;
    assert!(renewed.elapsed() < Duration::from_secs(5), "a new token is tried at once");
}

/// A network that does not exist is a setting that a user must correct.
#[tokio::test(start_paused = true)]
async fn an_unknown_network_makes_the_process_not_ready() {
    let world = World::new();
    let unknown = Arc::new(world.provider(Some(1)));
    let process = world.start_with(|options| options.provider = unknown);
    let inspector = process.inspector();
    let expected =
        "the settings of the program are wrong: HCLOUD_NETWORK: expected the name or id of a network";
    world
        .until("the process names the variable", async |_| {
            inspector.not_ready().is_some_and(|message| message.starts_with(expected))
        })
        .await;
    world.until("the Event is written", async |w| w.events("CloudSettingsInvalid").await.len() == 1).await;
    let mut state = world.standin.dump();
    state.networks.insert(1, Network { id: 1, name: "late".to_owned(), ..network() });
    world.standin.load(state).expect("in memory");
    world.until("the process is ready", async |_| inspector.not_ready().is_none()).await;
}

/// Otherwise a rollout with the token of another project ends all processes with the right one.
#[tokio::test(start_paused = true)]
async fn a_process_that_can_do_nothing_is_not_ready() {
    let world = World::new();
    let process = world.start_with(|options| options.provider = Arc::new(world.provider(None)));
    let names = ["a", "b", "c"];
    world.nodes_with_servers(&names).await;
    drop(process);
    world.set_token(2, OTHER_TOKEN);
    // Nothing but the account of another Node proves an account.
    for name in names {
        let forget = json!({"metadata": {"annotations": {"machinist.dev/account": null}}});
        let params = PatchParams::default();
        world.nodes().patch(name, &params, &Patch::Merge(forget)).await.expect("accepted");
    }
    let process = world.start_with(|options| options.provider = Arc::new(world.provider(None)));
    let inspector = process.inspector();
    for _ in 0..600 {
        let message = inspector.not_ready();
        assert!(message.is_some(), "ready from the start on");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let message = inspector.not_ready().expect("not ready");
    assert!(message.starts_with("the account shows no server of any Node"), "{message}");
    let gauge = |inspector: &Inspector| {
        inspector
            .metrics()
            .into_iter()
            .find(|(name, _)| name == "machinist_ccm_account_unproven")
            .map(|metric| metric.1)
    };
    assert_eq!(gauge(&inspector), Some(1.0));
    world.set_token(3, TOKEN);
    world.until("the process is ready", async |_| inspector.not_ready().is_none()).await;
    assert_eq!((inspector.remark(), gauge(&inspector)), (None, Some(0.0)));
    // A process that worked before stays ready, and says what is wrong.
    world.set_token(4, OTHER_TOKEN);
    tokio::time::sleep(Duration::from_secs(400)).await;
    assert_eq!(inspector.not_ready(), None);
    let message = inspector.remark().expect("a line in the body");
    assert!(message.starts_with("the account shows no server of any Node"), "{message}");
}

/// A cloud that does not answer says nothing about the token, and a rollout would not help.
#[tokio::test(start_paused = true)]
async fn a_process_is_ready_while_the_cloud_does_not_answer() {
    let world = World::new();
    let process = world.start_with(|options| options.provider = Arc::new(world.provider(None)));
    world.nodes_with_servers(&["a"]).await;
    drop(process);
    world.set_token(2, OTHER_TOKEN);
    world.standin.add_fault(FaultRule::everywhere(Fault::Bare { status: 503 }));
    let process = world.start_with(|options| options.provider = Arc::new(world.provider(None)));
    let inspector = process.inspector();
    world.until("the process is ready", async |_| inspector.not_ready().is_none()).await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(inspector.not_ready(), None);
    let message = inspector.remark().expect("a line in the body");
    assert!(message.starts_with("the cloud does not answer since 2027-"), "{message}");
    world.standin.clear_faults();
    world.until("the token is known to be wrong", async |_| inspector.not_ready().is_some()).await;
}

/// Nodes have two controllers.
#[tokio::test(start_paused = true)]
async fn the_process_counts_its_controllers() {
    let world = World::new();
    let process = world.start_with(|options| {
        options.controllers = Controllers { node: true, node_lifecycle: true, service: false, route: false };
    });
    world.nodes_with_servers(&["a"]).await;
    let samples = process.inspector().metrics();
    let running: f64 = samples
        .iter()
        .filter(|(name, _)| name.starts_with("running_managed_controllers{"))
        .map(|(_, value)| value)
        .sum();
    assert_eq!(running, 2.0, "{samples:#?}");
}

/// With few calls left, a new Node is initialised and a load balancer waits.
#[tokio::test(start_paused = true)]
async fn urgent_calls_are_made_when_few_are_left() {
    let world = World::new();
    let process = world.start();
    world.nodes_with_servers(&["a"]).await;
    world.standin.set_rate(PROJECT, 3600, 20);
    let initialized = tokio::time::Instant::now();
    world.nodes_with_servers(&["b"]).await;
    assert!(initialized.elapsed() < Duration::from_secs(30), "{:?}", initialized.elapsed());
    let service = json!({
        "apiVersion": "v1", "kind": "Service", "metadata": {"name": "web"},
        "spec": {"type": "LoadBalancer", "ports": [{"port": 80}]},
    });
    world.services().create(&PostParams::default(), &parse(service)).await.expect("accepted");
    tokio::time::sleep(Duration::from_secs(5)).await;
    let key = Key::Service(machinist_kube::ObjectKey::new("default", "web"));
    let message = why(&process.inspector(), &key);
    assert!(message.starts_with("few calls of the account are left"), "{message}");
    assert!(world.standin.dump().load_balancers.is_empty());
    world.until("the load balancer exists", async |w| !w.standin.dump().load_balancers.is_empty()).await;
    assert!(initialized.elapsed() < Duration::from_secs(300), "the cloud gives calls back");
}

/// Sections 2.7, 4.3 and 6.6.
#[tokio::test(start_paused = true)]
async fn the_process_measures_nodes_and_calls() {
    let world = World::new();
    let process = world.start();
    world.nodes_with_servers(&["a", "b"]).await;
    world.until("the Nodes are reported", async |w| w.events("Synced").await.len() == 2).await;
    let samples: BTreeMap<String, f64> = process.inspector().metrics().into_iter().collect();
    let value = |name: &str| samples.get(name).copied().unwrap_or_else(|| panic!("{name}\n{samples:#?}"));
    for name in [
        "node_controller_cloud_provider_taint_removal_delay_seconds_count",
        "node_controller_initial_node_sync_delay_seconds_count",
        r#"node_controller_initial_node_sync_delay_seconds_bucket{le="1024"}"#,
    ] {
        assert_eq!(value(name), 2.0, "{name}");
    }
    let manager = "cloud-controller-manager";
    let running =
        format!("running_managed_controllers{{name=\"node-route-controller\",manager=\"{manager}\"}}");
    assert_eq!(value(&running), 1.0);
    assert!(1.0 <= value(r#"machinist_cloud_calls_total{call="list",result="ok"}"#));
    assert!(1.0 <= value(r#"workqueue_work_duration_seconds_count{name="node"}"#));
    assert!(value("machinist_ccm_snapshot_age_seconds") < 600.0);
}
