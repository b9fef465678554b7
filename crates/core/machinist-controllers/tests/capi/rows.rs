//! Single rules about containers, from Cluster API's tutorial and from its contract.

use std::sync::atomic::Ordering;

use kube::Api;
use machinist_api::capi::constants::{CLUSTER_NAME_LABEL, WATCH_FILTER_LABEL};
use machinist_controllers::capi::{CapiOptions, CoreApi, Key, Running, Serves};
use machinist_instance::BootstrapFormat;
use serde_json::{Value, json};

use super::docker::Docker;
use super::mini_core::{machine_metadata, machine_spec};
use super::{NAMESPACE, condition, pass};

/// Returns the code of the reason of a DockerMachine.
fn code(running: &Running, name: &str) -> String {
    let key = Key::DockerMachine(machinist_kube::ObjectKey::new(NAMESPACE, name));
    running.inspector().why(&key).map(|record| record.why.reason.code().to_owned()).unwrap_or_default()
}

/// A status that cannot be written is written later.
#[tokio::test(start_paused = true)]
async fn a_lost_write_of_the_status_is_repeated() {
    let docker = Docker::new().await;
    let _running = docker.start();
    docker.with_machines().await;
    docker.world.loses_status.store(true, Ordering::Relaxed);
    docker.world.machine("c", "c-late", false).await;
    docker.world.run_for(30).await;
    assert_eq!(docker.machine("c-late").await["status"], Value::Null);
    docker.world.loses_status.store(false, Ordering::Relaxed);
    docker.world.run_for(120).await;
    assert_eq!(condition(&docker.machine("c-late").await, "Ready").0, "True");
    assert_eq!(docker.engine.state().containers["c-late"].bootstraps, 1);
}

/// An object that is deleted early is forgotten without an error.
#[tokio::test(start_paused = true)]
async fn an_object_that_is_deleted_early_is_forgotten() {
    let docker = Docker::new().await;
    let running = docker.start();
    docker.world.create("DockerMachine", "short", json!({})).await;
    docker.world.delete("DockerMachine", "short").await;
    pass(30).await;
    assert!(running.is_ready());
    assert_eq!((code(&running, "short"), docker.engine.state().calls), (String::new(), 0));
}

/// Without its DockerCluster a machine waits, and its arrival starts the work.
#[tokio::test(start_paused = true)]
async fn a_machine_waits_for_its_infrastructure() {
    let docker = Docker::new().await;
    let running = docker.start();
    docker.world.cluster("c", "DockerCluster").await;
    docker.world.machine("c", "c-cp", true).await;
    docker.world.run_for(30).await;
    assert_eq!(code(&running, "c-cp"), "InfrastructureMissing");
    let machine = docker.machine("c-cp").await;
    assert!(machine["metadata"]["finalizers"].is_null() && machine["status"].is_null(), "{machine}");
    assert_eq!(docker.engine.state().calls, 0);
    docker.world.create("DockerCluster", "c", json!({})).await;
    docker.world.run_for(30).await;
    assert_eq!(condition(&docker.machine("c-cp").await, "Ready").0, "True");
}

/// The annotation pauses one object. The condition names the cause, and follows it.
#[tokio::test(start_paused = true)]
async fn the_condition_of_a_pause_follows_its_cause() {
    let docker = Docker::new().await;
    let running = docker.start();
    docker.with_machines().await;
    let pause = json!({"metadata": {"annotations": {"cluster.x-k8s.io/paused": ""}}});
    docker.world.merge("DockerMachine", "c-w", pause.clone()).await;
    docker.world.merge("DockerCluster", "c", pause).await;
    pass(5).await;
    for kind in ["DockerMachine", "DockerCluster"] {
        let name = if kind == "DockerMachine" { "c-w" } else { "c" };
        let object = docker.world.get(kind, name).await;
        let all = object["status"]["conditions"].as_array().cloned().unwrap_or_default();
        let paused = all.iter().find(|condition| condition["type"] == "Paused").expect("a condition");
        let message = format!("{kind} has the cluster.x-k8s.io/paused annotation");
        assert_eq!((&paused["status"], &paused["message"]), (&json!("True"), &json!(message)));
        assert!(paused["observedGeneration"].is_i64(), "{paused}");
    }
    assert_eq!(code(&running, "c-w"), "Paused");
    let before = docker.machine("c-w").await["metadata"]["resourceVersion"].clone();
    docker.world.run_for(60).await;
    let after = docker.machine("c-w").await["metadata"]["resourceVersion"].clone();
    assert_eq!(before, after, "a paused object is written once");
    let free = json!({"metadata": {"annotations": {"cluster.x-k8s.io/paused": null}}});
    docker.world.merge("DockerMachine", "c-w", free).await;
    pass(5).await;
    let paused = condition(&docker.machine("c-w").await, "Paused");
    assert_eq!(paused, ("False".to_owned(), "NotPaused".to_owned()));
}

