//! The Cluster API providers with an embedded server, an engine and a mail service in memory, under
//! paused time.

#![expect(clippy::expect_used, reason = "a test that cannot continue reports the reason")]

mod admission;
mod docker;
mod docker_sweep;
mod docker_troubles;
mod faulty;
#[path = "../it/gate.rs"]
#[expect(dead_code, reason = "the other tests use all of it")]
mod gate;
mod mail;
mod mail_rows;
mod mini_core;
mod packaging;
mod rows;
mod scenarios;
mod stale;
mod workload;

use std::sync::atomic::{AtomicBool, AtomicI64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use http::{Request, Response};
use k8s_openapi::api::core::v1::Event;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Api, ApiResource, DeleteParams, DynamicObject, Patch, PatchParams, PostParams};
use kube::client::Body;
use machinist_api::crd;
use machinist_apiserver::{ApiService, Config, Identity, Server};
use machinist_controllers::capi::{CapiOptions, CapiProvider, CoreApi, Running, Serves};
use machinist_controllers::{Clients, ProcessOptions};
use machinist_kube::{ClientOptions, Clock, SharedClock, TokioClock, layer_client};
use machinist_standin_docker::Engine;
use serde_json::{Value, json};
use tower::{BoxError, ServiceExt as _, service_fn};

const EPOCH: i64 = 1_800_000_000;
const NAMESPACE: &str = "default";
const GROUP: &str = "infrastructure.cluster.x-k8s.io";

/// A management cluster.
struct World {
    server: Server,
    user: kube::Client,
    clock: SharedClock,
    /// The seconds by which the clock of the providers is ahead of the clock of the API server.
    ahead: Arc<AtomicI64>,
    /// The number of requests and calls before the process crashes.
    left: Arc<AtomicUsize>,
    after: bool,
    /// Whether the API server cannot be reached with writes of a status.
    loses_status: Arc<AtomicBool>,
    /// The paths of all writes of the providers.
    writes: Arc<Mutex<Vec<String>>>,
}

/// The clock of the providers. It may step.
struct SteppingClock {
    inner: TokioClock,
    ahead: Arc<AtomicI64>,
}

impl Clock for SteppingClock {
    fn now(&self) -> jiff::Timestamp {
        self.inner.now() + jiff::SignedDuration::from_secs(self.ahead.load(Ordering::Relaxed))
    }
}

/// Counts a request or call. Returns whether the process crashes at it.
fn burns(left: &AtomicUsize) -> bool {
    left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1)).is_err()
}

/// A service that simulates a crash at the last request, before or after its effect.
#[derive(Clone)]
struct Fuse {
    inner: ApiService,
    left: Arc<AtomicUsize>,
    after: bool,
    loses_status: Arc<AtomicBool>,
    writes: Arc<Mutex<Vec<String>>>,
}

impl Fuse {
    async fn pass(self, request: Request<Body>) -> Result<Response<machinist_apiserver::Body>, BoxError> {
        if request.method() != http::Method::GET {
            self.writes.lock().expect("no panic").push(request.uri().path().to_owned());
        }
        let is_status = request.method() == http::Method::PATCH && request.uri().path().ends_with("/status");
        if is_status && self.loses_status.load(Ordering::Relaxed) {
            return Err(BoxError::from("the connection was lost"));
        }
        let dies = burns(&self.left);
        if dies && !self.after {
            std::future::pending::<()>().await;
        }
        let answer = self.inner.oneshot(request).await;
        if dies { std::future::pending().await } else { Ok(answer?) }
    }
}

impl World {
    async fn new() -> Self {
        let epoch = jiff::Timestamp::from_second(EPOCH).expect("a moment");
        let clock = machinist_apiserver::TokioClock::starting_at(epoch);
        let server = Server::new(Config { clock: Arc::new(clock), ..Config::default() });
        let user = kube::Client::new(server.service_as(Identity::admin()), NAMESPACE);
        let crds: Api<CustomResourceDefinition> = Api::all(user.clone());
        let core = ["Cluster", "Machine"].map(core_crd).to_vec();
        for crd in [core, crd::docker_crds(), crd::mailgun_crds()].concat() {
            crds.create(&PostParams::default(), &crd).await.expect("the CRD is accepted");
        }
        let ahead: Arc<AtomicI64> = Arc::default();
        let clock = SteppingClock { inner: TokioClock::starting_at(epoch), ahead: ahead.clone() };
        Self {
            server,
            user,
            clock: Arc::new(clock),
            ahead,
            left: Arc::new(AtomicUsize::new(usize::MAX)),
            after: false,
            loses_status: Arc::default(),
            writes: Arc::default(),
        }
    }

    /// An engine with the clock of this world.
    fn engine(&self, address: &'static str) -> Engine {
        let clock = self.clock.clone();
        Engine::new(address).with_clock(move || clock.now())
    }

    /// Starts a provider.
    fn start(&self, serves: Serves, core: CoreApi) -> Running {
        self.start_in("", CapiOptions::new(serves, core))
    }

