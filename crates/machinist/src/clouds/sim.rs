//! The simulated cloud, which is a program of its own or a part of `up`.

use std::sync::Arc;

use machinist_cloud_sim::{Clock, Cloud as SimulatedCloud, Settings};
use machinist_driver::Provider;
use machinist_driver_sim::{PROMISES, ProviderSpec, SimProvider};

use super::cloud::{Cloud, ForMachines, ForUp, Given, Reader, UpCloud};
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

fn for_machines(given: &Given<'_>) -> anyhow::Result<ForMachines> {
    let Some(endpoint) = given.settings.sim.sim_endpoint.clone() else {
        return Err(WrongFlags::new("--sim-endpoint: expected the URL of the simulated cloud").into());
    };
    Ok(ForMachines::ready(Arc::new(SimProvider::at(endpoint)), PROMISES.call_bound, None))
}

fn reader() -> Arc<dyn Provider> {
    let cloud = SimulatedCloud::in_memory(Settings::default(), Clock::wall());
    Arc::new(SimProvider::in_process(cloud))
}
