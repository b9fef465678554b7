//! The results: JSON for programs, a table for people.

use std::fmt;
use std::time::Duration;

use serde::Serialize;

use crate::report::{Bound, Format, mark, percentile};
use crate::requests::round;

/// Goals of the embedded server, in comparison with kube-apiserver and etcd.
const START_MS: Bound = Bound::Below(50.0);
const WRITES_IN_MEMORY: Bound = Bound::AtLeast(10.0);
const WRITES_DATA_FOLDER: Bound = Bound::AtLeast(2.0);
const MEMORY_MB: Bound = Bound::Below(100.0);
const RESTART_MS: Bound = Bound::Below(500.0);

/// Requests per second, and their latency.
#[derive(Debug, Clone, Copy, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Rate {
    pub(super) per_second: f64,
    /// Median latency in milliseconds.
    pub(super) p50_ms: f64,
    /// 99th percentile of the latency in milliseconds.
    pub(super) p99_ms: f64,
}

/// How fast watchers see a change.
#[derive(Debug, Clone, Copy, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Fanned {
    /// Events delivered per second, over all watchers.
    pub(super) events_per_second: f64,
    /// Median time in milliseconds from the request until a watcher has the change.
    pub(super) p50_ms: f64,
    /// 99th percentile of that time in milliseconds.
    pub(super) p99_ms: f64,
}

/// The figures of one server.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Measured {
    pub(super) name: String,
    /// Milliseconds from the start of the process until its first answer.
    pub(super) start_ms: f64,
    pub(super) writes: Rate,
    pub(super) reads: Rate,
    /// The fan-out to 100 watchers of one object.
    pub(super) fan_out: Fanned,
    /// Megabytes of memory of all its processes, filled with objects.
    pub(super) memory_mb: f64,
    /// Milliseconds from the start of the process until its first answer, with all those objects,
    /// after a SIGKILL.
    pub(super) restart_ms: Option<f64>,
}

/// All figures. `Display` uses the chosen format.
#[derive(Debug)]
pub struct ApiServerReport {
    pub(super) format: Format,
    pub(super) objects: u32,
    pub(super) memory: Measured,
    pub(super) data_dir: Measured,
    pub(super) real: Option<Measured>,
}

/// The JSON output. A ratio above 1 means that the embedded server is better; ratios are absent
/// without kube-apiserver.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Figures<'a> {
    writes_ratio: Option<f64>,
    writes_ratio_data_dir: Option<f64>,
    reads_ratio: Option<f64>,
    p99_ratio: Option<f64>,
    p99_ratio_data_dir: Option<f64>,
    fan_out_ratio: Option<f64>,
    memory_ratio: Option<f64>,
    start_ms: f64,
    restart_ms: Option<f64>,
    memory_mb: f64,
    objects: u32,
    memory: &'a Measured,
    data_dir: &'a Measured,
    real: Option<&'a Measured>,
}

impl Rate {
    pub(super) fn of(delays: Vec<Duration>, within: Duration) -> Self {
        let per_second = delays.len() as f64 / within.as_secs_f64();
        let (p50_ms, p99_ms) = percentiles(&delays);
        Rate { per_second: round(per_second), p50_ms, p99_ms }
    }
}

impl Fanned {
    pub(super) fn of(delays: Vec<Duration>, took: Duration) -> Self {
        let events_per_second = delays.len() as f64 / took.as_secs_f64();
        let (p50_ms, p99_ms) = percentiles(&delays);
        Fanned { events_per_second: round(events_per_second), p50_ms, p99_ms }
    }
}

/// The 50th and the 99th percentile, in milliseconds.
fn percentiles(delays: &[Duration]) -> (f64, f64) {
    let at = |percent| round(percentile(delays, percent).as_secs_f64() * 1000.0);
    (at(50), at(99))
}

impl ApiServerReport {
    fn figures(&self) -> Figures<'_> {
        let real = self.real.as_ref();
        let ratio = |of: &dyn Fn(&Measured) -> f64| real.map(|real| round(of(real)));
        Figures {
            writes_ratio: ratio(&|real| self.memory.writes.per_second / real.writes.per_second),
            writes_ratio_data_dir: ratio(&|real| self.data_dir.writes.per_second / real.writes.per_second),
            reads_ratio: ratio(&|real| self.memory.reads.per_second / real.reads.per_second),
            p99_ratio: ratio(&|real| real.writes.p99_ms / self.memory.writes.p99_ms),
            p99_ratio_data_dir: ratio(&|real| real.writes.p99_ms / self.data_dir.writes.p99_ms),
            fan_out_ratio: ratio(&|real| real.fan_out.p50_ms / self.memory.fan_out.p50_ms),
            memory_ratio: ratio(&|real| real.memory_mb / self.memory.memory_mb),
            start_ms: round(self.memory.start_ms),
            restart_ms: self.data_dir.restart_ms.map(round),
            memory_mb: round(self.memory.memory_mb),
            objects: self.objects,
            memory: &self.memory,
            data_dir: &self.data_dir,
            real,
        }
    }
}

impl fmt::Display for ApiServerReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let figures = self.figures();
        self.format.write(f, &figures, |f| self.text(f, &figures))
    }
}

impl ApiServerReport {
    fn text(&self, f: &mut fmt::Formatter<'_>, figures: &Figures<'_>) -> fmt::Result {
        writeln!(
            f,
            "{:<24}{:>9}{:>24}{:>24}{:>26}{:>10}{:>10}",
            "",
            "start",
            "writes/s  (p50, p99)",
            "reads/s  (p50, p99)",
            "watchers see in (p50, p99)",
            "memory",
            "restart"
        )?;
        for measured in [Some(&self.memory), Some(&self.data_dir), self.real.as_ref()].into_iter().flatten() {
            let Measured { name, start_ms, writes, reads, fan_out, memory_mb, restart_ms } = measured;
            let rate =
                |rate: &Rate| format!("{:.0} ({:.1}, {:.1} ms)", rate.per_second, rate.p50_ms, rate.p99_ms);
            let restart = restart_ms.map_or(String::new(), |ms| format!("{ms:.0} ms"));
            writeln!(
                f,
                "{name:<24}{:>9}{:>24}{:>24}{:>26}{:>10}{restart:>10}",
                format!("{start_ms:.0} ms"),
                rate(writes),
                rate(reads),
                format!("{:.1}, {:.1} ms", fan_out.p50_ms, fan_out.p99_ms),
                format!("{memory_mb:.0} MB"),
            )?;
        }
        let goals = [
            ("start, in ms", Some(figures.start_ms), START_MS),
            ("writes in memory, times the writes of kube-apiserver", figures.writes_ratio, WRITES_IN_MEMORY),
            (
                "writes with a data folder, times the writes of kube-apiserver",
                figures.writes_ratio_data_dir,
                WRITES_DATA_FOLDER,
            ),
            ("memory with all objects, in MB", Some(figures.memory_mb), MEMORY_MB),
            ("restart with all objects, in ms", figures.restart_ms, RESTART_MS),
        ];
        for (what, measured, goal) in goals {
            let Some(measured) = measured else { continue };
            writeln!(f, "{} {what}, {goal}: {measured:.1}", mark(goal.is_met(measured)))?;
        }
        Ok(())
    }
}