    /// Starts a provider for one namespace; the empty name stands for all.
    fn start_in(&self, namespace: &str, capi: CapiOptions) -> Running {
        let mut options = ClientOptions::new("capi");
        options.clock = self.clock.clone();
        let inner = self.server.service_as(Identity::admin());
        let (left, after, loses_status) = (self.left.clone(), self.after, self.loses_status.clone());
        let fuse = Fuse { inner, left, after, loses_status, writes: self.writes.clone() };
        self.start_over(
            layer_client(service_fn(move |request| fuse.clone().pass(request)), &options),
            namespace,
            capi,
        )
    }

    /// Starts a provider with this client.
    fn start_over(&self, client: kube::Client, namespace: &str, capi: CapiOptions) -> Running {
        let clients = Clients { control: client.clone(), target: client };
        let process = ProcessOptions { clock: self.clock.clone(), ..ProcessOptions::new(namespace, "capi") };
        CapiProvider::start(clients, process, capi, None)
    }

    fn api(&self, kind: &str) -> Api<DynamicObject> {
        let (group, version) = match kind {
            "Cluster" | "Machine" => ("cluster.x-k8s.io", "v1beta2"),
            _ => (GROUP, "v1beta2"),
        };
        let plural = format!("{}s", kind.to_lowercase());
        let resource = ApiResource {
            group: group.to_owned(),
            version: version.to_owned(),
            api_version: format!("{group}/{version}"),
            kind: kind.to_owned(),
            plural,
        };
        Api::namespaced_with(self.user.clone(), NAMESPACE, &resource)
    }

    async fn create(&self, kind: &str, name: &str, spec: Value) {
        self.create_with(kind, json!({"name": name}), spec).await;
    }

    async fn create_with(&self, kind: &str, metadata: Value, spec: Value) {
        let group = if matches!(kind, "Cluster" | "Machine") { "cluster.x-k8s.io" } else { GROUP };
        let object = json!({
            "apiVersion": format!("{group}/v1beta2"), "kind": kind, "metadata": metadata, "spec": spec,
        });
        let object = serde_json::from_value(object).expect("an object");
        self.api(kind).create(&PostParams::default(), &object).await.expect("the object is accepted");
    }

    /// Reads an object as JSON; `Null` if it does not exist.
    async fn get(&self, kind: &str, name: &str) -> Value {
        let object = self.api(kind).get_opt(name).await.expect("the server answers");
        object.map_or(Value::Null, |object| serde_json::to_value(object).expect("JSON"))
    }

    async fn merge(&self, kind: &str, name: &str, patch: Value) {
        let params = PatchParams::default();
        self.api(kind).patch(name, &params, &Patch::Merge(patch)).await.expect("the patch is accepted");
    }

    async fn merge_status(&self, kind: &str, name: &str, status: Value) {
        let params = PatchParams::default();
        let patch = Patch::Merge(json!({"status": status}));
        self.api(kind).patch_status(name, &params, &patch).await.expect("the patch is accepted");
    }

    /// Returns the Events with this reason, or all, as `Kind name: message`. An Event is listed
    /// once for each time that it was recorded.
    async fn events(&self, reason: &str) -> Vec<String> {
        let events: Api<Event> = Api::namespaced(self.user.clone(), NAMESPACE);
        let events = events.list(&Default::default()).await.expect("the server answers").items;
        let chosen =
            events.into_iter().filter(|event| reason.is_empty() || event.reason.as_deref() == Some(reason));
        chosen
            .flat_map(|event| {
                let (object, text) = (event.involved_object, event.message.unwrap_or_default());
                let line = format!(
                    "{} {}: {text}",
                    object.kind.unwrap_or_default(),
                    object.name.unwrap_or_default()
                );
                vec![line; usize::try_from(event.count.unwrap_or(1)).expect("a positive count")]
            })
            .collect()
    }

    async fn delete(&self, kind: &str, name: &str) {
        self.api(kind).delete(name, &DeleteParams::default()).await.expect("the object is deleted");
    }
}

/// A definition of a core kind that keeps every field, in both versions.
fn core_crd(kind: &str) -> CustomResourceDefinition {
    let free = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    let version = |name: &str, storage: bool| {
        json!({
            "name": name, "served": true, "storage": storage, "subresources": {"status": {}},
            "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": free, "status": free}}},
        })
    };
    let plural = format!("{}s", kind.to_lowercase());
    let crd = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{plural}.cluster.x-k8s.io")},
        "spec": {
            "group": "cluster.x-k8s.io", "scope": "Namespaced",
            "names": {"kind": kind, "plural": plural, "singular": kind.to_lowercase()},
            "versions": [version("v1beta2", true), version("v1beta1", false)],
        },
    });
    serde_json::from_value(crd).expect("a definition")
}

/// Returns the status and the reason of a condition.
fn condition(object: &Value, type_: &str) -> (String, String) {
    let all = object["status"]["conditions"].as_array().cloned().unwrap_or_default();
    let found = all.into_iter().find(|condition| condition["type"] == type_).unwrap_or_default();
    let text = |name: &str| found[name].as_str().unwrap_or_default().to_owned();
    (text("status"), text("reason"))
}

/// Lets the processes work for a time.
async fn pass(seconds: u64) {
    tokio::time::sleep(Duration::from_secs(seconds)).await;
}
