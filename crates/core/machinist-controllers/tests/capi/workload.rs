//! Access to workload clusters: the kubeconfig, and clusters that do not answer.

use std::sync::{Arc, Mutex};

use futures::future::BoxFuture;
use k8s_openapi::api::core::v1::Secret;
use kube::config::Kubeconfig;
use kube::{Api, Client};
use machinist_apiserver::{Config, Identity, Server};
use machinist_controllers::capi::{CoreApi, Key, Running, Serves, WorkloadClusters};
use machinist_instance::{Error, ErrorKind};
use serde_json::json;

use super::docker::Docker;
use super::{NAMESPACE, pass};

/// Workload clusters that no longer exist.
pub(super) struct Unreachable;

impl WorkloadClusters for Unreachable {
    fn client(&self, _: Kubeconfig) -> BoxFuture<'static, Result<Client, Error>> {
        Box::pin(async { Err(Error::new(ErrorKind::Unavailable, "no route to host")) })
    }
}

/// A workload cluster that answers only at one address.
struct Moved {
    server: Server,
    address: &'static str,
    asked: Arc<Mutex<Vec<String>>>,
}

impl WorkloadClusters for Moved {
    fn client(&self, kubeconfig: Kubeconfig) -> BoxFuture<'static, Result<Client, Error>> {
        let cluster = kubeconfig.clusters.first().and_then(|entry| entry.cluster.clone());
        let address = cluster.and_then(|cluster| cluster.server).unwrap_or_default();
        let answers = address == self.address;
        self.asked.lock().expect("no panic").push(address);
        let client = Client::new(self.server.service_as(Identity::admin()), "default");
        Box::pin(async move {
            if answers { Ok(client) } else { Err(Error::new(ErrorKind::Unavailable, "no route to host")) }
        })
    }
}

/// A provider whose workload cluster answers at `https://new:6443`.
struct Case {
    docker: Docker,
    workload: Server,
    asked: Arc<Mutex<Vec<String>>>,
    running: Running,
}

impl Case {
    async fn new() -> Self {
        let docker = Docker::new().await;
        let workload = Server::new(Config::default());
        let asked = Arc::<Mutex<Vec<String>>>::default();
        let mut options = docker.options(&docker.engine);
        let (server, address) = (workload.clone(), "https://new:6443");
        options.workloads = Arc::new(Moved { server, address, asked: asked.clone() });
        let running = docker.world.start(Serves::Docker(options), CoreApi::Beta2);
        docker.with_machines().await;
        let done = json!({"initialization": {"controlPlaneInitialized": true}});
        docker.world.merge_status("Cluster", "c", done).await;
        let nodes: Api<k8s_openapi::api::core::v1::Node> =
            Api::all(Client::new(workload.service_as(Identity::admin()), "default"));
        let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "c-w"}});
        let node = serde_json::from_value(node).expect("a Node");
        nodes.create(&Default::default(), &node).await.expect("accepted");
        Self { docker, workload, asked, running }
    }

    /// Writes the Secret with the kubeconfig.
    async fn kubeconfig(&self, server: &str, user: &str) {
        let text = format!(
            "apiVersion: v1\nkind: Config\nclusters:\n- name: c\n  cluster: {{server: '{server}'}}\nusers:\n- name: c\n  user: {user}\n\
             contexts:\n- name: c\n  context: {{cluster: c, user: c}}\ncurrent-context: c\n"
        );
        let secret = json!({
            "apiVersion": "v1", "kind": "Secret", "metadata": {"name": "c-kubeconfig"},
            "stringData": {"value": text},
        });
        let secrets: Api<Secret> = Api::namespaced(self.docker.world.user.clone(), NAMESPACE);
        let _ = secrets.delete("c-kubeconfig", &Default::default()).await;
        let secret = serde_json::from_value(secret).expect("a Secret");
        secrets.create(&Default::default(), &secret).await.expect("accepted");
    }

    /// Returns the reason of the worker as text.
    fn why(&self) -> String {
        let key = Key::DockerMachine(machinist_kube::ObjectKey::new(NAMESPACE, "c-w"));
        self.running
            .inspector()
            .why(&key)
            .map(|explained| explained.why.reason.to_string())
            .unwrap_or_default()
    }

    async fn node_id(&self) -> Option<String> {
        let client = Client::new(self.workload.service_as(Identity::admin()), "default");
        let nodes: Api<k8s_openapi::api::core::v1::Node> = Api::all(client);
        nodes.get("c-w").await.expect("the Node").spec?.provider_id
    }

    fn clients(&self) -> f64 {
        let samples = self.running.inspector().metrics();
        let found = samples.iter().find(|(name, _)| name.contains("machinist_capi_workload_clients"));
        found.map(|(_, value)| *value).unwrap_or_default()
    }
}

/// Each failure is repeated with the kubeconfig of that moment, so a renewed one is used.
#[tokio::test(start_paused = true)]
async fn a_renewed_kubeconfig_is_used() {
    let case = Case::new().await;
    case.docker.world.run_for(10).await;
    assert!(case.why().contains("Secret c-kubeconfig does not exist"), "{}", case.why());
    case.kubeconfig("https://old:6443", "{}").await;
    case.docker.world.run_for(60).await;
    assert!(case.why().contains("no route to host"), "{}", case.why());
    case.kubeconfig("https://new:6443", "{}").await;
    case.docker.world.run_for(60).await;
    assert_eq!(case.node_id().await.as_deref(), Some("docker:////c-w"));
    let asked = case.asked.lock().expect("no panic").clone();
    assert!(asked.contains(&"https://old:6443".to_owned()), "{asked:?}");
}

/// A kubeconfig that would run a program is never used.
#[tokio::test(start_paused = true)]
async fn a_kubeconfig_that_runs_a_program_is_rejected() {
    let case = Case::new().await;
    case.kubeconfig("https://new:6443", "{exec: {apiVersion: client.authentication.k8s.io/v1, command: sh}}")
        .await;
    case.docker.world.run_for(60).await;
    assert!(case.why().contains("users[0].user.exec is not allowed"), "{}", case.why());
    assert!(case.asked.lock().expect("no panic").is_empty());
    assert_eq!(case.node_id().await, None);
}

/// A cluster has one client, which is dropped with its Cluster.
#[tokio::test(start_paused = true)]
async fn the_client_of_a_deleted_cluster_is_dropped() {
    let case = Case::new().await;
    case.kubeconfig("https://new:6443", "{}").await;
    case.docker.world.run_for(60).await;
    assert!(0.0 < case.clients() && case.clients() < 1.5, "{}", case.clients());
    case.docker.world.delete("Cluster", "c").await;
    pass(5).await;
    assert!(case.clients() < 0.5, "{}", case.clients());
}
