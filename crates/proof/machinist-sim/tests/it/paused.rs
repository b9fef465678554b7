//! A single-threaded runtime with paused time: its clock moves only when every task waits.

use machinist_sim::case::Case;
use machinist_sim::run::{Depth, RunReport};

pub(crate) fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .expect("the runtime can be built")
}

pub(crate) fn play(case: &Case, depth: Depth) -> RunReport {
    case.play(runtime, depth)
}
