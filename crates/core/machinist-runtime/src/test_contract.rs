//! A contract for the tests of this crate: it reads config maps of the control cluster and Nodes of
//! the target cluster, and decides nothing.

use std::convert::Infallible;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::future::BoxFuture;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{ConfigMap, Node};
use kube::{Api, Client};
use machinist_core::{ContractReason, Why};
use machinist_driver::Check;
use machinist_kube::store::Relist;
use machinist_kube::{Change, Clock, Cluster, Delta, Entry, Leadership, ObjectKey, Store, TokioClock};
use serde_json::Value;
use tokio::time::Instant;

use crate::contract::Contract;
use crate::explanation::{ExplainError, Explanation};
use crate::feed::{Fed, Feed};
use crate::kinds::ContractKey;
use crate::options::{Clients, Options};
use crate::passes::WhyRecord;
use crate::runtime::Runtime;
use crate::test_key::TestKey;
use crate::watched::feed;
use crate::world::World;

pub(crate) struct TestContract;

pub(crate) type TestRuntime = Runtime<TestContract>;

#[derive(Debug)]
pub(crate) struct Map;

#[derive(Debug)]
pub(crate) struct Host;

pub(crate) struct Seen {
    pub(crate) maps: Store<Map>,
    pub(crate) hosts: Store<Host>,
}

impl Default for Seen {
    fn default() -> Self {
        Self { maps: Store::new(&[]), hosts: Store::new(&[]) }
    }
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct NoReason;

impl std::fmt::Display for NoReason {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("no reason")
    }
}

impl ContractReason for NoReason {
    fn code(&self) -> &'static str {
        "NoReason"
    }
}

impl Contract for TestContract {
    type Key = TestKey<String>;
    type Seen = Seen;
    type Tools = ();
    type Reason = NoReason;

    fn feeds((): &()) -> Vec<Box<dyn Feed<Self>>> {
        vec![feed::<Self, Map>(), feed::<Self, Host>()]
    }
    fn forget_moments(_: &mut Seen, _: Timestamp) {}
    /// Ten minutes, or a day if there is a config map.
    fn longest_timeout(seen: &Seen, (): &()) -> Duration {
        Duration::from_secs(if seen.maps.is_empty() { 600 } else { 24 * 3600 })
    }
}

impl ContractKey<TestContract> for TestKey<String> {
    fn all(_: &Seen, (): &()) -> Vec<Self> {
        Vec::new()
    }
    fn is_decided(&self, (): &()) -> bool {
        true
    }
    fn goes_on_without_target(&self, _: &Seen) -> bool {
        false
    }
    fn depends_on(&self, _: &Cluster) -> bool {
        true
    }
    fn check_cloud(&self, (): &()) -> Option<Check> {
        None
    }
    fn why<'w>(
        &self,
        _: &'w World<TestContract>,
        record: &'w WhyRecord<NoReason>,
        _: Timestamp,
    ) -> &'w Why<NoReason> {
        &record.why
    }
    fn pass<'a>(&'a self, _: &'a Arc<TestRuntime>) -> BoxFuture<'a, ()> {
        Box::pin(std::future::ready(()))
    }
    fn explain(&self, _: &TestRuntime) -> Result<Explanation<NoReason>, ExplainError<Self>> {
        Err(ExplainError::NotDecided(self.clone()))
    }
}

impl Fed<TestContract> for Map {
    type Object = ConfigMap;
    const RESOURCE: &'static str = "configmaps";

    fn api(runtime: &TestRuntime, namespace: &str) -> Api<ConfigMap> {
        Api::namespaced(runtime.clients.control.clone(), namespace)
    }
    fn parse(_: &ConfigMap) -> Self {
        Self
    }
    fn store(seen: &Seen) -> &Store<Self> {
        &seen.maps
    }
    fn store_mut(seen: &mut Seen) -> &mut Store<Self> {
        &mut seen.maps
    }
    fn route(_: &Seen, _: &Change<Self>, _: &mut Vec<TestKey<String>>) {}
}

impl Fed<TestContract> for Host {
    type Object = Node;
    const RESOURCE: &'static str = "nodes";
    const HAS_DEADLINES: bool = true;

    fn cluster() -> Cluster {
        Cluster::Target
    }
    fn api(runtime: &TestRuntime, _: &str) -> Api<Node> {
        Api::all(runtime.clients.target.clone())
    }
    fn parse(_: &Node) -> Self {
        Self
    }
    fn store(seen: &Seen) -> &Store<Self> {
        &seen.hosts
    }
    fn store_mut(seen: &mut Seen) -> &mut Store<Self> {
        &mut seen.hosts
    }
    fn route(_: &Seen, _: &Change<Self>, _: &mut Vec<TestKey<String>>) {}
}

/// A clock that advances with tokio's clock, and that a test can set.
pub(crate) struct HandClock {
    runs: TokioClock,
    ahead: Mutex<SignedDuration>,
}

impl HandClock {
    /// Sets the clock ahead of the true time.
    pub(crate) fn set_ahead(&self, ahead: SignedDuration) {
        *self.ahead.lock().expect("no panic") = ahead;
    }
}

impl Clock for HandClock {
    fn now(&self) -> Timestamp {
        self.runs.now() + *self.ahead.lock().expect("no panic")
    }
}

/// A runtime without tasks, whose API servers give this answer to each request.
pub(crate) fn runtime(
    answer: impl Fn() -> Value + Clone + Send + 'static,
) -> (Arc<TestRuntime>, Arc<HandClock>) {
    let epoch = "2027-01-15T08:00:00Z".parse().expect("a time");
    let clock = Arc::new(HandClock { runs: TokioClock::starting_at(epoch), ahead: Mutex::default() });
    let service = tower::service_fn(move |_: http::Request<kube::client::Body>| {
        let body = kube::client::Body::from(answer().to_string().into_bytes());
        async move { Ok::<_, Infallible>(http::Response::new(body)) }
    });
    let client = Client::new(service, "test");
    let clients = Clients { control: client.clone(), target: client };
    let options = Options { clock: clock.clone(), ..Options::new("test", "test") };
    let runtime = Runtime::new(clients, options, (), Some(Leadership::unopposed()));
    runtime.gaps.act();
    (Arc::new(runtime), clock)
}

/// An object with that key and resourceVersion. Its UID is its name.
pub(crate) fn item<F>(key: ObjectKey, resource_version: u64, facts: F) -> (ObjectKey, Entry<F>) {
    let (uid, facts) = (key.name.clone(), Arc::new(facts));
    (key, Entry { uid, resource_version, deleting: false, facts })
}

/// A relist with these objects.
pub(crate) fn relist<F>(items: Vec<(ObjectKey, Entry<F>)>, resource_version: u64) -> Delta<F> {
    Delta::Relist(Relist { items, unreadable: Vec::new(), resource_version, sent: Instant::now() })
}