/// A Cluster that is paused from the start gets nothing until the pause ends.
#[tokio::test(start_paused = true)]
async fn the_end_of_a_pause_wakes_the_cluster() {
    let docker = Docker::new().await;
    let _running = docker.start();
    docker.world.docker_cluster("c").await;
    docker.world.merge("Cluster", "c", json!({"spec": {"paused": true}})).await;
    docker.world.run_for(30).await;
    let cluster = docker.world.get("DockerCluster", "c").await;
    assert_eq!((docker.engine.state().calls, &cluster["metadata"]["finalizers"]), (0, &Value::Null));
    docker.world.merge("Cluster", "c", json!({"spec": {"paused": false}})).await;
    pass(3).await;
    let cluster = docker.world.get("DockerCluster", "c").await;
    assert_eq!(cluster["status"]["ready"], true);
    let finalizers = json!(["dockercluster.infrastructure.cluster.x-k8s.io"]);
    assert_eq!(cluster["metadata"]["finalizers"], finalizers);
}

/// Each defect of the bootstrap data is reported, and its correction starts the bootstrap. An empty
/// format means cloud-config.
#[tokio::test(start_paused = true)]
async fn bootstrap_data_is_read_when_it_can_be_used() {
    for (data, reason, format) in [
        (None, "NotCompleted", BootstrapFormat::CloudConfig),
        (Some(json!({"text": "x"})), "InvalidBootstrapData", BootstrapFormat::CloudConfig),
        (
            Some(json!({"value": "x", "format": "bottlerocket"})),
            "InvalidBootstrapData",
            BootstrapFormat::Ignition,
        ),
    ] {
        let docker = Docker::new().await;
        let _running = docker.start();
        docker.world.docker_cluster("c").await;
        let metadata = machine_metadata("c", "c-w", false);
        docker.world.create_with("DockerMachine", metadata.clone(), json!({})).await;
        docker.world.create_with("Machine", metadata, machine_spec("c", "c-w")).await;
        let has_secret = data.is_some();
        if let Some(data) = data {
            docker.world.bootstrap_data("c-w", data).await;
        }
        docker.world.run_for(20).await;
        let machine = docker.machine("c-w").await;
        assert_eq!(condition(&machine, "BootstrapCompleted").1, reason, "{machine}");
        assert!(machine.to_string().contains("Secret c-w"), "the Secret is named: {machine}");
        let correct = match format {
            BootstrapFormat::Ignition => json!({"value": "{}", "format": "ignition"}),
            BootstrapFormat::CloudConfig => json!({"value": "#cloud-config\n"}),
        };
        if has_secret {
            let secrets: Api<k8s_openapi::api::core::v1::Secret> =
                Api::namespaced(docker.world.user.clone(), NAMESPACE);
            secrets.delete("c-w", &Default::default()).await.expect("the Secret is deleted");
        }
        docker.world.bootstrap_data("c-w", correct).await;
        docker.world.run_for(120).await;
        let container = docker.engine.state().containers["c-w"].clone();
        assert_eq!((container.bootstraps, container.format), (1, Some(format)));
    }
}

#[tokio::test(start_paused = true)]
async fn a_finished_machine_has_the_fields_of_the_tutorial() {
    let docker = Docker::new().await;
    let _running = docker.start();
    docker.with_machines().await;
    for (name, balanced) in [("c-cp", json!(true)), ("c-w", Value::Null)] {
        let machine = docker.machine(name).await;
        assert_eq!(machine["spec"]["bootstrapped"], true, "{machine}");
        assert_eq!(machine["spec"]["providerID"], format!("docker:////{name}"));
        assert_eq!(machine["status"]["ready"], true);
        assert_eq!(machine["status"]["loadBalancerConfigured"], balanced, "only a control plane is balanced");
    }
}

