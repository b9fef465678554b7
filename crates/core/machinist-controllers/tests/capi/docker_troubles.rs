//! Troubles of the engine: what a user sees, and the recovery without a second container.

use std::sync::Arc;

use machinist_controllers::capi::{CoreApi, DockerOptions, Running, Serves};
use machinist_instance::{Address, AddressKind, InstanceKey, NativeId, NodeName, Power, ProviderId};
use machinist_standin_docker::Engine;
use serde_json::Value;

use super::faulty::{Faulty, LATER, Trouble};
use super::{World, condition};

/// A cluster with a worker, and the engine as its provider sees it.
struct Docker {
    world: World,
    engine: Engine,
    seen: Faulty,
    _running: Running,
}

impl Docker {
    async fn new() -> Self {
        let world = World::new().await;
        let engine = world.engine("a");
        let seen = Faulty::new(&engine);
        let running = world.start(Serves::Docker(DockerOptions::new(Arc::new(seen.clone()))), CoreApi::Beta2);
        Self { world, engine, seen, _running: running }
    }

    /// Creates the Cluster, and waits for its load balancer.
    async fn with_cluster() -> Self {
        let docker = Self::new().await;
        docker.world.docker_cluster("c").await;
        docker.world.run_for(10).await;
        docker
    }

    /// Creates a worker, and waits for it.
    async fn with_worker() -> Self {
        let docker = Self::with_cluster().await;
        docker.world.machine("c", "c-w", false).await;
        docker.world.run_for(30).await;
        assert_eq!(docker.worker("Ready").await.0, "True");
        docker
    }

    /// The status, the reason and the message of a condition of the worker.
    async fn worker(&self, type_: &str) -> (String, String, String) {
        shown(&self.world.get("DockerMachine", "c-w").await, type_)
    }

    async fn cluster(&self, type_: &str) -> (String, String, String) {
        shown(&self.world.get("DockerCluster", "c").await, type_)
    }

    /// Waits until the worker is ready, and checks that it has one container, bootstrapped once.
    async fn recovers(&self) {
        self.seen.has(Trouble::None);
        self.world.run_for(400).await;
        assert_eq!(self.worker("Ready").await.0, "True");
        let state = self.engine.state();
        assert_eq!(state.created, ["c-w"]);
        assert_eq!(state.containers["c-w"].bootstraps, 1);
    }
}

fn shown(object: &Value, type_: &str) -> (String, String, String) {
    let (status, reason) = condition(object, type_);
    let all = object["status"]["conditions"].as_array().cloned().unwrap_or_default();
    let found = all.into_iter().find(|condition| condition["type"] == type_).unwrap_or_default();
    (status, reason, found["message"].as_str().unwrap_or_default().to_owned())
}

#[tokio::test(start_paused = true)]
async fn a_missing_socket_is_reported_until_docker_starts() {
    let docker = Docker::new().await;
    docker.seen.has(Trouble::NoSocket);
    docker.world.docker_cluster("c").await;
    docker.world.machine("c", "c-w", false).await;
    docker.world.run_for(30).await;
    let (status, reason, message) = docker.cluster("LoadBalancerAvailable").await;
    assert_eq!((status.as_str(), reason.as_str()), ("False", "EngineClosed"));
    assert!(message.contains("no engine runs at unix://") && message.contains("Start Docker"), "{message}");
    docker.recovers().await;
}

#[tokio::test(start_paused = true)]
async fn a_deletion_waits_for_an_engine_that_is_down() {
    let docker = Docker::with_worker().await;
    docker.seen.has(Trouble::NoSocket);
    docker.world.run_for(200).await;
    let (status, reason, message) = docker.worker("ContainerProvisioned").await;
    assert_eq!((status.as_str(), reason.as_str()), ("Unknown", "EngineClosed"), "its container may run");
    assert!(message.contains("Start Docker"), "{message}");
    docker.world.delete("DockerMachine", "c-w").await;
    docker.world.run_for(600).await;
    assert!(docker.world.get("DockerMachine", "c-w").await.is_object(), "the container may exist");
    docker.seen.has(Trouble::None);
    docker.world.run_for(400).await;
    assert!(docker.world.get("DockerMachine", "c-w").await.is_null());
    assert_eq!(docker.engine.state().deleted, ["c-w"]);
}

#[tokio::test(start_paused = true)]
async fn an_engine_without_answers_creates_one_container() {
    let docker = Docker::with_cluster().await;
    docker.seen.has(Trouble::Silent);
    docker.world.machine("c", "c-w", false).await;
    docker.world.run_for(120).await;
    let (status, reason, message) = docker.worker("ContainerProvisioned").await;
    assert_eq!((status.as_str(), reason.as_str()), ("False", "NotProvisioned"), "{message}");
    docker.recovers().await;
}

#[tokio::test(start_paused = true)]
async fn an_error_after_its_effect_creates_one_container() {
    let docker = Docker::with_cluster().await;
    docker.seen.has(Trouble::FailsAfterwards);
    docker.world.machine("c", "c-w", false).await;
    docker.world.run_for(60).await;
    let (status, reason, message) = docker.worker("ContainerProvisioned").await;
    assert_eq!((status.as_str(), reason.as_str()), ("False", "NotProvisioned"));
    assert!(message.contains("status 500"), "{message}");
    docker.recovers().await;
}

