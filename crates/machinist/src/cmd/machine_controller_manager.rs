//! `machinist machine-controller-manager`: MachineDeployments and MachineSets, as a process of its own.

use std::process::ExitCode;

use machinist_controllers::Manager;

use crate::args::ManagerArgs;
use crate::wiring::Process;

pub(crate) async fn run(args: &ManagerArgs) -> anyhow::Result<ExitCode> {
    let process = Process {
        component: "machine-controller-manager",
        resources: &["machines", "machinesets", "machinedeployments"],
        clusters: &args.clusters,
        server: &args.server,
        port: args.port,
        concurrency: args.concurrent_syncs,
        leader: &args.leader,
        call_bound: None,
        compatibility: &args.compatibility,
    };
    process.run(Manager::start).await
}
