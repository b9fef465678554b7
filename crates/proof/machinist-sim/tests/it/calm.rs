//! Plays every scenario without faults, with every invariant, until the end of the quiet window.

use machinist_sim::mcm::SimulatedMcm;
use machinist_sim::scenarios;

use crate::contracts::pass_without_faults;

#[test]
fn every_scenario_passes_without_faults() {
    pass_without_faults::<SimulatedMcm>(scenarios::ALL);
    pass_without_faults::<SimulatedMcm>(scenarios::UNDRAWN);
}
