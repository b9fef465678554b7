//! The cloud-controller-manager: without faults, under faults, killed at every call, and with
//! mutants.

use std::ops::Range;

use machinist_sim::case::Weather;
use machinist_sim::ccm::mutants::Mutant;
use machinist_sim::ccm::{Case, SimulatedCcm, scenarios};
use machinist_sim::contract::SimulatedContract as _;
use machinist_sim::faults::Fault;
use machinist_sim::faults::Fault::{D1, D2, D4, D10, P8};
use machinist_sim::run::{Depth, RunReport};
use machinist_sim::sweep::{Stride, sweep};

use crate::crashes::stride;
use crate::paused::runtime;
use crate::swarm::seeds_or;

/// The usual seeds of each scenario.
const SEEDS: Range<u64> = 0..16;
/// One of this many seeds is also observed in a quiet window, and played twice.
const CLOSELY_EVERY: u64 = 4;

#[track_caller]
fn check(case: &Case, depth: Depth) -> RunReport {
    let report = case.play(runtime, depth);
    assert!(report.is_fine(), "{case} failed\n{report}\nRepeat it with:\n  {}", case.command());
    report
}

fn scenario(name: &str) -> scenarios::Scenario {
    SimulatedCcm::by_name(name).expect("a scenario of that name")
}

#[test]
fn every_scenario_of_the_ccm_passes_without_faults() {
    for scenario in scenarios::ALL {
        let report = check(&Case::calm(*scenario, 1), Depth::Quiescence);
        println!("{:<16} {:>6.0?} of simulated time, {}", scenario.name, report.took, report.points);
    }
}

#[test]
fn every_crash_of_the_ccm_is_survived() {
    for name in scenarios::SWEPT {
        let swept = sweep(&Case::calm(scenario(name), 1), stride(), runtime);
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
fn every_seed_of_the_ccm_passes_and_repeats() {
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
        println!("{:<16} {runs} runs, {faults} faults", scenario.name);
    }
    assert!(failures.is_empty(), "{} runs failed: {failures:?}", failures.len());
}

/// The scenario and the faults that reveal a mutant.
struct Trap {
    mutant: Mutant,
    scenario: &'static str,
    faults: &'static [(Fault, u32)],
}

const TRAPS: &[Trap] = &[
    Trap { mutant: Mutant::ListAlone, scenario: "unlisted-server", faults: &[(P8, 40)] },
    Trap { mutant: Mutant::AbsentByName, scenario: "renamed-server", faults: &[(P8, 40), (D1, 100)] },
    Trap { mutant: Mutant::HastyRelease, scenario: "balancer-flap", faults: &[(D2, 600), (D4, 600)] },
    Trap { mutant: Mutant::TaintFirst, scenario: "node-init", faults: &[(P8, 40)] },
    Trap { mutant: Mutant::PresentByName, scenario: "ip-reuse", faults: &[(P8, 40), (D10, 100)] },
];

/// Number of seeds that must catch a mutant. A single seed may be an accident of its trace.
const CAUGHT_OFTEN_ENOUGH: usize = 3;
/// Number of seeds that are tried at most.
const TRIED: u64 = 48;

#[test]
fn every_mutant_of_the_ccm_is_caught_by_its_invariant() {
    // The others need long faults, so `cargo xtask sim` plays them.
    let is_trapped = |mutant: &Mutant| TRAPS.iter().any(|trap| trap.mutant == *mutant);
    assert!(Mutant::ALL.iter().all(|mutant| is_trapped(mutant) || mutant.recorded().is_some()));
    for Trap { mutant, scenario: name, faults } in TRAPS {
        let (invariant, mut caught) = (mutant.caught_by(), Vec::new());
        for seed in 0..TRIED {
            if caught.len() == CAUGHT_OFTEN_ENOUGH {
                break;
            }
            let whole =
                Case { weather: Weather::Faults(faults.to_vec()), ..Case::swarm(scenario(name), seed) };
            check(&whole, Depth::EndState);
            let broken = Case { mutant: Some(*mutant), ..whole };
            if broken.play(runtime, Depth::EndState).violates(invariant) {
                caught.push(seed);
            }
        }
        println!("{:<16} {invariant:<3} caught in {name} by seeds {caught:?}", mutant.name());
        assert_eq!(caught.len(), CAUGHT_OFTEN_ENOUGH, "{mutant} by {invariant} in {name}: seeds {caught:?}");
    }
}
