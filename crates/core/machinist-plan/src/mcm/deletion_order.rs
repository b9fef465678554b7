//! The order in which a set deletes its Machines. A set deletes by this order, and a rollout counts
//! by it, so that both agree about which Machines remain.

use std::cmp::Reverse;

use jiff::Timestamp;
use machinist_api::constants::annotations;
use machinist_api::{MachinePriority, Phase};

use super::live::{is_chosen, marked_at};
use crate::mcm::facts::{MachineFacts, MachineSetFacts, Preserved};

/// The place of a Machine in the deletion order: a smaller place is deleted first. Preserved
/// Machines come last.
pub(crate) type Place<'m> = (Option<(bool, Timestamp)>, Rank<'m>);

/// Priority, marks of the autoscaler, phase, age and name.
type Rank<'m> = (i64, (bool, Option<Timestamp>), u8, Timestamp, Reverse<&'m str>);

/// Returns the place of a Machine.
pub(crate) fn place(machine: &MachineFacts, preserved: Option<Preserved>) -> Place<'_> {
    let priority = machine.annotation(annotations::MACHINE_PRIORITY);
    let priority = priority.map_or(MachinePriority::DEFAULT, MachinePriority::parse_or_default);
    let marked = marked_at(machine);
    let phase = rank_of_phase(&machine.status.phase);
    let rank =
        (priority.0, (marked.is_none(), marked), phase, machine.created, Reverse(machine.name.as_str()));
    (preserved.map(rank_of_preserved), rank)
}

/// Returns the last place that a Machine can have which the set is about to create, until that
/// Machine is available.
pub(crate) fn place_of_new(set: &MachineSetFacts) -> Place<'static> {
    let priority = set.spec.template.metadata.annotations.get(annotations::MACHINE_PRIORITY);
    let priority =
        priority.map_or(MachinePriority::DEFAULT, |text| MachinePriority::parse_or_default(text.as_str()));
    let phase = rank_of_phase(&Phase::Pending);
    (None, (priority.0, (true, None), phase, Timestamp::MAX, Reverse("")))
}

/// Whether the autoscaler chose this Machine no later than it changed the number of replicas. The
/// set deletes a Machine that the autoscaler chose at any place in the order.
pub(crate) fn is_marked(set: &MachineSetFacts, machine: &MachineFacts) -> bool {
    let changed = || set.annotation(annotations::LAST_REPLICA_CHANGE_BY_SCALER_TIME)?.parse().ok();
    let marked = marked_at(machine).filter(|_| is_chosen(machine));
    marked.is_some_and(|marked| changed().is_some_and(|changed: Timestamp| marked <= changed))
}

/// Ranks preserved Machines: Machines that the set chose automatically come first, then the
/// earliest expiry.
fn rank_of_preserved(preserved: Preserved) -> (bool, Timestamp) {
    (!preserved.by_itself, preserved.until.unwrap_or(Timestamp::MAX))
}

fn rank_of_phase(phase: &Phase) -> u8 {
    match phase {
        Phase::Failed => 1,
        Phase::CrashLoopBackOff => 2,
        Phase::Unknown => 3,
        Phase::Pending => 4,
        Phase::Available => 5,
        Phase::Running => 6,
        _ => 0,
    }
}
