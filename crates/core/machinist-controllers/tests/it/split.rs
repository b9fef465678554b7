//! Tests of `machinist why` for installations whose Nodes are in another cluster.

use super::*;

/// Explains a running Machine whose Node is not in the cluster of the Machine.
async fn explain_machine(nodes_may_be_elsewhere: bool) -> String {
    let world = World::new().await;
    world.apply(0).await;
    let machines = world.make_machine("m").await;
    let params = PatchParams::default();
    let recorded = json!({
        "metadata": {
            "labels": {"node": "m"}, "finalizers": ["machine.sapcloud.io/machine-controller-manager"],
        },
        "spec": {"providerID": "sim:///m"},
    });
    machines.patch("m", &params, &Patch::Merge(recorded)).await.expect("patched");
    let running = json!({"status": {"currentStatus": {"phase": "Running"}}});
    machines.patch_status("m", &params, &Patch::Merge(running)).await.expect("patched");
    let clients = Clients { control: world.client("why"), target: world.client("why") };
    let provider = Arc::new(SimProvider::in_process(world.cloud.clone()));
    let machine = MachineOptions { nodes_may_be_elsewhere, ..MachineOptions::new(provider, "test") };
    let key = Key::Machine(ObjectKey::new(NAMESPACE, "m"));
    explain(clients, world.options("why"), machine, &key).await.expect("explained").why.to_string()
}

#[tokio::test(start_paused = true)]
async fn a_node_of_an_unknown_cluster_is_not_reported_as_missing() {
    assert_eq!(
        explain_machine(true).await,
        "Node m was not looked up: it is not in the cluster of the Machine, and no other cluster is known; \
         next: name the cluster of the Nodes with --target-kubeconfig"
    );
    let message = explain_machine(false).await;
    assert!(message.contains("the Node object went missing"), "{message}");
}
