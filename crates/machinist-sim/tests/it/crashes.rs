//! Four scenarios, killed at every call they make.

use std::num::NonZeroUsize;

use machinist_sim::case::Case;
use machinist_sim::scenarios;
use machinist_sim::sweep::{Stride, sweep};

use crate::paused::runtime;

#[test]
fn every_crash_is_survived() {
    let mut failures = Vec::new();
    for name in ["create-one", "delete-one", "burst", "rollout"] {
        let scenario = scenarios::by_name(name).expect("a scenario of that name");
        let swept = sweep(&Case::calm(scenario, 1), stride(), runtime);
        println!("{swept}");
        failures.extend(swept.failures);
    }
    let shown: Vec<String> = failures
        .iter()
        .take(3)
        .map(|failure| {
            format!("{}\n{}\nrepeat it with\n  {}", failure.case, failure.what, failure.case.command())
        })
        .collect();
    let cases: Vec<String> = failures.iter().map(|failure| failure.case.to_string()).collect();
    assert!(
        failures.is_empty(),
        "{} crashes were not survived: {cases:?}\n{}",
        failures.len(),
        shown.join("\n")
    );
}

fn stride() -> Stride {
    let given = std::env::var("MACHINIST_SWEEP_STRIDE").ok();
    given.and_then(|text| text.parse::<NonZeroUsize>().ok()).map_or(Stride::EXHAUSTIVE, Stride)
}
