//! Counts requests.

use std::collections::BTreeMap;

use serde::Serialize;

use super::{AnsweredRequest, Program};

/// Number of requests of each sort.
#[derive(Debug, Clone, Default)]
pub(crate) struct RequestTally {
    counts: BTreeMap<Row, u64>,
    conflicts: Vec<AnsweredRequest>,
    machines_made: u64,
}

/// A sort of request.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Row {
    pub(crate) program: Program,
    /// Whether the requests are reads; reads sort after writes.
    is_read: bool,
    pub(crate) resource: String,
    pub(crate) verb: String,
    pub(crate) code: u16,
}

/// Counts per machine, by sender.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct PerMachine {
    /// Requests of the machine controller, without Events and Leases.
    pub(crate) machine_controller: f64,
    /// Requests of the manager, without Events and Leases.
    pub(crate) manager: f64,
    /// Requests about Events, by both controllers.
    pub(crate) events: f64,
    /// Evictions of pods by the machine controller, which are not in its number: they depend on the
    /// number of pods.
    pub(crate) evictions: f64,
}

impl RequestTally {
    /// Counts one request. Requests of other senders than the two controllers are ignored, except
    /// created Machines, and so are requests about Leases: after a change of leader they are
    /// renewed all the time.
    pub(crate) fn add(&mut self, request: AnsweredRequest) {
        self.machines_made += u64::from(request.makes_machine());
        if !request.is_controllers() || request.is_about_leases() {
            return;
        }
        let row = Row {
            program: request.program,
            is_read: !request.is_write(),
            resource: request.resource.clone(),
            verb: request.verb.clone(),
            code: request.code,
        };
        *self.counts.entry(row).or_default() += 1;
        if request.is_conflict() {
            self.conflicts.push(request);
        }
    }

    /// Number of requests of each sort.
    pub(crate) fn rows(&self) -> impl Iterator<Item = (&Row, u64)> {
        self.counts.iter().map(|(row, count)| (row, *count))
    }

    /// Requests that failed because of an earlier write.
    pub(crate) fn conflicts(&self) -> &[AnsweredRequest] {
        &self.conflicts
    }

    /// Number of Machines created, by any sender.
    pub(crate) fn machines_made(&self) -> u64 {
        self.machines_made
    }

    /// Writes per machine.
    pub(crate) fn writes(&self, machines: u32) -> PerMachine {
        self.per_machine(machines, |row| !row.is_read)
    }

    /// Reads per machine.
    pub(crate) fn reads(&self, machines: u32) -> PerMachine {
        self.per_machine(machines, |row| row.is_read)
    }

    fn per_machine(&self, machines: u32, is_wanted: impl Fn(&Row) -> bool) -> PerMachine {
        let sum = |is_counted: &dyn Fn(&Row) -> bool| {
            let rows = self.counts.iter().filter(|(row, _)| is_wanted(row) && is_counted(row));
            per(rows.map(|(_, count)| *count).sum(), machines)
        };
        let is_event = |row: &Row| row.resource == "events";
        let is_eviction = |row: &Row| row.resource == "pods/eviction";
        let is_counted = |row: &Row| !is_event(row) && !is_eviction(row);
        PerMachine {
            machine_controller: sum(&|row| row.program == Program::MachineController && is_counted(row)),
            manager: sum(&|row| row.program == Program::Manager && !is_event(row)),
            events: sum(&is_event),
            evictions: sum(&is_eviction),
        }
    }
}

/// A count per machine, rounded to a thousandth: enough to show one extra write among a thousand
/// machines.
pub(crate) fn per(count: u64, machines: u32) -> f64 {
    round(count as f64 / f64::from(machines.max(1)))
}

/// Rounds to a thousandth.
pub(crate) fn round(number: f64) -> f64 {
    (number * 1000.0).round() / 1000.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writes_reads_events_and_conflicts_are_separate_counts() {
        let mut tally = RequestTally::default();
        let request = AnsweredRequest::test;
        for request in [
            request(Program::MachineController, "patch", "machines/status", 200),
            request(Program::MachineController, "patch", "machines", 422),
            request(Program::MachineController, "create", "pods/eviction", 201),
            request(Program::MachineController, "list", "nodes", 200),
            request(Program::MachineController, "create", "events", 201),
            request(Program::Manager, "create", "machines", 201),
            request(Program::Manager, "create", "machines", 409),
            request(Program::Manager, "create", "events", 409),
            request(Program::Manager, "update", "leases", 200),
            request(Program::Other, "create", "nodes", 201),
        ] {
            tally.add(request);
        }
        assert_eq!(
            tally.writes(2),
            PerMachine { machine_controller: 1.0, manager: 1.0, events: 1.0, evictions: 0.5 }
        );
        assert_eq!(tally.reads(2), PerMachine { machine_controller: 0.5, ..PerMachine::default() });
        assert_eq!(tally.conflicts().len(), 3);
        assert_eq!(tally.machines_made(), 1);
    }
}
