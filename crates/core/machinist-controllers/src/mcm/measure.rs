//! The metrics of Go's machine-controller-manager, under its names and with its labels.
//!
//! Gauges about objects are computed from the stores for each answer, so a deleted object leaves no
//! series behind. Durations are recorded at the change of the Machine that ends them: a gauge with
//! the last Machine of each deployment, as in Go, and a histogram under a name of our own.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use machinist_api::constants::{labels, markers::DeletionMarker};
use machinist_api::{ConditionStatus, MachineSummary, OperationType, Phase, StrategyType};
use machinist_core::{Call, since};
use machinist_kube::{Change, Store, WatchTiming};
use machinist_plan::mcm::facts::{ClassFacts, MachineDeploymentFacts, MachineFacts, MachineSetFacts};
use machinist_plan::mcm::machine::code_of;
use machinist_runtime::{Measurement, QueueKey as _};
use machinist_serve::{CHANGE_SECONDS, Counter, Gauge, Histogram, Labels, Metrics, Summary};

use super::contract::Runtime;
use super::key::Key;
use super::options::Tools;
use super::seen::Seen;
use super::server_freeze::frozen_by_server;

const FROZEN: Gauge = Gauge::new(
    "mcm_machine_controller_frozen",
    "1 while an API server does not answer, so that no Machine is marked as Failed.",
);
const MACHINES: Gauge = Gauge::new("mcm_machine_items_total", "Machines in the namespace.");
const MACHINE_PHASE: Gauge = Gauge::new(
    "mcm_machine_current_status_phase",
    "Phase of a Machine: Terminating -4, Failed -3, CrashLoopBackOff -2, Unknown -1, Running 1, others 0.",
);
const MACHINE_INFO: Gauge = Gauge::new("mcm_machine_info", "1 for each Machine, with its identity.");
const MACHINE_CONDITION: Gauge = Gauge::new(
    "mcm_machine_status_condition",
    "Condition of the Node of a Machine: True 1, False 0, Unknown 2.",
);
const CREATED: Gauge = Gauge::new(
    "mcm_machine_create_duration_seconds",
    "Time in seconds from a Machine to its instance; the last Machine of the deployment.",
);
const INITIALIZED: Gauge = Gauge::new(
    "mcm_machine_initialize_duration_seconds",
    "Duration of the initialization of an instance in seconds; the last Machine of the deployment.",
);
const JOINED: Gauge = Gauge::new(
    "mcm_machine_join_duration_seconds",
    "Time in seconds from a Machine to its ready Node; the last Machine of the deployment.",
);
const DELETED: Gauge = Gauge::new(
    "mcm_machine_delete_duration_seconds",
    "Time in seconds from the deletion of a Machine to the end of its instance; the last Machine of the deployment.",
);
const DRAINED: Gauge = Gauge::new(
    "mcm_machine_drain_duration_seconds",
    "Duration of the drain of a Machine in seconds; the last Machine of the deployment.",
);
const FAILED_JOINS: Counter = Counter::new(
    "mcm_machine_num_failed_join",
    "Machines that failed because their Node did not join in time.",
);
const CREATIONS: Histogram = Histogram::new(
    "machinist_machine_create_duration_seconds",
    "Time in seconds from a Machine to its instance.",
    CHANGE_SECONDS,
);
const INITIALIZATIONS: Histogram = Histogram::new(
    "machinist_machine_initialize_duration_seconds",
    "Duration of the initialization of an instance in seconds.",
    CHANGE_SECONDS,
);
const JOINS: Histogram = Histogram::new(
    "machinist_machine_join_duration_seconds",
    "Time in seconds from a Machine to its ready Node.",
    CHANGE_SECONDS,
);
const DELETIONS: Histogram = Histogram::new(
    "machinist_machine_delete_duration_seconds",
    "Time in seconds from the deletion of a Machine to the end of its instance.",
    CHANGE_SECONDS,
);
const DRAINS: Histogram = Histogram::new(
    "machinist_machine_drain_duration_seconds",
    "Duration of the drain of a Machine in seconds.",
    CHANGE_SECONDS,
);
const API_REQUESTS: Counter = Counter::new(
    "mcm_cloud_api_requests_total",
    "Calls to the cloud, by provider and service. Each driver call counts once.",
);
const API_FAILURES: Counter = Counter::new(
    "mcm_cloud_api_requests_failed_total",
    "Failed calls to the cloud, by provider and service.",
);
const API_DURATION: Histogram = Histogram::new(
    "mcm_cloud_api_api_request_duration_seconds",
    "Duration of successful calls to the cloud in seconds, by provider and service.",
    GO_SECONDS,
);
const DRIVER_DURATION: Histogram = Histogram::new(
    "mcm_cloud_api_driver_request_duration_seconds",
    "Duration of successful driver calls in seconds, by provider and operation.",
    GO_SECONDS,
);
const DRIVER_FAILURES: Counter = Counter::new(
    "mcm_cloud_api_driver_requests_failed_total",
    "Failed driver calls, by provider, operation and number of the error code.",
);
const SCRAPE_FAILURES: Counter = Counter::new(
    "mcm_misc_scrape_failure_total",
    "Failed scrapes; always 0, because the stores can always be read.",
);

