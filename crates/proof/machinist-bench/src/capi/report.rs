//! The results: JSON for programs, a table for people.

use std::fmt;

use serde::Serialize;

use super::containers::Requests;
use crate::report::{Bound, Format, write_table};
use crate::requests::{per, round};

/// The least share of the engine's limit.
const SHARE_OF_LIMIT: f64 = 0.8;
/// The goal for writes per machine in the management cluster.
const WRITES: Bound = Bound::AtMost(6.0);

/// The JSON output.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Figures {
    pub(super) machines: u32,
    /// Machines per second, until the last one was bootstrapped.
    pub(super) per_second: f64,
    /// The same with direct calls to the engine.
    pub(super) engine_limit_per_second: f64,
    /// From the creation of the DockerMachine until it was provisioned.
    #[serde(rename = "provisionedP50Ms")]
    pub(super) provisioned_p50_ms: u64,
    #[serde(rename = "provisionedP99Ms")]
    pub(super) provisioned_p99_ms: u64,
    /// Writes of the provider in the management cluster, without Events.
    pub(super) writes_per_machine: f64,
    /// Memory of the process with all machines: provider, API servers and engine.
    pub(super) resident_mb: f64,
    /// Reads of the provider in the management cluster.
    pub(super) reads_per_machine: f64,
}

/// All figures. `Display` uses the chosen format.
#[derive(Debug)]
pub struct CapiReport {
    pub(super) format: Format,
    pub(super) figures: Figures,
    /// Growth of the memory, for 1,000 machines.
    pub(super) growth_mb: f64,
    pub(super) calls_per_machine: f64,
    pub(super) direct_calls_per_machine: f64,
    pub(super) requests: Requests,
    pub(super) is_quiet: bool,
}

impl CapiReport {
    /// The goals that the run missed, with the measured and the expected value.
    pub fn missed(&self) -> Vec<String> {
        let figures = &self.figures;
        let mut missed = Vec::new();
        let rate = self.rate();
        if !rate.is_met(figures.per_second) {
            missed.push(format!("{} machines per second, expected {rate}", figures.per_second));
        }
        if !WRITES.is_met(figures.writes_per_machine) {
            missed.push(format!("{} writes per machine, expected {WRITES}", figures.writes_per_machine));
        }
        if !self.is_quiet {
            missed.push("the provider did not stop writing".to_owned());
        }
        missed
    }

    /// The goal for machines per second.
    fn rate(&self) -> Bound {
        Bound::AtLeast(round(SHARE_OF_LIMIT * self.figures.engine_limit_per_second))
    }
}

impl fmt::Display for CapiReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.format.write(f, &self.figures, |f| self.text(f))
    }
}

impl CapiReport {
    fn text(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (figures, requests) = (&self.figures, &self.requests);
        writeln!(f, "{} machines, on an engine in memory", figures.machines)?;
        writeln!(f)?;
        let of_events = per(requests.writes.events(), figures.machines);
        let of_workload = per(requests.in_workload.all(), figures.machines);
        let rate = format!("{} ({SHARE_OF_LIMIT} of the limit)", self.rate());
        let rows = [
            ("machines per second", figures.per_second.to_string(), rate),
            ("limit of the engine per second", figures.engine_limit_per_second.to_string(), String::new()),
            ("created to provisioned, p50 ms", figures.provisioned_p50_ms.to_string(), String::new()),
            ("created to provisioned, p99 ms", figures.provisioned_p99_ms.to_string(), String::new()),
            ("writes per machine", figures.writes_per_machine.to_string(), WRITES.to_string()),
            ("Events per machine", of_events.to_string(), String::new()),
            ("reads per machine", figures.reads_per_machine.to_string(), String::new()),
            ("requests per machine, workload cluster", of_workload.to_string(), String::new()),
            ("calls to the engine per machine", self.calls_per_machine.to_string(), String::new()),
            ("the same without the provider", self.direct_calls_per_machine.to_string(), String::new()),
            ("resident memory, MB", figures.resident_mb.to_string(), String::new()),
            ("its growth per 1,000 machines, MB", self.growth_mb.to_string(), String::new()),
        ];
        write_table(f, rows)?;
        writeln!(f)?;
        writeln!(f, "Writes: {}", requests.writes)?;
        writeln!(f, "Reads: {}", requests.reads)?;
        write!(f, "In the workload cluster: {}", requests.in_workload)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report() -> CapiReport {
        let figures = Figures {
            machines: 100,
            per_second: 8.0,
            engine_limit_per_second: 10.0,
            provisioned_p50_ms: 5_505,
            provisioned_p99_ms: 8_380,
            writes_per_machine: 6.0,
            resident_mb: 56.66,
            reads_per_machine: 1.0,
        };
        CapiReport {
            format: Format::Json,
            figures,
            growth_mb: 20.0,
            calls_per_machine: 7.0,
            direct_calls_per_machine: 7.0,
            requests: Requests::default(),
            is_quiet: true,
        }
    }

    #[test]
    fn the_json_has_the_documented_fields() {
        assert_eq!(
            report().to_string(),
            r#"{"machines":100,"perSecond":8.0,"engineLimitPerSecond":10.0,"provisionedP50Ms":5505,"provisionedP99Ms":8380,"writesPerMachine":6.0,"residentMb":56.66,"readsPerMachine":1.0}"#
        );
    }

    #[test]
    fn a_missed_goal_is_named() {
        let mut report = report();
        assert_eq!(report.missed(), [""; 0]);
        report.figures.per_second = 7.9;
        assert_eq!(report.missed(), ["7.9 machines per second, expected at least 8"]);
        report.figures.writes_per_machine = 6.01;
        assert_eq!(report.missed().len(), 2);
    }
}
