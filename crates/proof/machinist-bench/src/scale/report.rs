//! The results: JSON for programs, and for people a comparison with the goals and with Go MCM.

use std::fmt;

use serde::Serialize;

use super::IdleFigures;
use crate::report::{Format, Goal};
use crate::requests::{AnsweredRequest, PerMachine, Program, RequestTally};

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
pub struct Figures {
    /// The number of machines, N.
    pub machines: u32,
    /// Scaling from 0 to N.
    pub up: PhaseFigures,
    /// Scaling from N to 0.
    pub down: PhaseFigures,
    /// Number of instances that the cloud ever made.
    pub instances_ever: usize,
    /// Memory of the controllers with N machines.
    pub resident_mb: Resident,
    /// The controllers while N machines run; absent unless asked for.
    pub idle: Option<IdleFigures>,
    /// Raw writes per second, R; absent on the embedded server.
    pub raw_writes_per_second: Option<f64>,
}

/// The figures of one direction.
#[derive(Debug, Clone, Serialize)]
pub struct PhaseFigures {
    /// Seconds until the state was reached.
    pub seconds: f64,
    /// Writes per machine, successful or not.
    pub writes: PerMachine,
    /// Reads per machine.
    pub reads: PerMachine,
    /// Writes that failed because of an earlier write.
    pub conflicts: usize,
}

/// Resident memory in megabytes.
#[derive(Debug, Clone, Copy, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Resident {
    /// Memory of the machine controller.
    pub machine_controller: f64,
    /// Memory of the manager.
    pub manager: f64,
}

/// The figures and the counts behind them. `Display` uses the chosen format.
#[derive(Debug)]
pub struct ScaleReport {
    pub(super) api: String,
    pub(super) format: Format,
    pub(super) figures: Figures,
    pub(super) instances_alive: usize,
    pub(super) up: RequestTally,
    pub(super) down: RequestTally,
    pub(super) is_quiet: bool,
}

impl ScaleReport {
    /// Whether all goals are met that do not depend on the hardware: writes, conflicts, and the
    /// number of Machines and instances made.
    pub fn is_within_budget(&self) -> bool {
        self.counted_goals().iter().all(|goal| goal.is_met)
    }

    fn counted_goals(&self) -> Vec<Goal> {
        let figures = &self.figures;
        let machines = f64::from(figures.machines);
        let writes = |phase: &PhaseFigures, budget: f64, way: &str| Goal {
            what: format!(
                "{:.2} writes a machine by the machine controller {way}, at most {budget} and {WRITES_ONCE} once",
                phase.writes.machine_controller
            ),
            is_met: phase.writes.machine_controller <= budget + WRITES_ONCE / machines,
        };
        let conflicts = figures.up.conflicts + figures.down.conflicts;
        let made = self.up.machines_made() + self.down.machines_made();
        vec![
            writes(&figures.up, WRITES_UP, "up"),
            writes(&figures.down, WRITES_DOWN, "down"),
            Goal { what: format!("{conflicts} conflicts, none expected"), is_met: conflicts == 0 },
            Goal {
                what: format!(
                    "{made} Machines and {} instances ever made for {machines}",
                    figures.instances_ever
                ),
                is_met: made == u64::from(figures.machines)
                    && u32::try_from(figures.instances_ever) == Ok(figures.machines),
            },
            Goal {
                what: format!("{} instances alive at the end, none expected", self.instances_alive),
                is_met: self.instances_alive == 0,
            },
            Goal { what: "no writes when there is nothing to do".to_owned(), is_met: self.is_quiet },
        ]
    }

    fn speed_goal(&self) -> Option<Goal> {
        let raw = self.figures.raw_writes_per_second?;
        let share = self.machines_per_second(&self.figures.up) / raw;
        Some(Goal {
            what: format!(
                "{share:.3} R machines a second up, at least {SHARE_OF_RAW} R (R = {raw:.0} status patches/s by 32 writers)"
            ),
            is_met: SHARE_OF_RAW <= share,
        })
    }

    fn machines_per_second(&self, phase: &PhaseFigures) -> f64 {
        f64::from(self.figures.machines) / phase.seconds.max(f64::EPSILON)
    }
}

impl fmt::Display for ScaleReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.format.write(f, &self.figures, |f| self.text(f))
    }
}

impl ScaleReport {
    fn text(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let figures = &self.figures;
        writeln!(f, "0 -> {} -> 0 machines on {}", figures.machines, self.api)?;
        writeln!(
            f,
            "Thin: an instant cloud; the benchmark joins with one POST of a Ready Node, without certificate, Lease or taint removal; no \
             kube-controller-manager. Events are sent at 10 a second, so those of the way up are counted on both ways."
        )?;
        writeln!(f)?;
        writeln!(
            f,
            "       seconds  machines/s   writes: machine controller  manager  events   reads: both   conflicts"
        )?;
        for (way, phase) in [("up", &figures.up), ("down", &figures.down)] {
            writeln!(
                f,
                "{way:<6} {:>7.1}  {:>10.1}   {:>26.3}  {:>7.3}  {:>6.3}   {:>11.3}   {:>9}",
                phase.seconds,
                self.machines_per_second(phase),
                phase.writes.machine_controller,
                phase.writes.manager,
                phase.writes.events,
                phase.reads.machine_controller + phase.reads.manager + phase.reads.events,
                phase.conflicts
            )?;
        }
        let Resident { machine_controller, manager } = figures.resident_mb;
        writeln!(
            f,
            "memory {machine_controller:.0} MB machine controller, {manager:.0} MB manager (one process counts as both)"
        )?;
        if let Some(idle) = &figures.idle {
            render_idle(f, idle)?;
        }
        writeln!(f, "{GO}")?;
        for (way, tally) in [("up", &self.up), ("down", &self.down)] {
            writeln!(f)?;
            render_rows(f, way, tally, figures.machines)?;
        }
        writeln!(f)?;
        for goal in self.counted_goals().into_iter().chain(self.speed_goal()) {
            writeln!(f, "{goal}")?;
        }
        Ok(())
    }
}

fn render_idle(f: &mut fmt::Formatter<'_>, idle: &IdleFigures) -> fmt::Result {
    let requests: Vec<String> =
        idle.requests.iter().map(|(request, times)| format!("{times} {request}")).collect();
    writeln!(
        f,
        "idle for {:.0} s: {:.2} s CPU machine controller, {:.2} s manager; requests besides Leases: {}",
        idle.seconds,
        idle.cpu_machine_controller,
        idle.cpu_manager,
        if requests.is_empty() { "none".to_owned() } else { requests.join(", ") }
    )
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

impl AnsweredRequest {
    /// Whether one of the two controllers sent the request.
    pub(super) fn is_controllers(&self) -> bool {
        self.program != Program::Other
    }
}
