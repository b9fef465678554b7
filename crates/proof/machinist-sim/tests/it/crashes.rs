//! Four scenarios, killed at every call that they make.

use machinist_sim::case::Case;
use machinist_sim::scenarios;
use machinist_sim::sweep::{Stride, sweep};
use tokio::time::Instant;

use crate::paused::runtime;

#[test]
fn every_crash_is_survived() {
    let (stride, began) = (stride(), Instant::now());
    let mut failures = Vec::new();
    for name in ["create-one", "delete-one", "burst", "rollout"] {
        let scenario = scenarios::by_name(name).expect("a scenario of that name");
        let swept = sweep(&Case::calm(scenario, 1), stride, runtime);
        println!("{swept}");
        // Only a stride leaves crashes out. Without one, the sweep must try all of them.
        let is_whole = swept.run == swept.reachable && swept.points_run == swept.points.total();
        assert!(is_whole || stride != Stride::EXHAUSTIVE || !swept.failures.is_empty(), "{swept}");
        let has_both = 0 < swept.points.requests && 0 < swept.points.driver_calls;
        assert!(
            has_both || !swept.failures.is_empty(),
            "{swept}: expected points of requests and of driver calls"
        );
        failures.extend(swept.failures);
    }
    println!("{:.0?} for all scenarios", began.elapsed());
    let shown: Vec<String> = failures.iter().take(3).map(ToString::to_string).collect();
    let cases: Vec<&str> = failures.iter().map(|failure| failure.command.as_str()).collect();
    assert!(
        failures.is_empty(),
        "{} crashes were not survived: {cases:?}\n{}",
        failures.len(),
        shown.join("\n")
    );
}

pub(crate) fn stride() -> Stride {
    match std::env::var("MACHINIST_SWEEP_STRIDE") {
        Err(_) => Stride::EXHAUSTIVE,
        Ok(text) => text.parse().expect("MACHINIST_SWEEP_STRIDE"),
    }
}
