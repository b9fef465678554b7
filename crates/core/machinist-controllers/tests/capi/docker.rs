//! DockerClusters and DockerMachines.

use std::sync::Arc;

use futures::future::BoxFuture;
use k8s_openapi::api::core::v1::{Node, Secret};
use kube::config::Kubeconfig;
use kube::{Api, Client};
use machinist_apiserver::{Config, Identity, Server};
use machinist_controllers::capi::{CoreApi, DockerOptions, Running, Serves, WorkloadClusters};
use machinist_instance::Error;
use machinist_standin_docker::Engine;
use serde_json::{Value, json};

use super::{NAMESPACE, World, condition};

/// A workload cluster in this process.
struct InProcess(Server);

impl WorkloadClusters for InProcess {
    fn client(&self, _: Kubeconfig) -> BoxFuture<'static, Result<Client, Error>> {
        let client = Client::new(self.0.service_as(Identity::admin()), "default");
        Box::pin(async move { Ok(client) })
    }
}

pub(super) struct Docker {
    pub(super) world: World,
    pub(super) engine: Engine,
    workload: Server,
}

impl Docker {
    pub(super) async fn new() -> Self {
        let workload = Server::new(Config::default());
        let world = World::new().await;
        Self { engine: world.engine("a"), world, workload }
    }

    pub(super) fn start(&self) -> Running {
        self.start_with(&self.engine, CoreApi::Beta2)
    }

    fn start_with(&self, engine: &Engine, core: CoreApi) -> Running {
        self.world.start(Serves::Docker(self.options(engine)), core)
    }

    pub(super) fn options(&self, engine: &Engine) -> DockerOptions {
        let mut options = DockerOptions::new(Arc::new(engine.clone()));
        options.workloads = Arc::new(InProcess(self.workload.clone()));
        options
    }

    /// Creates a cluster with one machine of the control plane and one worker, and waits for both.
    pub(super) async fn with_machines(&self) {
        self.world.docker_cluster("c").await;
        self.world.machine("c", "c-cp", true).await;
        self.world.machine("c", "c-w", false).await;
        self.world.run_for(30).await;
    }

    pub(super) async fn machine(&self, name: &str) -> Value {
        self.world.get("DockerMachine", name).await
    }
}

#[tokio::test(start_paused = true)]
async fn a_cluster_and_its_machines_are_provisioned() {
    let docker = Docker::new().await;
    let _running = docker.start();
    docker.with_machines().await;
    let cluster = docker.world.get("DockerCluster", "c").await;
    assert_eq!(
        cluster["spec"]["controlPlaneEndpoint"],
        json!({"host": "172.18.0.2", "port": 6443}),
        "{cluster}"
    );
    assert_eq!(cluster["status"]["initialization"]["provisioned"], true);
    assert_eq!(cluster["status"]["ready"], true);
    assert_eq!(cluster["status"]["failureDomains"], json!([{"name": "fd1", "controlPlane": true}]));
    assert_eq!(cluster["status"]["loadBalancer"]["backends"], json!(["c-cp"]), "no worker");
    assert_eq!(cluster["status"]["loadBalancer"]["hostPort"], 32770);
    for name in ["c-cp", "c-w"] {
        let machine = docker.machine(name).await;
        assert_eq!(machine["spec"]["providerID"], format!("docker:////{name}"), "{machine}");
        assert_eq!(machine["status"]["initialization"]["provisioned"], true);
        assert_eq!(machine["status"]["failureDomain"], "fd1");
        let types: Vec<&str> = machine["status"]["addresses"]
            .as_array()
            .expect("addresses")
            .iter()
            .filter_map(|address| address["type"].as_str())
            .collect();
        assert_eq!(types, ["Hostname", "InternalIP", "ExternalIP"]);
        assert_eq!(condition(&machine, "Ready"), ("True".to_owned(), "Ready".to_owned()), "{machine}");
        assert!(!machine.to_string().contains("null"), "{machine}");
        let finalizers = json!(["dockermachine.infrastructure.cluster.x-k8s.io"]);
        assert_eq!(machine["metadata"]["finalizers"], finalizers);
    }
    let state = docker.engine.state();
    let bootstraps: Vec<u32> = state.containers.values().map(|container| container.bootstraps).collect();
    assert_eq!(bootstraps, [1, 1], "bootstrapped once");
    assert_eq!(state.containers["c-w"].image, "kindest/node:v1.33.0_build");
    assert_eq!(state.balancers["c-lb"].1, [("c-cp".to_owned(), 100)]);
}

