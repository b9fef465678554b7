//! What the runtime measures and only a contract can name: other programs of the same kind have
//! metrics of these values under their own names.

use std::collections::BTreeMap;
use std::time::Duration;

use machinist_core::Call;
use machinist_instance::Error;
use machinist_kube::WatchTiming;

use crate::contract::Contract;
use crate::key::QueueKey as _;
use crate::runtime::Runtime;
use crate::world::World;

/// A measured event.
#[derive(Debug)]
pub enum Measurement<'a> {
    /// A pass ended.
    Pass {
        /// The kind of the key.
        kind: &'static str,
        /// For how long the key had been due.
        waited: Duration,
        /// Duration of the pass.
        took: Duration,
    },
    /// A list or a stream of a watch ended.
    Watch {
        /// The plural name of the kind.
        resource: &'static str,
        /// Its duration.
        timing: WatchTiming,
    },
    /// A driver call ended.
    Call {
        /// The call.
        call: Call,
        /// Its duration.
        took: Duration,
        /// The error, if it failed.
        error: Option<&'a Error>,
    },
}

/// The state of the queue for the keys of one kind.
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

impl<C: Contract> Runtime<C> {
    /// The state of the queue, by kind. Kinds that had no key yet are absent.
    pub fn queue_states(&self, world: &World<C>) -> BTreeMap<&'static str, QueueState> {
        let mut states: BTreeMap<&'static str, QueueState> = BTreeMap::new();
        for (kind, begun) in self.activity.begun() {
            states.entry(kind).or_default().adds += begun;
        }
        self.queue.visit_due(|key| {
            let state = states.entry(key.kind()).or_default();
            state.due += 1;
            state.adds += 1;
        });
        for (kind, retries) in world.passes.retries() {
            states.entry(kind).or_default().retries += retries;
        }
        for (kind, took) in self.activity.running() {
            let state = states.entry(kind).or_default();
            state.unfinished += took;
            state.longest = state.longest.max(took);
        }
        states
    }

    /// The newest resourceVersion that each watch has shown, by the plural name of the kind.
    pub fn watched_versions(&self, world: &World<C>) -> Vec<(&'static str, u64)> {
        self.feeds.iter().filter_map(|feed| Some((feed.resource(), feed.version(&world.seen)?))).collect()
    }
}
