//! The results: JSON for programs, and for people a comparison with the goals and with Go MCM.

use std::collections::BTreeMap;
use std::fmt;

use serde::Serialize;

use super::goals::{GoalFigure, Outcome, targets};
use super::idle::IdleFigures;
use super::leader_change::LeaderChangeFigures;
use super::node::Content;
use super::provoked::DecisionFigures;
use super::restart::RestartFigures;
use crate::pair::Pair;
use crate::report::{Format, listed};
use crate::requests::{PerMachine, RequestTally};

/// Go MCM v0.62.1, both binaries without client limits, an instant driver with a join of one POST
/// per node, kube-apiserver 1.36.3 and etcd 3.6.16 on 2 cores. Its writes include the manager's
/// writes and Events.
const GO: &str = "Go MCM on similar hardware: 0 -> 1,000 at 8.9 machines/s (0.01 R), 13.0 writes a machine up and 13.9 down in total, \
                  9 and 10 reads, 175 and 88 conflicts for 100 machines, 103 machines made for 100, 78 + 73 MB at 1,000";

/// Number of conflicts that are listed individually.
const CONFLICTS_SHOWN: usize = 10;

/// The figures of one benchmark run.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Figures {
    pub(super) machines: u32,
    pub(super) pods_per_node: u32,
    /// Scaling from 0 to N.
    pub(super) up: PhaseFigures,
    /// Scaling from N to 0.
    pub(super) down: PhaseFigures,
    /// Number of instances that the cloud ever made.
    pub(super) instances_ever: usize,
    /// Number of instances among them that restarts and leader changes provoked.
    pub(super) instances_provoked: usize,
    /// Memory of the controllers without machines.
    pub(super) empty_mb: Pair<f64>,
    /// Memory of the controllers with N machines and their pods.
    pub(super) resident_mb: Pair<f64>,
    /// The controllers while N machines run; absent unless asked for.
    pub(super) idle: Option<IdleFigures>,
    /// Warnings in the logs, by message; absent on the embedded server.
    pub(super) warnings: Option<BTreeMap<String, u64>>,
    /// A restart with N machines; absent unless requested.
    pub(super) restart: Option<RestartFigures>,
    /// Changes to a standby with N machines; absent unless requested.
    pub(super) leader_change: Option<LeaderChangeFigures>,
    /// Raw writes per second, R; absent on the embedded server.
    pub(super) raw_writes_per_second: Option<f64>,
    /// Machines per second with direct writes to the server; absent on the embedded server.
    pub(super) limit_per_second: Option<f64>,
}

impl Figures {
    pub(super) fn machines_per_second(&self, phase: &PhaseFigures) -> f64 {
        f64::from(self.machines) / phase.seconds.max(f64::EPSILON)
    }
}

/// The figures of one direction.
#[derive(Debug, Clone, Serialize)]
pub(super) struct PhaseFigures {
    /// Seconds until the state was reached.
    pub(super) seconds: f64,
    /// Writes per machine, successful or not.
    pub(super) writes: PerMachine,
    pub(super) reads: PerMachine,
    /// Writes that failed because of an earlier write.
    pub(super) conflicts: usize,
}

/// The figures and the counts behind them. `Display` uses the chosen format.
#[derive(Debug)]
pub struct ScaleReport {
    pub(super) api: String,
    pub(super) format: Format,
    pub(super) content: Content,
    pub(super) figures: Figures,
    pub(super) instances_alive: usize,
    pub(super) up: RequestTally,
    pub(super) down: RequestTally,
    pub(super) is_quiet: bool,
}

/// The JSON object: the figures, and those with goals.
#[derive(Serialize)]
struct Json<'a> {
    #[serde(flatten)]
    figures: &'a Figures,
    goals: Vec<GoalFigure>,
}

impl ScaleReport {
    /// Whether all goals are met that do not depend on the hardware: writes, conflicts, warnings,
    /// idle requests, and the number of Machines and instances made.
    pub fn is_within_budget(&self) -> bool {
        self.targets().iter().filter(|target| target.counts).all(|target| target.is_met)
    }

    fn targets(&self) -> Vec<GoalFigure> {
        let outcome = Outcome {
            machines_made: self.up.machines_made() + self.down.machines_made(),
            instances_alive: self.instances_alive,
            is_quiet: self.is_quiet,
        };
        targets(&self.figures, &outcome)
    }
}

impl fmt::Display for ScaleReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let json = Json { figures: &self.figures, goals: self.targets() };
        self.format.write(f, &json, |f| self.text(f))
    }
}

