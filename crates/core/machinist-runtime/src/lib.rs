//! The controller loop for any contract: watch, observe, plan and act.
//!
//! ```text
//! feed       the watched kinds; watched starts the watch of each feed, and take_in fills the World
//!            (the contract's stores, barrier, passes) and wakes keys
//! kinds      the table of the kinds of a contract: its queue keys
//! pass       key -> observe -> plan (the contract's planner) -> act, the same for every kind;
//!            perform makes the calls of a plan
//! asks       driver calls that a pass starts and does not await; calls share accounts
//! fresh_reads  how fresh a kind is, and the read that a due deadline asks for
//! unseen     the time that deadlines leave out, from the gaps that this process knows
//! silent_servers  API servers that do not answer
//! begun      whether a call that has begun may still change the cloud
//! in_flight  work that has begun and not ended; a stopping process waits for it
//! write      guarded writes to API servers, through the collection of a kind; outcomes reads the
//!            outcomes of unanswered writes
//! explain    the same facts and planners without a controller
//! inspector  reads the state of a running process; served renders it for the HTTP endpoints
//! measured   the metrics of the state of a process; other files have metrics of their events
//! measurement  what only a contract can name in its metrics
//! activity   which passes run, and whether the loop turns
//! standby    the watches of a process that does not lead, for its metrics
//! process    watches and workers, started and ended together; watch_log says that a watch fails
//! ```
//!
//! A change goes from watched to take_in, to the queue, to `work` in process, to the pass of its
//! key (`kinds!`), to `Kind::act`, to write.
//!
//! A [`Contract`] defines the watched kinds and the queue keys, and each [`Kind`] a pass. This
//! crate names no kind of object. Cargo proves that, because no dependency of this crate knows the
//! machine API or Cluster API.
//!
//! Deliberately absent: decisions. Every rule belongs in a planner.

mod accounts;
mod activity;
mod asks;
mod begun;
mod clock_steps;
mod collection;
mod contract;
mod explain;
mod explanation;
mod feed;
mod fingerprint;
mod fresh_reads;
mod gaps;
mod in_flight;
mod inspector;
mod key;
mod kinds;
mod line;
mod measured;
mod measurement;
mod options;
mod outages;
mod outcomes;
mod owners;
mod panics;
mod pass;
mod passes;
mod perform;
mod process;
mod queued;
mod runtime;
mod served;
mod server_answers;
mod server_checks;
mod silence;
mod silent_servers;
mod standby;
mod sweep;
mod take_in;
#[cfg(test)]
mod test_contract;
#[cfg(test)]
mod test_key;
mod unseen;
mod watch_log;
mod watched;
mod world;
mod write;

pub use accounts::{Account, Accounts, Opened, Sightings};
pub use activity::Pulse;
pub use asks::{Ask, Remember, StillWanted};
pub use contract::{Contract, Kind, Observed, Stop};
pub use explain::{decide, explain_one, read_all, runtime_without_workers};
pub use explanation::{ExplainError, Explanation};
pub use feed::{Fed, Feed, Question};
pub use fingerprint::fingerprint;
pub use in_flight::Drained;
pub use inspector::Inspector;
pub use key::QueueKey;
pub use kinds::{ContractKey, KindId};
pub use line::Lane;
// For `kinds!`.
#[doc(hidden)]
pub use machinist_driver::Check;
#[doc(hidden)]
pub use machinist_kube::Cluster;
pub use measurement::{Measurement, QueueState};
pub use options::{Clients, Options, Task, Wrap};
pub use owners::{controlled_by, stays, version_if_owned};
pub use pass::pass;
pub use passes::{Passes, WhyRecord};
pub use process::{Ended, Running};
pub use queued::{NoteWait, QueuedCall, StillInNeed};
pub use runtime::{LAST_WRITES, Runtime};
pub use served::render_why;
pub use server_answers::ServerChecks;
pub use silence::SilentServer;
pub use standby::Observing;
pub use take_in::{entry_of, refresh, take_in};
pub use watched::feed;
pub use world::{Pending, Queued, World};
pub use write::{Created, Write};
