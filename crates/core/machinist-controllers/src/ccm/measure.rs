//! Metrics of events: the names that other cloud controller managers use, and some of our own.

use std::time::Duration;

use jiff::Timestamp;
use machinist_core::{Answered, since};
use machinist_instance::{Ensured, Progress, Sighting};
use machinist_plan::ccm::facts::CloudNodeFacts;
use machinist_plan::ccm::service::{Inputs, ServiceAnswers};
use machinist_serve::{CHANGE_SECONDS, Counter, Gauge, Histogram, Metrics, WAIT_SECONDS};

use super::contract::Runtime;
use super::options::Controllers;
use super::seen::{NOT_READY, Seen, UNINITIALIZED, YES};

const RUNNING: Gauge = Gauge::new(
    "running_managed_controllers",
    "1 for each controller that runs, else 0, by name and manager.",
);
const TAINT_REMOVAL_DELAY: Histogram = Histogram::new(
    "node_controller_cloud_provider_taint_removal_delay_seconds",
    "Age of a Node in seconds when its taint uninitialized was removed.",
    WAIT_SECONDS,
);
const NODE_SYNC_DELAY: Histogram = Histogram::new(
    "node_controller_initial_node_sync_delay_seconds",
    "Age of a Node in seconds when it was initialised.",
    WAIT_SECONDS,
);
const LOOKUPS: Counter = Counter::new(
    "machinist_ccm_existence_checks_total",
    "Lookups of one server, by result: present, absent, foreign or unknown.",
);
const BALANCER_SYNCS: Counter = Counter::new(
    "service_controller_loadbalancer_sync_total",
    "Answers to calls about load balancers of Services.",
);
const BALANCER_UPDATE_ERRORS: Counter = Counter::new(
    "service_controller_nodesync_error_total",
    "Failed changes of the Nodes behind a load balancer.",
);
const BALANCER_UPDATE_LATENCY: Histogram = Histogram::new(
    "service_controller_update_loadbalancer_host_latency_seconds",
    "Duration of a change of the Nodes behind a load balancer in seconds.",
    CHANGE_SECONDS,
);
const ROUTE_SYNCS: Counter =
    Counter::new("route_controller_route_sync_total", "Comparisons of all routes with the cloud.");

const ACCOUNT_UNPROVEN: Gauge = Gauge::new(
    "machinist_ccm_account_unproven",
    "1 while the account shows no server of any Node, so that nothing is created or deleted.",
);
const ORPHANED_BALANCERS: Gauge = Gauge::new(
    "machinist_ccm_orphaned_balancers",
    "Load balancers with the label of a Service that the cluster does not have, in the last list.",
);
const TAINTED_NODES: Gauge =
    Gauge::new("machinist_ccm_tainted_nodes", "Nodes that wait for their initialisation.");
const NODES_NOT_READY: Gauge =
    Gauge::new("machinist_ccm_nodes_not_ready", "Initialised Nodes that are not ready.");
const NODES_MISSING: Gauge =
    Gauge::new("machinist_ccm_nodes_missing", "Nodes whose server was not found in the last lookup.");
const DELETION_BRAKE: Gauge =
    Gauge::new("machinist_ccm_deletion_brake", "1 while the deletion of Nodes is suspended.");
const NODES_DELETED: Counter =
    Counter::new("machinist_ccm_nodes_deleted_total", "Nodes that this process deleted.");
const REMEMBERED_NODES: Gauge =
    Gauge::new("machinist_ccm_remembered_nodes", "Nodes with remembered answers of the cloud.");
const REMEMBERED_SERVICES: Gauge =
    Gauge::new("machinist_ccm_remembered_services", "Services with remembered answers of the cloud.");
const SNAPSHOT_AGE: Gauge =
    Gauge::new("machinist_ccm_snapshot_age_seconds", "Age of the last list of servers in seconds.");

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
        metrics.set(&RUNNING, &labels, if runs { 1.0 } else { 0.0 });
    }
}

/// Records that pods may start on a Node: its taint was removed.
pub(super) fn untainted(runtime: &Runtime, node: &CloudNodeFacts) {
    runtime.options.metrics.observe(&TAINT_REMOVAL_DELAY, &[], age(runtime, node));
}

/// Records that a Node is initialised.
pub(super) fn synced(runtime: &Runtime, node: &CloudNodeFacts) {
    runtime.options.metrics.observe(&NODE_SYNC_DELAY, &[], age(runtime, node));
}

fn age(runtime: &Runtime, node: &CloudNodeFacts) -> Duration {
    since(runtime.now(), node.created)
}

/// Records the result of a lookup of one instance.
pub(super) fn looked_up(metrics: &Metrics, answered: &Answered<Sighting>) {
    let result = match &answered.answer {
        Ok(Sighting::Present(_)) => "present",
        Ok(Sighting::Foreign(_)) => "foreign",
        Ok(Sighting::Parts(_)) => "parts",
        Ok(Sighting::Absent | Sighting::Ended) => "absent",
        Err(_) => "unknown",
    };
    metrics.count(&LOOKUPS, &[("result", result)]);
}

/// Records the answer to a call about the load balancer of a Service.
pub(super) fn balancer_synced(metrics: &Metrics) {
    metrics.count(&BALANCER_SYNCS, &[]);
}

/// Records the answer to an `ensure`, if only the Nodes behind the load balancer changed. `before`
/// are the answers before this one.
pub(super) fn balancer_updated(
    metrics: &Metrics,
    before: &ServiceAnswers,
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
            metrics.observe(&BALANCER_UPDATE_LATENCY, &[], since(answered.ended, began));
        }
        Ok(Progress::Working(_)) => {}
        Err(_) => metrics.count(&BALANCER_UPDATE_ERRORS, &[]),
    }
}

/// Records a comparison of all routes with the cloud.
pub(super) fn routes_synced(metrics: &Metrics) {
    metrics.count(&ROUTE_SYNCS, &[]);
}

/// Records the memory of a process, in addition to the numbers of stored objects.
pub(super) fn memory(seen: &Seen, now: Timestamp, metrics: &Metrics) {
    let memory = &seen.memory;
    let services = memory.service_keys.as_deref().map(Vec::as_slice).unwrap_or_default();
    let orphans = memory.drift.listed.as_deref().filter(|_| memory.account.was_proven);
    let orphans = orphans.map_or(0, |listed| listed.orphans(services).count());
    let numbers = [
        (&ACCOUNT_UNPROVEN, usize::from(memory.account.is_unproven())),
        (&ORPHANED_BALANCERS, orphans),
        (&TAINTED_NODES, seen.nodes.by_index(UNINITIALIZED, YES).count()),
        (&NODES_NOT_READY, seen.nodes.by_index(NOT_READY, YES).count()),
        (&NODES_MISSING, memory.suspects.len()),
        (&DELETION_BRAKE, usize::from(memory.brake.is_some())),
        (&REMEMBERED_NODES, memory.answers.len()),
        (&REMEMBERED_SERVICES, memory.balancers.len()),
    ];
    for (gauge, number) in numbers {
        metrics.set_number(gauge, &[], number);
    }
    metrics.add(&NODES_DELETED, &[], u64::try_from(memory.removed_in_all).unwrap_or(u64::MAX));
    if let Some(listed) = memory.account.listed {
        let age = usize::try_from(since(now, listed).as_secs()).unwrap_or(usize::MAX);
        metrics.set_number(&SNAPSHOT_AGE, &[], age);
    }
}