const STALE: Counter =
    Counter::new("mcm_machine_stale_machines_total", "Failed Machines that a set deleted.");
const SETS: Gauge = Gauge::new("mcm_machine_set_items_total", "MachineSets in the namespace.");
const SET_INFO: Gauge = Gauge::new("mcm_machine_set_info", "1 for each MachineSet, with its identity.");
const SET_REPLICAS: Gauge =
    Gauge::new("mcm_machine_set_info_spec_replicas", "Desired Machines of a MachineSet.");
const SET_MIN_READY: Gauge =
    Gauge::new("mcm_machine_set_info_spec_min_ready_seconds", "spec.minReadySeconds of a MachineSet.");
const SET_AVAILABLE: Gauge =
    Gauge::new("mcm_machine_set_status_available_replicas", "Available Machines of a MachineSet.");
const SET_LABELLED: Gauge = Gauge::new(
    "mcm_machine_set_status_fully_labelled_replicas",
    "Machines of a MachineSet with all labels of its template.",
);
const SET_READY: Gauge =
    Gauge::new("mcm_machine_set_status_ready_replicas", "Ready Machines of a MachineSet.");
const SET_TOTAL: Gauge = Gauge::new("mcm_machine_set_status_replicas", "Machines of a MachineSet.");
const SET_CONDITION: Gauge =
    Gauge::new("mcm_machine_set_status_condition", "Condition of a MachineSet: True 1, False 0, Unknown 2.");
const SET_FAILED: Gauge =
    Gauge::new("mcm_machine_set_failed_machines", "1 for each failed Machine in the status of a MachineSet.");
const DEPLOYMENTS: Gauge =
    Gauge::new("mcm_machine_deployment_items_total", "MachineDeployments in the namespace.");
const DEPLOYMENT_INFO: Gauge =
    Gauge::new("mcm_machine_deployment_info", "1 for each MachineDeployment, with its identity.");
const DEPLOYMENT_PAUSED: Gauge =
    Gauge::new("mcm_machine_deployment_info_spec_paused", "1 while a MachineDeployment is paused.");
const DEPLOYMENT_REPLICAS: Gauge =
    Gauge::new("mcm_machine_deployment_info_spec_replicas", "Desired Machines of a MachineDeployment.");
const DEPLOYMENT_MIN_READY: Gauge = Gauge::new(
    "mcm_machine_deployment_info_spec_min_ready_seconds",
    "spec.minReadySeconds of a MachineDeployment.",
);
const DEPLOYMENT_SURGE: Gauge = Gauge::new(
    "mcm_machine_deployment_info_spec_rolling_update_max_surge",
    "maxSurge of a rolling update; 0 for a percentage, as in Go.",
);
const DEPLOYMENT_UNAVAILABLE: Gauge = Gauge::new(
    "mcm_machine_deployment_info_spec_rolling_update_max_unavailable",
    "maxUnavailable of a rolling update; 0 for a percentage, as in Go.",
);
const DEPLOYMENT_HISTORY: Gauge = Gauge::new(
    "mcm_machine_deployment_info_spec_revision_history_limit",
    "spec.revisionHistoryLimit of a MachineDeployment.",
);
const DEPLOYMENT_DEADLINE: Gauge = Gauge::new(
    "mcm_machine_deployment_info_spec_progress_deadline_seconds",
    "spec.progressDeadlineSeconds of a MachineDeployment.",
);
const DEPLOYMENT_ROLLBACK: Gauge = Gauge::new(
    "mcm_machine_deployment_info_spec_rollback_to_revision",
    "Revision to which a MachineDeployment is to be rolled back.",
);
const DEPLOYMENT_STATUS_AVAILABLE: Gauge = Gauge::new(
    "mcm_machine_deployment_status_available_replicas",
    "Available Machines of a MachineDeployment.",
);
const DEPLOYMENT_STATUS_UNAVAILABLE: Gauge = Gauge::new(
    "mcm_machine_deployment_status_unavailable_replicas",
    "Missing Machines of a MachineDeployment.",
);
const DEPLOYMENT_STATUS_READY: Gauge =
    Gauge::new("mcm_machine_deployment_status_ready_replicas", "Ready Machines of a MachineDeployment.");
