//! A runtime of one thread whose clock moves only when nobody has anything to do.

use machinist_sim::case::Case;
use machinist_sim::run::{Depth, Report};

pub(crate) fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .expect("a runtime needs nothing but memory")
}

pub(crate) fn play(case: &Case, depth: Depth) -> Report {
    case.play(runtime, depth)
}

/// Plays a case and fails, with what repeats it, if anything is wrong.
#[track_caller]
pub(crate) fn check(case: &Case, depth: Depth) -> Report {
    let report = play(case, depth);
    assert!(report.is_fine(), "{case} failed\n{report}\nrepeat it with\n  {}", case.command());
    report
}