#[tokio::test(start_paused = true)]
async fn a_taken_name_is_reported_and_its_container_is_kept() {
    for key in [Some(InstanceKey::new("another-object")), None] {
        let docker = Docker::with_worker().await;
        // The container of another program gets the name of the next machine, just before it.
        {
            let mut state = docker.engine.state();
            let mut other = state.containers["c-w"].clone();
            other.instance.name = NodeName::new("c-x").expect("a name");
            other.instance.id = ProviderId::parse("docker:////c-x").expect("an id");
            other.instance.native_id = NativeId::new("id-9");
            other.instance.key.clone_from(&key);
            other.instance.cluster = None;
            other.instance.created = docker.world.clock.now();
            state.containers.insert("c-x".to_owned(), other);
        }
        docker.world.machine("c", "c-x", false).await;
        docker.world.run_for(60).await;
        let machine = docker.world.get("DockerMachine", "c-x").await;
        let (status, reason, message) = shown(&machine, "ContainerProvisioned");
        assert_eq!((status.as_str(), reason.as_str()), ("False", "NotProvisioned"), "{message}");
        assert!(message.contains("another key"), "{message}");
        assert_eq!(machine["spec"]["providerID"], Value::Null, "the container is not ours");
        docker.world.delete("DockerMachine", "c-x").await;
        docker.world.run_for(300).await;
        assert!(docker.world.get("DockerMachine", "c-x").await.is_null(), "key {key:?}");
        assert!(docker.engine.state().containers.contains_key("c-x"), "never deleted");
        assert!(docker.engine.state().deleted.is_empty());
    }
}

#[tokio::test(start_paused = true)]
async fn a_killed_container_is_reported_until_it_runs_again() {
    let docker = Docker::with_worker().await;
    let power = |power| {
        let mut state = docker.engine.state();
        state.containers.get_mut("c-w").expect("created").instance.power = power;
    };
    power(Power::Stopped);
    docker.world.run_for(90).await;
    let (status, reason, message) = docker.worker("ContainerProvisioned").await;
    assert_eq!((status.as_str(), reason.as_str()), ("False", "ContainerStopped"), "{message}");
    assert_eq!(docker.worker("Ready").await.0, "False");
    let machine = docker.world.get("DockerMachine", "c-w").await;
    assert_eq!(machine["status"]["initialization"]["provisioned"], true, "provisioned stays true");
    power(Power::Running);
    docker.recovers().await;
}

/// The engine stops all containers, and starts them in another order, with other addresses.
#[tokio::test(start_paused = true)]
async fn a_restarted_host_changes_only_addresses() {
    let docker = Docker::with_worker().await;
    docker.seen.has(Trouble::NoSocket);
    let change = |power, last: u8| {
        let mut state = docker.engine.state();
        let instance = &mut state.containers.get_mut("c-w").expect("created").instance;
        let address = format!("172.18.0.{last}");
        instance.power = power;
        instance.addresses = match power {
            Power::Running => vec![Address { kind: AddressKind::InternalIP, address }],
            _ => Vec::new(),
        };
    };
    change(Power::Stopped, 0);
    docker.world.run_for(30).await;
    docker.seen.has(Trouble::None);
    docker.world.run_for(90).await;
    assert_eq!(docker.worker("ContainerProvisioned").await.1, "ContainerStopped");
    change(Power::Running, 99);
    docker.recovers().await;
    let machine = docker.world.get("DockerMachine", "c-w").await;
    let addresses = machine["status"]["addresses"].to_string();
    assert!(addresses.contains("172.18.0.99"), "{addresses}");
    assert_eq!(docker.engine.state().balancers.len(), 1);
}

/// A creation has no answer. It takes effect after the repeated one and after the deletion.
#[tokio::test(start_paused = true)]
async fn a_late_creation_leaves_no_container() {
    let docker = Docker::with_cluster().await;
    docker.seen.has(Trouble::CreatesLater);
    docker.world.machine("c", "c-w", false).await;
    docker.world.run_for(10).await;
    assert_eq!(docker.engine.state().created, ["c-w"], "the repeated call has created it");
    docker.world.delete("DockerMachine", "c-w").await;
    docker.world.run_for(LATER.as_secs() + 60).await;
    assert!(docker.world.get("DockerMachine", "c-w").await.is_null());
    let state = docker.engine.state();
    assert!(state.containers.is_empty(), "{:?}", state.containers.keys());
}

#[tokio::test(start_paused = true)]
async fn a_late_creation_leaves_no_load_balancer() {
    let docker = Docker::new().await;
    docker.seen.has(Trouble::BalancesLater);
    docker.world.docker_cluster("c").await;
    docker.world.run_for(10).await;
    assert_eq!(docker.engine.state().balancers.len(), 1, "the repeated call has created it");
    docker.world.delete("DockerCluster", "c").await;
    docker.world.run_for(LATER.as_secs() + 60).await;
    assert!(docker.world.get("DockerCluster", "c").await.is_null());
    let state = docker.engine.state();
    assert!(state.balancers.is_empty(), "{:?}", state.balancers.keys());
}