/// A deletion that fails keeps the finalizer, so no container is forgotten.
#[tokio::test(start_paused = true)]
async fn a_failed_deletion_keeps_the_finalizer() {
    let docker = Docker::new().await;
    let running = docker.start();
    docker.with_machines().await;
    docker.engine.state().fails_to_delete = true;
    docker.world.delete("DockerMachine", "c-w").await;
    docker.world.run_for(120).await;
    let machine = docker.machine("c-w").await;
    assert!(machine["metadata"]["finalizers"].is_array(), "{machine}");
    let deleting = ("False".to_owned(), "Deleting".to_owned());
    assert_eq!(condition(&machine, "ContainerProvisioned"), deleting);
    assert_eq!(code(&running, "c-w"), "CallFailed");
    docker.engine.state().fails_to_delete = false;
    docker.world.run_for(120).await;
    assert!(docker.machine("c-w").await.is_null());
    assert!(!docker.engine.state().containers.contains_key("c-w"));
}

/// A change of the Machine wakes its DockerMachine at once.
#[tokio::test(start_paused = true)]
async fn a_change_of_the_machine_wakes_its_infrastructure() {
    let docker = Docker::new().await;
    let running = docker.start();
    docker.world.docker_cluster("c").await;
    let metadata = machine_metadata("c", "c-cp", true);
    docker.world.bootstrap_data("c-cp", json!({"value": "#cloud-config\n"})).await;
    docker.world.create_with("DockerMachine", metadata.clone(), json!({})).await;
    let mut spec = machine_spec("c", "c-cp");
    spec["bootstrap"] = json!({});
    docker.world.create_with("Machine", metadata, spec).await;
    docker.world.run_for(20).await;
    assert_eq!(code(&running, "c-cp"), "BootstrapDataMissing");
    assert!(docker.engine.state().containers.is_empty());
    let ready = json!({"spec": {"bootstrap": {"dataSecretName": "c-cp"}}});
    docker.world.merge("Machine", "c-cp", ready).await;
    pass(1).await;
    assert!(docker.engine.state().containers.contains_key("c-cp"));
}

/// Core controllers clone a template. Until the Machine owns the clone, nothing happens.
#[tokio::test(start_paused = true)]
async fn machines_of_a_template_are_provisioned() {
    let docker = Docker::new().await;
    let _running = docker.start();
    docker.with_machines().await;
    let template = json!({"template": {"spec": {"customImage": "example.com/node:1"}}});
    docker.world.create("DockerMachineTemplate", "t", template).await;
    let template = docker.world.get("DockerMachineTemplate", "t").await;
    for name in ["c-md-1", "c-md-2"] {
        let mut metadata = machine_metadata("c", name, false);
        metadata["annotations"] = json!({
            "cluster.x-k8s.io/cloned-from-name": "t",
            "cluster.x-k8s.io/cloned-from-groupkind":
                "DockerMachineTemplate.infrastructure.cluster.x-k8s.io",
        });
        metadata["ownerReferences"] = json!([{
            "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "MachineSet", "name": "c-md", "uid": "s",
        }]);
        let spec = template["spec"]["template"]["spec"].clone();
        docker.world.create_with("DockerMachine", metadata, spec).await;
        docker.world.run_for(10).await;
        let clone = docker.machine(name).await;
        assert!(clone["metadata"]["finalizers"].is_null(), "the owner is not a Machine yet: {clone}");
        docker.world.bootstrap_data(name, json!({"value": "#cloud-config\n"})).await;
        let metadata = machine_metadata("c", name, false);
        docker.world.create_with("Machine", metadata, machine_spec("c", name)).await;
    }
    docker.world.run_for(60).await;
    for name in ["c-md-1", "c-md-2"] {
        let clone = docker.machine(name).await;
        assert_eq!(condition(&clone, "Ready").0, "True", "{clone}");
        assert_eq!(clone["metadata"]["annotations"]["cluster.x-k8s.io/cloned-from-name"], "t");
        assert_eq!(docker.engine.state().containers[name].image, "example.com/node:1");
    }
}

