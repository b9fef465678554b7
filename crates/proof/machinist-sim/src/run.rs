//! One run: a scenario in a simulated world, from its first request to the verdict.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use crate::actor::{Process, Side};
use crate::faults::Points;
use crate::invariants::{Disturbed, Id, Quiet, Settled, Spent, Violation, Violations};
use crate::passes;
use crate::scenarios::Scenario;
use crate::sight::{MACHINE_DEPLOYMENTS, MACHINE_SETS, MACHINES, NODES, SECRETS};
use crate::world::processes::RESYNC;
use crate::world::simulated::{Setup, Simulated};
use crate::world::{Trouble, World};

/// How a run ended.
#[derive(Debug, Clone)]
pub struct Report {
    /// The error of the scenario.
    pub trouble: Option<Trouble>,
    /// The violated invariants.
    pub violations: Vec<Violation>,
    /// Hash of the trace, to compare runs of one seed.
    pub hash: u64,
    /// The trace.
    pub trace: String,
    /// The part of the trace for people.
    pub story: String,
    /// The number of crash points that were passed.
    pub points: Points,
    /// Whether a planned crash happened.
    pub crashed: bool,
    /// Number of injected faults.
    pub faults: usize,
    /// Counts of created objects, to compare with a run without crashes.
    pub made: Made,
    /// Duration in simulated time.
    pub took: Duration,
}

/// The objects that a run created and left.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Made {
    /// Machines that ever existed, by name.
    pub machines_ever: Vec<String>,
    /// Number of instances that ever existed.
    pub instances_ever: usize,
    /// Number of instances that exist.
    pub instances_alive: usize,
}

impl Report {
    /// Whether the run has neither an error nor a violation.
    pub fn is_fine(&self) -> bool {
        self.trouble.is_none() && self.violations.is_empty()
    }

