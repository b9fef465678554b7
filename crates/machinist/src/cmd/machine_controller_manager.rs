//! `machinist machine-controller-manager`: runs the controllers of MachineDeployments and
//! MachineSets in a separate process.

use std::process::ExitCode;

use machinist_controllers::{Manager, Options};
use machinist_plan::mcm::machine_set::SafetyMargins;

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
    let safety_margins = SafetyMargins { up: args.safety_up, down: args.safety_down };
    process
        .run(|clients, options, leadership| {
            Manager::start(clients, Options { safety_margins, ..Options::from(options) }, leadership)
        })
        .await
}
