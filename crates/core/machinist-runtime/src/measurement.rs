//! Measurements of the runtime that only a contract can name: other programs of the same kind have
//! metrics of these values under their own names.

use std::time::Duration;

use machinist_core::Call;
use machinist_instance::Error;
use machinist_kube::WatchTiming;

/// A measured event.
#[derive(Debug)]
pub enum Measurement<'a> {
    /// A pass ended.
    Pass {
        /// The queue of the key ([`crate::Contract::queue_of`]).
        queue: &'static str,
        /// For how long the key had been due.
        waited: Duration,
        /// Duration of the pass.
        took: Duration,
    },
    /// A list or a stream of a watch ended.
    Watch {
        /// The plural name of the kind.
        resource: &'static str,
        /// Duration of the list or stream.
        timing: WatchTiming,
    },
    /// A driver call ended.
    Call {
        /// The name of the provider, or of the API that was called.
        cloud: &'a str,
        /// The call.
        call: Call,
        /// Duration of the call.
        took: Duration,
        /// The error, if it failed.
        error: Option<&'a Error>,
    },
}

/// The state of one queue.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct QueueState {
    /// Keys that are due now.
    pub due: usize,
    /// Keys that were due since the start.
    pub adds: u64,
    /// Passes that were tried again since the start.
    pub retries: u64,
    /// Duration of all passes that run.
    pub unfinished: Duration,
    /// Duration of the longest pass that runs.
    pub longest: Duration,
}
