//! Every decision that Machinist makes, as plain functions from facts to plans.
//!
//! ```text
//! facts/     what was read from one object, parsed once
//! snapshot   the frozen facts of one decision, with `now`
//! looks      what was read from an API server itself, because a store may be older
//! mcm/       plan(&Snapshot) -> Plan, one file per kind; paths are mirrored in machinist-controllers
//! instance, ownership, drain   rules that all front ends share
//! plan, why, permit   what a decision is made of
//! ```
//!
//! Deliberately absent, and kept out by this crate's dependencies: clients, an async runtime, clocks, randomness,
//! logs. A planner returns no `Result`: whatever is wrong is a [`Why`].

pub mod drain;
pub mod facts;
pub mod instance;
mod looks;
pub mod mcm;
pub mod ownership;
mod permit;
mod plan;
mod snapshot;
mod why;

pub use looks::{LeaseLook, Looks, NodeLook, NodeSeen, PodList, Renewal, Version};
pub use permit::{Evidence, Permit};
pub use plan::{Plan, Wait};
pub use snapshot::{
    Absence, Answered, Answers, Attempts, Call, Found, Known, LONGEST_RETRY_AFTER, MadeIn, Process,
    retry_after,
};
pub use why::{Deadline, Reason, Step, TokenUse, Why};
