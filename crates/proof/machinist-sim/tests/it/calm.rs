//! Plays every scenario without faults, with every invariant, until the end of the quiet window.

use machinist_sim::case::Case;
use machinist_sim::run::Depth;
use machinist_sim::scenarios;

use crate::paused::check;

#[test]
fn every_scenario_passes_without_faults() {
    for scenario in scenarios::ALL {
        let report = check(&Case::calm(*scenario, 1), Depth::Quiescence);
        println!("{:<24} {:>6.0?} of simulated time, {}", scenario.name, report.took, report.made);
    }
}
