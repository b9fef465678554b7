//! A cluster of the tests: the embedded API server, a kubelet, and the driver.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Namespace, Pod, Secret, ServiceAccount};
use kube::api::{DeleteParams, DynamicObject, Patch, PatchParams, PostParams};
use kube::core::{ApiResource, GroupVersionKind};
use kube::{Api, Client};
use machinist_apiserver::{
    Authorization, Commit, Config, Identity, SeededIds, Server, Subscription, TokioClock,
};
use machinist_driver::{Driver, Provider as _};
use machinist_driver_local::{ClusterConnector, LocalOptions, LocalProvider};
use machinist_instance::{
    Credential, Error, Instance, InstanceKey, InstanceRef, InstanceSpec, NodeName, Place, ProviderId,
    Sighting, UserData,
};
use machinist_kube::{ClientOptions, layer_client};
use serde_json::{Value, json};
use tokio::task::AbortHandle;

use crate::pipe::Pipe;

/// The namespace of the Machines, and of pods whose class names none.
pub(crate) const NAMESPACE: &str = "pods";
/// Another namespace.
pub(crate) const ELSEWHERE: &str = "elsewhere";
/// The URLs of the two API servers.
pub(crate) const ONE: &str = "https://one.example:6443";
const TWO: &str = "https://two.example:6443";

/// The beginning of the clock.
pub(crate) fn epoch() -> Timestamp {
    "2026-11-24T12:00:00Z".parse().expect("a time")
}

/// Settings of the kubelet.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Kubelet {
    /// How long a pod takes to end.
    pub(crate) end: Duration,
    /// Whether the kubelet starts no pod.
    pub(crate) is_idle: bool,
}

/// Two API servers, the driver, and the pipes between them.
pub(crate) struct Cluster {
    pub(crate) server: Server,
    pub(crate) pipe: Pipe,
    pub(crate) provider: LocalProvider,
    pub(crate) kubelet: Arc<Mutex<Kubelet>>,
    tasks: Vec<AbortHandle>,
}

impl Drop for Cluster {
    fn drop(&mut self) {
        self.tasks.iter().for_each(AbortHandle::abort);
    }
}

/// Connects to one of the servers by its URL, as the user whose name is in the kubeconfig.
struct ByUrl(BTreeMap<String, Pipe>);

impl ClusterConnector for ByUrl {
    fn connect(&self, config: kube::Config, options: &ClientOptions) -> Result<Client, Error> {
        let url = config.cluster_url.to_string();
        let user = config.auth_info.username.unwrap_or_default();
        let identity = match user.as_str() {
            "admin" => Identity::admin(),
            user => Identity::new(user, ["system:authenticated"]),
        };
        Ok(self.0[url.trim_end_matches('/')].client(identity, options))
    }
}

impl Cluster {
    pub(crate) async fn new() -> Self {
        Self::with(Authorization::AlwaysAllow).await
    }

    pub(crate) async fn with(authorization: Authorization) -> Self {
        let kubelet = Arc::new(Mutex::new(Kubelet::default()));
        let (server, other) = (server(authorization, 1).await, server(authorization, 2).await);
        let (pipe, other) = (Pipe::to(server.clone()), Pipe::to(other));
        let urls = BTreeMap::from([(ONE.to_owned(), pipe.clone()), (TWO.to_owned(), other)]);
        let options = LocalOptions { namespace: NAMESPACE.to_owned(), control: None };
        let provider = LocalProvider::new(options).connecting(Arc::new(ByUrl(urls)));
        let running = tokio::spawn(run_pods(server.clone(), server.commits(), kubelet.clone()));
        Self { server, pipe, provider, kubelet, tasks: vec![running.abort_handle()] }
    }

    /// A client that passes no pipe.
    pub(crate) fn client(&self) -> Client {
        admin(&self.server)
    }

    pub(crate) fn pods(&self) -> Api<Pod> {
        Api::namespaced(self.client(), NAMESPACE)
    }

    pub(crate) fn driver(&self) -> Arc<dyn Driver> {
        self.driver_as("admin")
    }

    pub(crate) fn driver_as(&self, user: &str) -> Arc<dyn Driver> {
        let credential = credential(ONE, user);
        let account = self.provider.account(&credential, &Place::WHOLE);
        self.provider.open(&account, &credential, &Place::WHOLE).expect("a kubeconfig")
    }

