//! All decisions of Machinist, as pure functions from facts to plans.
//!
//! ```text
//! facts/     the content of one object, parsed once
//! snapshot   the frozen facts of one decision, with `now`
//! looks      reads from the API server, because a store may be older
//! mcm/       the machine API: plan(&Snapshot) -> Plan, one file per kind
//! ccm/       the cloud-controller-manager, in the same form
//! capi/      the infrastructure providers of Cluster API, in the same form
//! drain      which pods leave a Node, and how
//! event      Events as values, and which were emitted
//! why        why objects of the machine API wait
//! ```
//!
//! `machinist-controllers` has the same paths below `mcm/`, `ccm/` and `capi/`.
//!
//! `machinist-core` has the parts that all contracts share: plans, permits, and the rules about
//! instances and accounts.
//!
//! Clients, an async runtime, clocks, randomness and logs are deliberately absent, and this crate's
//! dependencies exclude them. A planner returns no `Result`: every problem is a [`Why`].

pub mod capi;
pub mod ccm;
pub mod drain;
mod event;
pub mod facts;
mod looks;
pub mod mcm;
#[cfg(test)]
mod pages;
mod why;

pub use event::{EventText, Severity, Told};
pub use looks::{LeaseLook, Looks, NodeLook, NodeSeen, PodList, Renewal, Unanswered};
pub use why::{Deadline, McmReason, Reason, Step, TokenUse, Why};

/// The result of one decision about one object of the machine API.
pub type Plan<A> = machinist_core::Plan<A, McmReason>;
