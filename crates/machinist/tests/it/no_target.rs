//! Tests of machines without a target cluster: `--target-kubeconfig none`.

use k8s_openapi::api::core::v1::{Node, Secret};
use kube::Api;
use kube::api::ListParams;
use machinist_api::{Machine, MachineDeployment, Phase};

use crate::process::{Ended, Process, Up, call, free_port, machinist};
use crate::processes::{Fleet, NAMESPACE, quick_start, until};

/// Whether a deployment has that many available machines, none of which is ready: readiness needs a
/// Node.
fn are_available(count: i32) -> impl kube::runtime::wait::Condition<MachineDeployment> {
    move |deployment: Option<&MachineDeployment>| {
        let status = deployment.and_then(|deployment| deployment.status.as_ref());
        status.is_some_and(|status| status.available_replicas == count && status.ready_replicas == 0)
    }
}

/// The cases with real processes.
#[tokio::test]
async fn t_14_t_15_t_17_t_49_machines_live_without_a_target_cluster() {
    let up = Up::start(Some("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: nothing-to-do}\n"));
    let client = up.client().await;
    quick_start(&client).await;
    let fleet = Fleet::start(&up);
    let (port, manager_port) = (free_port(), free_port());
    let flags = format!(
        "--target-kubeconfig none --control-kubeconfig {} --namespace {NAMESPACE} --address 127.0.0.1",
        fleet.kubeconfig
    );
    let controller = Process::start(&mut machinist(&format!(
        "machine-controller --provider sim --sim-endpoint {} {flags} --port {port}",
        fleet.cloud_url
    )));
    let manager =
        Process::start(&mut machinist(&format!("machine-controller-manager {flags} --port {manager_port}")));
    let deployments: Api<MachineDeployment> = Api::namespaced(client.clone(), NAMESPACE);
    until(deployments.clone(), "workers", are_available(3)).await;

    let machines: Api<Machine> = Api::namespaced(client.clone(), NAMESPACE);
    let all = machines.list(&ListParams::default()).await.expect("listed").items;
    for machine in &all {
        let status = machine.status.as_ref().expect("a status");
        let current = status.current_status.as_ref().expect("a phase");
        assert_eq!(current.phase, Some(Phase::Available));
        let kinds: Vec<_> = status.addresses.iter().map(|address| address.type_.as_str()).collect();
        assert!(kinds.contains(&"Hostname") && kinds.contains(&"InternalIP"), "{:?}", status.addresses);
        assert_eq!(machine.node_name(), None, "no label node");
    }
    let secrets: Api<Secret> = Api::namespaced(client.clone(), "kube-system");
    let tokens = ListParams::default().fields("type=bootstrap.kubernetes.io/token");
    assert!(secrets.list(&tokens).await.expect("listed").items.is_empty(), "no token was made");
    let nodes: Api<Node> = Api::all(client.clone());
    assert!(nodes.list(&ListParams::default()).await.expect("listed").items.is_empty(), "no Node joined");

    // Readiness, metrics and both ways of `why`.
    let url = format!("http://127.0.0.1:{port}");
    assert_eq!(call(&url, "GET", "/readyz", ""), "OK");
    let metrics = call(&url, "GET", "/metrics", "");
    let metrics = metrics.as_str().expect("text");
    assert!(metrics.contains("mcm_machine_items_total 3"), "{metrics}");
    let name = all[0].metadata.name.clone().expect("a name");
    for controllers in [url.as_str(), "http://127.0.0.1:1"] {
        let why = Ended::of(&mut machinist(&format!(
            "why machine/{name} -n {NAMESPACE} --kubeconfig {} --target-kubeconfig none --controller {controllers} -o json",
            fleet.kubeconfig
        )));
        assert_eq!(why.result()["reason"], "Settled", "asked {controllers}");
    }

    deployments.delete("workers", &Default::default()).await.expect("deleted");
    until(deployments, "workers", |deployment: Option<&MachineDeployment>| deployment.is_none()).await;
    assert!(machines.list(&ListParams::default()).await.expect("listed").items.is_empty());
    let ledger = fleet.ledger();
    assert_eq!(ledger.len(), 3, "each machine had one instance");
    assert!(ledger.iter().all(|entry| !entry["deleted"].is_null()), "an instance is still alive");
    for process in [manager, controller] {
        process.terminate().cleanly();
    }
    fleet.stop();
}
