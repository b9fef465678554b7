//! The figures that have goals.

use std::fmt;

use serde::Serialize;

use super::idle::IdleFigures;
use super::leader_change::LeaderChangeFigures;
use super::report::{Figures, PhaseFigures};
use super::restart::RestartFigures;
use super::warnings::NO_EFFECT;
use crate::pair::Pair;
use crate::report::{Bound, mark};
use crate::requests::round;

/// Writes of the machine controller per created machine, as docs/src/develop/writes.md lists them.
const WRITES_UP: f64 = 6.0;
/// Writes of the machine controller per deleted machine.
const WRITES_DOWN: f64 = 7.0;
/// Writes that happen once, independent of the number of machines: finalizers of the class and its
/// Secret.
const WRITES_ONCE: f64 = 5.0;
/// Goal for machines per second as a share of the server's raw writes: five times the share of Go
/// MCM.
const SHARE_OF_RAW: f64 = 0.05;
/// Goal for machines per second as a share of direct writes to the same server.
const SHARE_OF_LIMIT: f64 = 1.0;
/// Goal for the memory of both controllers per machine, in KB.
const KILOBYTES: f64 = 10.0;
/// Goal for the requests of both idle controllers per minute, without Leases.
const IDLE_REQUESTS: f64 = 10.0;
/// Goal for the CPU time of both idle controllers, in percent of a core, at 5,000 machines.
const IDLE_CPU: f64 = 1.0;
/// Goal for the first decision after a restart, as a multiple of the lists that the decision needs.
const LISTS: f64 = 1.3;

/// A figure beside its goal.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct GoalFigure {
    /// Name and unit of the figure.
    pub(super) name: String,
    pub(super) measured: f64,
    pub(super) goal: Bound,
    pub(super) is_met: bool,
    /// Whether the figure is the same on every computer. Only these figures determine the exit
    /// code.
    #[serde(skip)]
    pub(super) counts: bool,
}

impl fmt::Display for GoalFigure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mark = mark(self.is_met);
        write!(f, "{mark} {:<68} {:>10}   goal: {}", self.name, self.measured, self.goal)
    }
}

/// A figure that does not depend on the computer.
fn counted(name: impl Into<String>, measured: f64, goal: Bound) -> GoalFigure {
    GoalFigure { name: name.into(), measured, goal, is_met: goal.is_met(measured), counts: true }
}

/// A figure that depends on the computer.
fn timed(name: impl Into<String>, measured: f64, goal: Bound) -> GoalFigure {
    GoalFigure { counts: false, ..counted(name, round(measured), goal) }
}

/// Counts that only the requests and the cloud show.
pub(super) struct Outcome {
    pub(super) machines_made: u64,
    pub(super) instances_alive: usize,
    pub(super) is_quiet: bool,
}

/// All figures of a run that have goals.
pub(super) fn targets(figures: &Figures, outcome: &Outcome) -> Vec<GoalFigure> {
    let mut all = counts(figures, outcome);
    all.extend(rates(figures));
    all.extend(memory(figures));
    all.extend(figures.idle.iter().flat_map(idle));
    all.extend(figures.restart.iter().flat_map(restart));
    all.extend(figures.leader_change.iter().flat_map(leader_change));
    all
}

fn counts(figures: &Figures, outcome: &Outcome) -> Vec<GoalFigure> {
    let machines = f64::from(figures.machines);
    let writes = |phase: &PhaseFigures, budget: f64, way: &str| {
        let name = format!("writes a machine {way} by the machine controller, without evictions");
        counted(name, phase.writes.machine_controller, Bound::AtMost(round(budget + WRITES_ONCE / machines)))
    };
    let conflicts = figures.up.conflicts + figures.down.conflicts;
    let instances = figures.instances_ever.saturating_sub(figures.instances_provoked);
    let mut all = vec![
        writes(&figures.up, WRITES_UP, "up"),
        writes(&figures.down, WRITES_DOWN, "down"),
        counted("conflicts (409, and 422 without causes)", conflicts as f64, Bound::Exactly(0.0)),
        counted(
            "Machines ever made by the deployment",
            outcome.machines_made as f64,
            Bound::Exactly(machines),
        ),
        counted("instances ever made for them", instances as f64, Bound::Exactly(machines)),
        counted("instances alive at the end", outcome.instances_alive as f64, Bound::Exactly(0.0)),
        counted(
            "phases after which the controllers did not stop writing",
            f64::from(u8::from(!outcome.is_quiet)),
            Bound::Exactly(0.0),
        ),
    ];
    if let Some(warnings) = &figures.warnings {
        let no_effect = warnings.iter().filter(|(message, _)| message.starts_with(NO_EFFECT));
        let number: u64 = no_effect.map(|(_, number)| number).sum();
        all.push(counted(format!("warnings \"{NO_EFFECT}\""), number as f64, Bound::Exactly(0.0)));
    }
    all
}

