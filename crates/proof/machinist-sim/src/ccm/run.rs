//! One run: a scenario in a simulated world, from its first request to the verdict.

use std::time::Duration;

use super::cluster::{Cluster, Setup};
use super::invariants::SERVICES;
use super::scenarios::Scenario;
use super::settled;
use crate::actor::Side;
use crate::faults::Points;
use crate::invariants::{Id, Violation, Violations};
use crate::run::Depth;
use crate::sight::NODES;
use crate::world::Trouble;

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
    /// The number of crash points that were passed.
    pub points: Points,
    /// Whether a planned crash happened.
    pub crashed: bool,
    /// Number of injected faults.
    pub faults: usize,
    /// The objects that the run created, to compare with a run without crashes.
    pub made: String,
    /// Duration in simulated time.
    pub took: Duration,
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

    fn without_a_world(trouble: Trouble) -> Self {
        Self {
            trouble: Some(trouble),
            violations: Vec::new(),
            hash: 0,
            trace: String::new(),
            points: Points::default(),
            crashed: false,
            faults: 0,
            made: String::new(),
            took: Duration::ZERO,
        }
    }
}

impl std::fmt::Display for Report {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if let Some(trouble) = &self.trouble {
            writeln!(f, "{trouble}")?;
        }
        self.violations.iter().try_for_each(|violation| writeln!(f, "{violation}"))
    }
}

/// The end state must be reached within this time.
const PATIENCE: Duration = Duration::from_secs(40 * 60);
/// Time after the end state in which late effects of the chaos may still arrive.
const ECHOES: Duration = Duration::from_secs(90);
/// Duration of the window in which nothing may change.
const QUIET_FOR: Duration = Duration::from_secs(10 * 60);

/// Plays a scenario in a world, and checks its end state.
pub async fn run(scenario: Scenario, setup: &Setup, depth: Depth) -> Report {
    let cluster = match Cluster::new(setup).await {
        Ok(cluster) => cluster,
        Err(trouble) => return Report::without_a_world(trouble),
    };
    let mut trouble = (scenario.play)(&cluster).await.err();
    cluster.lab().points.end();
    if trouble.is_none() {
        trouble = judge(&cluster, depth).await.err();
    }
    // A violation says more than the timeout that follows from it.
    let violations = cluster.lab().history.violations();
    let trouble = trouble.filter(|_| violations.is_empty());
    report(&cluster, trouble, violations)
}

async fn judge(cluster: &Cluster, depth: Depth) -> Result<(), Trouble> {
    tokio::time::sleep(cluster.lab().plan.calm_in()).await;
    settle(cluster).await?;
    // A request of a dead process may still arrive, so every run is observed a little longer.
    tokio::time::sleep(ECHOES).await;
    if depth == Depth::Quiescence {
        quiet(cluster).await;
    }
    note_all(cluster, settled::judge(&cluster.look()));
    Ok(())
}

async fn settle(cluster: &Cluster) -> Result<(), Trouble> {
    let began = tokio::time::Instant::now();
    loop {
        if let Some(trouble) = cluster.trouble() {
            return Err(trouble);
        }
        let view = cluster.look();
        let found = settled::judge(&view);
        if found.is_empty() {
            return Ok(());
        }
        if PATIENCE <= began.elapsed() {
            note_all(cluster, found);
            return Err(Trouble(format!("the end state was never reached\n{view}")));
        }
        cluster.changed().await;
    }
}

/// Observes the process for a while in which it must change nothing.
async fn quiet(cluster: &Cluster) {
    let changes = || {
        let counters = cluster.standin().counters();
        counters.iter().filter(|(label, _)| !label.starts_with("GET")).map(|(_, count)| count).sum::<u64>()
    };
    let (answers, before) = (cluster.lab().answers().len(), changes());
    tokio::time::sleep(QUIET_FOR).await;
    let mut found = Violations::default();
    for answer in &cluster.lab().answers()[answers..] {
        let is_read = matches!(answer.verb, "get" | "list" | "watch");
        // A series of Events ends minutes after its last Event, with one write that marks the end.
        let is_event = answer.about.table.starts_with("events");
        if !is_read && !is_event {
            found.add(
                Id::L4,
                format!("{} {} {} in the quiet window", answer.process, answer.verb, answer.about),
            );
        }
    }
    if changes() != before {
        found.add(Id::L4, format!("{} changes of the cloud in the quiet window", changes() - before));
    }
    note_all(cluster, found);
}

fn note_all(cluster: &Cluster, found: Violations) {
    for (id, what) in found.into_inner() {
        cluster.lab().history.violate(id, what);
    }
}

fn report(cluster: &Cluster, trouble: Option<Trouble>, violations: Vec<Violation>) -> Report {
    let lab = cluster.lab();
    let made = lab.history.look(|state| {
        let births = |table| -> Vec<String> {
            let tracks = state.table(Side::Target, table);
            tracks.map(|(key, track)| format!("{key} {} times", track.births())).collect()
        };
        let project = state.project();
        format!(
            "{} load balancers ever, Nodes [{}], Services [{}]",
            project.balancers_ever(),
            births(NODES).join(", "),
            births(SERVICES).join(", ")
        )
    });
    let (hash, trace) = lab.history.trace(|trace| (trace.hash(), trace.text()));
    Report {
        trouble,
        violations,
        hash,
        trace,
        points: lab.points.passed(),
        crashed: lab.points.happened(),
        faults: lab.plan.injected(),
        made,
        took: Duration::from_millis(lab.history.elapsed_ms()),
    }
}
