//! Lives of clusters whose machines are containers: created, changed, broken, deleted.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use machinist_controllers::capi::{CoreApi, Key, Serves};
use machinist_instance::{Address, AddressKind, InstanceKey, NativeId, NodeName, Power, ProviderId};
use serde_json::json;

use super::docker::Docker;
use super::mini_core::{machine_metadata, machine_spec};
use super::{condition, pass};

/// The objects of a cluster are deleted in the order of the core controllers.
#[tokio::test(start_paused = true)]
async fn a_deleted_cluster_leaves_nothing_behind() {
    let docker = Docker::new().await;
    let running = docker.start();
    docker.with_machines().await;
    for name in ["c-w", "c-cp"] {
        docker.world.delete("Machine", name).await;
        docker.world.delete("DockerMachine", name).await;
        docker.world.run_for(60).await;
        assert!(docker.machine(name).await.is_null());
    }
    docker.world.delete("DockerCluster", "c").await;
    docker.world.run_for(30).await;
    docker.world.delete("Cluster", "c").await;
    docker.world.run_for(5).await;
    assert!(docker.world.get("DockerCluster", "c").await.is_null());
    let state = docker.engine.state();
    assert!(state.containers.is_empty() && state.balancers.is_empty());
    let whys = running.inspector().whys();
    assert!(whys.is_empty(), "no object is remembered: {whys:?}");
}

impl Docker {
    /// Returns the weight of each backend.
    fn weights(&self) -> Vec<(String, u8)> {
        self.engine.state().balancers.get("c-lb").map(|(_, targets)| targets.clone()).unwrap_or_default()
    }
}

fn weights(expected: &[(&str, u8)]) -> Vec<(String, u8)> {
    expected.iter().map(|(name, weight)| ((*name).to_owned(), *weight)).collect()
}

/// A machine of the control plane gets no new connections while it is drained, and its container is
/// deleted after it has left the load balancer.
#[tokio::test(start_paused = true)]
async fn a_control_plane_is_drained_before_it_is_deleted() {
    let docker = Docker::new().await;
    let _running = docker.start();
    docker.world.docker_cluster("c").await;
    for name in ["c-1", "c-2", "c-3"] {
        docker.world.machine("c", name, true).await;
        docker.world.run_for(30).await;
        assert_eq!(condition(&docker.machine(name).await, "Ready").0, "True");
    }
    assert_eq!(docker.weights(), weights(&[("c-1", 100), ("c-2", 100), ("c-3", 100)]));
    let hold = json!({"metadata": {"finalizers": ["machine.cluster.x-k8s.io"]}});
    docker.world.merge("Machine", "c-2", hold).await;
    docker.world.delete("Machine", "c-2").await;
    docker.world.run_for(15).await;
    assert_eq!(docker.weights(), weights(&[("c-1", 100), ("c-2", 0), ("c-3", 100)]));
    assert!(docker.engine.state().deleted.is_empty(), "its API server still has connections");
    docker.world.delete("DockerMachine", "c-2").await;
    docker.world.run_for(60).await;
    assert_eq!(docker.weights(), weights(&[("c-1", 100), ("c-3", 100)]));
    assert_eq!(docker.engine.state().deleted, ["c-2"]);
    assert!(docker.machine("c-2").await.is_null());
}

/// The load balancer is compared with what is wanted every ten seconds. A new one gets the address
/// and the port of the old one.
#[tokio::test(start_paused = true)]
async fn a_lost_load_balancer_is_created_again() {
    let docker = Docker::new().await;
    let _running = docker.start();
    docker.with_machines().await;
    docker.engine.state().balancers.clear();
    pass(11).await;
    let spec = docker.engine.state().balancers.get("c-lb").expect("a load balancer").0.clone();
    assert_eq!(spec.options["ip"], "172.18.0.2");
    assert_eq!(spec.options["host-port.6443"], "32770");
    assert_eq!(docker.weights(), weights(&[("c-cp", 100)]));
}

