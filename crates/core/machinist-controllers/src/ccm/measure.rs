//! Metrics of events: the names that other cloud controller managers use, and some of our own.

use std::time::Duration;

use machinist_core::{Answered, since};
use machinist_instance::{Ensured, Progress, Sighting};
use machinist_plan::ccm::service::{BalancerAnswers, Inputs};
use machinist_plan::facts::CloudNodeFacts;
use machinist_serve::{CHANGE_SECONDS, Metrics, WAIT_SECONDS};

use super::contract::Runtime;
use super::options::Controllers;

/// Records which controllers run.
pub(super) fn running(metrics: &Metrics, controllers: Controllers) {
    let Controllers { node, node_lifecycle, service, route } = controllers;
    let all = [
        ("cloud-node-controller", node),
        ("cloud-node-lifecycle-controller", node_lifecycle),
        ("service-lb-controller", service),
        ("node-route-controller", route),
    ];
    for (name, runs) in all {
        let labels = [("name", name), ("manager", "cloud-controller-manager")];
        metrics.set("running_managed_controllers", &labels, if runs { 1.0 } else { 0.0 });
    }
}

/// Records that pods may start on a Node: its taint was removed.
pub(super) fn untainted(runtime: &Runtime, node: &CloudNodeFacts) {
    let name = "node_controller_cloud_provider_taint_removal_delay_seconds";
    runtime.options.metrics.observe(name, &[], WAIT_SECONDS, age(runtime, node));
}

/// Records that a Node is initialised.
pub(super) fn synced(runtime: &Runtime, node: &CloudNodeFacts) {
    let name = "node_controller_initial_node_sync_delay_seconds";
    runtime.options.metrics.observe(name, &[], WAIT_SECONDS, age(runtime, node));
}

fn age(runtime: &Runtime, node: &CloudNodeFacts) -> Duration {
    since(runtime.now(), node.created)
}

/// Records the result of a lookup of one instance.
pub(super) fn looked_up(metrics: &Metrics, answered: &Answered<Sighting>) {
    let result = match &answered.answer {
        Ok(Sighting::Present(_)) => "present",
        Ok(Sighting::Foreign(_)) => "foreign",
        Ok(Sighting::Absent) => "absent",
        Err(_) => "unknown",
    };
    metrics.count("machinist_ccm_existence_checks_total", &[("result", result)]);
}

/// Records the answer to a call about the load balancer of a Service.
pub(super) fn balancer_synced(metrics: &Metrics) {
    metrics.count("service_controller_loadbalancer_sync_total", &[]);
}

/// Records the answer to an `ensure`, if only the Nodes behind the load balancer changed. `before`
/// are the answers before this one.
pub(super) fn balancer_updated(
    metrics: &Metrics,
    before: &BalancerAnswers,
    inputs: Inputs,
    answered: &Answered<Progress<Ensured>>,
) {
    let is_update = |done: Inputs| done.shape == inputs.shape && done.targets != inputs.targets;
    if !before.done.is_some_and(is_update) {
        return;
    }
    match &answered.answer {
        Ok(Progress::Done(_)) => {
            let began = before.working_since.unwrap_or(answered.started);
            let name = "service_controller_update_loadbalancer_host_latency_seconds";
            metrics.observe(name, &[], CHANGE_SECONDS, since(answered.ended, began));
        }
        Ok(Progress::Working(_)) => {}
        Err(_) => metrics.count("service_controller_nodesync_error_total", &[]),
    }
}

/// Records a comparison of all routes with the cloud.
pub(super) fn routes_synced(metrics: &Metrics) {
    metrics.count("route_controller_route_sync_total", &[]);
}
