//! Checks that each contract must pass: its scenarios without faults and under faults, crashes at
//! every call, and mutants.

#![expect(clippy::print_stdout, reason = "a failed test shows what it played")]

use std::num::NonZeroUsize;
use std::ops::Range;

use machinist_sim::case::{CaseOf, Weather};
use machinist_sim::contract::{Mutation as _, Named as _, SimulatedContract};
use machinist_sim::faults::Fault;
use machinist_sim::run::{Depth, RunReport};
use machinist_sim::sweep::{Stride, sweep};
use strum::VariantArray as _;

use crate::paused::runtime;
use crate::swarm::seeds_or;

/// One of this many seeds is also observed in a quiet window, and played twice.
const CLOSELY_EVERY: u64 = 4;
/// Maximum number of seeds that are tried with a mutant. A trap that needs more is not reliable.
const TRIED: u64 = 48;
/// A stride that shares no factor with the number of combinations of victim and moment, so each is
/// tried.
const USUAL_STRIDE: NonZeroUsize = NonZeroUsize::new(31).expect("not zero");

/// Plays a case, and panics with the command that repeats it if the run fails.
#[track_caller]
pub(crate) fn check<C: SimulatedContract>(case: &CaseOf<C>, depth: Depth) -> RunReport {
    let report = case.play(runtime, depth);
    assert!(report.is_fine(), "{case} failed\n{report}\nRepeat it with:\n  {}", case.command());
    report
}

/// Plays each scenario without faults, until the end of the quiet window.
pub(crate) fn pass_without_faults<C: SimulatedContract>(scenarios: &[C::Scenario]) {
    for scenario in scenarios {
        let report = check(&CaseOf::<C>::calm(*scenario, 1), Depth::Quiescence);
        let (took, points) = (report.took, report.points);
        println!("{:<24} {took:>6.0?} of simulated time, {points}, {}", scenario.name(), report.made);
    }
}

/// Kills the processes of the scenarios at every call, or only at every n-th: see [`stride`].
pub(crate) fn survive_crashes<C: SimulatedContract>(names: &[&str]) {
    let stride = stride();
    let mut failures = Vec::new();
    for name in names {
        let scenario = C::by_name(name).expect("a scenario of that name");
        let swept = sweep(&CaseOf::<C>::calm(scenario, 1), stride, runtime);
        println!("{swept}");
        if swept.failures.is_empty() {
            // Only a stride leaves crashes out. Without one, the sweep must try all of them.
            let is_whole = swept.run == swept.reachable && swept.points_run == swept.points.total();
            assert!(is_whole || stride != Stride::EXHAUSTIVE, "{swept}");
            let has_both = 0 < swept.points.requests && 0 < swept.points.driver_calls;
            assert!(has_both, "{swept}: expected points of requests and of driver calls");
        }
        failures.extend(swept.failures);
    }
    let shown: Vec<String> = failures.iter().take(3).map(ToString::to_string).collect();
    let cases: Vec<&str> = failures.iter().map(|failure| failure.command.as_str()).collect();
    let count = failures.len();
    assert!(failures.is_empty(), "{count} crashes were not survived: {cases:?}\n{}", shown.join("\n"));
}

/// The stride that the user chose, or a stride that keeps the tests short. `.ci/run --all` tries
/// every crash.
fn stride() -> Stride {
    match std::env::var("MACHINIST_SWEEP_STRIDE") {
        Err(_) => Stride(USUAL_STRIDE),
        Ok(text) => text.parse().expect("MACHINIST_SWEEP_STRIDE"),
    }
}

/// Plays each scenario under the faults of each seed.
pub(crate) fn pass_and_repeat<C: SimulatedContract>(scenarios: &[C::Scenario], seeds: Range<u64>) {
    let mut failures = Vec::new();
    for scenario in scenarios {
        let (mut faults, mut runs) = (0, 0);
        for seed in seeds_or(seeds.clone()) {
            let case = CaseOf::<C>::swarm(*scenario, seed);
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
        println!("{:<24} {runs} runs, {faults} faults", scenario.name());
    }
    assert!(failures.is_empty(), "{} runs failed: {failures:?}", failures.len());
}

/// The scenario and the faults that reveal a mutant.
pub(crate) struct Trap<M> {
    pub(crate) mutant: M,
    pub(crate) scenario: &'static str,
    pub(crate) faults: &'static [(Fault, u32)],
}

/// Plays each mutant in its trap, on seeds that the correct program passes. That many of the seeds
/// must catch the mutant, because a single one may be an accident of its trace.
pub(crate) fn catch<C: SimulatedContract>(traps: &[Trap<C::Mutant>], often: usize, depth: Depth) {
    // The others need long faults, so `cargo xtask sim` plays them.
    let is_trapped = |mutant: &C::Mutant| traps.iter().any(|trap| trap.mutant == *mutant);
    let mut unplayed = C::Mutant::VARIANTS.to_vec();
    unplayed.retain(|mutant| !is_trapped(mutant) && mutant.recorded().is_none());
    assert!(unplayed.is_empty(), "mutants without a trap and a recorded seed: {unplayed:?}");
    let mut escaped = Vec::new();
    for Trap { mutant, scenario, faults } in traps {
        let scenario = C::by_name(scenario).expect("a scenario of that name");
        let invariant = mutant.caught_by();
        let (mut caught, mut tried) = (Vec::new(), 0);
        while caught.len() < often && tried < TRIED {
            let weather = Weather::Faults(faults.to_vec());
            let whole = CaseOf::<C> { weather, ..CaseOf::swarm(scenario, tried) };
            check(&whole, depth);
            let broken = CaseOf { mutant: Some(*mutant), ..whole };
            if broken.play(runtime, depth).violates(invariant) {
                caught.push(tried);
            }
            tried += 1;
        }
        let seeds = format!("{mutant} by {invariant}: seeds {caught:?} of {tried}");
        println!("{seeds}");
        if caught.len() < often {
            escaped.push(seeds);
        }
    }
    assert!(escaped.is_empty(), "these mutants were not caught by {often} seeds: {escaped:?}");
}