/// An engine that restarts stops all containers, and gives them other addresses.
#[tokio::test(start_paused = true)]
async fn a_restarted_container_reports_its_new_address() {
    let docker = Docker::new().await;
    let _running = docker.start();
    docker.with_machines().await;
    let change = |power: Power, address: Option<&str>| {
        let mut state = docker.engine.state();
        let instance = &mut state.containers.get_mut("c-w").expect("a container").instance;
        instance.power = power;
        let address = address.map(|text| Address { kind: AddressKind::InternalIP, address: text.to_owned() });
        instance.addresses = address.into_iter().collect();
    };
    change(Power::Stopped, None);
    docker.world.run_for(70).await;
    let machine = docker.machine("c-w").await;
    let stopped = ("False".to_owned(), "ContainerStopped".to_owned());
    assert_eq!(condition(&machine, "ContainerProvisioned"), stopped);
    assert_eq!(machine["status"]["initialization"]["provisioned"], true, "the mark stays");
    change(Power::Running, None);
    docker.world.run_for(70).await;
    change(Power::Running, Some("172.18.0.99"));
    docker.world.run_for(7).await;
    let machine = docker.machine("c-w").await;
    assert_eq!(machine["status"]["addresses"][1]["address"], "172.18.0.99", "within 5 seconds");
    assert_eq!(condition(&machine, "Ready").0, "True");
    assert_eq!(docker.engine.state().containers["c-w"].bootstraps, 1, "a restart repeats nothing");
}

/// A pause at any moment stops the calls, and its end continues the work.
#[tokio::test(start_paused = true)]
async fn a_pause_in_each_phase_stops_the_work() {
    for seconds in 0..12 {
        let docker = Docker::new().await;
        let _running = docker.start();
        docker.world.docker_cluster("c").await;
        docker.world.machine("c", "c-cp", true).await;
        docker.world.run_for(seconds).await;
        docker.world.merge("Cluster", "c", json!({"spec": {"paused": true}})).await;
        pass(2).await;
        let calls = docker.engine.state().calls;
        docker.world.run_for(60).await;
        assert_eq!(docker.engine.state().calls, calls, "paused after {seconds} s");
        docker.world.merge("Cluster", "c", json!({"spec": {"paused": false}})).await;
        docker.world.run_for(90).await;
        let machine = docker.machine("c-cp").await;
        assert_eq!(condition(&machine, "Ready").0, "True", "paused after {seconds} s: {machine}");
        assert_eq!(docker.engine.state().containers["c-cp"].bootstraps, 1);
    }
}

/// A container of the same name that another object owns is neither used nor deleted.
#[tokio::test(start_paused = true)]
async fn a_container_of_another_object_is_left_alone() {
    let docker = Docker::new().await;
    let _running = docker.start();
    docker.with_machines().await;
    let theirs = {
        let mut state = docker.engine.state();
        let mut theirs = state.containers["c-w"].clone();
        theirs.instance.key = Some(InstanceKey::new("of another namespace"));
        theirs.instance.native_id = machinist_instance::NativeId::new("id-9");
        state.containers.insert("c-twin".to_owned(), theirs.clone());
        theirs
    };
    docker.world.machine("c", "c-twin", false).await;
    docker.world.run_for(60).await;
    let machine = docker.machine("c-twin").await;
    let reason = condition(&machine, "ContainerProvisioned");
    assert_eq!(reason, ("False".to_owned(), "NotProvisioned".to_owned()), "{machine}");
    docker.world.delete("Machine", "c-twin").await;
    docker.world.delete("DockerMachine", "c-twin").await;
    docker.world.run_for(600).await;
    let state = docker.engine.state();
    assert_eq!(state.containers["c-twin"].instance, theirs.instance);
    assert!(state.deleted.is_empty());
}

