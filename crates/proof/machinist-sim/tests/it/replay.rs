//! Repeats one run and prints its trace. Does nothing unless the variable names a run.

use machinist_sim::case::{Case, CaseOf, REPLAY};
use machinist_sim::contract::SimulatedContract;
use machinist_sim::run::Depth;
use machinist_sim::{capi, ccm};

use crate::paused::runtime;

#[test]
fn replay() {
    let Ok(named) = std::env::var(REPLAY) else {
        println!("{REPLAY} is not set. To repeat a run, set it, for example {REPLAY}=rollout/17");
        return;
    };
    let logs = tracing_subscriber::fmt().with_env_filter(tracing_subscriber::EnvFilter::from_default_env());
    // Another test of this process may have initialised the logs before.
    let _ = logs.with_writer(std::io::stderr).try_init();
    if named.starts_with(ccm::PREFIX) {
        repeat(&named.parse::<ccm::Case>().expect("a case"));
    } else if named.starts_with(capi::PREFIX) {
        repeat(&named.parse::<capi::Case>().expect("a case"));
    } else {
        repeat(&named.parse::<Case>().expect("a case"));
    }
}

#[expect(clippy::print_stdout, reason = "a test prints the run")]
fn repeat<C: SimulatedContract>(case: &CaseOf<C>) {
    let report = case.play(runtime, Depth::Quiescence);
    println!("{}\n{case}: {}", report.trace.text(), case.profile());
    assert!(report.is_fine(), "{report}");
    println!("{case} passed: {:?}, hash {:016x}, {} faults", report.took, report.hash(), report.injected());
}
