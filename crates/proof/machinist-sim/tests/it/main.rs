//! The whole system, simulated: in calm, under faults, killed at every call, and broken on purpose.
//!
//! | variable | |
//! |---|---|
//! | `MACHINIST_REPLAY=rollout/17` | `replay` plays that run and prints its trace |
//! | `MACHINIST_SEEDS=0..10000` | `swarm` plays those seeds instead of the usual ones |
//! | `MACHINIST_SCENARIO=rollout` | `swarm` plays that scenario alone |
//! | `MACHINIST_SWEEP_STRIDE=5` | `crashes` tries every fifth crash instead of all, and prints both numbers |
//! | `UPDATE_EXPECT=1` | `golden` writes its traces anew |

#![expect(clippy::expect_used, reason = "a test that cannot go on says why")]

mod paused;

mod calm;
mod crashes;
mod golden;
mod mutants;
mod replay;
mod swarm;
mod takeover;