/// A container of another Docker provider of Cluster API has no key. With its recorded id, it is
/// continued without a bootstrap, and deleted with its object.
#[tokio::test(start_paused = true)]
async fn a_container_of_upstream_is_taken_over() {
    let docker = Docker::new().await;
    docker.world.docker_cluster("c").await;
    {
        let first = Docker::new().await;
        let _running = first.start();
        first.with_machines().await;
        let mut theirs = first.engine.state().containers["c-w"].clone();
        theirs.instance.key = None;
        theirs.instance.cluster = None;
        theirs.instance.tags.insert("io.x-k8s.kind.cluster".to_owned(), "c".to_owned());
        theirs.bootstraps = 0;
        docker.engine.state().containers.insert("c-w".to_owned(), theirs);
    }
    let mut metadata = machine_metadata("c", "c-w", false);
    metadata["finalizers"] = json!(["dockermachine.infrastructure.cluster.x-k8s.io"]);
    let id = docker.engine.state().containers["c-w"].instance.native_id.clone().expect("an id");
    metadata["annotations"] = json!({"machinist.dev/container-id": format!("default/c-w/{id}")});
    let spec = json!({"providerID": "docker:////c-w"});
    docker.world.create_with("DockerMachine", metadata, spec).await;
    docker.world.create_with("Machine", machine_metadata("c", "c-w", false), machine_spec("c", "c-w")).await;
    docker.world.merge_status("Machine", "c-w", json!({"nodeRef": {"name": "c-w"}})).await;
    let _running = docker.start();
    docker.world.run_for(60).await;
    let machine = docker.machine("c-w").await;
    assert_eq!(condition(&machine, "Ready").0, "True", "{machine}");
    {
        let state = docker.engine.state();
        assert_eq!((state.created.len(), state.containers["c-w"].bootstraps), (0, 0));
    }
    docker.world.delete("DockerMachine", "c-w").await;
    docker.world.run_for(60).await;
    assert!(docker.machine("c-w").await.is_null());
    assert_eq!(docker.engine.state().deleted, ["c-w"]);
}

/// A restart of the engine deals out dynamic addresses in another order. A control plane that lost
/// its address says so, and what to do. With fixed addresses, a restart changes nothing.
#[tokio::test(start_paused = true)]
async fn a_control_plane_that_moved_in_a_restart_is_reported() {
    for is_dynamic in [false, true] {
        let docker = Docker::new().await;
        let running = docker.start();
        docker.with_machines().await;
        docker.engine.state().deals_out_addresses = is_dynamic;
        docker.engine.state().restart();
        docker.world.run_for(120).await;
        let machine = docker.machine("c-cp").await;
        let worker = docker.machine("c-w").await;
        assert_eq!(condition(&worker, "Ready").0, "True", "a kubelet reports its new address: {worker}");
        let reported = condition(&machine, "ContainerProvisioned");
        let key = Key::DockerMachine(machinist_kube::ObjectKey::new("default", "c-cp"));
        let why = running.inspector().why(&key).expect("it is explained").why.reason.to_string();
        if is_dynamic {
            assert_eq!(reported, ("False".to_owned(), "AddressChanged".to_owned()), "{machine}");
            assert!(why.contains("its control plane is configured for 172.18.0."), "{why}");
        } else {
            assert_eq!(reported.0, "True", "{machine}");
        }
        docker.engine.state().restart();
        docker.world.run_for(120).await;
        let machine = docker.machine("c-cp").await;
        assert_eq!(condition(&machine, "Ready").0, "True", "two containers: it has its address again");
    }
}

