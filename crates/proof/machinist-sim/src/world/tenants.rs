//! The pods that the seed puts on every Node, in addition to the pods of the scenario.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::Api;
use kube::api::PostParams;
use machinist_apiserver::{Identity, Server};
use serde_json::json;

use super::NAMESPACE;
use super::workload::{TENANT, Tenants};
use crate::lab::Lab;
use crate::sight::{NODES, PODS, SeenObject};

/// Interval in which new Nodes get their pods.
const LOOK_EVERY: Duration = Duration::from_secs(5);
/// More than any number of pods, so that the budget allows no eviction.
const ALWAYS: u32 = 100;

/// Runs forever: binds a pod to each Node that is ready and not cordoned.
pub(super) async fn move_in(tenants: Tenants, target: Server, lab: Arc<Lab>) {
    if tenants == Tenants::None {
        return;
    }
    let client =
        kube::Client::new(target.service_as(Identity::admin()).with_user_agent("scheduler"), NAMESPACE);
    if tenants == Tenants::Protected {
        protect(&client, &lab).await;
    }
    let pods: Api<Pod> = Api::namespaced(client, NAMESPACE);
    let mut number = 0_u32;
    loop {
        tokio::time::sleep(LOOK_EVERY).await;
        let bound = target.snapshot(PODS);
        for node in target.snapshot(NODES) {
            let node = SeenObject(node.value());
            // Foreign Nodes have no kubelet that would run the pod.
            let is_open = node.provider_id().starts_with("sim:")
                && node.condition("Ready") == "True"
                && !node.is_cordoned()
                && !node.is_deleting();
            let mut here = bound.iter().map(|pod| SeenObject(pod.value()));
            let has_tenant =
                here.any(|pod| pod.name().starts_with(TENANT) && pod.text("/spec/nodeName") == node.name());
            if !is_open || has_tenant {
                continue;
            }
            number += 1;
            let pod = json!({
                "apiVersion": "v1", "kind": "Pod",
                "metadata": {"name": format!("{TENANT}{number}"), "labels": {"app": "tenant"}},
                "spec": {
                    "nodeName": node.name(), "terminationGracePeriodSeconds": 5,
                    "automountServiceAccountToken": false,
                    "containers": [{"name": "c", "image": "registry.example/app"}],
                },
            });
            let Ok(pod) = serde_json::from_value::<Pod>(pod) else { return };
            if let Err(error) = pods.create(&PostParams::default(), &pod).await {
                lab.history.note(format!("cannot bind a pod to {}: {error}", node.name()));
            }
        }
    }
}

async fn protect(client: &kube::Client, lab: &Lab) {
    let budget = json!({
        "apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "tenant"},
        "spec": {"minAvailable": ALWAYS, "selector": {"matchLabels": {"app": "tenant"}}},
    });
    let Ok(budget) = serde_json::from_value::<PodDisruptionBudget>(budget) else { return };
    let budgets: Api<PodDisruptionBudget> = Api::namespaced(client.clone(), NAMESPACE);
    if let Err(error) = budgets.create(&PostParams::default(), &budget).await {
        lab.history.note(format!("cannot create the budget: {error}"));
    }
}
