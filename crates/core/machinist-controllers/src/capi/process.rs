//! The process of a Cluster API provider.

use machinist_kube::lease::Leadership;
use machinist_runtime::Clients;

use super::contract::Capi;
use super::options::CapiOptions;
use crate::ProcessOptions;

/// A process that runs until it is dropped.
pub type Running = machinist_runtime::Running<Capi>;
/// Shows the readiness and the decisions of the process.
pub type Inspector = machinist_runtime::Inspector<Capi>;

/// The process that provides the infrastructure of clusters and machines.
pub struct CapiProvider;

impl CapiProvider {
    /// Starts the process. `leadership` is `None` if no other process can act.
    pub fn start(
        clients: Clients,
        process: ProcessOptions,
        options: CapiOptions,
        leadership: Option<Leadership>,
    ) -> Running {
        Running::start(clients, process, options.into(), leadership)
    }
}