/// The claim, the container, the provider id, the end of the bootstrap, and two states: provisioned
/// and bootstrapped.
#[tokio::test(start_paused = true)]
async fn a_machine_takes_few_writes() {
    let docker = Docker::new().await;
    let _running = docker.start();
    docker.with_machines().await;
    docker.world.run_for(600).await;
    for name in ["c-cp", "c-w"] {
        assert_eq!(condition(&docker.machine(name).await, "Ready").0, "True");
        let writes = docker.world.writes.lock().expect("no panic");
        let of = |end: &str| writes.iter().filter(|path| path.ends_with(end)).count();
        let (object, status) = (of(&format!("/dockermachines/{name}")), of(&format!("/{name}/status")));
        assert_eq!((object, status), (4, 2), "{name}: {writes:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn the_node_gets_its_provider_id() {
    let docker = Docker::new().await;
    let _running = docker.start();
    docker.with_machines().await;
    let kubeconfig = "apiVersion: v1\nkind: Config\nclusters:\n- name: c\n  cluster:\n    server: https://172.18.0.2:6443\n\
                      contexts:\n- name: c\n  context: {cluster: c, user: c}\ncurrent-context: c\n";
    let secret = json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": {"name": "c-kubeconfig"},
        "stringData": {"value": kubeconfig},
    });
    let secrets: Api<Secret> = Api::namespaced(docker.world.user.clone(), NAMESPACE);
    let secret = serde_json::from_value(secret).expect("a Secret");
    secrets.create(&Default::default(), &secret).await.expect("accepted");
    let done = json!({"initialization": {"controlPlaneInitialized": true}});
    docker.world.merge_status("Cluster", "c", done).await;
    let nodes: Api<Node> = Api::all(Client::new(docker.workload.service_as(Identity::admin()), "default"));
    let node = json!({
        "apiVersion": "v1", "kind": "Node", "metadata": {"name": "c-cp"},
        "spec": {"taints": [{"key": "node.cloudprovider.kubernetes.io/uninitialized", "effect": "NoSchedule"}]},
    });
    let node = serde_json::from_value(node).expect("a Node");
    let node = nodes.create(&Default::default(), &node).await.expect("accepted");
    let is_initialized = |node: &Node| {
        let taints = node.spec.as_ref().and_then(|spec| spec.taints.as_ref());
        let cloud = "node.cloudprovider.kubernetes.io/uninitialized";
        taints.is_none_or(|taints| taints.iter().all(|taint| taint.key != cloud))
    };
    assert!(!is_initialized(&node), "the server keeps the taint of a new Node");
    docker.world.run_for(90).await;
    let node = nodes.get("c-cp").await.expect("the Node");
    assert!(is_initialized(&node), "{node:?}");
    assert_eq!(node.spec.expect("a spec").provider_id.as_deref(), Some("docker:////c-cp"));
}

#[tokio::test(start_paused = true)]
async fn a_pause_stops_all_work_and_deletion() {
    let docker = Docker::new().await;
    let _running = docker.start();
    docker.with_machines().await;
    docker.world.merge("Cluster", "c", json!({"spec": {"paused": true}})).await;
    docker.world.run_for(5).await;
    docker.world.delete("DockerMachine", "c-w").await;
    docker.world.run_for(120).await;
    let machine = docker.machine("c-w").await;
    assert_eq!(condition(&machine, "Paused"), ("True".to_owned(), "Paused".to_owned()), "{machine}");
    assert!(docker.engine.state().deleted.is_empty());
    docker.world.merge("Cluster", "c", json!({"spec": {"paused": false}})).await;
    docker.world.run_for(120).await;
    assert!(docker.machine("c-w").await.is_null());
    assert_eq!(docker.engine.state().deleted, ["c-w"]);
}

/// A move creates the objects again with other UIDs and without a status.
#[tokio::test(start_paused = true)]
async fn a_moved_cluster_keeps_its_containers() {
    let docker = Docker::new().await;
    let running = docker.start();
    docker.with_machines().await;
    drop(running);
    let all = [("DockerCluster", "c"), ("DockerMachine", "c-cp"), ("DockerMachine", "c-w")];
    for (kind, name) in all {
        let old = docker.world.get(kind, name).await;
        docker.world.merge(kind, name, json!({"metadata": {"finalizers": null}})).await;
        docker.world.delete(kind, name).await;
        let mut metadata = old["metadata"].clone();
        for field in ["uid", "resourceVersion", "creationTimestamp", "generation", "managedFields"] {
            metadata.as_object_mut().expect("metadata").remove(field);
        }
        docker.world.create_with(kind, metadata, old["spec"].clone()).await;
        let new = docker.world.get(kind, name).await;
        assert_ne!(new["metadata"]["uid"], old["metadata"]["uid"]);
    }
    let _running = docker.start();
    docker.world.run_for(90).await;
    for name in ["c-cp", "c-w"] {
        let machine = docker.machine(name).await;
        assert_eq!(machine["status"]["initialization"]["provisioned"], true, "{machine}");
        assert_eq!(condition(&machine, "Ready").0, "True", "{machine}");
    }
    {
        let state = docker.engine.state();
        assert_eq!(state.created.len(), 2, "no container was created again");
        let bootstraps: Vec<u32> = state.containers.values().map(|container| container.bootstraps).collect();
        assert_eq!(bootstraps, [1, 1]);
    }
    docker.world.delete("DockerMachine", "c-w").await;
    docker.world.run_for(60).await;
    assert!(docker.machine("c-w").await.is_null());
    assert_eq!(docker.engine.state().deleted, ["c-w"], "the moved object owns its container");
}

