//! Calls over TCP, with a listener and real sockets. These tests do not wait; tests that need time
//! are in the contract.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use machinist_cloud_sim::http::{ListenError, LoopbackServer};
use machinist_cloud_sim::{Clock, Cloud, Fault, FaultRule, Operation, Settings};
use machinist_driver::{Driver, Provider as _};
use machinist_driver_sim::{Endpoint, SimProvider};
use machinist_instance::{
    Credential, ErrorKind, InstanceKey, InstanceRef, InstanceSpec, NodeName, Place, Scope, UserData,
};
use serde_json::json;

fn spec(name: &str) -> InstanceSpec {
    InstanceSpec {
        key: InstanceKey::new(format!("uid-of-{name}")),
        name: NodeName::new(name).expect("not empty"),
        cluster: "c".to_owned(),
        provider_spec: json!({"size": "m5.large"}),
        user_data: UserData::new("boot"),
        tags: BTreeMap::new(),
        annotations: BTreeMap::new(),
        adopt_made_since: None,
        last_known_state: None,
    }
}

fn open(url: &str) -> Arc<dyn Driver> {
    let provider = SimProvider::at(Endpoint::parse(url).expect("an endpoint"));
    let credential = Credential::default();
    provider
        .open(&provider.account(&credential, &Place::WHOLE), &credential, &Place::WHOLE)
        .expect("no call is made")
}

#[tokio::test]
async fn calls_work_over_sockets_and_a_reset_is_ambiguous() {
    let epoch = "2026-01-01T00:00:00Z".parse::<Timestamp>().expect("a time");
    let cloud = Cloud::in_memory(Settings::default(), Clock::starting_at(epoch));
    let server = LoopbackServer::bind(cloud.clone(), ([127, 0, 0, 1], 0).into()).await.expect("a free port");
    let (url, address) = (server.url(), server.address());
    let serving = tokio::spawn(server.serve(std::future::pending()));
    let driver = open(&url);
    let made = driver.instances().ensure(&spec("a")).await.expect("made");
    assert_eq!(made.id.as_str(), "sim:///i-1");
    let listed = driver.instances().list(&Scope::Ours("c".to_owned())).await.expect("listed");
    assert_eq!(listed.len(), 1);

    cloud.faults().add(FaultRule::once(Operation::Ensure, Fault::Reset));
    let error = driver.instances().ensure(&spec("b")).await.expect_err("reset");
    assert_eq!(error.kind, ErrorKind::Ambiguous);

    let taken = LoopbackServer::bind(cloud, address).await.expect_err("in use");
    assert!(matches!(taken, ListenError::Bind { .. }), "{taken}");
    serving.abort();
    let _ = serving.await;
    let which = InstanceRef { id: Some(made.id), ..InstanceRef::default() };
    let error = driver.instances().find(&which).await.expect_err("the server has stopped");
    assert_eq!(error.kind, ErrorKind::Unavailable);
    let error = open(&url).instances().ensure(&spec("c")).await.expect_err("the server has stopped");
    assert_eq!(error.kind, ErrorKind::Unavailable, "a refused connection had no effect");
}

#[tokio::test]
async fn the_cloud_listens_on_loopback_only() {
    let epoch = "2026-01-01T00:00:00Z".parse::<Timestamp>().expect("a time");
    let cloud = Cloud::in_memory(Settings::default(), Clock::starting_at(epoch));
    let error = LoopbackServer::bind(cloud, ([0, 0, 0, 0], 0).into()).await.expect_err("not loopback");
    assert!(error.to_string().contains("expected a loopback address"), "{error}");
}
