//! Tests that leader and standby of both controllers show every metric of Go's
//! machine-controller-manager, and what else their ports show.

use std::collections::BTreeSet;
use std::time::Duration;

use k8s_openapi::api::core::v1::Event;
use kube::Api;
use kube::api::{ListParams, Patch, PatchParams};
use machinist_api::MachineDeployment;

use crate::process::{Process, Up, answer, call, free_port};
use crate::processes::{Fleet, NAMESPACE, PATIENCE, are_ready, quick_start, until};

/// Metrics of the machine controller, without the metrics that both programs have.
const CONTROLLER: &[&str] = &[
    "mcm_machine_controller_frozen",
    "mcm_machine_items_total",
    "mcm_machine_current_status_phase",
    "mcm_machine_info",
    "mcm_machine_status_condition",
    "mcm_machine_create_duration_seconds",
    "mcm_machine_initialize_duration_seconds",
    "mcm_machine_join_duration_seconds",
    "mcm_machine_delete_duration_seconds",
    "mcm_machine_drain_duration_seconds",
    "mcm_machine_num_failed_join",
    "mcm_cloud_api_requests_total",
    "mcm_cloud_api_requests_failed_total",
    "mcm_cloud_api_api_request_duration_seconds",
    "mcm_cloud_api_driver_request_duration_seconds",
    "mcm_cloud_api_driver_requests_failed_total",
];

/// Metrics of the manager, without the metrics that both programs have.
const MANAGER: &[&str] = &[
    "mcm_machine_stale_machines_total",
    "mcm_machine_set_items_total",
    "mcm_machine_set_info",
    "mcm_machine_set_info_spec_replicas",
    "mcm_machine_set_info_spec_min_ready_seconds",
    "mcm_machine_set_status_available_replicas",
    "mcm_machine_set_status_fully_labelled_replicas",
    "mcm_machine_set_status_ready_replicas",
    "mcm_machine_set_status_replicas",
    "mcm_machine_set_status_condition",
    "mcm_machine_set_failed_machines",
    "mcm_machine_deployment_items_total",
    "mcm_machine_deployment_info",
    "mcm_machine_deployment_info_spec_paused",
    "mcm_machine_deployment_info_spec_replicas",
    "mcm_machine_deployment_info_spec_min_ready_seconds",
    "mcm_machine_deployment_info_spec_rolling_update_max_surge",
    "mcm_machine_deployment_info_spec_rolling_update_max_unavailable",
    "mcm_machine_deployment_info_spec_revision_history_limit",
    "mcm_machine_deployment_info_spec_progress_deadline_seconds",
    "mcm_machine_deployment_info_spec_rollback_to_revision",
    "mcm_machine_deployment_status_available_replicas",
    "mcm_machine_deployment_status_unavailable_replicas",
    "mcm_machine_deployment_status_ready_replicas",
    "mcm_machine_deployment_status_updated_replicas",
    "mcm_machine_deployment_status_collision_count",
    "mcm_machine_deployment_status_replicas",
    "mcm_machine_deployment_status_condition",
    "mcm_machine_deployment_failed_machines",
];

const BOTH: &[&str] = &[
    "mcm_misc_scrape_failure_total",
    "mcm_workqueue_depth",
    "mcm_workqueue_adds_total",
    "mcm_workqueue_queue_duration_seconds",
    "mcm_workqueue_work_duration_seconds",
    "mcm_workqueue_unfinished_work_seconds",
    "mcm_workqueue_longest_running_processor_seconds",
    "mcm_workqueue_retries_total",
    "mcm_reflector_lists_total",
    "mcm_reflector_list_duration_seconds",
    "mcm_reflector_items_per_list",
    "mcm_reflector_watches_total",
    "mcm_reflector_short_watches_total",
    "mcm_reflector_watch_duration_seconds",
    "mcm_reflector_items_per_watch",
    "mcm_reflector_last_resource_version",
    "rest_client_request_latency_seconds",
    "rest_client_requests_total",
    "process_cpu_seconds_total",
    "process_resident_memory_bytes",
    "process_virtual_memory_bytes",
    "process_open_fds",
    "process_max_fds",
    "process_start_time_seconds",
];

