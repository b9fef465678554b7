//! The parts that are shared within one run.

use std::sync::{Arc, Mutex, PoisonError};

use jiff::{SignedDuration, Timestamp};
use machinist_kube::SharedClock;
use tokio::sync::mpsc::{self, UnboundedReceiver};
use tokio::time::Instant;

use crate::actor::{Side, TestedProcess};
use crate::ask::WholeRequest;
use crate::faults::crash::Life;
use crate::faults::{Crash, CrashPoints, Fault, FaultPlan, Fuse, LongFault, Profile, Victims};
use crate::history::RunHistory;
use crate::mutants::Tamper;
use crate::seed::Seed;

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
    pub history: RunHistory,
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

impl AnswerRecord {
    /// Whether the request was a read.
    pub fn is_read(&self) -> bool {
        matches!(self.verb, "get" | "list" | "watch")
    }

    /// Whether a process that has nothing to do does not send this request.
    pub fn ends_quiet(&self) -> bool {
        // A series of Events ends minutes after its last Event, with one write that marks the end.
        let is_event = self.about.table.starts_with("events");
        let is_lease = self.about.table.starts_with("leases");
        !self.is_read() && !is_event && !is_lease
    }
}

impl Lab {
    /// Creates the shared parts of a run that begins now, and the deaths of its processes.
    pub fn new(
        clock: RunClock,
        history: RunHistory,
        seed: Seed,
        profile: &Profile,
        crash: Option<Crash>,
        tamper: Option<Arc<dyn Tamper>>,
    ) -> (Arc<Self>, UnboundedReceiver<Victims>) {
        let (deaths, dead) = mpsc::unbounded_channel();
        let (plan, points) = (FaultPlan::new(seed, profile.clone()), CrashPoints::new(crash, deaths));
        let (fuse, answers) = Default::default();
        (Arc::new(Self { clock, history, plan, points, fuse, tamper, answers }), dead)
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

    /// Kills the process if fault P10 or a planned crash is due.
    pub(crate) async fn may_die(&self, life: &Life) {
        let process = life.process;
        if life.is_alive() && self.plan.strikes(Fault::P10, &process.to_string()) {
            self.history.note(format!("fault P10: the {process} dies"));
            self.points.strike_life(life);
        }
        life.while_alive().await;
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
