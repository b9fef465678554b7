//! Restarts of the engine, which deals out addresses in the order in which containers start.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use machinist_driver::{Driver, Provider as _};
use machinist_driver_docker::{DockerProvider, EngineNews};
use machinist_instance::{
    BalancerKey, BalancerSpec, Credential, Ingress, InstanceKey, InstanceSpec, Listener, NameClaim, NodeName,
    Place, Scope, TransportProtocol, UserData,
};
use serde_json::json;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::task::AbortHandle;

use crate::memory::Memory;

/// Longer than each step of these tests takes on a slow computer.
const SOON: Duration = Duration::from_secs(60);

fn open(provider: &DockerProvider) -> Arc<dyn Driver> {
    let credential = Credential::default();
    provider
        .open(&provider.account(&credential, &Place::WHOLE), &credential, &Place::WHOLE)
        .expect("a socket needs no credential")
}

fn machine(name: &str) -> InstanceSpec {
    InstanceSpec {
        key: InstanceKey::new(format!("uid-of-{name}")),
        name: NodeName::new(name).expect("not empty"),
        cluster: "c".to_owned(),
        provider_spec: json!({"image": "node:1", "privileges": "none", "role": "control-plane"}),
        user_data: UserData::default(),
        tags: BTreeMap::new(),
        annotations: BTreeMap::new(),
        adopt_made_since: None,
        last_known_state: None,
    }
}

fn balancer() -> BalancerSpec {
    BalancerSpec {
        key: BalancerKey::new("uid-of-c"),
        claim: NameClaim::default(),
        id: None,
        native_id: None,
        name: "c-lb".to_owned(),
        listeners: vec![Listener { protocol: TransportProtocol::Tcp, port: 6443, target_port: 6443 }],
        targets: Vec::new(),
        options: BTreeMap::new(),
    }
}

/// A load balancer and three machines of the control plane.
async fn cluster(driver: &dyn Driver) {
    let balancers = driver.balancers().expect("this driver has balancers");
    let ensured = balancers.ensure(&balancer()).await.expect("created").done().expect("complete");
    assert!(matches!(ensured.balancer.ingress.as_slice(), [Ingress::Ip { .. }]) && ensured.notes.is_empty());
    let specs = ["c-1", "c-2", "c-3"].map(machine);
    let made = all_of(specs.iter().map(|spec| driver.instances().ensure(spec))).await;
    assert!(made.iter().all(Result::is_ok), "{made:?}");
}

/// Awaits futures at the same time.
async fn all_of<T>(futures: impl Iterator<Item = impl Future<Output = T>>) -> Vec<T> {
    let mut pending: Vec<_> = futures.map(|future| (Box::pin(future), None)).collect();
    std::future::poll_fn(|context| {
        for (future, output) in pending.iter_mut().filter(|(_, output)| output.is_none()) {
            if let std::task::Poll::Ready(ready) = future.as_mut().poll(context) {
                *output = Some(ready);
            }
        }
        let is_complete = pending.iter().all(|(_, output)| output.is_some());
        if is_complete { std::task::Poll::Ready(()) } else { std::task::Poll::Pending }
    })
    .await;
    pending.into_iter().filter_map(|(_, output)| output).collect()
}

#[tokio::test]
async fn containers_keep_their_addresses_for_life() {
    let engine = Memory::start().await;
    let driver = open(&engine.process());
    cluster(&*driver).await;
    // A container of another program, whose address the engine deals out.
    engine.state().exits("database");
    let before = engine.state().addresses();
    assert_eq!(before.len(), 4);
    let different: std::collections::BTreeSet<_> = before.values().collect();
    assert_eq!(different.len(), 4, "{before:?}");
    engine.state().goes_away();
    assert!(driver.instances().list(&Scope::Visible).await.is_err());
    engine.state().comes_back(&["database", "c-3", "c-2", "c-1", "c-lb"]);
    let mut after = engine.state().addresses();
    assert!(after.remove("database").is_some());
    assert_eq!(after, before);
}

#[tokio::test]
async fn a_network_without_a_range_has_dynamic_addresses() {
    let engine = Memory::start().await;
    engine
        .state()
        .networks
        .insert("kind".to_owned(), json!({"IPAM": {"Config": [{"Subnet": "172.18.0.0/16"}]}}));
    let driver = open(&engine.process());
    cluster(&*driver).await;
    assert_eq!(engine.state().addresses().len(), 4, "the containers run");
}

/// Follows the engine as a process does.
fn follow(engine: &Memory) -> UnboundedReceiver<EngineNews> {
    follow_after(engine, BTreeMap::new()).1
}

