//! The providers of Cluster API: without faults, under faults, and killed at every call. `cargo
//! xtask sim` plays the mutants.

use std::ops::Range;

use machinist_sim::capi::{Case, SimulatedCapi, scenarios};
use machinist_sim::contract::SimulatedContract as _;
use machinist_sim::run::{Depth, RunReport};
use machinist_sim::sweep::{Stride, sweep};

use crate::crashes::stride;
use crate::paused::runtime;
use crate::swarm::seeds_or;

/// The usual seeds of each scenario.
const SEEDS: Range<u64> = 0..8;
/// One of this many seeds is also observed in a quiet window, and played twice.
const CLOSELY_EVERY: u64 = 4;

#[track_caller]
fn check(case: &Case, depth: Depth) -> RunReport {
    let report = case.play(runtime, depth);
    assert!(report.is_fine(), "{case} failed\n{report}\nRepeat it with:\n  {}", case.command());
    report
}

#[test]
fn every_scenario_of_cluster_api_passes_without_faults() {
    for scenario in scenarios::ALL {
        let report = check(&Case::calm(*scenario, 1), Depth::Quiescence);
        println!("{:<24} {:>6.0?} of simulated time, {}", scenario.name, report.took, report.points);
    }
}

#[test]
fn every_crash_of_cluster_api_is_survived() {
    for name in scenarios::SWEPT {
        let scenario = SimulatedCapi::by_name(name).expect("a scenario of that name");
        let swept = sweep(&Case::calm(scenario, 1), stride(), runtime);
        println!("{swept}");
        let shown: Vec<String> = swept.failures.iter().take(3).map(ToString::to_string).collect();
        assert!(swept.failures.is_empty(), "{swept}\n{}", shown.join("\n"));
        // Only a stride leaves crashes out. Without one, the sweep must try all of them.
        let is_whole = swept.run == swept.reachable && swept.points_run == swept.points.total();
        assert!(is_whole || stride() != Stride::EXHAUSTIVE, "{swept}");
        assert!(0 < swept.points.requests && 0 < swept.points.driver_calls, "{swept}: no call was swept");
    }
}

#[test]
fn every_seed_of_cluster_api_passes_and_repeats() {
    let mut failures = Vec::new();
    for scenario in scenarios::ALL {
        let (mut faults, mut runs) = (0, 0);
        for seed in seeds_or(SEEDS) {
            let case = Case::swarm(*scenario, seed);
            let is_close = seed.is_multiple_of(CLOSELY_EVERY);
            let depth = if is_close { Depth::Quiescence } else { Depth::EndState };
            let report = case.play(runtime, depth);
            (faults, runs) = (faults + report.injected(), runs + 1);
            if !report.is_fine() {
                println!("{case} failed\n{report}\nRepeat it with:\n  {}", case.command());
                failures.push(case.to_string());
            } else if is_close {
                let again = case.play(runtime, depth);
                assert_eq!(again.hash(), report.hash(), "{case} has another trace when it is repeated");
            }
        }
        println!("{:<24} {runs} runs, {faults} faults", scenario.name);
    }
    assert!(failures.is_empty(), "{} runs failed: {failures:?}", failures.len());
}