/// Machine, Cluster and DockerCluster no longer exist.
#[tokio::test(start_paused = true)]
async fn a_machine_is_deleted_without_its_owners() {
    let docker = Docker::new().await;
    let running = docker.start();
    docker.with_machines().await;
    drop(running);
    for (kind, name) in [("Machine", "c-w"), ("Machine", "c-cp"), ("Cluster", "c"), ("DockerCluster", "c")] {
        docker.world.merge(kind, name, json!({"metadata": {"finalizers": null}})).await;
        docker.world.delete(kind, name).await;
    }
    docker.world.delete("DockerMachine", "c-w").await;
    docker.world.delete("DockerMachine", "c-cp").await;
    let _running = docker.start();
    super::pass(120).await;
    assert!(docker.machine("c-w").await.is_null() && docker.machine("c-cp").await.is_null());
    assert!(docker.engine.state().containers.is_empty());
}

#[tokio::test(start_paused = true)]
async fn the_load_balancer_outlives_the_control_plane() {
    let docker = Docker::new().await;
    let _running = docker.start();
    docker.with_machines().await;
    docker.world.delete("DockerCluster", "c").await;
    docker.world.run_for(60).await;
    assert!(docker.engine.state().balancers.contains_key("c-lb"));
    docker.world.delete("DockerMachine", "c-cp").await;
    docker.world.run_for(120).await;
    assert!(docker.machine("c-cp").await.is_null());
    assert!(docker.world.get("DockerCluster", "c").await.is_null());
    assert!(docker.engine.state().balancers.is_empty());
}

/// The endpoint is in certificates and kubeconfigs, so it never changes.
#[tokio::test(start_paused = true)]
async fn a_load_balancer_with_another_address_is_reported() {
    let docker = Docker::new().await;
    let _running = docker.start();
    docker.with_machines().await;
    docker.engine.state().moves = 1;
    docker.world.run_for(60).await;
    let cluster = docker.world.get("DockerCluster", "c").await;
    let changed = ("False".to_owned(), "AddressChanged".to_owned());
    assert_eq!(condition(&cluster, "LoadBalancerAvailable"), changed, "{cluster}");
    assert_eq!(cluster["spec"]["controlPlaneEndpoint"]["host"], "172.18.0.2");
    assert_eq!(cluster["status"]["initialization"]["provisioned"], true, "provisioned stays true");
    let events = docker.world.events("AddressChanged").await;
    assert_eq!(events.len(), 1, "one Event, although the state lasts: {events:?}");
    docker.engine.state().moves = 0;
    docker.world.run_for(30).await;
    let cluster = docker.world.get("DockerCluster", "c").await;
    assert_eq!(condition(&cluster, "LoadBalancerAvailable").0, "True", "{cluster}");
}

/// Even the empty value of the annotation means that another program manages the object.
#[tokio::test(start_paused = true)]
async fn an_externally_managed_cluster_is_left_alone() {
    let docker = Docker::new().await;
    let _running = docker.start();
    let metadata = json!({"name": "c", "annotations": {"cluster.x-k8s.io/managed-by": ""}});
    docker.world.create_with("DockerCluster", metadata, json!({})).await;
    docker.world.cluster("c", "DockerCluster").await;
    docker.world.run_for(30).await;
    let cluster = docker.world.get("DockerCluster", "c").await;
    assert!(cluster["status"].is_null() && cluster["metadata"]["finalizers"].is_null(), "{cluster}");
    assert_eq!(docker.engine.state().calls, 0);
}

#[tokio::test(start_paused = true)]
async fn another_engine_proves_no_absence() {
    let docker = Docker::new().await;
    let running = docker.start();
    docker.with_machines().await;
    drop(running);
    let other = Engine::new("b");
    let _running = docker.start_with(&other, CoreApi::Beta2);
    docker.world.delete("DockerMachine", "c-w").await;
    docker.world.run_for(600).await;
    assert!(!docker.machine("c-w").await.is_null(), "the container may exist on the first engine");
    assert_eq!(other.state().calls, 0);
    let annotations = json!({"metadata": {"annotations": {"machinist.dev/abandon-containers": "true"}}});
    docker.world.merge("DockerMachine", "c-w", annotations).await;
    docker.world.run_for(10).await;
    assert!(docker.machine("c-w").await.is_null(), "a user gave the container up");
}

