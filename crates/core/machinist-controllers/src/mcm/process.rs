//! The two processes of the machine API, and the kinds that each watches and decides about.
//!
//! | | machine controller | manager |
//! |---|---|---|
//! | control cluster | Machines, sets (to find deployments), classes, Secrets | Machines, sets, deployments |
//! | target cluster | Nodes, pods, budgets, volumes with their claims and attachments, bootstrap tokens | nothing yet |
//! | decides about | Machines, classes, Secrets, replacements | sets, deployments |
//!
//! Both may run in one program; they share only the API server.

use machinist_kube::lease::Leadership;
use machinist_runtime::Clients;

use super::contract::Mcm;
use super::options::{MachineOptions, Options, Tools};
use crate::ProcessOptions;

/// A process of the machine API that runs until it is dropped.
pub type Running = machinist_runtime::Running<Mcm>;
/// Shows the readiness and the decisions of the process.
pub type Inspector = machinist_runtime::Inspector<Mcm>;

/// The watches of a process that waits for its Lease, for its metrics.
pub type Observing = machinist_runtime::Observing<Mcm>;

/// The process that creates, watches and deletes instances.
pub struct MachineController;

/// The process that maintains the number of Machines that MachineDeployments request.
pub struct Manager;

impl MachineController {
    /// Starts the machine controller. `leadership` is `None` if no other process can act.
    pub fn start(
        clients: Clients,
        options: impl Into<Options>,
        machine: MachineOptions,
        leadership: Option<Leadership>,
    ) -> Running {
        let Options { process, safety_margins, protects_nodes, planners } = options.into();
        let tools =
            Tools { machine: Some(machine), decides_sets: false, safety_margins, protects_nodes, planners };
        Running::start(clients, process, tools, leadership)
    }

    /// Watches what the metrics of a machine controller show that does not lead.
    pub fn observe(clients: Clients, process: ProcessOptions, leadership: Leadership) -> Observing {
        observe(clients, process, leadership, false, &["machines"])
    }
}

impl Manager {
    /// Starts the manager. `leadership` is `None` if no other process can act.
    pub fn start(clients: Clients, options: impl Into<Options>, leadership: Option<Leadership>) -> Running {
        let Options { process, safety_margins, protects_nodes, planners } = options.into();
        let tools = Tools { machine: None, decides_sets: true, safety_margins, protects_nodes, planners };
        Running::start(clients, process, tools, leadership)
    }

    /// Watches what the metrics of a manager show that does not lead.
    pub fn observe(clients: Clients, process: ProcessOptions, leadership: Leadership) -> Observing {
        observe(clients, process, leadership, true, &["machinesets", "machinedeployments"])
    }
}

/// Watches these kinds, and decides nothing.
fn observe(
    clients: Clients,
    process: ProcessOptions,
    leadership: Leadership,
    decides_sets: bool,
    resources: &[&str],
) -> Observing {
    let Options { process, safety_margins, protects_nodes, planners } = process.into();
    let tools = Tools { machine: None, decides_sets, safety_margins, protects_nodes, planners };
    Observing::start(clients, process, tools, leadership, resources)
}