/// Metrics that have no value in the test, and why.
const WITHOUT_VALUE: &[(&str, &str)] = &[
    ("mcm_machine_initialize_duration_seconds", "the test's class needs no initialization"),
    ("mcm_machine_num_failed_join", "each Node joins"),
    ("mcm_cloud_api_requests_failed_total", "no call fails"),
    ("mcm_cloud_api_driver_requests_failed_total", "no call fails"),
    ("mcm_machine_set_status_condition", "no set has a condition"),
    ("mcm_machine_set_failed_machines", "no Machine fails"),
    ("mcm_machine_deployment_failed_machines", "no Machine fails"),
    ("mcm_machine_deployment_info_spec_rollback_to_revision", "the rollback has ended before a scrape"),
    ("mcm_machine_deployment_status_collision_count", "no name of a set was taken"),
    ("mcm_reflector_watches_total", "no watch has ended"),
    ("mcm_reflector_short_watches_total", "no watch has ended"),
    ("mcm_reflector_watch_duration_seconds", "no watch has ended"),
    ("mcm_reflector_items_per_watch", "no watch has ended"),
];

fn scrape(port: u16) -> String {
    call(&format!("http://127.0.0.1:{port}"), "GET", "/metrics", "").as_str().expect("text").to_owned()
}

#[track_caller]
fn has_all(text: &str, names: &[&str]) {
    let shown: BTreeSet<&str> =
        text.lines().filter_map(|line| line.strip_prefix("# HELP ")?.split(' ').next()).collect();
    let missing: Vec<_> = names.iter().chain(BOTH).filter(|name| !shown.contains(*name)).collect();
    assert!(missing.is_empty(), "missing: {missing:?}\n{text}");
}

/// Checks that each metric has a value, except for those that cannot have one in the test.
#[track_caller]
fn have_values(text: &str, names: &[&str]) {
    let valued: BTreeSet<&str> = text
        .lines()
        .filter(|line| !line.starts_with('#'))
        .filter_map(|line| line.split(['{', ' ']).next())
        .flat_map(|name| {
            let whole = ["_count", "_sum", "_bucket"].iter().find_map(|end| name.strip_suffix(end));
            [Some(name), whole].into_iter().flatten()
        })
        .collect();
    let is_expected = |name: &&&str| !WITHOUT_VALUE.iter().any(|(without, _)| *without == **name);
    let missing: Vec<_> =
        names.iter().chain(BOTH).filter(is_expected).filter(|name| !valued.contains(**name)).collect();
    assert!(missing.is_empty(), "without a value: {missing:?}\n{text}");
}

/// Waits until a scrape has a line that begins with a text and has all parts.
async fn shows(port: u16, start: &str, parts: &[&str]) -> String {
    let shown = async {
        let mut again = tokio::time::interval(Duration::from_millis(200));
        loop {
            again.tick().await;
            let listens = tokio::net::TcpStream::connect(("127.0.0.1", port)).await.is_ok();
            let text = if listens { scrape(port) } else { String::new() };
            let is_it = |line: &&str| line.starts_with(start) && parts.iter().all(|part| line.contains(part));
            if text.lines().any(|line| is_it(&line)) {
                return text;
            }
        }
    };
    tokio::time::timeout(PATIENCE, shown)
        .await
        .unwrap_or_else(|_| panic!("no {start} {parts:?}: {}", scrape(port)))
}

