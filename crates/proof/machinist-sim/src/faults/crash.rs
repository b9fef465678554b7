//! Crash points: every request and every driver call of the processes under test, before it is sent
//! and after it took effect.
//!
//! Points are counted over both processes from the beginning of the part of interest. So "the 17th,
//! after its commit" is the same point in every run of a scenario. A process that dies stops at
//! that point: none of its tasks continues, but requests that it has sent still take effect.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::mpsc;

use crate::actor::TestedProcess;
use crate::ask::SeenRevisions;

/// The kind of call at a crash point.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CallKind {
    /// A request to an API server.
    Request,
    /// A call of the cloud.
    DriverCall,
}

/// Number of points, by the kind of call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Points {
    /// API requests.
    pub requests: usize,
    /// Driver calls.
    pub driver_calls: usize,
}

impl Points {
    /// Number of all points.
    pub fn total(self) -> usize {
        self.requests + self.driver_calls
    }

    fn count(&mut self, kind: CallKind) {
        match kind {
            CallKind::Request => self.requests += 1,
            CallKind::DriverCall => self.driver_calls += 1,
        }
    }
}

impl fmt::Display for Points {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({} requests, {} driver calls)", self.total(), self.requests, self.driver_calls)
    }
}

/// The side of a call: before it is sent, or after it took effect and before its answer arrives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CrashMoment {
    /// Before the call is sent.
    Before,
    /// After the call is committed.
    After,
}

impl CrashMoment {
    /// Both moments.
    pub const ALL: [Self; 2] = [Self::Before, Self::After];
}

/// The processes that die.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Victims {
    /// The manager.
    Manager,
    /// The machine controller.
    MachineController,
    /// The manager and the machine controller at once.
    Both,
    /// The cloud-controller-manager.
    CloudController,
    /// The provider of Cluster API.
    Provider,
}

impl Victims {
    /// The victims among the processes of the machine API.
    pub const ALL: [Self; 3] = [Self::Manager, Self::MachineController, Self::Both];

    /// Whether that process dies.
    pub fn include(self, process: TestedProcess) -> bool {
        matches!(
            (self, process),
            (Self::Both | Self::Manager, TestedProcess::Manager)
                | (Self::Both | Self::MachineController, TestedProcess::MachineController)
                | (Self::CloudController, TestedProcess::CloudController)
                | (Self::Provider, TestedProcess::Provider)
        )
    }
}

impl From<TestedProcess> for Victims {
    fn from(process: TestedProcess) -> Self {
        match process {
            TestedProcess::Manager => Self::Manager,
            TestedProcess::MachineController => Self::MachineController,
            TestedProcess::CloudController => Self::CloudController,
            TestedProcess::Provider => Self::Provider,
        }
    }
}

/// One planned crash.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Crash {
    /// Number of the point, from 0.
    pub point: usize,
    /// The moment at the point.
    pub moment: CrashMoment,
    /// The processes that die.
    pub victims: Victims,
}

impl fmt::Display for Crash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let moment = match self.moment {
            CrashMoment::Before => "before",
            CrashMoment::After => "after",
        };
        let who = match self.victims {
            Victims::Manager => "manager",
            Victims::MachineController => "controller",
            Victims::Both => "both",
            Victims::CloudController => "ccm",
            Victims::Provider => "provider",
        };
        write!(f, "{moment}:{}:{who}", self.point)
    }
}

impl std::str::FromStr for Crash {
    type Err = String;

    /// Parses the output of [`fmt::Display`], to repeat one run of a sweep.
    fn from_str(text: &str) -> Result<Self, String> {
        let expected = || format!("crash {text:?}: expected MOMENT:POINT:WHO, for example after:17:both");
        let mut parts = text.split(':');
        let (Some(moment), Some(point), Some(who), None) =
            (parts.next(), parts.next(), parts.next(), parts.next())
        else {
            return Err(expected());
        };
        let moment = match moment {
            "before" => CrashMoment::Before,
            "after" => CrashMoment::After,
            _ => return Err(expected()),
        };
        let victims = match who {
            "manager" => Victims::Manager,
            "controller" => Victims::MachineController,
            "both" => Victims::Both,
            "ccm" => Victims::CloudController,
            "provider" => Victims::Provider,
            _ => return Err(expected()),
        };
        Ok(Self { point: point.parse().map_err(|_| expected())?, moment, victims })
    }
}

/// One life of a process, from its start to its death.
#[derive(Debug)]
pub struct Life {
    /// The process.
    pub process: TestedProcess,
    /// Number of the life, from 0.
    pub number: u32,
    alive: AtomicBool,
    observed: Mutex<SeenRevisions>,
}

impl Life {
    /// Starts a life.
    pub fn new(process: TestedProcess, number: u32) -> Self {
        Self { process, number, alive: AtomicBool::new(true), observed: Mutex::default() }
    }