/// Labels, annotations, finalizers and conditions of others survive every patch of ours.
#[tokio::test(start_paused = true)]
async fn fields_of_others_survive() {
    let docker = Docker::new().await;
    let _running = docker.start();
    docker.world.docker_cluster("c").await;
    docker.world.bootstrap_data("c-w", json!({"value": "#cloud-config\n"})).await;
    let mut metadata = machine_metadata("c", "c-w", false);
    metadata["labels"]["team"] = json!("a");
    metadata["annotations"] = json!({"note/of": "somewhere"});
    metadata["finalizers"] = json!(["example.com/keep"]);
    docker.world.create_with("DockerMachine", metadata, json!({})).await;
    docker.world.create_with("Machine", machine_metadata("c", "c-w", false), machine_spec("c", "c-w")).await;
    docker.world.run_for(5).await;
    let mut conditions = docker.machine("c-w").await["status"]["conditions"].clone();
    let theirs = json!({
        "type": "Audited", "status": "True", "reason": "Theirs", "message": "",
        "lastTransitionTime": "2027-01-15T08:00:00Z",
    });
    conditions.as_array_mut().expect("conditions").push(theirs);
    docker.world.merge_status("DockerMachine", "c-w", json!({"conditions": conditions})).await;
    docker.world.run_for(60).await;
    let machine = docker.machine("c-w").await;
    assert_eq!(condition(&machine, "Ready").0, "True", "{machine}");
    assert_eq!(condition(&machine, "Audited"), ("True".to_owned(), "Theirs".to_owned()));
    docker.world.delete("DockerMachine", "c-w").await;
    docker.world.run_for(60).await;
    let machine = docker.machine("c-w").await;
    let metadata = &machine["metadata"];
    assert_eq!(metadata["finalizers"], json!(["example.com/keep"]), "only our finalizer is removed");
    assert_eq!(
        (&metadata["labels"]["team"], &metadata["annotations"]["note/of"]),
        (&json!("a"), &json!("somewhere"))
    );
}

/// A process serves one namespace, or the objects with one label.
#[tokio::test(start_paused = true)]
async fn a_process_serves_its_namespace_and_label_only() {
    let docker = Docker::new().await;
    let start = |namespace: &str, filter: Option<&str>| {
        let serves = Serves::Docker(docker.options(&docker.engine));
        let watch_filter = filter.map(str::to_owned);
        docker
            .world
            .start_in(namespace, CapiOptions { watch_filter, ..CapiOptions::new(serves, CoreApi::Beta2) })
    };
    let elsewhere = start("elsewhere", None);
    let filtered = start("", Some("ours"));
    docker.with_machines().await;
    assert!(elsewhere.is_ready() && filtered.is_ready());
    assert_eq!(docker.engine.state().calls, 0);
    let ours = json!({"metadata": {"labels": {WATCH_FILTER_LABEL: "ours"}}});
    for (kind, name) in [("DockerCluster", "c"), ("DockerMachine", "c-cp")] {
        docker.world.merge(kind, name, ours.clone()).await;
    }
    docker.world.run_for(30).await;
    drop((elsewhere, filtered));
    let containers: Vec<String> = docker.engine.state().containers.keys().cloned().collect();
    assert_eq!(containers, ["c-cp"], "the worker has no label");
    let _here = start(NAMESPACE, None);
    docker.world.run_for(60).await;
    assert_eq!(condition(&docker.machine("c-w").await, "Ready").0, "True");
    assert_eq!(docker.machine("c-w").await["metadata"]["labels"][CLUSTER_NAME_LABEL], "c");
}

/// The container gets the failure domain of its Machine, and the status reports it.
#[tokio::test(start_paused = true)]
async fn a_failure_domain_is_honoured_and_reported() {
    let docker = Docker::new().await;
    let _running = docker.start();
    docker.with_machines().await;
    let zone = docker.engine.state().containers["c-w"].instance.zone.clone();
    assert_eq!(zone.as_deref(), Some("fd1"));
    assert_eq!(docker.machine("c-w").await["status"]["failureDomain"], "fd1");
}
