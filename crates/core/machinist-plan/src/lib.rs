//! All decisions of Machinist, as pure functions from facts to plans.
//!
//! ```text
//! mcm/       the machine API: plan(&Snapshot) -> Plan, one file per kind
//! ccm/       the cloud-controller-manager, in the same form
//! capi/      the infrastructure providers of Cluster API, in the same form
//! event      Events as values, and which were emitted
//! facts      what the facts of all contracts have in common
//! generated  hashes and suffixes of names, which never change between releases
//! ```
//!
//! The three folders have the same rooms: `facts` is the content of one object, parsed once; `why`
//! is why objects wait; a file per kind has its `Snapshot`, its `Action` and its function `plan`.
//! Nothing here belongs to one contract only, and no contract uses another.
//!
//! `machinist-controllers` has the same paths below `mcm/`, `ccm/` and `capi/`.
//!
//! `machinist-core` has the parts that all contracts share: plans, permits, and the rules about
//! instances and accounts.
//!
//! Clients, an async runtime, clocks, randomness and logs are deliberately absent, and this crate's
//! dependencies exclude them. A planner returns no `Result`: every problem is a
//! [`Why`](machinist_core::Why).

pub mod capi;
pub mod ccm;
mod event;
pub mod facts;
mod generated;
pub mod mcm;
#[cfg(test)]
mod pages;
#[cfg(test)]
mod testing;

pub use event::{EmittedEvents, EventText, Severity};