const DEPLOYMENT_STATUS_UPDATED: Gauge = Gauge::new(
    "mcm_machine_deployment_status_updated_replicas",
    "Machines of a MachineDeployment with its current template.",
);
const DEPLOYMENT_STATUS_COLLISIONS: Gauge = Gauge::new(
    "mcm_machine_deployment_status_collision_count",
    "Name collisions of the MachineSets of a MachineDeployment.",
);
const DEPLOYMENT_STATUS_REPLICAS: Gauge =
    Gauge::new("mcm_machine_deployment_status_replicas", "Machines of a MachineDeployment.");
const DEPLOYMENT_CONDITION: Gauge = Gauge::new(
    "mcm_machine_deployment_status_condition",
    "Condition of a MachineDeployment: True 1, False 0, Unknown 2.",
);
const DEPLOYMENT_FAILED: Gauge = Gauge::new(
    "mcm_machine_deployment_failed_machines",
    "1 for each failed Machine in the status of a MachineDeployment.",
);

/// Go's queue for Machines that are being deleted.
const TERMINATION: &str = "machinetermination";
/// Go's queue for its checks of the API servers. Here they need no queue, so nothing is ever due.
const SERVER_CHECKS: &str = "machinesafetyapiserver";
/// The queues of both programs that exist from the start.
const CONTROLLER_QUEUES: &[&str] =
    &["machine", TERMINATION, "machineclass", "secret", "node", "machinesafetyorphanvms", SERVER_CHECKS];
const MANAGER_QUEUES: &[&str] = &["machineset", "machinedeployment"];

const QUEUE_DEPTH: Gauge = Gauge::new("mcm_workqueue_depth", "Objects of a kind that are due now.");
const QUEUE_ADDS: Counter =
    Counter::new("mcm_workqueue_adds_total", "How often an object of a kind became due.");
const QUEUE_WAIT: Histogram = Histogram::new(
    "mcm_workqueue_queue_duration_seconds",
    "Time in seconds for which an object of a kind was due before its pass.",
    TENFOLD_SECONDS,
);
const QUEUE_WORK: Histogram = Histogram::new(
    "mcm_workqueue_work_duration_seconds",
    "Duration of a pass over an object of a kind in seconds.",
    TENFOLD_SECONDS,
);
const QUEUE_UNFINISHED: Gauge = Gauge::new(
    "mcm_workqueue_unfinished_work_seconds",
    "Duration of all passes over objects of a kind that run now, in seconds.",
);
const QUEUE_LONGEST: Gauge = Gauge::new(
    "mcm_workqueue_longest_running_processor_seconds",
    "Duration of the longest pass over an object of a kind that runs now, in seconds.",
);
const QUEUE_RETRIES: Counter =
    Counter::new("mcm_workqueue_retries_total", "Passes over objects of a kind that were tried again.");

const LISTS: Counter = Counter::new("mcm_reflector_lists_total", "Lists of a whole kind by its watch.");
const LIST_DURATION: Summary =
    Summary::new("mcm_reflector_list_duration_seconds", "Duration of these lists in seconds.");
const LIST_ITEMS: Summary = Summary::new("mcm_reflector_items_per_list", "Objects in these lists.");
const WATCHES: Counter =
    Counter::new("mcm_reflector_watches_total", "Streams of the watch of a kind that were opened and ended.");
const SHORT_WATCHES: Counter =
    Counter::new("mcm_reflector_short_watches_total", "Such streams that ended within a second.");
const WATCH_DURATION: Summary =
    Summary::new("mcm_reflector_watch_duration_seconds", "Duration of these streams in seconds.");
const WATCH_ITEMS: Summary = Summary::new("mcm_reflector_items_per_watch", "Events in these streams.");
const LAST_VERSION: Gauge = Gauge::new(
    "mcm_reflector_last_resource_version",
    "Newest resourceVersion that the watch of a kind has shown.",
);

/// Default bounds of Go's histograms, in seconds.
const GO_SECONDS: &[f64] = &[0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0];
/// Bounds of Go's work queues, in seconds: each is ten times the one before.
const TENFOLD_SECONDS: &[f64] = &[1e-8, 1e-7, 1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1.0, 10.0];

/// The service in the metrics of calls: all of them are about instances.
const INSTANCES: &str = "instances";

/// Shows the names of all metrics of the machine controller, even before they have values.
pub fn announce_machine_controller(metrics: &Metrics) {
    let gauges = [
        FROZEN,
        MACHINES,
        MACHINE_PHASE,
        MACHINE_INFO,
        MACHINE_CONDITION,
        CREATED,
        INITIALIZED,
        JOINED,
        DELETED,
        DRAINED,
    ];
    gauges.iter().for_each(|gauge| metrics.announce(gauge));
    [FAILED_JOINS, API_REQUESTS, API_FAILURES, DRIVER_FAILURES].iter().for_each(|one| metrics.announce(one));
    [CREATIONS, INITIALIZATIONS, JOINS, DELETIONS, DRAINS, API_DURATION, DRIVER_DURATION]
        .iter()
        .for_each(|histogram| metrics.announce(histogram));
    announce_both(metrics, "machine-controller-manager-provider", &["Machine-count"]);
}