    /// Whether that invariant was violated.
    pub fn violates(&self, id: Id) -> bool {
        self.violations.iter().any(|violation| violation.id == id)
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(trouble) = &self.trouble {
            writeln!(f, "{trouble}")?;
        }
        for violation in &self.violations {
            writeln!(f, "{violation}")?;
        }
        Ok(())
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

/// Time after the end state in which late effects of the chaos may still arrive (the slowest
/// commit, the last event).
const ECHOES: Duration = Duration::from_secs(90);

/// Plays a scenario in a world, and checks its end state.
pub async fn run(scenario: Scenario, setup: &Setup, depth: Depth) -> Report {
    let world = match Simulated::new(setup).await {
        Ok(world) => world,
        Err(trouble) => return Report::without_a_world(trouble),
    };
    let mut trouble = play(&world, scenario).await.err();
    world.lab().points.end();
    if trouble.is_none() {
        trouble = judge(&world, depth).await.err();
    }
    // A violation says more than the timeout that follows from it.
    let violations = world.lab().history.violations();
    let trouble = trouble.filter(|_| violations.is_empty());
    report(&world, trouble, violations)
}

async fn play(world: &Simulated, scenario: Scenario) -> Result<(), Trouble> {
    (scenario.play)(world).await
}

async fn judge(world: &Simulated, depth: Depth) -> Result<(), Trouble> {
    let lab = world.lab();
    tokio::time::sleep(lab.plan.calm_in()).await;
    settle(world).await?;
    if depth == Depth::Quiescence {
        tokio::time::sleep(ECHOES).await;
        quiet(world).await;
        note_all(world, lab.history.look(Settled::judge));
    }
    budget(world);
    Ok(())
}

/// Waits for the end state. When the patience of the world ends, the missing parts become
/// violations.
async fn settle(world: &Simulated) -> Result<(), Trouble> {
    let history = &world.lab().history;
    let began = tokio::time::Instant::now();
    loop {
        if let Some(trouble) = world.trouble() {
            return Err(trouble);
        }
        let found = history.look(Settled::judge);
        if found.is_empty() {
            return Ok(());
        }
        if world.pace().patience <= began.elapsed() {
            note_all(world, found);
            let view = world.look().await?;
            return Err(Trouble(format!("the end state was never reached\n{view}")));
        }
        world.changed().await;
    }
}

/// Observes both processes for a while in which they must do nothing.
async fn quiet(world: &Simulated) {
    let window = world.pace().watch_for;
    let (answers, calls, passes) = (world.answers().len(), calls(world), passes::counts());
    tokio::time::sleep(window).await;
    let mut quiet = Quiet { window, ..Quiet::default() };
    for answer in &world.answers()[answers..] {
        let is_read = matches!(answer.verb, "get" | "list" | "watch");
        // A series of Events ends minutes after its last Event, with one write that marks the end.
        let is_event = answer.about.table.starts_with("events");
        if !is_read && !is_event {
            *quiet
                .writes
                .entry(format!("{} {} {}", answer.process, answer.verb, answer.about))
                .or_default() += 1;
        }
    }
    quiet.calls = u32::try_from(self::calls(world) - calls).unwrap_or(u32::MAX);
    quiet.passes = passes::counts();
    for (kind, before) in passes {
        quiet.passes.entry(kind).and_modify(|after| *after -= before);
    }
    note_all(world, quiet.judge(&objects(world), RESYNC));
}

fn calls(world: &Simulated) -> u64 {
    world.cloud().call_counts().values().sum()
}

fn objects(world: &Simulated) -> BTreeMap<&'static str, u64> {
    let count = |table| {
        let count = world.server(Side::Control).snapshot(table).len();
        u64::try_from(count).unwrap_or(u64::MAX)
    };
    BTreeMap::from([
        ("machine", count(MACHINES)),
        ("machineset", count(MACHINE_SETS)),
        ("machinedeployment", count(MACHINE_DEPLOYMENTS)),
        ("machineclass", count("machineclasses.machine.sapcloud.io")),
        ("secret", count("secrets")),
        ("replacement", count(MACHINE_DEPLOYMENTS) + count(MACHINES)),
    ])
}

fn budget(world: &Simulated) {
    let lab = world.lab();
    let is_budgeted = |answer: &&crate::lab::Answered| {
        let is_read = matches!(answer.verb, "get" | "list" | "watch");
        // Only Machines, Nodes and tokens have a budget. Classes and their Secrets are marked once,
        // independent of the number of Machines. Events and evictions are counted separately.
        let is_machines = match answer.side {
            Side::Control => answer.about.table == MACHINES,
            Side::Target => answer.about.table == NODES || answer.about.table == SECRETS,
        };
        answer.process == Process::MachineController && !is_read && is_machines
    };
    let writes = world.answers().iter().filter(is_budgeted).count();
    let spent = lab.history.look(|state| Spent::of(state, writes));
    let disturbances = lab.plan.injected() + usize::from(lab.points.happened()) * PER_CRASH;
    let disturbed = if disturbances == 0 { Disturbed::Never } else { Disturbed::Times(disturbances) };
    note_all(world, spent.judge(disturbed));
}

/// A restarted process repeats a few writes, because it never saw their answers.
const PER_CRASH: usize = 8;

fn note_all(world: &Simulated, found: Violations) {
    for (id, what) in found.into_inner() {
        world.lab().history.violate(id, what);
    }
}

fn report(world: &Simulated, trouble: Option<Trouble>, violations: Vec<Violation>) -> Report {
    let lab = world.lab();
    let machines_ever = lab.history.look(|state| {
        let ever = state.table(Side::Control, MACHINES);
        ever.flat_map(|(key, track)| vec![key.to_owned(); track.births()]).collect()
    });
    let (hash, trace, story) = lab.history.trace(|trace| (trace.hash(), trace.text(), trace.story()));
    Report {
        trouble,
        violations,
        hash,
        trace,
        story,
        points: lab.points.passed(),
        crashed: lab.points.happened(),
        faults: lab.plan.injected(),
        made: Made {
            machines_ever,
            instances_ever: world.cloud().ledger().ever().len(),
            instances_alive: world.cloud().alive(),
        },
        took: Duration::from_millis(lab.history.elapsed_ms()),
    }
}

impl Report {
    fn without_a_world(trouble: Trouble) -> Self {
        Self {
            trouble: Some(trouble),
            violations: Vec::new(),
            hash: 0,
            trace: String::new(),
            story: String::new(),
            points: Points::default(),
            crashed: false,
            faults: 0,
            made: Made { machines_ever: Vec::new(), instances_ever: 0, instances_alive: 0 },
            took: Duration::ZERO,
        }
    }
}