/// A user copies the key of a machine, and the id of its container. The machine goes on, and the
/// copy waits. No text that others can read contains the key.
#[tokio::test(start_paused = true)]
async fn a_copied_key_does_not_stop_the_original() {
    let docker = Docker::new().await;
    let running = docker.start();
    docker.with_machines().await;
    let original = docker.machine("c-w").await;
    let uid = original["metadata"]["uid"].as_str().expect("a uid").to_owned();
    let annotations = &original["metadata"]["annotations"];
    let id = annotations["machinist.dev/container-id"].as_str().and_then(|id| id.rsplit('/').next());
    let id = id.expect("a recorded container").to_owned();
    for (name, annotation, value) in
        [("c-key", "machinist.dev/key", &uid), ("c-id", "machinist.dev/container-id", &id)]
    {
        let mut metadata = machine_metadata("c", name, false);
        metadata["annotations"] = json!({annotation: format!("default/{name}/{value}")});
        docker.world.create_with("DockerMachine", metadata, json!({})).await;
        docker
            .world
            .create_with("Machine", machine_metadata("c", name, false), machine_spec("c", name))
            .await;
    }
    docker.world.run_for(120).await;
    for name in ["c-key", "c-id"] {
        let copy = docker.machine(name).await;
        assert_eq!(
            condition(&copy, "ContainerProvisioned"),
            ("False".to_owned(), "KeyTaken".to_owned()),
            "{copy}"
        );
        let status = copy["status"].to_string();
        assert!(!status.contains(&uid), "{status}");
        assert!(!docker.engine.state().containers.contains_key(name), "{name} has no container of its own");
    }
    let whys = format!("{:?}", running.inspector().whys());
    assert!(!whys.contains(&uid), "{whys}");
    let events = docker.world.events("").await;
    assert!(events.iter().any(|event| event.starts_with("DockerMachine c-key: ")), "{events:#?}");
    assert!(!events.iter().any(|event| event.contains(&uid) || event.contains(&id)), "{events:#?}");
    // A new container address is a change that the original has to follow.
    docker.engine.state().containers.get_mut("c-w").expect("a container").instance.addresses =
        vec![Address { kind: AddressKind::InternalIP, address: "172.18.0.99".to_owned() }];
    docker.world.run_for(120).await;
    let original = docker.machine("c-w").await;
    assert_eq!(condition(&original, "Ready").0, "True", "{original}");
    assert!(original["status"]["addresses"].to_string().contains("172.18.0.99"), "it goes on: {original}");
    docker.world.delete("DockerMachine", "c-key").await;
    docker.world.delete("DockerMachine", "c-id").await;
    docker.world.run_for(120).await;
    assert_eq!(docker.engine.state().deleted, [""; 0], "the container of the original stays");
    docker.world.delete("DockerMachine", "c-w").await;
    docker.world.run_for(120).await;
    assert!(docker.machine("c-w").await.is_null(), "the original is deleted");
    assert_eq!(docker.engine.state().deleted, ["c-w"]);
}

/// A user writes the name or the id of a container of another program or Cluster into an object.
/// Its bootstrap data would run there as root, and its deletion would delete that container.
#[tokio::test(start_paused = true)]
async fn a_written_id_gives_no_container_of_others() {
    for (label, is_recorded) in [
        (None, false),
        (None, true),
        (Some("other"), false),
        (Some("other"), true),
        (Some("c"), false),
        (Some("c"), true),
    ] {
        let docker = Docker::new().await;
        let _running = docker.start();
        docker.with_machines().await;
        let id = {
            let mut state = docker.engine.state();
            let mut theirs = state.containers["c-w"].clone();
            theirs.instance.name = NodeName::new("database").expect("a name");
            theirs.instance.id = ProviderId::parse("docker:////database").expect("an id");
            theirs.instance.native_id = NativeId::new("id-of-database");
            (theirs.instance.key, theirs.instance.cluster) = (None, None);
            let label = label.map(|label| ("io.x-k8s.kind.cluster".to_owned(), label.to_owned()));
            theirs.instance.tags = label.into_iter().collect();
            theirs.bootstraps = 0;
            state.containers.insert("database".to_owned(), theirs);
            "id-of-database"
        };
        let mut metadata = machine_metadata("c", "c-x", false);
        if is_recorded {
            metadata["annotations"] = json!({"machinist.dev/container-id": format!("default/c-x/{id}")});
        }
        let spec = json!({"providerID": "docker:////database", "preLoadImages": ["image:1"]});
        docker.world.create_with("DockerMachine", metadata, spec).await;
        docker
            .world
            .create_with("Machine", machine_metadata("c", "c-x", false), machine_spec("c", "c-x"))
            .await;
        docker.world.run_for(200).await;
        let case = format!("label {label:?}, recorded: {is_recorded}");
        assert_eq!(docker.engine.state().containers["database"].bootstraps, 0, "{case}");
        docker.world.delete("DockerMachine", "c-x").await;
        docker.world.run_for(600).await;
        let is_of_the_cluster = label == Some("c") && is_recorded;
        let is_left = docker.engine.state().containers.contains_key("database");
        assert_eq!(is_left, !is_of_the_cluster, "{case}");
    }
}