    /// The name of the life in its Lease.
    pub fn identity(&self) -> String {
        format!("{}-{}", self.process.user_agent(), self.number)
    }

    /// Whether the life has not ended.
    pub fn is_alive(&self) -> bool {
        self.alive.load(Ordering::SeqCst)
    }

    /// Returns if the process lives. For a dead process it never returns, so the process sees no
    /// further answer.
    pub(crate) async fn while_alive(&self) {
        if !self.is_alive() {
            std::future::pending::<()>().await;
        }
    }

    /// Ends the life: the process takes no further action.
    pub fn end(&self) {
        self.alive.store(false, Ordering::SeqCst);
    }

    /// Records what the process has seen.
    pub fn saw(&self, show: impl FnOnce(&mut SeenRevisions)) {
        show(&mut self.lock());
    }

    /// The revisions that the process has seen.
    pub fn observed(&self) -> SeenRevisions {
        self.lock().clone()
    }

    fn lock(&self) -> MutexGuard<'_, SeenRevisions> {
        self.observed.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Counts points, and announces when a process dies.
#[derive(Debug)]
pub struct CrashPoints {
    state: Mutex<State>,
    deaths: mpsc::UnboundedSender<Victims>,
}

#[derive(Debug, Default)]
struct State {
    lives: BTreeMap<(TestedProcess, u32), Arc<Life>>,
    is_counting: bool,
    points: Points,
    planned: Option<Crash>,
    happened: bool,
}

impl CrashPoints {
    /// Creates the points. Deaths are sent to `deaths`, where the receiver drops and restarts the
    /// processes.
    pub fn new(planned: Option<Crash>, deaths: mpsc::UnboundedSender<Victims>) -> Self {
        Self { state: Mutex::new(State { planned, ..State::default() }), deaths }
    }

    /// Registers a new life of a process.
    pub fn born(&self, life: Arc<Life>) {
        self.lock().lives.insert((life.process, life.number), life);
    }

    /// Starts counting points.
    pub fn begin(&self) {
        self.lock().is_counting = true;
    }

    /// Stops counting points.
    pub fn end(&self) {
        self.lock().is_counting = false;
    }

    /// Number of points passed so far.
    pub fn passed(&self) -> Points {
        self.lock().points
    }

    /// Whether the planned crash happened.
    pub fn happened(&self) -> bool {
        self.lock().happened
    }

    /// Counts a call that is about to be sent. Returns its point, for [`Self::after`].
    pub fn before(&self, kind: CallKind) -> Option<usize> {
        let mut state = self.lock();
        if !state.is_counting {
            return None;
        }
        let point = state.points.total();
        state.points.count(kind);
        drop(state);
        self.pass(point, CrashMoment::Before);
        Some(point)
    }

    /// Records that the call of that point took effect.
    pub fn after(&self, point: Option<usize>) {
        if let Some(point) = point {
            self.pass(point, CrashMoment::After);
        }
    }

    /// Kills processes now, planned or not.
    pub fn strike(&self, victims: Victims) {
        // End the lives at once: a killed process must take no further action until it is dropped.
        self.lock().lives.values().filter(|life| victims.include(life.process)).for_each(|life| life.end());
        // After the run no task receives deaths, and none needs to.
        let _ = self.deaths.send(victims);
    }

    /// Kills one life of a process, and no other replica of it.
    pub fn strike_life(&self, life: &Life) {
        life.end();
        let _ = self.deaths.send(Victims::from(life.process));
    }

    fn pass(&self, point: usize, moment: CrashMoment) {
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
    fn a_printed_crash_parses_to_the_same_crash() {
        for text in ["before:0:manager", "after:17:both", "after:3:controller", "before:4:ccm"] {
            assert_eq!(text.parse::<Crash>().map(|crash| crash.to_string()), Ok(text.to_owned()));
        }
        assert!(
            "after:x:both".parse::<Crash>().is_err_and(|error| error.contains("expected MOMENT:POINT:WHO"))
        );
    }

    #[test]
    fn a_crash_happens_only_at_its_point_and_moment() {
        let (sender, mut deaths) = mpsc::unbounded_channel();
        let crash = Crash { point: 1, moment: CrashMoment::After, victims: Victims::Both };
        let points = CrashPoints::new(Some(crash), sender);
        let life = Arc::new(Life::new(TestedProcess::Manager, 0));
        points.born(life.clone());
        assert_eq!(points.before(CallKind::Request), None, "no point counts before the beginning");
        points.begin();
        let first = points.before(CallKind::Request);
        points.after(first);
        let second = points.before(CallKind::DriverCall);
        assert!(deaths.try_recv().is_err());
        points.after(second);
        assert_eq!(deaths.try_recv(), Ok(Victims::Both));
        assert_eq!(points.passed(), Points { requests: 1, driver_calls: 1 });
        assert!(points.happened() && !life.is_alive());
    }
}
