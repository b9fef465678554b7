//! Repeats one run and prints its trace. Does nothing unless the variable names a run.

use machinist_sim::case::{Case, REPLAY};
use machinist_sim::ccm;
use machinist_sim::run::Depth;

use crate::paused::{play, runtime};

#[test]
fn replay() {
    let Ok(named) = std::env::var(REPLAY) else {
        println!("{REPLAY} is not set. To repeat a run, set it, for example {REPLAY}=rollout/17");
        return;
    };
    let logs = tracing_subscriber::fmt().with_env_filter(tracing_subscriber::EnvFilter::from_default_env());
    // Another test of this process may have initialised the logs before.
    let _ = logs.with_writer(std::io::stderr).try_init();
    if named.starts_with(ccm::case::PREFIX) {
        let case: ccm::case::Case = named.parse().expect("a case");
        let report = case.play(runtime, Depth::Quiescence);
        println!("{}", report.trace);
        assert!(report.is_fine(), "{report}");
        println!("{case} passed: {:?}, hash {:016x}, {} faults", report.took, report.hash, report.faults);
        return;
    }
    let case: Case = named.parse().expect("a case");
    let report = play(&case, Depth::Quiescence);
    println!("{}\n{case}: {}", report.trace, case.setup().profile);
    assert!(report.is_fine(), "{report}");
    println!("{case} passed: {:?}, hash {:016x}, {} faults", report.took, report.hash, report.faults);
}