fn rates(figures: &Figures) -> Vec<GoalFigure> {
    let rate = figures.machines_per_second(&figures.up);
    let of_raw = figures.raw_writes_per_second.map(|raw| {
        timed(
            "machines a second up / R, the status patches a second",
            rate / raw,
            Bound::AtLeast(SHARE_OF_RAW),
        )
    });
    let of_limit = figures.limit_per_second.map(|limit| {
        timed("machines a second up / the limit of the server", rate / limit, Bound::AtLeast(SHARE_OF_LIMIT))
    });
    of_raw.into_iter().chain(of_limit).collect()
}

/// Absent on the embedded server, which shares its process with both controllers.
fn memory(figures: &Figures) -> Option<GoalFigure> {
    figures.raw_writes_per_second?;
    let sum = |resident: Pair<f64>| resident.machine_controller + resident.manager;
    let grown = sum(figures.resident_mb) - sum(figures.empty_mb);
    let each = grown * 1024.0 / f64::from(figures.machines);
    Some(timed("memory of both controllers that one machine adds, in KB", each, Bound::Below(KILOBYTES)))
}

fn idle(idle: &IdleFigures) -> [GoalFigure; 2] {
    let requests: u64 = idle.requests.values().sum();
    let cpu = (idle.cpu_machine_controller + idle.cpu_manager) / idle.seconds * 100.0;
    [
        counted(
            "idle: requests a minute, without Leases",
            round(requests as f64 / idle.seconds * 60.0),
            Bound::Below(IDLE_REQUESTS),
        ),
        timed("idle: CPU time, in percent of a core", cpu, Bound::Below(IDLE_CPU)),
    ]
}

fn restart(restart: &RestartFigures) -> Vec<GoalFigure> {
    let decisions = &restart.decisions;
    let lists = restart.lists_seconds;
    let mut all = vec![
        timed(
            "restart: first write about a Machine / lists of Machines, sets, classes, Nodes",
            decisions.machine_seconds / lists,
            Bound::AtMost(LISTS),
        ),
        timed(
            "restart: first replacement by the manager / the same lists",
            decisions.replacement_seconds / lists,
            Bound::AtMost(LISTS),
        ),
    ];
    if let Some(drain) = decisions.drain_seconds {
        all.push(timed(
            "restart: first eviction / the same lists and the pods",
            drain / restart.lists_with_pods_seconds,
            Bound::AtMost(LISTS),
        ));
    }
    all.push(counted(
        "restart: writes about objects that the benchmark did not change",
        decisions.other_writes as f64,
        Bound::Exactly(0.0),
    ));
    all
}

fn leader_change(change: &LeaderChangeFigures) -> Vec<GoalFigure> {
    let writes = change.after_stop.other_writes + change.after_kill.other_writes;
    vec![counted(
        "leader changes: writes about objects that the benchmark did not change",
        writes as f64,
        Bound::Exactly(0.0),
    )]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_and_cpu_time_of_an_idle_run_become_rates() {
        let figures = IdleFigures {
            seconds: 120.0,
            requests: [("list machines".to_owned(), 18), ("watch nodes".to_owned(), 4)].into(),
            cpu_machine_controller: 0.6,
            cpu_manager: 1.2,
        };
        let [requests, cpu] = idle(&figures);
        assert_eq!((requests.measured, requests.is_met), (11.0, false));
        assert_eq!((cpu.measured, cpu.is_met), (1.5, false));
    }
}