/// Shows the names of all metrics of the manager, even before they have values.
pub fn announce_manager(metrics: &Metrics) {
    let gauges = [
        SETS,
        SET_INFO,
        SET_REPLICAS,
        SET_MIN_READY,
        SET_AVAILABLE,
        SET_LABELLED,
        SET_READY,
        SET_TOTAL,
        SET_CONDITION,
        SET_FAILED,
        DEPLOYMENTS,
        DEPLOYMENT_INFO,
        DEPLOYMENT_PAUSED,
        DEPLOYMENT_REPLICAS,
        DEPLOYMENT_MIN_READY,
        DEPLOYMENT_SURGE,
        DEPLOYMENT_UNAVAILABLE,
        DEPLOYMENT_HISTORY,
        DEPLOYMENT_DEADLINE,
        DEPLOYMENT_ROLLBACK,
        DEPLOYMENT_STATUS_AVAILABLE,
        DEPLOYMENT_STATUS_UNAVAILABLE,
        DEPLOYMENT_STATUS_READY,
        DEPLOYMENT_STATUS_UPDATED,
        DEPLOYMENT_STATUS_COLLISIONS,
        DEPLOYMENT_STATUS_REPLICAS,
        DEPLOYMENT_CONDITION,
        DEPLOYMENT_FAILED,
    ];
    gauges.iter().for_each(|gauge| metrics.announce(gauge));
    metrics.add(&STALE, &[], 0);
    announce_both(metrics, "machine-controller-manager", &["Machineset-count", "Machinedeployment-count"]);
}

fn announce_both(metrics: &Metrics, binary: &str, kinds: &[&str]) {
    for kind in kinds {
        metrics.add(&SCRAPE_FAILURES, &[("binary", binary), ("kind", kind)], 0);
    }
    let gauges = [QUEUE_DEPTH, QUEUE_UNFINISHED, QUEUE_LONGEST, LAST_VERSION];
    gauges.iter().for_each(|gauge| metrics.announce(gauge));
    let counters = [QUEUE_ADDS, QUEUE_RETRIES, LISTS, WATCHES, SHORT_WATCHES];
    counters.iter().for_each(|counter| metrics.announce(counter));
    [QUEUE_WAIT, QUEUE_WORK].iter().for_each(|histogram| metrics.announce(histogram));
    let summaries = [LIST_DURATION, LIST_ITEMS, WATCH_DURATION, WATCH_ITEMS];
    summaries.iter().for_each(|summary| metrics.announce(summary));
}

/// Records what the stores and the queue show. Only the facts are collected under the lock.
pub(super) fn record(runtime: &Runtime, metrics: &Metrics) {
    let world = runtime.lock();
    let (mut states, versions) = (runtime.queue_states(&world), runtime.watched_versions(&world));
    let queues = if runtime.tools.decides_sets { MANAGER_QUEUES } else { CONTROLLER_QUEUES };
    for queue in queues {
        states.entry(queue).or_default();
    }
    if runtime.tools.decides_sets {
        let (sets, deployments) = (all(&world.seen.sets), all(&world.seen.deployments));
        drop(world);
        record_sets(&sets, metrics);
        record_deployments(&deployments, metrics);
    } else {
        let (machines, is_frozen) = (all(&world.seen.machines), frozen_by_server(runtime, &world).is_some());
        drop(world);
        record_machines(&machines, metrics);
        metrics.set_number(&FROZEN, &[], usize::from(is_frozen));
    }
    for (queue, state) in states {
        let name = [("name", queue)];
        metrics.set_number(&QUEUE_DEPTH, &name, state.due);
        metrics.add(&QUEUE_ADDS, &name, state.adds);
        metrics.add(&QUEUE_RETRIES, &name, state.retries);
        metrics.set(&QUEUE_UNFINISHED, &name, state.unfinished.as_secs_f64());
        metrics.set(&QUEUE_LONGEST, &name, state.longest.as_secs_f64());
    }
    for (resource, version) in versions {
        #[expect(clippy::cast_precision_loss, reason = "metrics are floating point numbers")]
        metrics.set(&LAST_VERSION, &[("name", resource)], version as f64);
    }
}

/// Returns the queue of a key in Go. A Machine changes its queue when it is deleted.
pub(super) fn queue_of(seen: &Seen, key: &Key) -> &'static str {
    let is_deleting = |id| seen.machines.get(id).is_some_and(|entry| entry.facts.deleting_since.is_some());
    if let Key::Machine(id) = key
        && is_deleting(id)
    {
        TERMINATION
    } else {
        key.kind()
    }
}

