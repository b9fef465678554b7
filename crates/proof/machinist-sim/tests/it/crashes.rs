//! Scenarios, killed at the calls that they make.

use machinist_sim::mcm::SimulatedMcm;

use crate::contracts::survive_crashes;

#[test]
fn crashes_are_survived() {
    survive_crashes::<SimulatedMcm>(&["volumes", "create-one", "delete-one", "burst", "rollout"]);
}

#[test]
fn crashes_of_updates_in_place_are_survived() {
    survive_crashes::<SimulatedMcm>(&["in-place", "in-place-by-hand"]);
}
