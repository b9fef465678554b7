//! `machinist machine-controller-manager`: runs the controllers of MachineDeployments and
//! MachineSets in a separate process.

use std::net::SocketAddr;
use std::process::ExitCode;

use machinist_controllers::mcm::{Manager, Options, announce_manager};
use machinist_plan::mcm::machine_set::SafetyMargins;

use crate::args::{ManagerArgs, config_of_manager};
use crate::wiring::{LeaseName, Process, SecureOptions, Shows, of_port};

pub(crate) async fn run(args: &ManagerArgs) -> anyhow::Result<ExitCode> {
    let secure = args.secure.is_given().then(|| SecureOptions::of(&args.secure, args.server.address));
    let process = Process {
        component: "machine-controller-manager",
        resources: &["machines", "machinesets", "machinedeployments"],
        clusters: &args.clusters,
        listen: Some(SocketAddr::new(args.server.address, args.port)),
        lease: LeaseName { namespace: &args.clusters.namespace, name: "machine-controller-manager" },
        concurrency: args.concurrent_syncs,
        leader: &args.leader,
        permissions: secure.as_ref().map(of_port).unwrap_or_default(),
        secure,
        metrics: None,
        profiler: args.profiling.profiler(),
        call_bound: None,
        shows: Shows {
            config: config_of_manager(args),
            announce: Some(announce_manager),
            observe: Some(|clients, options, leadership| {
                Box::new(Manager::observe(clients, options, leadership))
            }),
        },
    };
    let safety_margins = SafetyMargins {
        up: args.safety_up,
        down: args.safety_down,
        period: args.machine_safety_overshooting_period,
    };
    let protects_nodes = args.autoscaler_scaledown_annotation_during_rollout;
    process
        .run(|clients, options, leadership| {
            let options = Options { safety_margins, protects_nodes, ..Options::from(options) };
            Manager::start(clients, options, leadership)
        })
        .await
}
