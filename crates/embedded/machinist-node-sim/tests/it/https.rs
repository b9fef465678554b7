//! A join over HTTPS, as between processes. The test waits for a watch event, not for time.

use std::sync::Arc;

use k8s_openapi::api::core::v1::Node;
use kube::Api;
use kube::api::WatchEvent;
use machinist_apiserver::{Config, Server, Verb};
use machinist_cloud_sim::{Clock, Cloud, Settings};
use machinist_node_sim::{Fleet, FleetOptions, HttpsConnector, Metadata};

use crate::world::{TOKEN, World, is_ready};

#[tokio::test]
async fn a_machine_joins_over_https_with_address_and_ca_only() {
    let folder = tempfile::tempdir().expect("a folder");
    let server = Server::new(Config::default());
    let serving = server.serve(([127, 0, 0, 1], 0).into(), folder.path()).await.expect("a free port");
    let cloud = Cloud::in_memory(Settings::default(), Clock::wall());
    let mut world =
        World::over(server, cloud, machinist_kube::SystemClock::shared(), "2999-01-01T00:00:00Z").await;
    let metadata = Metadata { server: serving.url(), ca_pem: serving.ca_pem.clone() };
    world.fleet = Some(Fleet::start(&world.cloud, FleetOptions::new(metadata, Arc::new(HttpsConnector))));
    let made = world.make("w-1", TOKEN).await;
    wait_until_ready(&world.nodes()).await;
    let requests = world.machine_requests();
    assert!(
        requests.iter().any(|r| r.user == "system:bootstrap:626a68" && r.verb == Verb::Create),
        "{requests:?}"
    );
    assert!(
        requests
            .iter()
            .any(|r| r.user == "system:node:w-1" && r.resource == "nodes" && r.verb == Verb::Create)
    );
    assert!(!world.console(&made.id).contains("cannot"), "{}", world.console(&made.id));
}

async fn wait_until_ready(nodes: &Api<Node>) {
    use futures::StreamExt as _;
    let mut events = Box::pin(nodes.watch(&Default::default(), "0").await.expect("a watch"));
    while let Some(event) = events.next().await {
        match event.expect("an event") {
            WatchEvent::Added(node) | WatchEvent::Modified(node) if is_ready(&node) => return,
            _ => {}
        }
    }
    panic!("the watch ended before the Node was ready");
}
