//! The simulated cloud, which is a program of its own or a part of `up`.

use std::sync::Arc;

use clap::Args;
use machinist_cloud_sim::{Clock, Cloud as SimulatedCloud, Settings};
use machinist_driver::Provider;
use machinist_driver_sim::{Endpoint, PROMISES, ProviderSpec, SimProvider};

use super::{Cloud, ForMachines, ForUp, Given, HEADING, Reader, UpCloud};
use crate::wrong_flags::WrongFlags;

/// The row of the registry.
pub(super) const CLOUD: Cloud = Cloud {
    name: "sim",
    other_names: &[],
    about: "Simulated cloud",
    check: |spec| ProviderSpec::parse(spec).map(drop),
    needs_no_settings: false,
    own_flag: |args| args.sim.sim_endpoint.as_ref().map(|_| "--sim-endpoint"),
    for_machines,
    for_nodes: None,
    reader: Reader::Alone(reader),
    up: Some(ForUp {
        which: UpCloud::Sim,
        about: "The simulated cloud of this program",
        quick_start: include_str!("../../quickstart.yaml"),
    }),
};

/// Flags of the simulated cloud.
#[derive(Debug, Args)]
pub(crate) struct SimArgs {
    /// URL of the simulated cloud, as `machinist sim-cloud` prints it, for example
    /// http://127.0.0.1:7070; required for the provider sim
    #[arg(long, value_name = "URL", value_parser = endpoint, required_if_eq("provider", "sim"),
          help_heading = HEADING)]
    pub sim_endpoint: Option<Endpoint>,
}

/// Parses the URL of a simulated cloud.
fn endpoint(text: &str) -> Result<Endpoint, String> {
    Endpoint::parse(text).map_err(|_| "expected http://ADDRESS:PORT, without a path".to_owned())
}

fn for_machines(given: &Given<'_>) -> anyhow::Result<ForMachines> {
    let Some(endpoint) = given.cloud.sim.sim_endpoint.clone() else {
        return Err(WrongFlags::new("--sim-endpoint: expected the URL of the simulated cloud").into());
    };
    Ok(ForMachines::ready(Arc::new(SimProvider::at(endpoint)), PROMISES.call_bound, None))
}

fn reader() -> Arc<dyn Provider> {
    let cloud = SimulatedCloud::in_memory(Settings::default(), Clock::wall());
    Arc::new(SimProvider::in_process(cloud))
}