fn all<F>(store: &Store<F>) -> Vec<Arc<F>> {
    store.iter().map(|(_, entry)| entry.facts.clone()).collect()
}

fn record_machines(machines: &[Arc<MachineFacts>], metrics: &Metrics) {
    metrics.set_number(&MACHINES, &[], machines.len());
    for machine in machines {
        let id = identity(&machine.name, &machine.namespace);
        let phase = match machine.status.phase {
            Phase::Terminating => -4.0,
            Phase::Failed => -3.0,
            Phase::CrashLoopBackOff => -2.0,
            Phase::Unknown => -1.0,
            Phase::Running => 1.0,
            _ => 0.0,
        };
        metrics.set(&MACHINE_PHASE, &id, phase);
        let (class, created) = (&machine.spec.class, machine.created.as_second().to_string());
        let info = [
            id[0],
            id[1],
            ("createdAt", created.as_str()),
            ("spec_provider_id", machine.spec.provider_id().unwrap_or_default()),
            ("spec_class_api_group", class.api_group.as_deref().unwrap_or_default()),
            ("spec_class_kind", class.kind()),
            ("spec_class_name", class.name()),
            ("node_name", machine.label(labels::NODE).unwrap_or_default()),
        ];
        metrics.set(&MACHINE_INFO, &info, 1.0);
        for condition in &machine.status.conditions {
            let status = match condition.status.as_str() {
                "True" => 1.0,
                "Unknown" => 2.0,
                _ => 0.0,
            };
            metrics.set(&MACHINE_CONDITION, &[id[0], id[1], ("condition", &condition.kind)], status);
        }
    }
}

fn record_sets(sets: &[Arc<MachineSetFacts>], metrics: &Metrics) {
    metrics.set_number(&SETS, &[], sets.len());
    for set in sets {
        let id = identity(&set.name, &set.namespace);
        let class = match set.spec.machine_class.name() {
            // The older field is empty in sets of today.
            "" => &set.spec.template.spec.class,
            _ => &set.spec.machine_class,
        };
        let created = set.created.as_second().to_string();
        let info = [
            id[0],
            id[1],
            ("createdAt", created.as_str()),
            ("spec_machine_class_api_group", class.api_group.as_deref().unwrap_or_default()),
            ("spec_machine_class_kind", class.kind()),
            ("spec_machine_class_name", class.name()),
        ];
        metrics.set(&SET_INFO, &info, 1.0);
        let status = set.status.clone().unwrap_or_default();
        for (gauge, number) in [
            (&SET_REPLICAS, set.spec.replicas()),
            (&SET_MIN_READY, set.spec.min_ready_seconds.unwrap_or_default()),
            (&SET_AVAILABLE, status.available_replicas),
            (&SET_LABELLED, status.fully_labeled_replicas),
            (&SET_READY, status.ready_replicas),
            (&SET_TOTAL, status.replicas),
        ] {
            metrics.set(gauge, &id, f64::from(number));
        }
        for condition in &status.conditions {
            let labels = [id[0], id[1], ("condition", condition.type_.as_str())];
            metrics.set(&SET_CONDITION, &labels, number_of(&condition.status));
        }
        status.failed_machines.iter().for_each(|failed| record_failed(&SET_FAILED, id, failed, metrics));
    }
}

