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

use crate::case::Case;
use crate::faults::{Crash, Moment, Points, Victims};
use crate::run::{Depth, Report};

/// The result of a sweep.
#[derive(Debug)]
pub struct Swept {
    /// The scenario.
    pub case: Case,
    /// The crash points of the scenario.
    pub points: Points,
    /// Number of points with at least one crash.
    pub points_run: usize,
    /// Number of possible crashes: points, times moments, times victims.
    pub reachable: usize,
    /// Number of crashes that were tried.
    pub run: usize,
    /// Runs that failed.
    pub failures: Vec<Failure>,
}

/// A crash that the program did not survive.
#[derive(Debug)]
pub struct Failure {
    /// The case of the run.
    pub case: Case,
    /// The error.
    pub what: String,
}

impl fmt::Display for Swept {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { case, points, points_run, reachable, run, failures } = self;
        write!(f, "{:<12} {points_run} points run of {points} reachable, ", case.scenario.name)?;
        write!(f, "{run} crashes run of {reachable}")?;
        if !failures.is_empty() {
            write!(f, ", {} failed", failures.len())?;
        }
        Ok(())
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
pub fn sweep(case: &Case, stride: Stride, runtime: fn() -> Runtime) -> Swept {
    let reference = case.play(runtime, Depth::EndState);
    if !reference.is_fine() {
        let failure =
            Failure { case: case.clone(), what: format!("the run without a crash failed:\n{reference}") };
        return Swept {
            case: case.clone(),
            points: reference.points,
            points_run: 0,
            reachable: 0,
            run: 0,
            failures: vec![failure],
        };
    }
    let all: Vec<Crash> = (0..reference.points.total())
        .flat_map(|point| {
            Moment::ALL.map(|moment| Victims::ALL.map(|victims| Crash { point, moment, victims }))
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
                    let case = Case { crash: Some(*crash), ..case.clone() };
                    let report = case.play(runtime, Depth::EndState);
                    if let Some(what) = complaint(&report, &reference) {
                        let mut failures = failures.lock().unwrap_or_else(PoisonError::into_inner);
                        failures.push(Failure { case, what });
                    }
                }
            });
        }
    });
    let failures = failures.into_inner().unwrap_or_else(PoisonError::into_inner);
    let points_run = chosen.iter().map(|crash| crash.point).collect::<BTreeSet<_>>().len();
    Swept {
        case: case.clone(),
        points: reference.points,
        points_run,
        reachable: all.len(),
        run: chosen.len(),
        failures,
    }
}

/// The error of a run with a crash, compared with the run without one.
fn complaint(report: &Report, reference: &Report) -> Option<String> {
    if !report.is_fine() {
        return Some(report.to_string());
    }
    if !report.crashed {
        return Some("the crash never happened, because the run ended before its crash point".to_owned());
    }
    let (made, wanted) = (&report.made, &reference.made);
    let counts =
        |made: &crate::run::Made| (made.machines_ever.len(), made.instances_ever, made.instances_alive);
    (counts(made) != counts(wanted))
        .then(|| format!("the run created {made:?}; without a crash it created {wanted:?}"))
}
