//! Every decision that Machinist makes, as plain functions from facts to plans.
//!
//! ```text
//! facts/     what was read from one object, parsed once
//! snapshot   the frozen facts of one decision, with `now`
//! looks      what was read from an API server itself, because a store may be older
//! mcm/       plan(&Snapshot) -> Plan, one file per kind; paths are mirrored in machinist-controllers
//! drain      which pods leave a Node, and how
//! why        what objects of the machine API wait for
//! ```
//!
//! What the decisions of all contracts are made of (plans, permits, the rules about instances and accounts) is `machinist-core`.
//!
//! Deliberately absent, and kept out by this crate's dependencies: clients, an async runtime, clocks, randomness,
//! logs. A planner returns no `Result`: whatever is wrong is a [`Why`].

pub mod drain;
pub mod facts;
mod looks;
pub mod mcm;
mod why;

pub use looks::{LeaseLook, Looks, NodeLook, NodeSeen, PodList, Renewal};
pub use why::{Deadline, McmReason, Reason, Step, TokenUse, Why};

/// The result of one decision about one object of the machine API.
pub type Plan<A> = machinist_core::Plan<A, McmReason>;
