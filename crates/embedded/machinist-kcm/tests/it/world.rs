//! The test world: a server, the controllers as one client, and the test as another.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::Client;
use kube::api::{
    Api, ApiResource, DeleteParams, DynamicObject, GroupVersionKind, Patch, PatchParams, PostParams,
};
pub(crate) use machinist_apiserver::Authorization;
use machinist_apiserver::{
    AuditRecord, Commit, Identity, ReplicaView, SeededIds, Server, Subscription, TokioClock,
};
use machinist_kcm::{CaPair, GcResource, KcmConfig};
use machinist_kube::{ClientOptions, layer_client};
use serde_json::{Value, json};
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout};

pub(crate) use crate::objects::{SCALED, config_map, node, owner, pod, ready, scaled_definition};

const AGENT: &str = "kcm";

/// Start time of every test.
pub(crate) fn epoch() -> Timestamp {
    "2030-01-01T00:00:00Z".parse().expect("a time")
}

pub(crate) struct World {
    pub(crate) server: Server,
    pub(crate) client: Client,
    /// The server, as the controllers' watches see it.
    pub(crate) replica: ReplicaView,
    started: Instant,
    audit: Subscription<Arc<AuditRecord>>,
    commits: Subscription<Arc<Commit>>,
    controllers: Option<JoinHandle<()>>,
}

impl World {
    /// Starts a world with running controllers.
    pub(crate) async fn start() -> Self {
        Self::start_with(|_| {}).await
    }

    /// Starts a world with running controllers and adjusted settings.
    pub(crate) async fn start_with(adjust: impl FnOnce(&mut KcmConfig)) -> Self {
        let mut world = Self::without_controllers();
        world.start_controllers(adjust);
        world
    }

    /// Creates a world without running controllers.
    pub(crate) fn without_controllers() -> Self {
        Self::with_authorization(Authorization::AlwaysAllow)
    }

    /// Creates a world in which the server checks the permissions of users, without running
    /// controllers.
    pub(crate) fn with_authorization(authorization: Authorization) -> Self {
        let server = Server::new(machinist_apiserver::Config {
            authorization,
            clock: Arc::new(TokioClock::starting_at(epoch())),
            ids: Arc::new(SeededIds::new(1)),
            ..machinist_apiserver::Config::default()
        });
        let (audit, commits) = (server.audit(), server.commits());
        let client = Client::new(server.service_as(Identity::admin()).with_user_agent("test"), "default");
        let replica = ReplicaView::default();
        Self { server, client, replica, started: Instant::now(), audit, commits, controllers: None }
    }

    pub(crate) fn start_controllers(&mut self, adjust: impl FnOnce(&mut KcmConfig)) {
        let ca = self.server.ca().expect("an authority");
        let mut config = KcmConfig::new(Arc::new(machinist_kube::TokioClock::starting_at(self.now())));
        config.ca = Some(CaPair::from_pem(ca.certificate_pem(), ca.key_pem()).expect("an authority"));
        adjust(&mut config);
        let identity = Identity::new("system:kube-controller-manager", ["system:masters"]);
        let service = self.server.service_as(identity).with_replica_view(self.replica.clone());
        let client = layer_client(service, &ClientOptions::new(AGENT));
        self.controllers = Some(tokio::spawn(async move {
            let ended = machinist_kcm::run(client, config).await;
            panic!("the controllers ended: {ended:?}");
        }));
    }

    /// Aborts the controllers.
    pub(crate) async fn stop_controllers(&mut self) {
        let controllers = self.controllers.take().expect("they run");
        controllers.abort();
        assert!(controllers.await.expect_err("aborted").is_cancelled());
    }

    pub(crate) fn now(&self) -> Timestamp {
        epoch() + self.started.elapsed()
    }

    pub(crate) fn client_as(&self, user: &str, groups: &[&str]) -> Client {
        let identity = Identity::new(user, groups.iter().copied());
        Client::new(self.server.service_as(identity).with_user_agent("test"), "default")
    }

    /// Returns the client API of a kind, `Kind` or `group/version/Kind`.
    pub(crate) fn api(&self, kind: &str, namespace: &str) -> Api<DynamicObject> {
        api_of(&self.client, kind, namespace)
    }

    /// Creates an object and returns its UID.
    pub(crate) async fn create(&self, object: Value) -> String {
        let (api, object) = self.addressed(object);
        let made = api.create(&PostParams::default(), &object).await.expect("created");
        made.metadata.uid.expect("the server gives a UID")
    }

    /// Merges into the status of an object.
    pub(crate) async fn patch_status(&self, kind: &str, namespace: &str, name: &str, status: Value) {
        let patch = json!({ "status": status });
        let api = self.api(kind, namespace);
        api.patch_status(name, &PatchParams::default(), &Patch::Merge(patch)).await.expect("patched");
    }

    pub(crate) async fn patch(&self, kind: &str, namespace: &str, name: &str, patch: Value) {
        let api = self.api(kind, namespace);
        api.patch(name, &PatchParams::default(), &Patch::Merge(patch)).await.expect("patched");
    }

