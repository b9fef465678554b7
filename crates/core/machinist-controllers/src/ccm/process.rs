//! The process of the cloud-controller-manager.

use machinist_kube::lease::Leadership;
use machinist_runtime::Clients;

use super::contract::Ccm;
use super::measure;
use super::options::CcmOptions;
use crate::ProcessOptions;

/// A process that runs until it is dropped.
pub type Running = machinist_runtime::Running<Ccm>;
/// Shows the readiness and the decisions of the process.
pub type Inspector = machinist_runtime::Inspector<Ccm>;

/// The process that initialises Nodes, deletes Nodes of missing instances, and programs load
/// balancers and routes.
pub struct CloudControllerManager;

impl CloudControllerManager {
    /// Starts the process. `leadership` is `None` if no other process can act.
    pub fn start(
        clients: Clients,
        process: ProcessOptions,
        options: CcmOptions,
        leadership: Option<Leadership>,
    ) -> Running {
        measure::running(&process.metrics, options.controllers);
        Running::start(clients, process, options.into(), leadership)
    }
}