/// The same after a process that last saw these containers run.
fn follow_after(
    engine: &Memory,
    ran: BTreeMap<String, String>,
) -> (AbortHandle, UnboundedReceiver<EngineNews>) {
    let provider = engine.process();
    let (sender, news) = unbounded_channel();
    let process = tokio::spawn(async move {
        let report = move |news| drop(sender.send(news));
        provider.follow(&Scope::Visible, ran, report).await
    });
    (process.abort_handle(), news)
}

/// Returns the last news about the containers that run, without waiting.
fn running(news: &mut UnboundedReceiver<EngineNews>) -> Option<BTreeMap<String, String>> {
    let mut last = None;
    while let Ok(item) = news.try_recv() {
        if let EngineNews::Running(containers) = item {
            last = Some(containers);
        }
    }
    last
}

/// Returns the next news, except those about the containers that run.
async fn next(news: &mut UnboundedReceiver<EngineNews>) -> EngineNews {
    loop {
        let item = tokio::time::timeout(SOON, news.recv()).await.expect("in time").expect("the process runs");
        if !matches!(item, EngineNews::Running(_)) {
            return item;
        }
    }
}

/// Waits until the process follows the engine. After the list it checks which engine answers.
async fn is_followed(engine: &Memory) {
    while engine.state().followers() == 0 || engine.state().infos == 0 {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn only_what_ended_with_the_engine_is_started_again() {
    let engine = Memory::start().await;
    cluster(&*open(&engine.process())).await;
    engine.state().infos = 0;
    let mut news = follow(&engine);
    is_followed(&engine).await;
    // A user stops one container, and the process learns it.
    engine.state().ends("c-3");
    assert_eq!(next(&mut news).await, EngineNews::Ended { container: "c-3".to_owned() });
    engine.state().goes_away();
    assert!(matches!(next(&mut news).await, EngineNews::Silent(_)));
    engine.state().starts.clear();
    engine.state().comes_back(&["c-2"]);
    let EngineNews::Back { mut started } = next(&mut news).await else { panic!("expected the engine") };
    started.sort();
    assert_eq!(started, ["c-1", "c-lb"], "the engine started c-2, and the controller of c-3 decides");
    let running: Vec<String> = engine.state().addresses().into_keys().collect();
    assert_eq!(running, ["c-1", "c-2", "c-lb"]);
}

#[tokio::test]
async fn nothing_is_started_by_a_process_that_saw_it_stopped() {
    let engine = Memory::start().await;
    cluster(&*open(&engine.process())).await;
    engine.state().ends("c-1");
    engine.state().infos = 0;
    let mut news = follow(&engine);
    is_followed(&engine).await;
    engine.state().goes_away();
    assert!(matches!(next(&mut news).await, EngineNews::Silent(_)));
    engine.state().comes_back(&["c-2", "c-3", "c-lb"]);
    assert_eq!(next(&mut news).await, EngineNews::Back { started: Vec::new() });
    assert!(!engine.state().addresses().contains_key("c-1"));
}

/// A reboot ends the engine and the process that follows it.
#[tokio::test]
async fn a_later_process_starts_what_ended_meanwhile() {
    let engine = Memory::start().await;
    cluster(&*open(&engine.process())).await;
    engine.state().infos = 0;
    let (process, mut news) = follow_after(&engine, BTreeMap::new());
    is_followed(&engine).await;
    // A user stops one container, and the process learns it.
    engine.state().ends("c-3");
    let ran = loop {
        match tokio::time::timeout(SOON, news.recv()).await.expect("in time").expect("the process runs") {
            EngineNews::Running(ran) if ran.len() == 3 => break ran,
            _ => {}
        }
    };
    engine.state().goes_away();
    while !matches!(next(&mut news).await, EngineNews::Silent(_)) {}
    assert_eq!(running(&mut news), None, "the end of an engine says nothing about its containers");
    process.abort();
    engine.state().comes_back(&["c-2"]);
    let mut resumed = engine.process().resume(&Scope::Visible, &ran).await.expect("the engine answers");
    resumed.sort();
    assert_eq!(resumed, ["c-1", "c-lb"]);
    for name in ["c-1", "c-lb"] {
        engine.state().ends(name);
    }
    let (_, mut news) = follow_after(&engine, ran);
    let EngineNews::Back { mut started } = next(&mut news).await else { panic!("expected the engine") };
    started.sort();
    assert_eq!(started, ["c-1", "c-lb"]);
    let running: Vec<String> = engine.state().addresses().into_keys().collect();
    assert_eq!(running, ["c-1", "c-2", "c-lb"]);
}