fn record_deployments(deployments: &[Arc<MachineDeploymentFacts>], metrics: &Metrics) {
    metrics.set_number(&DEPLOYMENTS, &[], deployments.len());
    for deployment in deployments {
        let (spec, status) = (&deployment.spec, deployment.status.clone().unwrap_or_default());
        let id = identity(&deployment.name, &deployment.namespace);
        let strategy = spec.strategy.clone().unwrap_or_default();
        let created = deployment.created.as_second().to_string();
        let kind = strategy.type_.as_ref().map_or("", StrategyType::as_str);
        let info = [id[0], id[1], ("createdAt", created.as_str()), ("spec_strategy_type", kind)];
        metrics.set(&DEPLOYMENT_INFO, &info, 1.0);
        let rolling = strategy.rolling_update.filter(|_| strategy.type_ == Some(StrategyType::RollingUpdate));
        let rolling = rolling.map(|rolling| (rolling.max_surge, rolling.max_unavailable));
        let rolling = rolling.map(|(surge, unavailable)| (int_value(surge), int_value(unavailable)));
        let revision = spec.rollback_to.as_ref().map(|rollback| rollback.revision.unwrap_or_default());
        #[expect(clippy::cast_precision_loss, reason = "metrics are floating point numbers")]
        let revision = revision.map(|revision| revision as f64);
        for (gauge, number) in [
            (&DEPLOYMENT_PAUSED, Some(f64::from(u8::from(spec.is_paused())))),
            (&DEPLOYMENT_REPLICAS, Some(f64::from(spec.replicas()))),
            (&DEPLOYMENT_MIN_READY, Some(f64::from(spec.min_ready_seconds.unwrap_or_default()))),
            (&DEPLOYMENT_SURGE, rolling.map(|(surge, _)| surge)),
            (&DEPLOYMENT_UNAVAILABLE, rolling.map(|(_, unavailable)| unavailable)),
            (&DEPLOYMENT_HISTORY, spec.revision_history_limit.map(f64::from)),
            (&DEPLOYMENT_DEADLINE, spec.progress_deadline_seconds.map(f64::from)),
            (&DEPLOYMENT_ROLLBACK, revision),
            (&DEPLOYMENT_STATUS_AVAILABLE, Some(f64::from(status.available_replicas))),
            (&DEPLOYMENT_STATUS_UNAVAILABLE, Some(f64::from(status.unavailable_replicas))),
            (&DEPLOYMENT_STATUS_READY, Some(f64::from(status.ready_replicas))),
            (&DEPLOYMENT_STATUS_UPDATED, Some(f64::from(status.updated_replicas))),
            (&DEPLOYMENT_STATUS_COLLISIONS, status.collision_count.map(f64::from)),
            (&DEPLOYMENT_STATUS_REPLICAS, Some(f64::from(status.replicas))),
        ] {
            if let Some(number) = number {
                metrics.set(gauge, &id, number);
            }
        }
        for condition in &status.conditions {
            let labels = [id[0], id[1], ("condition", condition.type_.as_str())];
            metrics.set(&DEPLOYMENT_CONDITION, &labels, number_of(&condition.status));
        }
        let failed = status.failed_machines.iter();
        failed.for_each(|failed| record_failed(&DEPLOYMENT_FAILED, id, failed, metrics));
    }
}

fn identity<'a>(name: &'a str, namespace: &'a str) -> [(&'static str, &'a str); 2] {
    [("name", name), ("namespace", namespace)]
}

fn number_of(status: &ConditionStatus) -> f64 {
    match status {
        ConditionStatus::True => 1.0,
        ConditionStatus::Unknown => 2.0,
        _ => 0.0,
    }
}

/// Returns the number of a limit; 0 for a percentage, as in Go.
fn int_value(limit: Option<k8s_openapi::apimachinery::pkg::util::intstr::IntOrString>) -> f64 {
    use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
    match limit {
        Some(IntOrString::Int(number)) => f64::from(number),
        Some(IntOrString::String(text)) => text.parse::<i32>().map_or(0.0, f64::from),
        None => 0.0,
    }
}

fn record_failed(
    gauge: &Gauge,
    owner: [(&'static str, &str); 2],
    failed: &MachineSummary,
    metrics: &Metrics,
) {
    let operation = failed.last_operation.clone().unwrap_or_default();
    let labels = [
        owner[0],
        owner[1],
        ("failed_machine_name", failed.name.as_deref().unwrap_or_default()),
        ("failed_machine_provider_id", failed.provider_id.as_deref().unwrap_or_default()),
        ("failed_machine_owner_ref", failed.owner_ref.as_deref().unwrap_or_default()),
        (
            "failed_machine_last_operation_state",
            operation.state.as_ref().map_or("", machinist_api::OperationState::as_str),
        ),
        (
            "failed_machine_last_operation_machine_operation_type",
            operation.type_.as_ref().map_or("", OperationType::as_str),
        ),
    ];
    metrics.set(gauge, &labels, 1.0);
}

/// Records a Machine that its set deleted because its Node was unhealthy for too long. As in Go, a
/// creation that failed does not count.
pub(super) fn set_deleted(metrics: &Metrics, machine: &MachineFacts) {
    let was_unhealthy = machine.status.operation.type_ == Some(OperationType::HealthCheck);
    if machine.status.phase == Phase::Failed && was_unhealthy {
        metrics.count(&STALE, &[]);
    }
}

/// Records the durations that end with a change of a Machine.
pub(super) fn changed(runtime: &Runtime, seen: &Seen, change: &Change<MachineFacts>) {
    let Some(old) = &change.old else { return };
    let machine = change.new.as_ref().unwrap_or(old);
    let class = seen.class_of(machine).map(|class| &*class.facts);
    let labels = labels_of(machine, class);
    // Go records nothing about a Machine without this label. The histograms count all Machines.
    let deployment = deployment_of(machine);
    let now = runtime.now();
    let metrics = &runtime.options.metrics;
    let took = |gauge: &Gauge, histogram: &Histogram, labels: Labels<'_>, began: Timestamp| {
        let took = since(now, began);
        if !deployment.is_empty() {
            metrics.set(gauge, labels, took.as_secs_f64().round());
        }
        metrics.observe(histogram, labels, took);
    };
    for ended in ended(old, change.new.as_deref(), seen.memory.released.contains(&change.uid)) {
        match ended {
            Ended::Creation => took(&CREATED, &CREATIONS, &labels, machine.created),
            Ended::Join => took(&JOINED, &JOINS, &labels, machine.created),
            Ended::FailedJoin if deployment.is_empty() => {}
            Ended::FailedJoin => metrics.count(&FAILED_JOINS, &labels),
            Ended::Drain(since) => took(&DRAINED, &DRAINS, &labels[..2], since),
            Ended::Deletion(since) => took(&DELETED, &DELETIONS, &labels, since),
        }
    }
}

/// Records how long the call took that initialized the instance of a Machine.
pub(super) fn initialized(metrics: &Metrics, machine: &MachineFacts, class: &ClassFacts, took: Duration) {
    let labels = labels_of(machine, Some(class));
    if !deployment_of(machine).is_empty() {
        metrics.set(&INITIALIZED, &labels, took.as_secs_f64().round());
    }
    metrics.observe(&INITIALIZATIONS, &labels, took);
}

/// The labels of the durations of Machines.
fn labels_of<'a>(machine: &'a MachineFacts, class: Option<&'a ClassFacts>) -> [(&'static str, &'a str); 4] {
    let instance_type = class.and_then(|class| class.instance_type.as_deref());
    let zone = machine.spec.node_template.metadata.labels.get(ZONE);
    [
        ("namespace", &machine.namespace),
        ("machine_deployment", deployment_of(machine)),
        ("instance_type", instance_type.unwrap_or_default()),
        ("zone", zone.map_or("", String::as_str)),
    ]
}

