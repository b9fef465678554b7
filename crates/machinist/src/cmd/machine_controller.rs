//! `machinist machine-controller`: runs the controller of Machines, instances and Nodes in a
//! separate process.

use std::net::SocketAddr;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::bail;
use machinist_controllers::mcm::{MachineController, MachineOptions};
use machinist_driver::Provider;
use machinist_driver_docker::DockerOptions;
use machinist_driver_sim::{PROMISES, SimProvider};
use machinist_plan::mcm::machine::Defaults;

use crate::args::{MachineControllerArgs, MachineDefaultArgs, ProviderName, WrongFlags};
use crate::wiring::{LeaseName, Prerequisite, Process};
use crate::wiring::{docker, hcloud};

pub(crate) async fn run(args: &MachineControllerArgs) -> anyhow::Result<ExitCode> {
    let cluster = args.cluster_name.clone().unwrap_or_else(|| args.clusters.namespace.clone());
    let (cloud, call_bound) = cloud(args)?;
    let provider = Prerequisite { waits_for: docker::WAITS_FOR_ENGINE, found: cloud.provider() };
    let process = Process {
        component: "machine-controller",
        resources: &["machines", "machinesets", "machineclasses"],
        clusters: &args.clusters,
        listen: Some(SocketAddr::new(args.server.address, args.port)),
        secure: None,
        lease: LeaseName { namespace: &args.clusters.namespace, name: "machine-controller" },
        concurrency: args.concurrent_syncs,
        leader: &args.leader,
        permissions: Vec::new(),
        metrics: None,
        call_bound: Some(call_bound),
    };
    args.compatibility.warn();
    process
        .run_after(provider, |provider, clients, common, leadership| {
            let mut options = MachineOptions::new(provider, cluster);
            options.defaults = Arc::new(defaults(&args.machines));
            options.token_groups = args.machines.bootstrap_token_auth_extra_groups.clone();
            MachineController::start(clients, common, options, leadership)
        })
        .await
}

/// A cloud with valid settings.
enum Cloud {
    Known(Arc<dyn Provider>),
    /// An engine whose id must be asked for.
    Docker(DockerOptions),
}

impl Cloud {
    async fn provider(self) -> anyhow::Result<Arc<dyn Provider>> {
        match self {
            Self::Known(provider) => Ok(provider),
            Self::Docker(options) => Ok(Arc::new(docker::provider(options).await?)),
        }
    }
}

/// Returns the cloud, and how long after their start its calls may take effect.
///
/// # Errors
/// If the settings of the cloud are wrong.
fn cloud(args: &MachineControllerArgs) -> anyhow::Result<(Cloud, Duration)> {
    if let Some(flag) = args.docker.first_set()
        && args.provider != ProviderName::Docker
    {
        bail!(WrongFlags::new(format!("{flag}: expected only with --provider docker")));
    }
    match (args.provider, &args.sim_endpoint) {
        (ProviderName::Sim, Some(endpoint)) => {
            Ok((Cloud::Known(Arc::new(SimProvider::at(endpoint.clone()))), PROMISES.call_bound))
        }
        (ProviderName::Sim, None) => {
            bail!(WrongFlags::new("--sim-endpoint: expected the URL of the simulated cloud"))
        }
        (ProviderName::Hcloud, None) => {
            let provider = hcloud::provider(hcloud::options()?)?;
            Ok((Cloud::Known(Arc::new(provider)), machinist_driver_hcloud::PROMISES.call_bound))
        }
        (ProviderName::Docker, None) => {
            let options = docker::options(&args.docker)?;
            Ok((Cloud::Docker(options), machinist_driver_docker::PROMISES.call_bound))
        }
        (ProviderName::Hcloud | ProviderName::Docker, Some(_)) => {
            bail!(WrongFlags::new("--sim-endpoint: expected only with --provider sim"))
        }
    }
}

/// Converts the flags to the defaults for Machines.
fn defaults(args: &MachineDefaultArgs) -> Defaults {
    let unsaid = Defaults::default();
    // As in Go's machine controller, zero means the default.
    let exhausted_retry =
        Some(args.resource_exhausted_retry).filter(|it| !it.is_zero()).unwrap_or(unsaid.exhausted_retry);
    Defaults {
        creation_timeout: args.machine_creation_timeout,
        health_timeout: args.machine_health_timeout,
        drain_timeout: args.machine_drain_timeout,
        detach_timeout: args.machine_pv_detach_timeout,
        max_evictions: args.machine_max_evict_retries,
        exhausted_retry,
        bad_conditions: args
            .node_conditions
            .iter()
            .map(|it| it.trim().to_owned())
            .filter(|it| !it.is_empty())
            .collect(),
        ..unsaid
    }
}
