//! The loop that serves any contract: it watches, observes, lets a planner decide, performs and settles.
//!
//! ```text
//! feed      watches -> World (stores of the contract, barrier, passes) -> wakes keys
//! pass      key -> observe -> plan (the contract's planner) -> act, for every kind the same
//! asks      calls to a cloud that a pass starts and does not await; accounts are what they share
//! in_flight what was begun and has not ended; a process that stops waits for it
//! write     guarded writes to API servers; settle finds out what became of those without an answer
//! explain   the same facts and planners without a controller; serve answers over HTTP
//! process   watches and workers, started and ended together
//! ```
//!
//! A [`Contract`] says which kinds are watched, what a queue key is, and how a key is served. This crate names no kind of object:
//! Cargo proves it, since no crate below this one knows the machine API or Cluster API.
//!
//! Deliberately absent: decisions. A rule that can be found here is in the wrong place.

mod accounts;
mod asks;
mod clock_steps;
mod contract;
mod explain;
mod feed;
mod fingerprint;
mod in_flight;
mod options;
mod owners;
mod panics;
mod pass;
mod passes;
mod process;
mod runtime;
mod serve;
mod settle;
mod sweep;
mod world;
mod write;

pub use accounts::{Account, Accounts, Opened, Sightings};
pub use asks::{Ask, Pending, Remember, StillWanted};
pub use contract::{Contract, Kind, Observed, QueueKey, Stop};
pub use explain::{ExplainError, Explanation, decide, is_unreadable, read_all, runtime_without_workers};
pub use feed::{Fed, Feed, entry_of, feed, refresh, take_in};
pub use fingerprint::fingerprint;
pub use in_flight::Drained;
pub use options::{Clients, Options};
pub use owners::{controlled_by, stays};
pub use pass::pass;
pub use passes::{Passes, WhyRecord};
pub use process::{Ended, Inspector, Running};
pub use runtime::Runtime;
pub use serve::{answer_all, listen, render_why, serve};
pub use world::World;
pub use write::{Created, Write};
