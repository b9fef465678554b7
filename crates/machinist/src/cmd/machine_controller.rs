//! `machinist machine-controller`: runs the controller of Machines, instances and Nodes in a
//! separate process.

use std::net::SocketAddr;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::bail;
use futures::future::{BoxFuture, try_join_all};
use machinist_controllers::mcm::{
    MachineController, MachineOptions, ServerLimits, announce_machine_controller,
};
use machinist_driver::{Provider, Providers};
use machinist_driver_http::Traffic;
use machinist_plan::mcm::machine::{Defaults, TargetCluster};
use machinist_plan::mcm::orphan;

use crate::args::{
    ClusterArgs, ClusterFlag, MachineControllerArgs, MachineDefaultArgs, MachineSafetyArgs,
    config_of_machine_controller,
};
use crate::clouds::{CLOUDS, CloudArgs, Given, STARTING, traffic};
use crate::wiring::{LeaseName, Prerequisite, Process, SecureOptions, Shows, of_port};
use crate::wrong_flags::WrongFlags;

/// The least value of `--dead-node-timeout`.
const LEAST_DEAD_NODE_TIMEOUT: Duration = Duration::from_secs(60);

pub(crate) async fn run(args: &MachineControllerArgs) -> anyhow::Result<ExitCode> {
    run_served(args, || served(&args.cloud, &args.clusters)).await
}

/// Serves the classes of one provider, which is not in the registry.
pub(crate) async fn run_with(
    args: &MachineControllerArgs,
    provider: Arc<dyn Provider>,
    call_bound: Duration,
) -> anyhow::Result<ExitCode> {
    run_served(args, || only(&args.cloud, provider, call_bound)).await
}

async fn run_served(
    args: &MachineControllerArgs,
    served: impl FnOnce() -> anyhow::Result<Served>,
) -> anyhow::Result<ExitCode> {
    let MachineSafetyArgs {
        machine_safety_apiserver_statuscheck_timeout: timeout,
        machine_safety_apiserver_statuscheck_period: period,
        ..
    } = &args.safety;
    if period < timeout {
        bail!(WrongFlags::new(
            "--machine-safety-apiserver-statuscheck-period: expected at least the value of \
             --machine-safety-apiserver-statuscheck-timeout"
        ));
    }
    if args.machines.dead_node_timeout < LEAST_DEAD_NODE_TIMEOUT {
        // A kubelet that restarts is NotReady for some seconds, and its pods run.
        bail!(WrongFlags::new("--dead-node-timeout: expected at least 1m"));
    }
    let cluster = args.cluster_name.clone().unwrap_or_else(|| args.clusters.namespace.clone());
    let Served { providers, waits_for, call_bound, requests } = served()?;
    let providers = Prerequisite { waits_for, found: providers };
    let secure = args.secure.is_given().then(|| SecureOptions::of(&args.secure, args.server.address));
    let process = Process {
        component: "machine-controller",
        resources: &["machines", "machinesets", "machineclasses"],
        clusters: &args.clusters,
        listen: Some(SocketAddr::new(args.server.address, args.port)),
        lease: LeaseName { namespace: &args.clusters.namespace, name: "machine-controller" },
        concurrency: args.concurrent_syncs,
        leader: &args.leader,
        permissions: secure.as_ref().map(of_port).unwrap_or_default(),
        secure,
        metrics: None,
        profiler: args.profiling.profiler(),
        call_bound: Some(call_bound),
        shows: Shows {
            config: config_of_machine_controller(args),
            announce: Some(announce_machine_controller),
            observe: Some(|clients, options, leadership| {
                Box::new(MachineController::observe(clients, options, leadership))
            }),
        },
    };
    process
        .run_after(providers, |providers, clients, common, leadership| {
            tracing::info!(providers = providers.names(), "Serving the classes of these providers");
            requests.iter().for_each(|(cloud, sent)| traffic::measure(&common.metrics, cloud, sent));
            let mut options = MachineOptions::new(providers, cluster);
            let orphan_period = args.safety.machine_safety_orphan_vms_period;
            let defaults = defaults(&args.machines);
            options.orphans = Some(orphan::OrphanOptions {
                period: orphan_period,
                minimum_age: defaults.creation_timeout,
                deletes: !args.safety.report_orphans_only,
            });
            options.defaults = Arc::new(Defaults { orphan_period: Some(orphan_period), ..defaults });
            options.server_limits = Some(ServerLimits { timeout: *timeout, period: *period });
            if args.clusters.target_kubeconfig == ClusterFlag::None {
                options.target = TargetCluster::None;
            }
            options.token_groups = args.machines.bootstrap_token_auth_extra_groups.clone();
            MachineController::start(clients, common, options, leadership)
        })
        .await
}

