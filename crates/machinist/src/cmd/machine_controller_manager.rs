//! `machinist machine-controller-manager`: runs the controllers of MachineDeployments and
//! MachineSets in a separate process.

use std::net::SocketAddr;
use std::process::ExitCode;

use machinist_controllers::mcm::{Manager, Options};
use machinist_plan::mcm::machine_set::SafetyMargins;

use crate::args::ManagerArgs;
use crate::wiring::{LeaseName, Process};

pub(crate) async fn run(args: &ManagerArgs) -> anyhow::Result<ExitCode> {
    let process = Process {
        component: "machine-controller-manager",
        resources: &["machines", "machinesets", "machinedeployments"],
        clusters: &args.clusters,
        listen: Some(SocketAddr::new(args.server.address, args.port)),
        secure: None,
        lease: LeaseName { namespace: &args.clusters.namespace, name: "machine-controller-manager" },
        concurrency: args.concurrent_syncs,
        leader: &args.leader,
        permissions: Vec::new(),
        metrics: None,
        call_bound: None,
    };
    args.compatibility.warn();
    let safety_margins = SafetyMargins { up: args.safety_up, down: args.safety_down };
    let protects_nodes = args.autoscaler_scaledown_annotation_during_rollout;
    process
        .run(|clients, options, leadership| {
            let options = Options { safety_margins, protects_nodes, ..Options::from(options) };
            Manager::start(clients, options, leadership)
        })
        .await
}
