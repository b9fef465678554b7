//! Initialisation of Nodes, and their addresses and labels.

use machinist_controllers::ccm::Controllers;
use machinist_driver_hcloud::AddressFamily;

use super::*;

#[tokio::test(start_paused = true)]
async fn a_fresh_cluster_is_initialised_with_few_lists() {
    let world = World::new();
    let _process = world.start();
    let ids = world.nodes_with_servers(&["a", "b", "c"]).await;
    for (name, id) in ids {
        let node = world.node(&name).await.expect("the Node exists");
        let spec = node.spec.clone().unwrap_or_default();
        assert_eq!(spec.provider_id, Some(format!("hcloud://{id}")));
        let labels = node.metadata.labels.clone().unwrap_or_default();
        for (label, value) in [
            ("node.kubernetes.io/instance-type", "cx22"),
            ("beta.kubernetes.io/instance-type", "cx22"),
            ("topology.kubernetes.io/zone", "fsn1-dc14"),
            ("topology.kubernetes.io/region", "fsn1"),
            ("failure-domain.beta.kubernetes.io/region", "fsn1"),
            ("instance.hetzner.cloud/provided-by", "cloud"),
        ] {
            assert_eq!(labels.get(label).map(String::as_str), Some(value), "{label}");
        }
        let kinds: Vec<String> = addresses(&node).into_iter().map(|(kind, _)| kind).collect();
        assert_eq!(kinds, ["Hostname", "ExternalIP", "InternalIP"]);
    }
    assert_eq!(world.events("Synced").await.len(), 3);
    let lists = world.requests(|label| label == "GET /v1/servers");
    assert!((1..=3).contains(&lists), "{:?}", world.standin.counters());
}

/// Pods must not start on a Node without addresses.
#[tokio::test(start_paused = true)]
async fn addresses_are_written_before_the_taint_is_removed() {
    let world = World::new();
    let _process = world.start();
    world.server("a");
    world.join("a").await;
    world
        .until("the taint is removed", async |w| {
            let node = w.node("a").await.expect("the Node exists");
            let is_complete = addresses(&node).iter().any(|(kind, _)| kind == "ExternalIP");
            assert!(has_taint(&node, UNINITIALIZED) || is_complete, "{node:#?}");
            !has_taint(&node, UNINITIALIZED)
        })
        .await;
}

/// A server may appear later than its Node.
#[tokio::test(start_paused = true)]
async fn nodes_are_initialised_soon_after_their_servers_appear() {
    let world = World::new();
    let _process = world.start();
    world.join("a").await;
    tokio::time::sleep(Duration::from_secs(600)).await;
    assert!(has_taint(&world.node("a").await.expect("the Node exists"), UNINITIALIZED));
    let events = world.events("CloudInstanceLookupFailed").await;
    assert!(!events.is_empty(), "a user sees why the Node waits");
    world.server("a");
    tokio::time::sleep(Duration::from_secs(35)).await;
    assert!(!has_taint(&world.node("a").await.expect("the Node exists"), UNINITIALIZED));
}

#[tokio::test(start_paused = true)]
async fn an_idle_hour_costs_few_calls_and_no_writes() {
    let world = World::new();
    // A Service without a load balancer, as every cluster has one.
    let service = json!({
        "apiVersion": "v1", "kind": "Service", "metadata": {"name": "plain"}, "spec": {"ports": [{"port": 80}]},
    });
    world.services().create(&PostParams::default(), &parse(service)).await.expect("accepted");
    let process = world.start();
    let names: Vec<String> = (0..60).map(|number| format!("node-{number:02}")).collect();
    world.nodes_with_servers(&names.iter().map(String::as_str).collect::<Vec<_>>()).await;
    tokio::time::sleep(Duration::from_secs(600)).await;
    let versions = async || -> Vec<Option<String>> {
        let all = world.nodes().list(&ListParams::default()).await.expect("a list").items;
        all.into_iter().map(|node| node.metadata.resource_version).collect()
    };
    let before = (versions().await, world.requests(|_| true));
    tokio::time::sleep(Duration::from_secs(3600)).await;
    assert_eq!(versions().await, before.0, "no Node was written");
    let pages = 2;
    let calls = world.requests(|_| true) - before.1;
    // Routes are compared every five minutes: a network and a list of servers.
    assert!(calls <= 12 * pages + 12 + 12 * (1 + pages), "{calls} calls in an idle hour");
    let lost = process.inspector().metrics();
    let lost = lost.iter().find(|(name, _)| name == "machinist_queue_keys_found_total");
    assert_eq!(lost.map(|(_, count)| *count), Some(0.0), "the sweep finds no lost key");
}

/// The second address of the type ExternalIP is not a difference.
#[tokio::test(start_paused = true)]
async fn an_idle_hour_with_two_ip_families_costs_no_writes() {
    let world = World::new();
    let provider = world.provider_of(Some(NETWORK), AddressFamily::DualStack);
    let _process = world.start_with(|options| options.provider = Arc::new(provider));
    world.nodes_with_servers(&["a", "b", "c"]).await;
    tokio::time::sleep(Duration::from_secs(600)).await;
    let kinds: Vec<String> = addresses(&world.node("a").await.expect("the Node exists"))
        .into_iter()
        .map(|(kind, _)| kind)
        .collect();
    assert_eq!(kinds, ["Hostname", "ExternalIP", "ExternalIP", "InternalIP"]);
    let mut log = world.server.audit();
    tokio::time::sleep(Duration::from_secs(3600)).await;
    assert_eq!(node_writes(&mut log, Verb::Patch), 0);
}

/// Twelve lists of ten pages each, and twelve other calls.
#[tokio::test(start_paused = true)]
async fn an_idle_hour_of_500_servers_costs_132_calls() {
    let world = World::new();
    let _process = world.start_with(|options| {
        options.controllers = Controllers { route: false, ..Controllers::ALL };
    });
    let names: Vec<String> = (0..500).map(|number| format!("node-{number:03}")).collect();
    world.nodes_with_servers(&names.iter().map(String::as_str).collect::<Vec<_>>()).await;
    tokio::time::sleep(Duration::from_secs(600)).await;
    let before = world.requests(|_| true);
    tokio::time::sleep(Duration::from_secs(3600)).await;
    let calls = world.requests(|_| true) - before;
    assert!((1..=132).contains(&calls), "{calls} calls in an idle hour");
}

/// No other write follows.
#[tokio::test(start_paused = true)]
async fn labels_follow_a_server_that_is_resized() {
    let world = World::new();
    let _process = world.start();
    let ids = world.nodes_with_servers(&["a"]).await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    let mut log = world.server.audit();
    let resize = |server: &mut machinist_standin_hcloud::HcloudServer| server.server_type = "cx32".to_owned();
    world.standin.change_server(ids["a"], resize).expect("the server exists");
    world
        .until("the label follows", async |w| {
            let labels = w.node("a").await.and_then(|node| node.metadata.labels).unwrap_or_default();
            labels.get("node.kubernetes.io/instance-type").is_some_and(|value| value == "cx32")
        })
        .await;
    tokio::time::sleep(Duration::from_secs(600)).await;
    assert_eq!(node_writes(&mut log, Verb::Patch), 1);
}
