//! One run: a scenario in a simulated world, from its first request to the verdict.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::faults::Points;
use crate::invariants::{Id, Violation, Violations};
use crate::lab::Lab;
use crate::outcome::{Outcome, ScenarioError};
use crate::stage::ScenarioStage;
use crate::trace::Trace;

/// How a run ended.
#[derive(Debug, Clone)]
pub struct RunReport {
    /// The error of the scenario.
    pub trouble: Option<ScenarioError>,
    /// The violated invariants.
    pub violations: Vec<Violation>,
    /// The trace.
    pub trace: Trace,
    /// The number of crash points that were passed.
    pub points: Points,
    /// Whether a planned crash happened.
    pub crashed: bool,
    /// Number of injected faults, by kind.
    pub faults: BTreeMap<String, usize>,
    /// The objects that the run created and left, to compare with a run without crashes.
    pub made: String,
    /// Duration in simulated time.
    pub took: Duration,
}

impl RunReport {
    /// Whether the run has neither an error nor a violation.
    pub fn is_fine(&self) -> bool {
        self.trouble.is_none() && self.violations.is_empty()
    }

    /// Whether that invariant was violated.
    pub fn violates(&self, id: Id) -> bool {
        self.violations.iter().any(|violation| violation.id == id)
    }

    /// Hash of the trace, to compare runs of one seed.
    pub fn hash(&self) -> u64 {
        self.trace.hash()
    }

    /// Number of injected faults.
    pub fn injected(&self) -> usize {
        self.faults.values().sum()
    }

    fn without_a_world(trouble: ScenarioError) -> Self {
        Self {
            trouble: Some(trouble),
            violations: Vec::new(),
            trace: Trace::default(),
            points: Points::default(),
            crashed: false,
            faults: BTreeMap::new(),
            made: String::new(),
            took: Duration::ZERO,
        }
    }
}

impl fmt::Display for RunReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(trouble) = &self.trouble {
            writeln!(f, "{trouble}")?;
        }
        self.violations.iter().try_for_each(|violation| writeln!(f, "{violation}"))
    }
}

/// How long a run continues.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Depth {
    /// Until the end state.
    EndState,
    /// Until the end of a window after the end state in which nothing may change.
    Quiescence,
}

/// A world in which a run is judged.
pub(crate) trait Court {
    /// The place where its scenarios wait.
    fn stage(&self) -> &ScenarioStage;

    /// The shared parts of the run.
    fn lab(&self) -> &Arc<Lab> {
        self.stage().lab()
    }

    /// The parts of the end state that are missing.
    fn missing(&self) -> Violations;

    /// All objects as text, for the report of a failure.
    fn show(&self) -> String;

    /// How long each run is observed after its end state, even without a quiet window.
    fn aftermath(&self) -> Duration {
        Duration::ZERO
    }

    /// Observes the processes for a while in which they must do nothing.
    fn quiet(&self) -> impl Future<Output = Violations>;

    /// Checks the whole run, after its end.
    fn sum_up(&self) -> Violations;

    /// The objects that the run created and left.
    fn made(&self) -> String;
}

/// Time after the end state in which late effects of the chaos may still arrive (the slowest
/// commit, the last event).
const LATE_EFFECTS: Duration = Duration::from_secs(90);

/// Time in which a call in flight is answered after all faults have ended.
const CALLS_END_WITHIN: Duration = Duration::from_secs(3);

/// Plays a scenario in a world, and checks its end state.
pub(crate) async fn run<W: Court>(
    world: Result<W, ScenarioError>,
    play: impl AsyncFnOnce(&W) -> Outcome,
    depth: Depth,
) -> RunReport {
    let world = match world {
        Ok(world) => world,
        Err(trouble) => return RunReport::without_a_world(trouble),
    };
    let mut trouble = play(&world).await.err();
    world.lab().points.end();
    if trouble.is_none() {
        trouble = judge(&world, depth).await.err();
    }
    // A violation says more than the timeout that follows from it.
    let violations = world.lab().history.violations();
    let trouble = trouble.filter(|_| violations.is_empty());
    report(&world, trouble, violations)
}

async fn judge(world: &impl Court, depth: Depth) -> Outcome {
    tokio::time::sleep(world.lab().plan.calm_in()).await;
    await_end_state(world).await?;
    tokio::time::sleep(if depth == Depth::Quiescence { LATE_EFFECTS } else { world.aftermath() }).await;
    if depth == Depth::Quiescence {
        let found = world.quiet().await;
        note_all(world, found);
        let_calls_end(world).await;
        note_all(world, world.missing());
    }
    let_calls_end(world).await;
    note_all(world, world.sum_up());
    Ok(())
}

/// Waits if something is missing: a process repeats some calls without end, and while one of them
/// is in flight, its object waits for the answer.
async fn let_calls_end(world: &impl Court) {
    if !world.missing().is_empty() {
        tokio::time::sleep(CALLS_END_WITHIN).await;
    }
}

/// Waits for the end state. When the patience of the world ends, the missing parts become
/// violations.
async fn await_end_state(world: &impl Court) -> Outcome {
    let began = tokio::time::Instant::now();
    loop {
        if let Some(trouble) = world.stage().trouble() {
            return Err(trouble);
        }
        let found = world.missing();
        if found.is_empty() {
            return Ok(());
        }
        if world.stage().patience() <= began.elapsed() {
            note_all(world, found);
            return Err(ScenarioError(format!("the end state was never reached\n{}", world.show())));
        }
        world.stage().changed().await;
    }
}

fn note_all(world: &impl Court, found: Violations) {
    for (id, what) in found.into_inner() {
        world.lab().history.violate(id, what);
    }
}

fn report(world: &impl Court, trouble: Option<ScenarioError>, violations: Vec<Violation>) -> RunReport {
    let lab = world.lab();
    RunReport {
        trouble,
        violations,
        points: lab.points.passed(),
        crashed: lab.points.happened(),
        faults: lab.plan.injected_by_kind(),
        made: world.made(),
        took: Duration::from_millis(lab.history.elapsed_ms()),
        trace: lab.history.take_trace(),
    }
}