fn deployment_of(machine: &MachineFacts) -> &str {
    machine.label("name").unwrap_or_default()
}

/// The label of a Node with its zone.
const ZONE: &str = "topology.kubernetes.io/zone";

/// A stage in the life of a Machine that a change of the Machine ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ended {
    Creation,
    Join,
    FailedJoin,
    /// With the begin of the drain.
    Drain(Timestamp),
    /// With the begin of the deletion.
    Deletion(Timestamp),
}

fn ended(old: &MachineFacts, new: Option<&MachineFacts>, is_released_here: bool) -> Vec<Ended> {
    let mut all = Vec::new();
    let before = old.deletion_marker();
    let after = new.and_then(MachineFacts::deletion_marker);
    if let Some(new) = new {
        if old.provider_id.is_none() && new.provider_id.is_some() {
            all.push(Ended::Creation);
        }
        let creates = new.status.operation.type_ == Some(OperationType::Create);
        if creates && old.status.phase != new.status.phase {
            match new.status.phase {
                Phase::Running => all.push(Ended::Join),
                Phase::Failed if old.status.phase == Phase::Pending => all.push(Ended::FailedJoin),
                _ => {}
            }
        }
        if let Some(since) = new.deleting_since
            && before == Some(DeletionMarker::DrainNode)
            && after.is_some_and(|after| DeletionMarker::DrainNode < after)
        {
            // The phase is written when the drain begins. The Machine may have been deleted long
            // before, while no process acted.
            all.push(Ended::Drain(old.status.phase_since.unwrap_or(since)));
        }
    }
    let is_gone =
        |marker: Option<DeletionMarker>| marker.is_some_and(|marker| DeletionMarker::DeleteNode <= marker);
    let ends_here = is_released_here && new.is_none_or(|new| !new.has_finalizer) && old.has_finalizer;
    if let Some(since) = old.deleting_since
        && old.provider_id.is_some()
        && !is_gone(before)
        && (is_gone(after) || ends_here)
    {
        all.push(Ended::Deletion(since));
    }
    all
}

/// Records a measured event.
pub(super) fn note(tools: &Tools, measurement: &Measurement<'_>, metrics: &Metrics) {
    match measurement {
        Measurement::Pass { queue, waited, took } => {
            metrics.observe(&QUEUE_WAIT, &[("name", queue)], *waited);
            metrics.observe(&QUEUE_WORK, &[("name", queue)], *took);
        }
        Measurement::Watch { resource, timing } => note_watch(resource, *timing, metrics),
        Measurement::Call { cloud, call, took, error } => {
            if tools.machine.is_none() {
                return;
            }
            let code = error.map(|error| (code_of(error) as u32).to_string());
            note_call(cloud, *call, *took, code.as_deref(), metrics);
        }
    }
}