/// The parts of its clouds that the controller needs.
struct Served {
    /// Waits until all providers can be used.
    providers: BoxFuture<'static, anyhow::Result<Providers>>,
    /// The state of the process until then, for `/readyz`.
    waits_for: &'static str,
    /// How long after its start a call may take effect.
    call_bound: Duration,
    /// The names of the clouds whose requests are counted, and the counters.
    requests: Vec<(&'static str, Traffic)>,
}

/// Returns what the controller needs of its clouds.
///
/// # Errors
/// If the settings of a cloud are wrong, or if a flag of another cloud is set.
fn served(args: &CloudArgs, clusters: &ClusterArgs) -> anyhow::Result<Served> {
    let clouds = args.served();
    for other in CLOUDS.iter().filter(|cloud| clouds.iter().all(|served| served.name != cloud.name)) {
        if let Some(flag) = (other.own_flag)(&args.settings) {
            bail!(WrongFlags::new(format!("{flag}: expected only with --provider {}", other.name)));
        }
    }
    let given = Given { settings: &args.settings, clusters };
    let needs: Vec<_> = clouds.iter().map(|cloud| (cloud.for_machines)(&given)).collect::<Result<_, _>>()?;
    let call_bound = needs.iter().map(|needed| needed.call_bound).max().unwrap_or_default();
    let slow = needs.iter().find(|needed| needed.waits_for != STARTING);
    let waits_for = slow.map_or(STARTING, |needed| needed.waits_for);
    let counted = clouds.iter().zip(&needs);
    let requests =
        counted.filter_map(|(cloud, needed)| Some((cloud.name, needed.traffic.clone()?))).collect();
    let providers = try_join_all(needs.into_iter().map(|needed| needed.provider));
    let providers = Box::pin(async move { Ok(Providers::new(providers.await?)) });
    Ok(Served { providers, waits_for, call_bound, requests })
}

/// Returns what the controller needs of a provider that is not in the registry.
///
/// # Errors
/// If a flag chooses a cloud of the registry.
fn only(args: &CloudArgs, provider: Arc<dyn Provider>, call_bound: Duration) -> anyhow::Result<Served> {
    let of_a_cloud = CLOUDS.iter().find_map(|cloud| (cloud.own_flag)(&args.settings));
    let chosen = (!args.provider.is_empty()).then_some("--provider");
    if let Some(flag) = chosen.or(of_a_cloud) {
        let name = provider.name();
        bail!(WrongFlags::new(format!(
            "{flag}: expected no such flag, because this program serves only {name}"
        )));
    }
    let providers = Box::pin(std::future::ready(Ok(Providers::new(vec![provider]))));
    Ok(Served { providers, waits_for: STARTING, call_bound, requests: Vec::new() })
}

/// Converts the flags to the defaults for Machines.
fn defaults(args: &MachineDefaultArgs) -> Defaults {
    // As in Go's machine controller, zero means the default.
    let exhausted_retry = Some(args.resource_exhausted_retry)
        .filter(|retry| !retry.is_zero())
        .unwrap_or(Defaults::default().exhausted_retry);
    Defaults {
        orphan_period: None,
        creation_timeout: args.machine_creation_timeout,
        health_timeout: args.machine_health_timeout,
        drain_timeout: args.machine_drain_timeout,
        detach_timeout: args.machine_pv_detach_timeout,
        in_place_update_timeout: args.machine_inplace_update_timeout,
        preserve_timeout: args.machine_preserve_timeout,
        reattach_timeout: args.machine_pv_reattach_timeout,
        volumes_at_once: args.drain_volumes_at_once,
        replacements_at_once: args.replacements_at_once,
        dead_node_after: args.dead_node_timeout,
        max_evictions: args.machine_max_evict_retries,
        exhausted_retry,
        bad_conditions: args
            .node_conditions
            .iter()
            .filter(|condition| !condition.is_empty())
            .cloned()
            .collect(),
    }
}
