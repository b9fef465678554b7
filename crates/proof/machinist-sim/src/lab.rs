//! The parts that are shared within one run.

use std::sync::{Arc, Mutex, PoisonError};

use jiff::{SignedDuration, Timestamp};
use machinist_kube::SharedClock;
use tokio::time::Instant;

use crate::actor::{Side, TestedProcess};
use crate::ask::WholeRequest;
use crate::faults::{CrashPoints, FaultPlan, Fuse, LongFault};
use crate::history::History;
use crate::mutants::Tamper;

/// The time at which simulated time begins, in every run.
pub const EPOCH: &str = "2030-01-01T00:00:00Z";

/// The one clock of a run. Every server, cloud, node and process uses it.
#[derive(Debug, Clone, Copy)]
pub struct RunClock {
    epoch: Timestamp,
    started: Instant,
}

impl RunClock {
    /// A clock that starts at the epoch and follows tokio's time.
    pub fn start() -> Self {
        Self::starting_at(EPOCH.parse().expect("the epoch is a valid time"))
    }

    /// A clock that starts at that time and follows tokio's time.
    pub fn starting_at(epoch: Timestamp) -> Self {
        Self { epoch, started: Instant::now() }
    }

    /// The current time.
    pub fn time(&self) -> Timestamp {
        let elapsed = SignedDuration::try_from(self.started.elapsed()).unwrap_or(SignedDuration::MAX);
        self.epoch.saturating_add(elapsed).unwrap_or(Timestamp::MAX)
    }
}

impl machinist_kube::Clock for RunClock {
    fn now(&self) -> Timestamp {
        self.time()
    }
}

impl machinist_apiserver::Clock for RunClock {
    fn now(&self) -> Timestamp {
        self.time()
    }
}

/// The shared parts of one run.
pub struct Lab {
    /// The clock.
    pub clock: RunClock,
    /// The history.
    pub history: History,
    /// The faults.
    pub plan: FaultPlan,
    /// The crash points.
    pub points: CrashPoints,
    /// The fuse that stops a livelock.
    pub fuse: Arc<Fuse>,
    /// The change of requests and answers by a mutant.
    pub tamper: Option<Arc<dyn Tamper>>,
    answers: Mutex<Vec<AnswerRecord>>,
}

/// One answer that a process got, successful or not.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AnswerRecord {
    /// When the answer arrived.
    pub at: Timestamp,
    /// The process that sent the request.
    pub process: TestedProcess,
    /// The server.
    pub side: Side,
    /// The verb of the request.
    pub verb: &'static str,
    /// The object that the request named.
    pub about: crate::ask::About,
    /// The HTTP status.
    pub code: u16,
}

impl Lab {
    /// Creates the shared parts of a run that begins now.
    pub fn new(
        clock: RunClock,
        history: History,
        plan: FaultPlan,
        points: CrashPoints,
        tamper: Option<Arc<dyn Tamper>>,
    ) -> Self {
        Self { clock, history, plan, points, fuse: Arc::default(), tamper, answers: Mutex::default() }
    }

    /// Waits for a long fault, and records its begin and its end. `during` lets it happen until the
    /// given time.
    pub async fn endure<F: Future<Output = ()>>(
        &self,
        fault: LongFault,
        detail: &str,
        during: impl FnOnce(Instant) -> F,
    ) {
        let began = self.plan.beginning().await;
        tokio::time::sleep_until(began + fault.begins).await;
        self.plan.strike_long(fault.kind);
        self.history.note(format!("long fault {fault} begins{detail}"));
        during(began + fault.ends()).await;
        self.history.note(format!("long fault {fault} ends"));
    }

    /// The clock in the form that product code takes.
    pub fn shared_clock(&self) -> SharedClock {
        Arc::new(self.clock)
    }

    /// Records the answer that a process got.
    pub fn answered(&self, process: TestedProcess, side: Side, ask: &WholeRequest, code: u16) {
        let (verb, about) = (ask.verb(), ask.about.clone());
        let answered = AnswerRecord { at: self.clock.time(), process, side, verb, about, code };
        self.answers.lock().unwrap_or_else(PoisonError::into_inner).push(answered);
    }

    /// Every answer so far.
    pub fn answers(&self) -> Vec<AnswerRecord> {
        self.answers.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}