    pub(crate) fn set_kubelet(&self, change: impl FnOnce(&mut Kubelet)) {
        change(&mut self.kubelet.lock().unwrap_or_else(PoisonError::into_inner));
    }

    /// The names of all objects of a resource.
    pub(crate) fn names(&self, resource: &str) -> Vec<String> {
        let objects = self.server.snapshot(resource);
        let objects = objects.iter().filter(|object| object.namespace() == NAMESPACE);
        objects.map(|object| object.name().to_owned()).collect()
    }

    /// Names of pods, Services and Secrets.
    pub(crate) fn objects(&self) -> [Vec<String>; 3] {
        ["pods", "services", "secrets"].map(|resource| self.names(resource))
    }

    /// Creates a pod, a Service or a Secret, as another program does.
    pub(crate) async fn make(&self, object: Value) -> Value {
        let object: DynamicObject = serde_json::from_value(object).expect("an object");
        let kind = object.types.as_ref().expect("a kind").kind.clone();
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk("", "v1", &kind));
        let api: Api<DynamicObject> = Api::namespaced_with(self.client(), NAMESPACE, &resource);
        let made = api.create(&PostParams::default(), &object).await.expect("created");
        serde_json::to_value(made).expect("JSON")
    }

    /// Waits until a pod has a state.
    pub(crate) async fn until(&self, name: &str, holds: impl Fn(Option<&Pod>) -> bool) {
        let mut commits = self.server.state_and_commits();
        loop {
            let pod = self.pods().get_opt(name).await.expect("an answer");
            if holds(pod.as_ref()) {
                return;
            }
            commits.next().await;
        }
    }

    pub(crate) async fn until_running(&self, name: &str) {
        let is_running = |pod: Option<&Pod>| pod.is_some_and(|pod| phase(pod) == "Running");
        self.until(name, is_running).await;
    }

    pub(crate) async fn until_absent(&self, name: &str) {
        self.until(name, |pod| pod.is_none()).await;
    }
}

fn phase(pod: &Pod) -> &str {
    pod.status.as_ref().and_then(|status| status.phase.as_deref()).unwrap_or_default()
}

async fn server(authorization: Authorization, seed: u64) -> Server {
    let server = Server::new(Config {
        clock: Arc::new(TokioClock::starting_at(epoch())),
        ids: Arc::new(SeededIds::new(seed)),
        authorization,
        ..Config::default()
    });
    let namespaces: Api<Namespace> = Api::all(admin(&server));
    for name in [NAMESPACE, ELSEWHERE] {
        let namespace = serde_json::from_value(json!({"metadata": {"name": name}})).expect("a namespace");
        namespaces.create(&PostParams::default(), &namespace).await.expect("created");
        // Every pod needs the account; the controllers of a cluster create it.
        let accounts: Api<ServiceAccount> = Api::namespaced(admin(&server), name);
        let account = serde_json::from_value(json!({"metadata": {"name": "default"}})).expect("an account");
        accounts.create(&PostParams::default(), &account).await.expect("created");
    }
    server
}

fn admin(server: &Server) -> Client {
    layer_client(server.service_as(Identity::admin()), &ClientOptions::new("test"))
}

/// Runs all pods on one Node: binds them, lets them run, and ends those that are deleted.
async fn run_pods(server: Server, mut commits: Subscription<Arc<Commit>>, kubelet: Arc<Mutex<Kubelet>>) {
    let client = admin(&server);
    while let Some(commit) = commits.next().await {
        let settings = *kubelet.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(object) = commit.new.as_ref().filter(|_| !settings.is_idle) else { continue };
        let name = match &*commit.resource {
            "pods" => object.name(),
            // The volume of a pod can be mounted now.
            "secrets" => object.name().trim_end_matches("-userdata"),
            _ => continue,
        };
        tokio::spawn(run_pod(client.clone(), object.namespace().to_owned(), name.to_owned(), settings));
    }
}