impl ScaleReport {
    fn text(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let figures = &self.figures;
        writeln!(f, "0 -> {} -> 0 machines on {}", figures.machines, self.api)?;
        writeln!(
            f,
            "Thin: an instant cloud; {}; no kube-controller-manager. Events are sent at 10 a second, so the Events of the way up are \
             counted on both ways.",
            join_of(self.content)
        )?;
        writeln!(f)?;
        writeln!(
            f,
            "       seconds  machines/s   writes: machine controller  manager  events  evictions   reads: both   conflicts"
        )?;
        for (way, phase) in [("up", &figures.up), ("down", &figures.down)] {
            writeln!(
                f,
                "{way:<6} {:>7.1}  {:>10.1}   {:>26.3}  {:>7.3}  {:>6.3}  {:>9.3}   {:>11.3}   {:>9}",
                phase.seconds,
                figures.machines_per_second(phase),
                phase.writes.machine_controller,
                phase.writes.manager,
                phase.writes.events,
                phase.writes.evictions,
                phase.reads.machine_controller + phase.reads.manager + phase.reads.events,
                phase.conflicts
            )?;
        }
        let Pair { machine_controller, manager } = figures.resident_mb;
        writeln!(
            f,
            "memory {machine_controller:.0} MB machine controller, {manager:.0} MB manager; without machines {:.0} MB and {:.0} MB (one \
             process counts as both)",
            figures.empty_mb.machine_controller, figures.empty_mb.manager
        )?;
        if let (Some(raw), Some(limit)) = (figures.raw_writes_per_second, figures.limit_per_second) {
            writeln!(
                f,
                "server {raw:.0} status patches/s by 32 writers (R); limit {limit:.1} machines/s with direct writes"
            )?;
        }
        if let Some(idle) = &figures.idle {
            render_idle(f, idle)?;
        }
        if let Some(restart) = &figures.restart {
            render_restart(f, restart)?;
        }
        if let Some(change) = &figures.leader_change {
            render_decisions(f, "leaders stopped (SIGTERM)", &change.after_stop)?;
            render_decisions(f, "leaders killed (SIGKILL)", &change.after_kill)?;
        }
        for (message, number) in figures.warnings.iter().flatten() {
            writeln!(f, "warning in the logs, {number} times: {message}")?;
        }
        writeln!(f, "{GO}")?;
        for (way, tally) in [("up", &self.up), ("down", &self.down)] {
            writeln!(f)?;
            render_rows(f, way, tally, figures.machines)?;
        }
        writeln!(f)?;
        for target in self.targets() {
            writeln!(f, "{target}")?;
        }
        Ok(())
    }
}

fn render_idle(f: &mut fmt::Formatter<'_>, idle: &IdleFigures) -> fmt::Result {
    writeln!(
        f,
        "idle for {:.0} s: {:.2} s CPU machine controller, {:.2} s manager; requests besides Leases: {}",
        idle.seconds,
        idle.cpu_machine_controller,
        idle.cpu_manager,
        listed(idle.requests.iter().map(|(request, times)| format!("{times} {request}")))
    )
}

fn join_of(content: Content) -> &'static str {
    match content {
        Content::Plain => {
            "the benchmark joins with one POST of a Ready Node, without certificate, Lease or taint removal"
        }
        Content::Full => {
            "the benchmark joins with the POST of a Node and two status patches, about 12 KB, without certificate, Lease or taint \
             removal; pods follow when all machines run"
        }
    }
}

fn render_restart(f: &mut fmt::Formatter<'_>, restart: &RestartFigures) -> fmt::Result {
    writeln!(
        f,
        "lists by one client: {:.3} s of Machines, sets, classes and Nodes; {:.3} s with the pods",
        restart.lists_seconds, restart.lists_with_pods_seconds
    )?;
    render_decisions(f, "restart", &restart.decisions)
}

fn render_decisions(f: &mut fmt::Formatter<'_>, after: &str, decisions: &DecisionFigures) -> fmt::Result {
    write!(f, "{after}: first write about a Machine after {:.3} s", decisions.machine_seconds)?;
    if let Some(drain) = decisions.drain_seconds {
        write!(f, ", first eviction after {drain:.3} s")?;
    }
    write!(f, ", replacement after {:.3} s; ", decisions.replacement_seconds)?;
    writeln!(f, "{} writes about unchanged objects", decisions.other_writes)?;
    for request in &decisions.other_writes_shown {
        writeln!(f, "       {request}")?;
    }
    Ok(())
}

fn render_rows(f: &mut fmt::Formatter<'_>, way: &str, tally: &RequestTally, machines: u32) -> fmt::Result {
    writeln!(
        f,
        "{way:<6} {:<18}  {:<18} {:<24} {:>4}  {:>7}  {:>9}",
        "sender", "request", "", "code", "times", "a machine"
    )?;
    for (row, times) in tally.rows() {
        writeln!(
            f,
            "       {:<18}  {:<18} {:<24} {:>4}  {times:>7}  {:>9.3}",
            row.program,
            row.verb,
            row.resource,
            row.code,
            crate::requests::per(times, machines)
        )?;
    }
    let conflicts = tally.conflicts();
    for conflict in conflicts.iter().take(CONFLICTS_SHOWN) {
        writeln!(f, "       conflict: {conflict}")?;
    }
    if CONFLICTS_SHOWN < conflicts.len() {
        writeln!(f, "       and {} more", conflicts.len() - CONFLICTS_SHOWN)?;
    }
    Ok(())
}
