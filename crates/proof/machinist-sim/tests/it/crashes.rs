//! Five scenarios, killed at every call that they make.

use machinist_sim::mcm::SimulatedMcm;

use crate::contracts::survive_crashes;

#[test]
fn every_crash_is_survived() {
    survive_crashes::<SimulatedMcm>(&["volumes", "create-one", "delete-one", "burst", "rollout"]);
}