async fn run_pod(client: Client, namespace: String, name: String, settings: Kubelet) {
    let pods: Api<Pod> = Api::namespaced(client.clone(), &namespace);
    let Some(pod) = pods.get_opt(&name).await.expect("an answer") else { return };
    if pod.metadata.deletion_timestamp.is_some() {
        tokio::time::sleep(settings.end).await;
        // It may be gone, or another one may have its name.
        let _ = pods.delete(&name, &ended(&pod)).await;
        return;
    }
    if pod.spec.as_ref().is_some_and(|spec| spec.node_name.is_none()) {
        let target = json!({"apiVersion": "v1", "kind": "Node", "name": "host"});
        let binding =
            json!({"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name}, "target": target});
        let _ =
            pods.create_subresource::<Value, Value>("binding", &name, &PostParams::default(), &binding).await;
    } else if phase(&pod) == "Pending" && has_volumes(client, &namespace, &pod).await {
        let status =
            json!({"status": {"phase": "Running", "podIP": "10.1.0.5", "podIPs": [{"ip": "10.1.0.5"}]}});
        let _ = pods.patch_status(&name, &PatchParams::default(), &Patch::Merge(status)).await;
    }
}

/// Whether the Secrets of a pod exist.
async fn has_volumes(client: Client, namespace: &str, pod: &Pod) -> bool {
    let secrets: Api<Secret> = Api::namespaced(client, namespace);
    let volumes = pod.spec.iter().flat_map(|spec| spec.volumes.iter().flatten());
    let names = volumes.filter_map(|volume| volume.secret.as_ref()?.secret_name.as_deref());
    for name in names {
        if secrets.get_opt(name).await.expect("an answer").is_none() {
            return false;
        }
    }
    true
}

/// The last request of a kubelet about a pod.
fn ended(pod: &Pod) -> DeleteParams {
    let preconditions = kube::api::Preconditions { uid: pod.metadata.uid.clone(), resource_version: None };
    DeleteParams { preconditions: Some(preconditions), ..DeleteParams::default() }.grace_period(0)
}

/// The credential of a class.
pub(crate) fn credential(server: &str, user: &str) -> Credential {
    let kubeconfig = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "k", "user": "u"}}],
        "clusters": [{"name": "k", "cluster": {"server": server}}],
        "users": [{"name": "u", "user": {"username": user, "password": "canary"}}],
    });
    Credential::new(BTreeMap::from([("kubeconfig".to_owned(), kubeconfig.to_string().into_bytes())]))
}

/// The credential of the other API server.
pub(crate) fn other_credential() -> Credential {
    credential(TWO, "admin")
}

pub(crate) fn class() -> Value {
    json!({"image": "registry.example/machine:v1"})
}

pub(crate) fn key(text: &str) -> InstanceKey {
    InstanceKey::new(text)
}

pub(crate) fn id(machine: &str) -> ProviderId {
    ProviderId::parse(&format!("machine-{machine}")).expect("not empty")
}

/// The spec of a Machine whose UID is `uid-NAME`.
pub(crate) fn instance_spec(machine: &str) -> InstanceSpec {
    InstanceSpec {
        key: key(&format!("uid-{machine}")),
        name: NodeName::new(machine).expect("not empty"),
        cluster: "default".to_owned(),
        provider_spec: class(),
        user_data: UserData::new(*b"#!/bin/sh\necho canary\n"),
        tags: BTreeMap::from([("machinist.dev/namespace-uid".to_owned(), "n-1".to_owned())]),
        annotations: BTreeMap::new(),
        adopt_made_since: None,
        last_known_state: None,
    }
}

/// The reference of a Machine that has recorded its instance.
pub(crate) fn recorded(machine: &str) -> InstanceRef {
    InstanceRef { id: Some(id(machine)), ..unrecorded(machine) }
}

/// The reference of a Machine that has not recorded its instance.
pub(crate) fn unrecorded(machine: &str) -> InstanceRef {
    let name = NodeName::new(machine);
    InstanceRef { key: Some(key(&format!("uid-{machine}"))), name, ..InstanceRef::default() }
}

pub(crate) async fn ensure(driver: &dyn Driver, spec: &InstanceSpec) -> Result<Instance, Error> {
    driver.instances().ensure(spec).await
}

pub(crate) async fn find(driver: &dyn Driver, which: &InstanceRef) -> Sighting {
    driver.instances().find(which).await.expect("an answer")
}

pub(crate) async fn found(driver: &dyn Driver, which: &InstanceRef) -> Instance {
    match find(driver, which).await {
        Sighting::Present(instance) => instance,
        other => panic!("{which}: {other:?}"),
    }
}

#[expect(clippy::disallowed_methods, reason = "the tests own every instance that they delete")]
pub(crate) async fn delete(
    driver: &dyn Driver,
    which: &InstanceRef,
    owner: &InstanceKey,
) -> Result<(), Error> {
    driver.instances().delete(which, owner).await
}
