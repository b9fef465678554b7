//! The providers of Cluster API: without faults, under faults, and killed at their calls. `cargo
//! xtask sim` plays the mutants.

use machinist_sim::capi::{SimulatedCapi, scenarios};

use crate::contracts::{pass_and_repeat, pass_without_faults, survive_crashes};

#[test]
fn every_scenario_of_cluster_api_passes_without_faults() {
    pass_without_faults::<SimulatedCapi>(scenarios::ALL);
}

#[test]
fn crashes_of_cluster_api_are_survived() {
    survive_crashes::<SimulatedCapi>(&scenarios::SWEPT);
}

#[test]
fn every_seed_of_cluster_api_passes_and_repeats() {
    pass_and_repeat::<SimulatedCapi>(scenarios::ALL, 0..2);
}
