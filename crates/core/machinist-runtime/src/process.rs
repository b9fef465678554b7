//! A process: its watches and workers, started and ended together.

use std::sync::{Arc, PoisonError};
use std::time::Duration;

use k8s_openapi::api::core::v1::ObjectReference;
use machinist_kube::lease::Leadership;
use machinist_kube::recorder::EventType;
use machinist_serve::{Histogram, REQUEST_SECONDS};
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::contract::Contract;
use crate::in_flight::{Drained, Work};
use crate::inspector::Inspector;
use crate::key::QueueKey as _;
use crate::kinds::ContractKey as _;
use crate::measurement::Measurement;
use crate::options::{Clients, Options};
use crate::panics;
use crate::runtime::Runtime;

const PASS_DURATION: Histogram = Histogram::new(
    "workqueue_work_duration_seconds",
    "Duration of passes in seconds. The name is the kind of the object.",
    REQUEST_SECONDS,
);

/// The watches and workers of a process. They run until this value is dropped.
pub struct Running<C: Contract> {
    runtime: Arc<Runtime<C>>,
    tasks: JoinSet<()>,
}

/// A watch or worker of a process ended, which is always a fault. The program should exit too.
#[derive(Debug, Clone, thiserror::Error)]
#[error("a watch or worker of the {component} ended unexpectedly: {reason}")]
pub struct Ended {
    /// The component name of the process.
    pub component: &'static str,
    /// How the task ended.
    pub reason: String,
}

impl<C: Contract> Running<C> {
    /// Starts the watches and workers. `leadership` is `None` if there is no leader election.
    pub fn start(
        clients: Clients,
        options: Options,
        tools: C::Tools,
        leadership: Option<Leadership>,
    ) -> Self {
        panics::note_places();
        let runtime = Arc::new(Runtime::<C>::new(clients, options, tools, leadership));
        runtime.gaps.act();
        let (mut tasks, wrap) = (JoinSet::new(), runtime.options.wrap.clone());
        for feed in &runtime.feeds {
            tasks.spawn(wrap.around(feed.watch(runtime.clone())));
        }
        for _ in 0..runtime.options.concurrency {
            tasks.spawn(wrap.around(work(runtime.clone())));
        }
        tasks.spawn(wrap.around(runtime.clone().tend_barrier()));
        tasks.spawn(wrap.around(runtime.clone().sweep()));
        tasks.spawn(wrap.around(runtime.clone().notice_gaps()));
        tasks.spawn(wrap.around(runtime.clone().tend_outages()));
        if let Some(checks) = C::server_checks(&runtime.tools) {
            tasks.spawn(wrap.around(runtime.clone().check_servers(checks)));
        }
        let (recorder, client) = (runtime.recorder.clone(), runtime.clients.control.clone());
        let leadership = runtime.leadership.clone();
        tasks.spawn(wrap.around(async move { recorder.run(client, leadership).await }));
        Self { runtime, tasks }
    }

    /// Waits until a watch or worker ends, which is always a fault.
    pub async fn ended(&mut self) -> Ended {
        let component = self.runtime.options.component;
        let reason = match self.tasks.join_next().await {
            Some(Err(error)) if error.is_panic() => "the task panicked".to_owned(),
            Some(_) => "the task returned".to_owned(),
            None => "no task was running".to_owned(),
        };
        Ended { component, reason }
    }

    /// Whether all stores are complete, so that the process decides about every object.
    pub fn is_ready(&self) -> bool {
        self.runtime.is_synced(&self.runtime.lock().seen)
    }

    /// Prevents new work, and waits at most `at_most` for the work in flight.
    ///
    /// The function waits until no driver call and no pass is in flight, and until the outcome of
    /// each write that causes deletions is known. Then another process may lead. If the outcome of
    /// a write is still unknown, no other process may lead yet. A new leader does not know the
    /// write, and could delete another object for the same limit.
    pub async fn drain(&self, at_most: Duration) -> Drained {
        let began = Instant::now();
        self.runtime.in_flight.drain(at_most).await;
        // The result contains the writes whose outcome is still unknown.
        let _ = tokio::time::timeout_at(began + at_most, self.runtime.read_outcomes_of_losses()).await;
        Drained { waited: began.elapsed(), ..self.in_flight() }
    }

    /// The work in flight now.
    pub fn in_flight(&self) -> Drained {
        let world = self.runtime.lock();
        let (deletes, late) = (world.barrier.unknown_losses().len(), C::late_writes(&world.seen));
        Drained { deletes, late, ..self.runtime.in_flight.now() }
    }

    /// Emits an Event about an object that is not a key, such as the Lease of the process.
    pub fn record(&self, object: &ObjectReference, reason: &str, message: &str) {
        self.runtime.recorder.record(object, EventType::Normal, reason, message);
    }

    /// Returns a handle that reads the state of the running process.
    pub fn inspector(&self) -> Inspector<C> {
        Inspector::of(self.runtime.clone())
    }
}

impl<C: Contract> Drop for Running<C> {
    /// Aborts all tasks of the process, as a crash would.
    fn drop(&mut self) {
        self.tasks.abort_all();
        self.runtime.tasks.lock().unwrap_or_else(PoisonError::into_inner).abort_all();
    }
}

/// One worker: performs one pass after another, in an endless loop.
async fn work<C: Contract>(runtime: Arc<Runtime<C>>) {
    loop {
        let (key, due) = runtime.queue.next_due().await;
        let waited = due.elapsed();
        let Some(_begun) = runtime.in_flight.begin(Work::Pass) else {
            // The process is stopping. The next leader continues with the key.
            return std::future::pending().await;
        };
        runtime.options.pulse.beat();
        let (began, kind) = (Instant::now(), key.kind());
        let queue = C::queue_of(&runtime.lock().seen, &key);
        let running = runtime.activity.begin(kind, queue);
        key.pass(&runtime).await;
        drop(running);
        runtime.options.pulse.beat();
        let (took, metrics) = (began.elapsed(), &runtime.options.metrics);
        metrics.observe(&PASS_DURATION, &[("name", kind)], took);
        runtime.note_measurement(&Measurement::Pass { queue, waited, took });
        runtime.queue.done(&key);
    }
}
