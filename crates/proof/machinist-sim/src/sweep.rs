//! The crash sweep: one scenario, with a kill at every call that it makes.
//!
//! A run without crashes counts the points: every API request and every driver call of both
//! processes, from the beginning of the part of interest. Then the scenario is played again for
//! each point, with a crash before the call or after its commit. The manager, the machine
//! controller, or both are killed there, and rebuild their state from the API alone. Each run must
//! reach the same end state, with nothing leaked and nothing duplicated.

use std::collections::BTreeSet;
use std::fmt;
use std::num::NonZeroUsize;
use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::runtime::Runtime;

use crate::faults::{Crash, CrashMoment, Points, Victims};

/// A scenario that can be played with a crash.
pub trait Sweepable: Sync {
    /// Name of the scenario.
    fn name(&self) -> &str;

    /// The processes that die, in turn.
    fn victims(&self) -> &'static [Victims];

    /// Plays the scenario.
    fn play(&self, crash: Option<Crash>, runtime: fn() -> Runtime) -> SweptRun;

    /// The command that repeats the run with that crash.
    fn command(&self, crash: Crash) -> String;
}

/// The result of one run, as far as a sweep needs it.
#[derive(Debug)]
pub struct SweptRun {
    /// The error or the violations of the run.
    pub complaint: Option<String>,
    /// The number of crash points that were passed.
    pub points: Points,
    /// Whether the planned crash happened.
    pub crashed: bool,
    /// The objects that the run created and left. They are the same in each run of a sweep.
    pub made: String,
}

/// The result of a sweep.
#[derive(Debug)]
pub struct Swept {
    /// Name of the scenario.
    pub name: String,
    /// The crash points of the scenario.
    pub points: Points,
    /// Number of points with at least one crash.
    pub points_run: usize,
    /// Number of possible crashes: points, times moments, times victims.
    pub reachable: usize,
    /// Number of crashes that were tried.
    pub run: usize,
    /// Runs that failed.
    pub failures: Vec<SweepFailure>,
}

/// A crash that the program did not survive.
#[derive(Debug)]
pub struct SweepFailure {
    /// The crash; absent for the run without a crash.
    pub crash: Option<Crash>,
    /// The command that repeats the run.
    pub command: String,
    /// The error.
    pub what: String,
}

impl fmt::Display for Swept {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, points, points_run, reachable, run, failures } = self;
        write!(f, "{name:<15} {points_run} points run of {points} reachable, ")?;
        write!(f, "{run} crashes run of {reachable}")?;
        if !failures.is_empty() {
            write!(f, ", {} failed", failures.len())?;
        }
        Ok(())
    }
}

impl fmt::Display for SweepFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { crash, command, what } = self;
        match crash {
            Some(crash) => writeln!(f, "crash {crash}:")?,
            None => writeln!(f, "without a crash:")?,
        }
        write!(f, "{what}\nRepeat it with:\n  {command}")
    }
}

/// Every n-th crash is tried. A stride that shares no factor with 6 (2 moments, 3 victims) still
/// covers each combination.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stride(pub NonZeroUsize);

impl Stride {
    /// Every crash.
    pub const EXHAUSTIVE: Self = Self(NonZeroUsize::MIN);
}

impl std::str::FromStr for Stride {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        text.parse().map(Self).map_err(|_| format!("stride {text:?}: expected a number from 1"))
    }
}

/// Sweeps a scenario on as many threads as there are cores.
pub fn sweep(case: &impl Sweepable, stride: Stride, runtime: fn() -> Runtime) -> Swept {
    let reference = case.play(None, runtime);
    let mut swept = Swept {
        name: case.name().to_owned(),
        points: reference.points,
        points_run: 0,
        reachable: 0,
        run: 0,
        failures: Vec::new(),
    };
    if let Some(what) = reference.complaint {
        let command = String::new();
        swept.failures.push(SweepFailure { crash: None, command, what });
        return swept;
    }
    let all: Vec<Crash> = (0..reference.points.total())
        .flat_map(|point| {
            CrashMoment::ALL.map(|moment| {
                case.victims().iter().map(move |victims| Crash { point, moment, victims: *victims })
            })
        })
        .flatten()
        .collect();
    let chosen: Vec<Crash> = all.iter().step_by(stride.0.get()).copied().collect();
    let (next, failures) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    let threads = std::thread::available_parallelism().map_or(1, NonZeroUsize::get);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while let Some(crash) = chosen.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let played = case.play(Some(*crash), runtime);
                    if let Some(what) = complaint(played, &reference.made) {
                        let mut failures = failures.lock().unwrap_or_else(PoisonError::into_inner);
                        failures.push(SweepFailure {
                            crash: Some(*crash),
                            command: case.command(*crash),
                            what,
                        });
                    }
                }
            });
        }
    });
    swept.failures = failures.into_inner().unwrap_or_else(PoisonError::into_inner);
    swept.points_run = chosen.iter().map(|crash| crash.point).collect::<BTreeSet<_>>().len();
    (swept.reachable, swept.run) = (all.len(), chosen.len());
    swept
}

/// The error of a run with a crash, compared with the run without one.
fn complaint(played: SweptRun, wanted: &str) -> Option<String> {
    if played.complaint.is_some() {
        return played.complaint;
    }
    if !played.crashed {
        return Some("the crash never happened, because the run ended before its crash point".to_owned());
    }
    let made = played.made;
    (made != wanted).then(|| format!("the run made {made}; without a crash it made {wanted}"))
}