    pub(crate) async fn delete(&self, kind: &str, namespace: &str, name: &str, params: &DeleteParams) {
        self.api(kind, namespace).delete(name, params).await.expect("deleted");
    }

    /// Returns the stored object; `resource` is `plural` or `plural.group`.
    pub(crate) fn get(&self, resource: &str, name: &str) -> Option<Value> {
        self.server
            .snapshot(resource)
            .iter()
            .find(|object| object.name() == name)
            .map(|object| object.value().clone())
    }

    pub(crate) fn exists(&self, resource: &str, name: &str) -> bool {
        self.get(resource, name).is_some()
    }

    /// Waits until the condition holds, and returns after how many seconds it did. The condition is
    /// checked after each commit.
    pub(crate) async fn until(
        &mut self,
        what: &str,
        within_seconds: u64,
        holds: impl Fn(&Self) -> bool,
    ) -> u64 {
        let begin = Instant::now();
        let deadline = begin + Duration::from_secs(within_seconds);
        while !holds(self) {
            let left = deadline.saturating_duration_since(Instant::now());
            let next = timeout(left, self.commits.next()).await;
            assert!(next.is_ok(), "not within {within_seconds} s: {what}; {:#?}", self.requests());
        }
        begin.elapsed().as_secs()
    }

    pub(crate) async fn pass(&self, seconds: u64) {
        tokio::time::sleep(Duration::from_secs(seconds)).await;
    }

    /// Returns the writes of the controllers since the last call, with their status codes. Objects
    /// that every namespace gets are left out, since they are the same in every test.
    pub(crate) fn requests(&mut self) -> Vec<String> {
        let records = self.audit.drain();
        let is_told = |record: &&Arc<AuditRecord>| {
            // A review changes nothing.
            let is_question = record.resource == "subjectaccessreviews";
            record.user_agent == AGENT
                && record.is_write()
                && record.name != "kube-root-ca.crt"
                && !is_question
        };
        let writes = records.iter().filter(is_told);
        writes
            .map(|record| {
                let slash = if record.subresource.is_empty() { "" } else { "/" };
                format!(
                    "{} {}{slash}{} {} {}",
                    record.verb, record.resource, record.subresource, record.name, record.code
                )
            })
            .collect()
    }

    fn addressed(&self, object: Value) -> (Api<DynamicObject>, DynamicObject) {
        let object: DynamicObject = serde_json::from_value(object).expect("an object");
        let types = object.types.clone().expect("apiVersion and kind");
        let kind = format!("{}/{}", types.api_version, types.kind);
        let namespace = object.metadata.namespace.clone().unwrap_or_default();
        (self.api(&kind, &namespace), object)
    }
}

fn api_of(client: &Client, kind: &str, namespace: &str) -> Api<DynamicObject> {
    let (api_version, kind) = kind.rsplit_once('/').unwrap_or(("v1", kind));
    let (group, version) = api_version.rsplit_once('/').unwrap_or(("", api_version));
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind));
    match namespace {
        "" => Api::all_with(client.clone(), &resource),
        namespace => Api::namespaced_with(client.clone(), namespace, &resource),
    }
}

/// Deletion without a grace period.
pub(crate) fn at_once() -> DeleteParams {
    DeleteParams { grace_period_seconds: Some(0), ..DeleteParams::default() }
}

/// Defines a kind with a scale, and returns how to collect it.
pub(crate) async fn define_scaled(world: &World) -> GcResource {
    define(world, scaled_definition()).await;
    GcResource::namespaced(ApiResource::from_gvk(&GroupVersionKind::gvk("t.dev", "v1", "Set")))
}

pub(crate) async fn define(world: &World, definition: Value) {
    let definition: CustomResourceDefinition = serde_json::from_value(definition).expect("a definition");
    let definitions: Api<CustomResourceDefinition> = Api::all(world.client.clone());
    definitions.create(&PostParams::default(), &definition).await.expect("defined");
}

/// Builds a Deployment, ReplicaSet, StatefulSet or DaemonSet for the Pods of [`pod`].
pub(crate) fn workload(kind: &str, name: &str, replicas: Option<u32>) -> Value {
    let mut object = json!({
        "apiVersion": "apps/v1", "kind": kind, "metadata": { "name": name, "namespace": "default" },
        "spec": {
            "selector": { "matchLabels": { "app": "web" } },
            "template": {
                "metadata": { "labels": { "app": "web" } },
                "spec": { "containers": [{ "name": "c", "image": "web:1" }] },
            },
        },
    });
    if let Some(replicas) = replicas {
        object["spec"]["replicas"] = json!(replicas);
    }
    object
}

/// Builds an object with this controller, which waits for the object when it is deleted in the
/// foreground.
pub(crate) fn controlled_by(
    mut object: Value,
    api_version: &str,
    kind: &str,
    name: &str,
    uid: &str,
) -> Value {
    let mut owner = owner(api_version, kind, name, uid);
    owner["controller"] = json!(true);
    owner["blockOwnerDeletion"] = json!(true);
    object["metadata"]["ownerReferences"] = json!([owner]);
    object
}
