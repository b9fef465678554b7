//! Five scenarios, killed at every call that they make.

use std::num::NonZeroUsize;

use machinist_sim::mcm::SimulatedMcm;

use crate::contracts::{survive_crashes, survive_some_crashes};

#[test]
fn every_crash_is_survived() {
    survive_crashes::<SimulatedMcm>(&["volumes", "create-one", "delete-one", "burst", "rollout"]);
}

/// An update in place of three Machines makes 130 calls. A stride without a factor of 6 covers each
/// combination of victim and moment.
#[test]
fn crashes_of_updates_in_place_are_survived() {
    const EVERY: NonZeroUsize = NonZeroUsize::new(5).expect("not zero");
    survive_some_crashes::<SimulatedMcm>(&["in-place", "in-place-by-hand"], EVERY);
}
