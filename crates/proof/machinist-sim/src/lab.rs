//! What all parts of one run share.

use std::sync::{Arc, Mutex, PoisonError};

use jiff::{SignedDuration, Timestamp};
use machinist_kube::SharedClock;
use tokio::time::Instant;

use crate::actor::{Process, Side};
use crate::ask::Ask;
use crate::faults::{CrashPoints, FaultPlan, Fuse};
use crate::history::History;
use crate::mutants::Tamper;

/// Simulated time begins here, in every run.
pub const EPOCH: &str = "2030-01-01T00:00:00Z";

/// The one clock of a run: every server, cloud, node and process reads this one.
#[derive(Debug, Clone, Copy)]
pub struct RunClock {
    epoch: Timestamp,
    started: Instant,
}

impl RunClock {
    /// A clock that shows the epoch now and follows tokio's time.
    pub fn start() -> Self {
        Self::starting_at(EPOCH.parse().expect("the epoch is a valid time"))
    }

    /// A clock that shows that time now and follows tokio's time.
    pub fn starting_at(epoch: Timestamp) -> Self {
        Self { epoch, started: Instant::now() }
    }

    /// The moment.
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

/// What all parts of one run share.
pub struct Lab {
    /// The time.
    pub clock: RunClock,
    /// What happened.
    pub history: History,
    /// What goes wrong.
    pub plan: FaultPlan,
    /// Where somebody may die.
    pub points: CrashPoints,
    /// Against livelock.
    pub fuse: Arc<Fuse>,
    /// What is deliberately broken in the program under test.
    pub tamper: Option<Arc<dyn Tamper>>,
    answers: Mutex<Vec<Answered>>,
}

/// One answer that a process got, whatever it was.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answered {
    /// When.
    pub at: Timestamp,
    /// Who asked.
    pub process: Process,
    /// Which server.
    pub side: Side,
    /// The verb of the request.
    pub verb: &'static str,
    /// What it was about.
    pub about: crate::ask::About,
    /// The HTTP status.
    pub code: u16,
}

impl Lab {
    /// The shared parts of a run that begins now.
    pub fn new(
        clock: RunClock,
        history: History,
        plan: FaultPlan,
        points: CrashPoints,
        tamper: Option<Arc<dyn Tamper>>,
    ) -> Self {
        Self { clock, history, plan, points, fuse: Arc::default(), tamper, answers: Mutex::default() }
    }

    /// The clock as product code takes it.
    pub fn shared_clock(&self) -> SharedClock {
        Arc::new(self.clock)
    }

    /// Remembers what a process was answered.
    pub fn answered(&self, process: Process, side: Side, ask: &Ask, code: u16) {
        let (verb, about) = (ask.verb(), ask.about.clone());
        let answered = Answered { at: self.clock.time(), process, side, verb, about, code };
        self.answers.lock().unwrap_or_else(PoisonError::into_inner).push(answered);
    }

    /// Every answer so far.
    pub fn answers(&self) -> Vec<Answered> {
        self.answers.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}
