//! The controller loop for any contract: watch, observe, plan, act and settle.
//!
//! ```text
//! feed       watches fill the World (the contract's stores, barrier, passes) and wake keys
//! pass       key -> observe -> plan (the contract's planner) -> act, the same for every kind
//! asks       driver calls that a pass starts and does not await; calls share accounts
//! fresh_reads  how fresh a kind is, and the read that a due deadline asks for; gaps are unseen time
//! silent_servers  API servers that do not answer
//! begun      whether a call that has begun may still change the cloud
//! in_flight  work that has begun and not ended; a stopping process waits for it
//! write      guarded writes to API servers; settle finds out the outcome of unanswered writes
//! explain    the same facts and planners without a controller
//! inspector  reads the state of a running process; served renders it for the HTTP endpoints
//! process    watches and workers, started and ended together; watch_log says that a watch fails
//! ```
//!
//! A [`Contract`] defines the watched kinds, the queue keys, and the pass over a key. This crate
//! names no kind of object. Cargo proves that, because no dependency of this crate knows the
//! machine API or Cluster API.
//!
//! Deliberately absent: decisions. Every rule belongs in a planner.

mod accounts;
mod asks;
mod begun;
mod clock_steps;
mod contract;
mod explain;
mod feed;
mod fingerprint;
mod fresh_reads;
mod gaps;
mod in_flight;
mod inspector;
mod line;
mod options;
mod outages;
mod owners;
mod panics;
mod pass;
mod passes;
mod process;
mod queued;
mod runtime;
mod served;
mod settle;
mod silent_servers;
mod sweep;
#[cfg(test)]
mod test_contract;
#[cfg(test)]
mod test_key;
mod watch_log;
mod world;
mod write;

pub use accounts::{Account, Accounts, Opened, Sightings};
pub use asks::{Ask, Pending, Remember, StillWanted};
pub use contract::{Contract, Kind, Observed, QueueKey, Stop};
pub use explain::{ExplainError, Explanation, decide, is_unreadable, read_all, runtime_without_workers};
pub use feed::{Fed, Feed, entry_of, feed, refresh, take_in};
pub use fingerprint::fingerprint;
pub use in_flight::Drained;
pub use inspector::Inspector;
pub use line::Lane;
pub use options::{Clients, Options, Task, Wrap};
pub use owners::{controlled_by, stays, version_if_owned};
pub use pass::pass;
pub use passes::{Passes, WhyRecord};
pub use process::{Ended, Running};
pub use queued::{Entry as QueuedCall, NoteWait, Queued, StillInNeed};
pub use runtime::{LAST_WRITES, Runtime};
pub use served::render_why;
pub use settle::Question;
pub use silent_servers::SilentServer;
pub use world::World;
pub use write::{Created, Write};
