//! The results: JSON for programs, a table for people.

use std::collections::BTreeMap;
use std::fmt;

use serde::Serialize;

use crate::report::{Bound, Format, listed, write_table};
use crate::requests::Counts;

/// The cloud returns at most this number of servers per page.
const PAGE: u32 = 50;
/// Goals of an initialised Node.
const WRITES: Bound = Bound::AtMost(2.0);
const EVENTS: Bound = Bound::AtMost(1.0);

/// The limit of calls to the cloud in an idle hour: twelve lists of all servers, and twelve other
/// calls.
pub(super) fn limit(nodes: u32) -> u64 {
    12 * u64::from(nodes.div_ceil(PAGE)) + 12
}

/// The JSON output.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Figures {
    pub(super) nodes: u32,
    /// Real seconds from the first registration until the last Node was initialised.
    pub(super) init_seconds: f64,
    /// Writes of the program per Node, without Events.
    pub(super) writes_per_node: f64,
    pub(super) events_per_node: f64,
    pub(super) cloud_calls_per_idle_hour: u64,
    pub(super) limit_calls_per_idle_hour: u64,
    /// Writes of the program, Events included. It has no Lease here.
    pub(super) kube_writes_per_idle_hour: u64,
}

/// All figures. `Display` uses the chosen format.
#[derive(Debug)]
pub struct CcmReport {
    pub(super) format: Format,
    pub(super) figures: Figures,
    pub(super) of_init: Counts,
    pub(super) of_idle: Counts,
    /// Calls of the idle hour by method and path.
    pub(super) calls: BTreeMap<String, u64>,
}

impl CcmReport {
    /// Whether all goals are reached.
    pub fn is_within_budget(&self) -> bool {
        let figures = &self.figures;
        WRITES.is_met(figures.writes_per_node)
            && EVENTS.is_met(figures.events_per_node)
            && figures.cloud_calls_per_idle_hour <= figures.limit_calls_per_idle_hour
            && figures.kube_writes_per_idle_hour == 0
    }
}

impl fmt::Display for CcmReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.format.write(f, &self.figures, |f| self.text(f))
    }
}

impl CcmReport {
    fn text(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let figures = &self.figures;
        writeln!(f, "{} Nodes, initialised in {} s of real time", figures.nodes, figures.init_seconds)?;
        writeln!(f)?;
        let limit = figures.limit_calls_per_idle_hour;
        let calls = format!("at most {limit} (12 lists of all servers, 12 other calls)");
        let rows = [
            ("writes per Node", figures.writes_per_node.to_string(), WRITES.to_string()),
            ("Events per Node", figures.events_per_node.to_string(), EVENTS.to_string()),
            ("calls to the cloud in an idle hour", figures.cloud_calls_per_idle_hour.to_string(), calls),
            ("writes in an idle hour", figures.kube_writes_per_idle_hour.to_string(), "0".to_owned()),
        ];
        write_table(f, rows)?;
        writeln!(f)?;
        for (title, writes) in
            [("Writes of the initialisation", &self.of_init), ("Writes of the idle hour", &self.of_idle)]
        {
            writeln!(f, "{title}: {writes}")?;
        }
        let calls = self.calls.iter().map(|(label, count)| format!("{label} {count}"));
        write!(f, "Calls of the idle hour: {}", listed(calls))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_counts_pages_of_fifty_servers() {
        assert_eq!([1, 50, 51, 500, 5_000].map(limit), [24, 24, 36, 132, 1_212]);
    }

    #[test]
    fn the_json_has_the_documented_fields() {
        let figures = Figures {
            nodes: 50,
            init_seconds: 0.5,
            writes_per_node: 2.0,
            events_per_node: 1.0,
            cloud_calls_per_idle_hour: 12,
            limit_calls_per_idle_hour: 24,
            kube_writes_per_idle_hour: 0,
        };
        let calls = BTreeMap::from([("GET /v1/servers".to_owned(), 12)]);
        let (of_init, of_idle) = (Counts::default(), Counts::default());
        let mut report = CcmReport { format: Format::Json, figures, of_init, of_idle, calls };
        assert_eq!(
            report.to_string(),
            r#"{"nodes":50,"initSeconds":0.5,"writesPerNode":2.0,"eventsPerNode":1.0,"cloudCallsPerIdleHour":12,"limitCallsPerIdleHour":24,"kubeWritesPerIdleHour":0}"#
        );
        assert!(report.is_within_budget());
        report.figures.kube_writes_per_idle_hour = 1;
        assert!(!report.is_within_budget());
    }
}