#[tokio::test(start_paused = true)]
async fn a_failed_bootstrap_is_reported_and_not_repeated() {
    let docker = Docker::new().await;
    docker.engine.state().bootstrap_fails = true;
    let _running = docker.start();
    docker.with_machines().await;
    docker.world.run_for(300).await;
    let machine = docker.machine("c-w").await;
    assert_eq!(condition(&machine, "BootstrapCompleted"), ("False".to_owned(), "Failed".to_owned()));
    assert_eq!(condition(&machine, "Ready").0, "False");
    assert_eq!(machine["status"]["initialization"]["provisioned"], true, "provisioned stays true");
    let old = &machine["status"]["deprecated"]["v1beta1"]["conditions"];
    let exec = old
        .as_array()
        .expect("conditions")
        .iter()
        .find(|condition| condition["type"] == "BootstrapExecSucceeded");
    assert_eq!(exec.expect("the condition of the old contract")["reason"], "BootstrapFailed");
    assert_eq!(docker.engine.state().containers["c-w"].bootstraps, 1);
    let events = docker.world.events("BootstrapFailed").await;
    let of_worker: Vec<_> = events.iter().filter(|event| event.starts_with("DockerMachine c-w: ")).collect();
    assert!(matches!(of_worker[..], [event] if event.contains("no etcd")), "{events:?}");
}

/// Keys of the user data that have no effect are reported once.
#[tokio::test(start_paused = true)]
async fn skipped_parts_of_the_user_data_are_reported() {
    let docker = Docker::new().await;
    docker.engine.state().skips = vec!["mounts".to_owned(), "ntp".to_owned()];
    let running = docker.start();
    docker.with_machines().await;
    docker.world.run_for(60).await;
    drop(running);
    let _running = docker.start();
    docker.world.run_for(60).await;
    let machine = docker.machine("c-w").await;
    assert_eq!(condition(&machine, "BootstrapCompleted").0, "True");
    let conditions = machine["status"]["conditions"].as_array().expect("conditions");
    let hint = "These parts of the user data were skipped: mounts, ntp";
    for type_ in ["Ready", "BootstrapCompleted"] {
        let shown = conditions.iter().find(|condition| condition["type"] == type_).expect(type_);
        assert_eq!(shown["message"], hint, "{type_}, also after a restart");
    }
    let events = docker.world.events("BootstrapDataPartsSkipped").await;
    let of_worker: Vec<_> = events.iter().filter(|event| event.starts_with("DockerMachine c-w: ")).collect();
    assert_eq!(of_worker, [&format!("DockerMachine c-w: {hint}")]);
}

/// Without a problem there is nothing to tell, so a machine costs no Event.
#[tokio::test(start_paused = true)]
async fn a_machine_without_a_problem_has_no_event() {
    let docker = Docker::new().await;
    let _running = docker.start();
    docker.with_machines().await;
    docker.world.run_for(120).await;
    assert_eq!(condition(&docker.machine("c-w").await, "Ready").0, "True");
    assert_eq!(docker.world.events("").await, [""; 0]);
}

/// A management cluster that serves only v1beta1.
#[tokio::test(start_paused = true)]
async fn core_kinds_of_v1beta1_are_understood() {
    let docker = Docker::new().await;
    let _running = docker.start_with(&docker.engine, CoreApi::Beta1);
    docker.with_machines().await;
    let cluster = docker.world.get("DockerCluster", "c").await;
    assert_eq!(cluster["status"]["failureDomains"], json!({"fd1": {"controlPlane": true}}));
    assert_eq!(docker.machine("c-w").await["status"]["ready"], true);
}

/// Without an owner nothing happens; a failing engine is visible in the condition.
#[tokio::test(start_paused = true)]
async fn waits_and_failures_are_visible() {
    let docker = Docker::new().await;
    let _running = docker.start();
    docker.world.create("DockerMachine", "alone", json!({})).await;
    super::pass(30).await;
    let alone = docker.machine("alone").await;
    assert!(alone["status"].is_null() && alone["metadata"]["finalizers"].is_null(), "{alone}");
    assert_eq!(docker.engine.state().calls, 0);
    docker.engine.state().fails_to_create = true;
    docker.with_machines().await;
    let machine = docker.machine("c-w").await;
    assert_eq!(
        condition(&machine, "ContainerProvisioned"),
        ("False".to_owned(), "NotProvisioned".to_owned())
    );
    docker.engine.state().fails_to_create = false;
    docker.world.run_for(120).await;
    assert_eq!(condition(&docker.machine("c-w").await, "Ready").0, "True");
}
