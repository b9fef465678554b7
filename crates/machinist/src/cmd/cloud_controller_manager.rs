//! `machinist cloud-controller-manager`: runs the controllers of Nodes, load balancers and routes.

mod permissions;

use std::net::SocketAddr;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use machinist_controllers::ccm::{CcmOptions, CloudControllerManager, Controllers};
use machinist_plan::ccm::cidr::{Cidr, parse_cluster_cidrs};
use machinist_plan::ccm::node::{self, Brake};
use machinist_plan::ccm::{route, service};
use machinist_serve::Metrics;

use crate::args::{CloudControllerManagerArgs, ClusterArgs, ClusterFlag, Controller};
use crate::wiring::{LeaseName, Process, SecureOptions, Shows, credential};
use crate::wrong_flags::WrongFlags;

/// Fewer missing servers than this never stop the deletion of Nodes.
const BRAKE_ALWAYS_ALLOWS: u32 = 3;
pub(crate) async fn run(args: &CloudControllerManagerArgs) -> anyhow::Result<ExitCode> {
    let Settings { options, metrics, measure, call_bound } = settings(args)?;
    let clusters = clusters(args);
    let lease = LeaseName {
        namespace: &args.leader_elect_resource_namespace,
        name: &args.leader_elect_resource_name,
    };
    // Without the port, its certificate is not needed, and no client is reviewed.
    let secure = (args.secure_port != 0).then(|| SecureOptions::of(&args.server, args.bind_address));
    let held = args.leader.leader_elect.then_some(lease);
    let permissions = permissions::needed(&options, held, secure.as_ref());
    let process = Process {
        component: "cloud-controller-manager",
        resources: &[],
        clusters: &clusters,
        listen: (args.secure_port != 0).then(|| SocketAddr::new(args.bind_address, args.secure_port)),
        secure,
        lease,
        permissions,
        metrics,
        concurrency: args.concurrent_node_syncs.saturating_add(args.concurrent_service_syncs),
        leader: &args.leader,
        profiler: args.profiling.profiler(),
        call_bound: Some(call_bound),
        shows: Shows::default(),
    };
    args.warn_about_unused();
    tracing::info!(cloud = args.cloud_provider.name, controllers = ?options.controllers, "Serving Nodes of a cloud");
    process
        .run(|clients, common, leadership| {
            measure(&common.metrics);
            CloudControllerManager::start(clients, common, options, leadership)
        })
        .await
}

/// The settings of the process.
struct Settings {
    options: CcmOptions,
    /// Address of the plain HTTP server for metrics, if there is one.
    metrics: Option<SocketAddr>,
    /// Adds the metrics of the calls.
    measure: Box<dyn FnOnce(&Metrics)>,
    /// How long after its start a call may take effect.
    call_bound: Duration,
}

/// Converts flags and environment to options.
///
/// # Errors
/// If a flag or a variable is wrong. The error names it and the expected value.
fn settings(args: &CloudControllerManagerArgs) -> anyhow::Result<Settings> {
    let nodes = args.cloud_provider.for_nodes.as_ref().expect("the flag accepts only such clouds");
    let cloud = (nodes.open)()?;
    // As in other cloud controller managers: without pod networks of Nodes there is nothing to
    // route to.
    let has_routes = args.allocate_node_cidrs && args.configure_cloud_routes && cloud.has_routes;
    let has_balancers = cloud.has_balancers;
    let runs = |controller: Controller| controller.runs(&args.controllers);
    let controllers = Controllers {
        node: runs(Controller::Node),
        node_lifecycle: runs(Controller::NodeLifecycle),
        service: runs(Controller::Service) && has_balancers,
        route: runs(Controller::Route) && has_routes,
    };
    let routes = route::Options {
        cluster: cluster_cidrs(args, controllers.route)?,
        period: args.route_reconciliation_period,
        follows_addresses: true,
    };
    let services = service::Options {
        adopts_in: args.adopts_in(),
        ..service::Options::new(nodes.balancer_class, nodes.annotation_prefix)
    };
    let credential = credential::follow(cloud.token)?;
    let mut options = CcmOptions::new(cloud.provider, credential, services, routes);
    options.controllers = controllers;
    options.dry_run = args.dry_run;
    options.machines.clone_from(&args.machine_namespace);
    options.nodes = Arc::new(node::Options {
        trusted: trusted(args)?,
        status_period: args.node_status_update_frequency,
        monitor_period: args.node_monitor_period,
        confirm_period: args.node_deletion_confirm_period,
        min_age: args.node_deletion_min_age,
        out_of_service: args.shutdown_out_of_service,
        brake: Some(Brake { nodes: BRAKE_ALWAYS_ALLOWS, percent: args.node_deletion_brake.into() }),
        ..node::Options::default()
    });
    Ok(Settings { options, metrics: cloud.metrics, measure: cloud.measure, call_bound: cloud.call_bound })
}

fn cluster_cidrs(args: &CloudControllerManagerArgs, is_needed: bool) -> anyhow::Result<Vec<Cidr>> {
    if !is_needed && args.cluster_cidr.is_empty() {
        return Ok(Vec::new());
    }
    parse_cluster_cidrs(&args.cluster_cidr.join(",")).map_err(|error| {
        WrongFlags::new(format!(
            "--cluster-cidr {error}. Routes need the networks of the pods; use --configure-cloud-routes=false without routes"
        ))
        .into()
    })
}

fn trusted(args: &CloudControllerManagerArgs) -> anyhow::Result<Vec<Cidr>> {
    let parse = |text: &String| {
        text.trim().parse().map_err(|error| WrongFlags::new(format!("--trusted-node-cidrs {error}")).into())
    };
    args.trusted_node_cidrs.iter().map(parse).collect()
}

/// The cluster of the Nodes is the only one.
fn clusters(args: &CloudControllerManagerArgs) -> ClusterArgs {
    ClusterArgs {
        target_kubeconfig: args.kubeconfig.clone(),
        control_kubeconfig: ClusterFlag::Unset,
        namespace: args.leader_elect_resource_namespace.clone(),
        kube_api_qps: args.kube_api_qps,
        kube_api_burst: args.kube_api_burst,
        master: args.master.clone(),
        kubeconfig_flag: "--kubeconfig",
    }
}
