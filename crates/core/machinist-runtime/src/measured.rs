//! The metrics of the state of a process. They are counted when a client asks for them.

use std::collections::BTreeMap;

use machinist_serve::{Counter, Gauge, Metrics};

use crate::contract::Contract;
use crate::measurement::QueueState;
use crate::runtime::Runtime;
use crate::world::World;

const WRITES_OPEN: Gauge = Gauge::new(
    "machinist_own_writes_open",
    "Writes that the watch has not shown yet. The objects concerned wait for them.",
);
const WRITES_UNKNOWN: Gauge =
    Gauge::new("machinist_own_writes_unknown", "Writes to an API server without an answer.");
const WRITES: Counter = Counter::new("machinist_own_writes_total", "Writes of watched objects.");
const WRITES_OVERDUE: Counter = Counter::new(
    "machinist_own_writes_overdue_total",
    "Writes that the watch did not show in time, so that the process read the object instead.",
);
const RESTORES: Counter = Counter::new(
    "machinist_restores_seen_total",
    "How often the resourceVersions of a kind went back, as after a restore of etcd.",
);
const QUEUE_KEYS: Gauge = Gauge::new("machinist_queue_keys", "Objects that the queue holds.");
const PASSES: Counter = Counter::new(
    "machinist_queue_passes_total",
    "How often the controller observed an object and decided about it.",
);
const RETRIES: Counter = Counter::new("machinist_queue_retries_total", "Retries of objects after a failure.");
const ACCOUNTS: Gauge = Gauge::new(
    "machinist_cloud_accounts",
    "Open cloud accounts. An account closes after an hour without a call.",
);
const DRIVERS: Gauge =
    Gauge::new("machinist_cloud_drivers", "Open credentials. Several may open one account.");
const CALLS_IN_FLIGHT: Gauge =
    Gauge::new("machinist_cloud_calls_in_flight", "Calls to clouds that run or wait for their turn.");
const DUE: Gauge = Gauge::new("workqueue_depth", "Objects that are due now. The name is the process.");
const QUEUE_RETRIES: Counter =
    Counter::new("workqueue_retries_total", "Retries of objects after a failure. The name is the process.");

/// Records the state of the queue, the stores, the writes and the calls of a process.
pub(crate) fn record_state<C: Contract>(runtime: &Runtime<C>, metrics: &Metrics) {
    let queue = runtime.queue.metrics();
    let (accounts, drivers) = runtime.accounts.len();
    let name = [("name", runtime.options.component)];
    metrics.set_number(&QUEUE_KEYS, &[], runtime.queue.len());
    metrics.add(&PASSES, &[], queue.handed_out);
    metrics.add(&RETRIES, &[], queue.retries);
    metrics.set_number(&DUE, &name, queue.due);
    metrics.add(&QUEUE_RETRIES, &name, queue.retries);
    metrics.set_number(&ACCOUNTS, &[], accounts);
    metrics.set_number(&DRIVERS, &[], drivers);
    let world = runtime.lock();
    let barrier = world.barrier.metrics();
    metrics.set_number(&WRITES_OPEN, &[], barrier.open);
    metrics.set_number(&WRITES_UNKNOWN, &[], barrier.unknown);
    metrics.add(&WRITES, &[], barrier.opened);
    metrics.add(&WRITES_OVERDUE, &[], barrier.overdue);
    metrics.add(&RESTORES, &[], barrier.restores);
    metrics.set_number(&CALLS_IN_FLIGHT, &[], world.asks.count() + world.queued.count());
    world.passes.record(metrics);
    drop(world);
    record_stores(runtime, metrics);
}

/// Records what the stores show.
pub(crate) fn record_stores<C: Contract>(runtime: &Runtime<C>, metrics: &Metrics) {
    let world = runtime.lock();
    for feed in &runtime.feeds {
        let resource = feed.resource();
        let store = Gauge::named(
            format!("machinist_store_{resource}"),
            format!("Objects of the kind {resource} in memory."),
        );
        metrics.set_number(&store, &[], feed.len(&world.seen));
    }
    C::measure(&world.seen, runtime.now(), metrics);
    drop(world);
    C::measure_state(runtime, metrics);
}

impl<C: Contract> Runtime<C> {
    /// The state of the queues, by name. Queues that had no key yet are absent.
    pub fn queue_states(&self, world: &World<C>) -> BTreeMap<&'static str, QueueState> {
        let mut states: BTreeMap<&'static str, QueueState> = BTreeMap::new();
        for (queue, begun) in self.activity.begun() {
            states.entry(queue).or_default().adds += begun;
        }
        self.queue.visit_due(|key| {
            let state = states.entry(C::queue_of(&world.seen, key)).or_default();
            state.due += 1;
            state.adds += 1;
        });
        for (queue, retries) in world.passes.retries() {
            states.entry(queue).or_default().retries += retries;
        }
        for (queue, took) in self.activity.running() {
            let state = states.entry(queue).or_default();
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
