//! The crash sweep: one scenario, killed at every call it makes.
//!
//! A run without crashes counts the points: every API request and every driver call of both processes, from the beginning of the part
//! of interest. Then the scenario is played once for each point, before it and after its commit, with the manager, the machine
//! controller, or both killed there and built again from the API alone. Each run must reach the same end, with nothing leaked and
//! nothing doubled.

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

/// What a sweep found.
#[derive(Debug)]
pub struct Swept {
    /// The scenario.
    pub case: Case,
    /// The points that the scenario passes.
    pub points: Points,
    /// At how many of them somebody was killed.
    pub points_run: usize,
    /// Crashes that can be: points, times moments, times victims.
    pub reachable: usize,
    /// Crashes that were tried.
    pub run: usize,
    /// Runs that did not end as they should.
    pub failures: Vec<Failure>,
}

/// A crash that the program did not survive.
#[derive(Debug)]
pub struct Failure {
    /// The run.
    pub case: Case,
    /// What was wrong.
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

/// Every how-many-th crash is tried. A stride that shares no factor with 6 (2 moments, 3 victims) still meets each combination.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stride(pub NonZeroUsize);

impl Stride {
    /// Every one.
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
        let failure = Failure { case: case.clone(), what: format!("without any crash:\n{reference}") };
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

/// What is wrong with a run that had a crash, compared with one that had none.
fn complaint(report: &Report, reference: &Report) -> Option<String> {
    if !report.is_fine() {
        return Some(report.to_string());
    }
    if !report.crashed {
        return Some("the crash never happened: the run took another course before it".to_owned());
    }
    let (made, wanted) = (&report.made, &reference.made);
    let counts =
        |made: &crate::run::Made| (made.machines_ever.len(), made.instances_ever, made.instances_alive);
    (counts(made) != counts(wanted)).then(|| format!("it made {made:?}, and without a crash {wanted:?}"))
}
