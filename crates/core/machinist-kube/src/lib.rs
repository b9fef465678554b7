//! How Machinist talks to a Kubernetes API server and remembers what it saw.
//!
//! ```text
//! API server -> client (policy) -> watch -> Delta -> Store -> Change -> KeyQueue -> a reconcile
//!                     ^                                |                                |
//!                     |                                +----> Barrier <---- charges ----+
//!                     +------------- guarded writes, classified by WriteOutcome -------+
//! ```
//!
//! * [`client`]: one policy for every request: no write is ever repeated, reads are repeated a little.
//! * [`watch`]: list, then watch; survives every way in which a watch can break.
//! * [`store`]: an ordered map of parsed facts, fed by the watch, that misses no deletion.
//! * [`queue`]: which object to look at next, and when.
//! * [`barrier`]: no decision rests on a view that lacks the process's own writes.
//! * [`cluster`]: which API server a store, a charge or a skew is about.
//! * [`patch`], [`eviction`], [`outcome`]: how a write is guarded, and what its answer means.
//! * [`lease`], [`recorder`], [`clock`]: leadership, Events, the time.
//!
//! Deliberately absent: `kube::runtime::Controller` and its `Store` (they schedule in random order, end on a panic and
//! miss deletions on a relist), and any knowledge of machines.

pub mod client;
pub mod eviction;
pub mod outcome;
pub mod patch;

pub mod store;
pub mod watch;

pub mod barrier;
pub mod cluster;
pub mod queue;

pub mod clock;
pub mod lease;
pub mod recorder;

mod backoff;
#[cfg(test)]
mod fake_server;
mod limiter;
mod policy;
mod stable_hash;
mod sync;

// Not inside their modules, because `tests/interleave` compiles those a second time, without these.
#[cfg(test)]
mod barrier_tests;
#[cfg(test)]
mod queue_tests;

pub use barrier::Barrier;
pub use client::{ClientOptions, KubeconfigSource, connect, layer_client};
pub use clock::{Clock, SharedClock, Skew, SystemClock, TokioClock};
pub use cluster::Cluster;
pub use lease::{Elector, Leadership, LeaseOptions};
pub use outcome::WriteOutcome;
pub use patch::GuardedPatch;
pub use queue::KeyQueue;
pub use recorder::Recorder;
pub use store::{Change, Delta, Entry, ObjectKey, Store};
pub use watch::{WatchFatal, WatchNote, WatchOptions, list_once, run_watch};
