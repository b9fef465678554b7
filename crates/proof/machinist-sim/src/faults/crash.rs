//! Crash points: every request and every driver call of the processes under test, before it is sent and after it took effect.
//!
//! Points are counted over both processes from the beginning of the interesting part, so that "the 17th, after its commit" is the
//! same point in every run of a scenario. A process that dies stops at that point: nothing it holds runs on, and what it had sent
//! stays sent.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::mpsc;

use crate::actor::Process;
use crate::ask::Observed;

/// What a process does at a point of the run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// It asks an API server.
    Request,
    /// It asks the cloud.
    DriverCall,
}

/// How many points there are, by what is done at them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Points {
    /// API requests.
    pub requests: usize,
    /// Driver calls.
    pub driver_calls: usize,
}

impl Points {
    /// All of them.
    pub fn total(self) -> usize {
        self.requests + self.driver_calls
    }

    fn count(&mut self, kind: Kind) {
        match kind {
            Kind::Request => self.requests += 1,
            Kind::DriverCall => self.driver_calls += 1,
        }
    }
}

impl fmt::Display for Points {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({} requests, {} driver calls)", self.total(), self.requests, self.driver_calls)
    }
}

/// Before a call is sent, or after it took effect and before its answer arrives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Moment {
    /// Nothing happened yet.
    Before,
    /// It is committed.
    After,
}

impl Moment {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Before, Self::After];
}

/// Who dies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Victims {
    /// The manager.
    Manager,
    /// The machine controller.
    MachineController,
    /// Both at once.
    Both,
}

impl Victims {
    /// All three.
    pub const ALL: [Self; 3] = [Self::Manager, Self::MachineController, Self::Both];

    /// Whether that process is among them.
    pub fn include(self, process: Process) -> bool {
        matches!(
            (self, process),
            (Self::Both, _)
                | (Self::Manager, Process::Manager)
                | (Self::MachineController, Process::MachineController)
        )
    }
}

impl From<Process> for Victims {
    fn from(process: Process) -> Self {
        match process {
            Process::Manager => Self::Manager,
            Process::MachineController => Self::MachineController,
        }
    }
}

/// One planned crash.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Crash {
    /// The how-many-th point, from 0.
    pub point: usize,
    /// At which side of it.
    pub moment: Moment,
    /// Who dies.
    pub victims: Victims,
}

impl fmt::Display for Crash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let moment = match self.moment {
            Moment::Before => "before",
            Moment::After => "after",
        };
        let who = match self.victims {
            Victims::Manager => "manager",
            Victims::MachineController => "controller",
            Victims::Both => "both",
        };
        write!(f, "{moment}:{}:{who}", self.point)
    }
}

impl std::str::FromStr for Crash {
    type Err = String;

    /// Reads what [`fmt::Display`] writes, for repeating one run of a sweep.
    fn from_str(text: &str) -> Result<Self, String> {
        let expected = || format!("crash {text:?}: expected MOMENT:POINT:WHO, for example after:17:both");
        let mut parts = text.split(':');
        let (Some(moment), Some(point), Some(who), None) =
            (parts.next(), parts.next(), parts.next(), parts.next())
        else {
            return Err(expected());
        };
        let moment = match moment {
            "before" => Moment::Before,
            "after" => Moment::After,
            _ => return Err(expected()),
        };
        let victims = match who {
            "manager" => Victims::Manager,
            "controller" => Victims::MachineController,
            "both" => Victims::Both,
            _ => return Err(expected()),
        };
        Ok(Self { point: point.parse().map_err(|_| expected())?, moment, victims })
    }
}

/// One life of a process, from its start to its death.
#[derive(Debug)]
pub struct Life {
    /// Which process.
    pub process: Process,
    /// The how-many-th life, from 0.
    pub number: u32,
    alive: AtomicBool,
    observed: Mutex<Observed>,
}

impl Life {
    /// A life that begins.
    pub fn new(process: Process, number: u32) -> Self {
        Self { process, number, alive: AtomicBool::new(true), observed: Mutex::default() }
    }

    /// Whether it goes on.
    pub fn is_alive(&self) -> bool {
        self.alive.load(Ordering::SeqCst)
    }