/// The API servers of the workload cluster no longer exist.
#[tokio::test(start_paused = true)]
async fn a_deletion_needs_no_workload_cluster() {
    let docker = Docker::new().await;
    let mut options = docker.options(&docker.engine);
    options.workloads = Arc::new(super::workload::Unreachable);
    let _running = docker.world.start(Serves::Docker(options), CoreApi::Beta2);
    docker.with_machines().await;
    for name in ["c-w", "c-cp"] {
        docker.world.delete("DockerMachine", name).await;
    }
    docker.world.run_for(120).await;
    assert!(docker.machine("c-w").await.is_null() && docker.machine("c-cp").await.is_null());
    assert!(docker.engine.state().containers.is_empty());
}

/// The process crashes at each request in turn, before or after its effect, and starts again.
#[tokio::test(start_paused = true)]
async fn a_crash_at_any_request_repeats_no_bootstrap() {
    let mut points = 0;
    for after in [false, true] {
        for point in 0.. {
            let mut docker = Docker::new().await;
            docker.world.after = after;
            docker.world.docker_cluster("c").await;
            docker.world.machine("c", "c-cp", true).await;
            docker.world.left.store(point, Ordering::Relaxed);
            let first = docker.start();
            docker.world.run_for(20).await;
            drop(first);
            let is_complete = 0 < docker.world.left.load(Ordering::Relaxed);
            docker.world.left.store(usize::MAX, Ordering::Relaxed);
            let _second = docker.start();
            docker.world.run_for(90).await;
            let machine = docker.machine("c-cp").await;
            let context = format!("crash at {point}, after the effect: {after}: {machine}");
            assert_eq!(condition(&machine, "Ready").0, "True", "{context}");
            let state = docker.engine.state();
            assert_eq!((state.created.len(), state.containers["c-cp"].bootstraps), (1, 1), "{context}");
            drop(state);
            points += 1;
            if is_complete {
                break;
            }
        }
    }
    assert!(20 < points, "expected more than 20 crash points, got {points}");
}

/// An engine whose balancer has a template of the user: it is read for each comparison.
#[tokio::test(start_paused = true)]
async fn a_template_of_a_user_reaches_the_load_balancer() {
    let docker = Docker::new().await;
    let _running = docker.start();
    let spec = json!({"loadBalancer": {"customHAProxyConfigTemplateRef": {"name": "lb"}}});
    docker.world.create("DockerCluster", "c", spec).await;
    docker.world.cluster("c", "DockerCluster").await;
    docker.world.run_for(10).await;
    let cluster = docker.world.get("DockerCluster", "c").await;
    assert_eq!(condition(&cluster, "LoadBalancerAvailable").0, "False");
    assert!(cluster.to_string().contains("ConfigMap lb does not exist"), "{cluster}");
    let map = |text: &str| json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "lb"}, "data": {"value": text}});
    let maps: kube::Api<k8s_openapi::api::core::v1::ConfigMap> =
        kube::Api::namespaced(docker.world.user.clone(), super::NAMESPACE);
    let created = serde_json::from_value(map("one")).expect("a ConfigMap");
    maps.create(&Default::default(), &created).await.expect("accepted");
    docker.world.run_for(60).await;
    let template = || {
        let state = docker.engine.state();
        state.balancers.get("c-lb").and_then(|(spec, _)| spec.options.get("haproxy-template").cloned())
    };
    assert_eq!(template().as_deref(), Some("one"));
    let patch = kube::api::Patch::Merge(map("two"));
    maps.patch("lb", &Default::default(), &patch).await.expect("accepted");
    pass(11).await;
    assert_eq!(template().as_deref(), Some("two"));
}
