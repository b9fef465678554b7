//! Tests of the whole simulated system: without faults, under faults, killed at every call, and
//! with mutants.
//!
//! | variable | |
//! |---|---|
//! | `MACHINIST_REPLAY=rollout/17` | `replay` plays that run and prints its trace |
//! | `MACHINIST_REPLAY=ccm/ip-reuse/17` | the same for the cloud-controller-manager |
//! | `MACHINIST_REPLAY=capi/docker-roll/17` | the same for Cluster API |
//! | `MACHINIST_SEEDS=0..10000` | `swarm`, `ccm` and `capi` play those seeds instead of the default |
//! | `MACHINIST_SCENARIO=rollout` | `swarm` plays only that scenario |
//! | `MACHINIST_SWEEP_STRIDE=1` | the tests of crashes try every crash instead of a sample, and print both numbers |
//! | `UPDATE_EXPECT=1` | `golden` overwrites its traces |

#![expect(clippy::expect_used, reason = "a failed test setup says why")]

mod paused;

mod calm;
mod capi;
mod ccm;
mod contracts;
mod crashes;
mod golden;
mod mutants;
mod replay;
mod swarm;
mod takeover;