#[tokio::test]
async fn leader_and_standby_show_every_metric_of_go() {
    let up = Up::start(Some("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: nothing-to-do}\n"));
    let client = up.client().await;
    quick_start(&client).await;
    let deployments: Api<MachineDeployment> = Api::namespaced(client.clone(), NAMESPACE);
    // Go names the deployment of a Machine by this label.
    let named = serde_json::json!({"metadata": {"labels": {"name": "workers"}}});
    let patch = Patch::Merge(serde_json::json!({"spec": {"template": named}}));
    deployments.patch("workers", &PatchParams::default(), &patch).await.expect("patched");
    let fleet = Fleet::start(&up);
    let ports: [u16; 4] = std::array::from_fn(|_| free_port());
    let leaders = [fleet.machine_controller(ports[0]), fleet.manager(ports[1])];
    until(deployments.clone(), "workers", are_ready(3)).await;
    let standbys = [fleet.machine_controller(ports[2]), fleet.manager(ports[3])];

    // The leaders.
    let controller = shows(ports[0], "mcm_machine_items_total 3", &[]).await;
    has_all(&controller, CONTROLLER);
    let namespace = format!("namespace=\"{NAMESPACE}\"");
    shows(ports[0], "mcm_machine_current_status_phase{name=", &[&namespace, "} 1"]).await;
    let class = ["spec_class_kind=\"MachineClass\"", "spec_class_name=\"workers\"", "node_name=\"workers-"];
    shows(ports[0], "mcm_machine_info{name=", &class).await;
    shows(ports[0], "mcm_machine_status_condition{", &["condition=\"Ready\"", "} 1"]).await;
    let driver = ["provider=\"sim\"", "operation=\"create_machine\""];
    shows(ports[0], "mcm_cloud_api_driver_request_duration_seconds_count{", &driver).await;
    shows(ports[0], "mcm_workqueue_work_duration_seconds_count{name=\"machine\"}", &[]).await;
    shows(ports[0], "mcm_reflector_items_per_list_sum{name=\"machines\"}", &[]).await;
    let url = ["verb=\"GET\"", "/apis/machine.sapcloud.io/v1alpha1/namespaces/{namespace}/machines\""];
    shows(ports[0], "rest_client_request_latency_seconds_count{", &url).await;
    let manager = shows(ports[1], "mcm_machine_deployment_items_total 1", &[]).await;
    has_all(&manager, MANAGER);
    shows(ports[1], "mcm_machine_set_status_ready_replicas{name=", &[&namespace, "} 3"]).await;
    shows(
        ports[1],
        "mcm_machine_deployment_info{name=\"workers\"",
        &["spec_strategy_type=\"RollingUpdate\""],
    )
    .await;

    // A Machine is drained and deleted. The deployment has the fields of a rollout that may be
    // absent.
    let spec = serde_json::json!({
        "replicas": 2, "minReadySeconds": 1, "revisionHistoryLimit": 3, "progressDeadlineSeconds": 600,
    });
    let patch = Patch::Merge(serde_json::json!({"spec": spec}));
    deployments.patch("workers", &PatchParams::default(), &patch).await.expect("scaled");
    until(deployments.clone(), "workers", are_ready(2)).await;
    shows(ports[0], "mcm_workqueue_work_duration_seconds_count{name=\"machinetermination\"}", &[]).await;
    shows(ports[0], "mcm_machine_drain_duration_seconds{namespace=", &["machine_deployment=\"workers\""])
        .await;
    let labels = ["machine_deployment=\"workers\"", "instance_type=", "zone="];
    have_values(&shows(ports[0], "mcm_machine_delete_duration_seconds{", &labels).await, CONTROLLER);
    let limit = "mcm_machine_deployment_info_spec_revision_history_limit{name=\"workers\"";
    have_values(&shows(ports[1], limit, &["} 3"]).await, MANAGER);

    shows(ports[0], "mcm_workqueue_adds_total{name=\"machinesafetyapiserver\"} 0", &[]).await;

    // The standbys watch what these metrics show, and do nothing else.
    let standby = shows(ports[2], "mcm_machine_items_total 2", &[]).await;
    has_all(&standby, CONTROLLER);
    assert!(standby.contains("leader_election_master_status{name=\"machine-controller\"} 0"), "{standby}");
    has_all(&shows(ports[3], "mcm_machine_set_items_total 1", &[]).await, MANAGER);
    for port in ports {
        let url = format!("http://127.0.0.1:{port}");
        assert_eq!(answer(&url, "/healthz"), (200, "OK".to_owned()));
        let config = call(&url, "GET", "/configz", "");
        let config = &config["componentconfig"];
        assert_eq!((&config["Namespace"], &config["Port"]), (&NAMESPACE.into(), &port.into()));
    }

    // Events come from the components of Go.
    let events: Api<Event> = Api::namespaced(client, NAMESPACE);
    let events = events.list(&ListParams::default()).await.expect("listed").items;
    let sources: BTreeSet<(&str, &str)> = events
        .iter()
        .filter_map(|event| Some((event.reason.as_deref()?, event.source.as_ref()?.component.as_deref()?)))
        .collect();
    for expected in [
        ("SuccessfulCreate", "machineset-controller"),
        ("ScalingMachineSet", "machine-controller-manager"),
        ("LeaderElection", "machine-controller"),
        ("LeaderElection", "machine-controller-manager"),
    ] {
        assert!(sources.contains(&expected), "{expected:?} is not in {sources:?}");
    }
    leaders.into_iter().chain(standbys).for_each(|process| drop(Process::terminate(process).cleanly()));
}