fn note_watch(resource: &str, timing: WatchTiming, metrics: &Metrics) {
    let name = [("name", resource)];
    #[expect(clippy::cast_precision_loss, reason = "metrics are floating point numbers")]
    match timing {
        WatchTiming::List { objects, took } => {
            metrics.count(&LISTS, &name);
            metrics.sum(&LIST_DURATION, &name, took.as_secs_f64());
            metrics.sum(&LIST_ITEMS, &name, objects as f64);
        }
        WatchTiming::Stream { events, lasted } => {
            metrics.count(&WATCHES, &name);
            metrics.add(&SHORT_WATCHES, &name, u64::from(timing.is_short()));
            metrics.sum(&WATCH_DURATION, &name, lasted.as_secs_f64());
            metrics.sum(&WATCH_ITEMS, &name, events as f64);
        }
    }
}

fn note_call(provider: &str, call: Call, took: Duration, code: Option<&str>, metrics: &Metrics) {
    let service = [("provider", provider), ("service", INSTANCES)];
    let name = call.to_string();
    let operation = [("provider", provider), ("operation", operation_of(call).unwrap_or(&name))];
    metrics.count(&API_REQUESTS, &service);
    match code {
        None => {
            metrics.observe(&API_DURATION, &service, took);
            metrics.observe(&DRIVER_DURATION, &operation, took);
        }
        Some(code) => {
            metrics.count(&API_FAILURES, &service);
            metrics.count(&DRIVER_FAILURES, &[operation[0], operation[1], ("error_code", code)]);
        }
    }
}

/// Returns the name of a call in the metrics of Go's drivers, if they have it.
fn operation_of(call: Call) -> Option<&'static str> {
    match call {
        Call::ENSURE => Some("create_machine"),
        Call::INITIALIZE => Some("initialize_machine"),
        Call::DELETE => Some("delete_machine"),
        Call::FIND => Some("get_machine_status"),
        Call::LIST => Some("list_machine"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use machinist_api::Machine;
    use serde_json::{Value, json};

    use super::*;

    const DELETED_AT: &str = "2027-01-15T08:00:00Z";
    const DRAINED_SINCE: &str = "2027-01-15T09:30:00Z";

    fn machine(phase: &str, operation: &str, description: &str, more: Value) -> MachineFacts {
        let mut object = json!({
            "metadata": {
                "name": "m", "namespace": "ns", "uid": "u",
                "finalizers": ["machine.sapcloud.io/machine-controller-manager"],
            },
            "spec": {"class": {"kind": "MachineClass", "name": "c"}},
            "status": {
                "currentStatus": {"phase": phase},
                "lastOperation": {"type": operation, "description": description},
            },
        });
        for (field, value) in more.as_object().expect("fields") {
            let (part, field) = field.split_once('.').expect("a path");
            object[part][field] = value.clone();
        }
        let machine: Machine = serde_json::from_value(object).expect("a Machine");
        MachineFacts::parse(&machine)
    }

    #[test]
    fn the_record_of_an_instance_and_its_node_are_measured_once() {
        let new = machine("Pending", "Create", "", json!({}));
        let made = machine("Pending", "Create", "", json!({"spec.providerID": "sim:///1"}));
        let joined = machine("Running", "Create", "", json!({"spec.providerID": "sim:///1"}));
        let failed = machine("Failed", "Create", "", json!({"spec.providerID": "sim:///1"}));
        assert_eq!(ended(&new, Some(&made), false), [Ended::Creation]);
        assert_eq!(ended(&made, Some(&joined), false), [Ended::Join]);
        assert_eq!(ended(&joined, Some(&joined), false), []);
        assert_eq!(ended(&made, Some(&failed), false), [Ended::FailedJoin]);
        let rejoined = machine("Running", "HealthCheck", "", json!({"spec.providerID": "sim:///1"}));
        assert_eq!(ended(&joined, Some(&rejoined), false), []);
    }

    #[test]
    fn drain_and_deletion_are_measured_in_every_order_of_stages() {
        let at: Timestamp = DELETED_AT.parse().expect("a time");
        let begun: Timestamp = DRAINED_SINCE.parse().expect("a time");
        let stage = |marker: DeletionMarker| {
            let more = json!({"metadata.deletionTimestamp": DELETED_AT, "spec.providerID": "sim:///1"});
            let mut machine = machine("Terminating", "Delete", marker.as_str(), more);
            machine.status.phase_since = Some(begun);
            machine
        };
        let drain = stage(DeletionMarker::DrainNode);
        let instance = stage(DeletionMarker::DeleteInstance);
        let node = stage(DeletionMarker::DeleteNode);
        assert_eq!(ended(&drain, Some(&instance), false), [Ended::Drain(begun)]);
        assert_eq!(ended(&instance, Some(&node), false), [Ended::Deletion(at)]);
        assert_eq!(ended(&node, None, true), [], "counted with the stage before");
        assert_eq!(ended(&instance, None, true), [Ended::Deletion(at)], "stages in one pass");
        assert_eq!(ended(&instance, None, false), [], "another client removed the finalizer");
    }
}
