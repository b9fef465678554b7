//! Which Machines count: live ones, available ones, and those that the autoscaler chose.

use jiff::Timestamp;
use machinist_api::constants::annotations;
use machinist_api::{MachinePriority, Phase};

use crate::mcm::facts::MachineFacts;

/// Whether a Machine is live, which means that it is not being deleted.
pub(crate) fn is_live(machine: &MachineFacts) -> bool {
    machine.deleting_since.is_none() && machine.status.phase != Phase::Terminating
}

/// Whether a Machine counts as available for sets and deployments.
pub(crate) fn is_available(machine: &MachineFacts) -> bool {
    is_live(machine) && matches!(machine.status.phase, Phase::Running | Phase::Available)
}

/// Returns when the autoscaler chose this Machine.
pub(crate) fn marked_at(machine: &MachineFacts) -> Option<Timestamp> {
    machine.annotation(annotations::MARKED_FOR_DELETION_TIME)?.parse().ok()
}

/// Whether this Machine has the marks of the autoscaler: the priority and a time.
pub(crate) fn is_chosen(machine: &MachineFacts) -> bool {
    let priority = machine.annotation(annotations::MACHINE_PRIORITY).map(MachinePriority::parse_or_default);
    priority == Some(MachinePriority::DELETE_FIRST) && marked_at(machine).is_some()
}

/// Converts a count to `u32`, saturated.
pub(crate) fn number(count: usize) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}