    /// Ends it: whatever it is about to do does not happen.
    pub fn end(&self) {
        self.alive.store(false, Ordering::SeqCst);
    }

    /// It was shown something.
    pub fn saw(&self, show: impl FnOnce(&mut Observed)) {
        show(&mut self.lock());
    }

    /// What it has been shown.
    pub fn observed(&self) -> Observed {
        self.lock().clone()
    }

    fn lock(&self) -> MutexGuard<'_, Observed> {
        self.observed.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Counts points, and says when somebody dies.
#[derive(Debug)]
pub struct CrashPoints {
    state: Mutex<State>,
    deaths: mpsc::UnboundedSender<Victims>,
}

#[derive(Debug, Default)]
struct State {
    lives: BTreeMap<Process, Arc<Life>>,
    is_counting: bool,
    points: Points,
    planned: Option<Crash>,
    happened: bool,
}

impl CrashPoints {
    /// Points at which, if a crash is planned, it is announced to whoever buries the dead.
    pub fn new(planned: Option<Crash>, deaths: mpsc::UnboundedSender<Victims>) -> Self {
        Self { state: Mutex::new(State { planned, ..State::default() }), deaths }
    }

    /// A process began a life.
    pub fn born(&self, life: Arc<Life>) {
        self.lock().lives.insert(life.process, life);
    }

    /// Points count from here on.
    pub fn begin(&self) {
        self.lock().is_counting = true;
    }

    /// Points do not count any more.
    pub fn end(&self) {
        self.lock().is_counting = false;
    }

    /// How many points were passed.
    pub fn passed(&self) -> Points {
        self.lock().points
    }

    /// Whether the planned crash happened.
    pub fn happened(&self) -> bool {
        self.lock().happened
    }

    /// A call is about to be sent. What is returned names the point, for [`Self::after`].
    pub fn before(&self, kind: Kind) -> Option<usize> {
        let mut state = self.lock();
        if !state.is_counting {
            return None;
        }
        let point = state.points.total();
        state.points.count(kind);
        drop(state);
        self.pass(point, Moment::Before);
        Some(point)
    }

    /// The call of that point took effect.
    pub fn after(&self, point: Option<usize>) {
        if let Some(point) = point {
            self.pass(point, Moment::After);
        }
    }

    /// Somebody dies now, planned or not.
    pub fn strike(&self, victims: Victims) {
        // At once: whoever is to die must not do one more thing until it is buried.
        self.lock().lives.values().filter(|life| victims.include(life.process)).for_each(|life| life.end());
        // Nobody buries the dead once the run is over, and nobody needs to.
        let _ = self.deaths.send(victims);
    }

    fn pass(&self, point: usize, moment: Moment) {
        let mut state = self.lock();
        let Some(planned) =
            state.planned.filter(|planned| planned.point == point && planned.moment == moment)
        else {
            return;
        };
        state.happened = true;
        drop(state);
        self.strike(planned.victims);
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_crash_reads_as_it_prints() {
        for text in ["before:0:manager", "after:17:both", "after:3:controller"] {
            assert_eq!(text.parse::<Crash>().map(|crash| crash.to_string()), Ok(text.to_owned()));
        }
        assert!(
            "after:x:both".parse::<Crash>().is_err_and(|error| error.contains("expected MOMENT:POINT:WHO"))
        );
    }

    #[test]
    fn a_crash_happens_at_its_point_and_moment_alone() {
        let (sender, mut deaths) = mpsc::unbounded_channel();
        let crash = Crash { point: 1, moment: Moment::After, victims: Victims::Both };
        let points = CrashPoints::new(Some(crash), sender);
        let life = Arc::new(Life::new(Process::Manager, 0));
        points.born(life.clone());
        assert_eq!(points.before(Kind::Request), None, "nothing counts before the beginning");
        points.begin();
        let first = points.before(Kind::Request);
        points.after(first);
        let second = points.before(Kind::DriverCall);
        assert!(deaths.try_recv().is_err());
        points.after(second);
        assert_eq!(deaths.try_recv(), Ok(Victims::Both));
        assert_eq!(points.passed(), Points { requests: 1, driver_calls: 1 });
        assert!(points.happened() && !life.is_alive());
    }
}
