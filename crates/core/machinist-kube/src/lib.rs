//! Access to Kubernetes API servers: requests, watches, and the memory that the watches fill.
//!
//! ```text
//! API server -> client (policy) -> watch -> Delta -> Store -> Change -> KeyQueue -> a reconcile
//!                     ^                                |                                |
//!                     |                                +----> Barrier <---- charges ----+
//!                     +------------- guarded writes, classified by WriteOutcome -------+
//! ```
//!
//! * [`client`]: one policy for every request. It never repeats a write, and repeats a read a few
//!   times.
//! * [`watch`]: lists, then watches, and recovers from every way in which a watch can break.
//! * [`store`]: an ordered map of parsed facts, fed by the watch, that misses no deletion.
//! * [`queue`]: decides which object is reconciled next, and when.
//! * [`barrier`]: blocks a key until the store shows the process's own writes.
//! * [`cluster`]: names the API server that a store, a charge or a skew belongs to.
//! * [`patch`], [`eviction`], [`outcome`]: guarded writes, and the meaning of their answers.
//! * [`lease`], [`recorder`], [`clock`]: leadership, Events, the time.
//!
//! Deliberately absent: `kube::runtime::Controller` and its `Store` (they schedule in random order,
//! end on a panic and miss deletions on a relist), and any knowledge of machines.

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
#[doc(hidden)]
pub mod decoders;
#[cfg(test)]
mod faulty_server;
mod hash_of_parts;
mod limiter;
mod policy;
pub mod request;
mod sync;

// These tests are outside of their modules, because `tests/interleave` compiles the modules a
// second time without them.
#[cfg(test)]
mod barrier_tests;
#[cfg(test)]
mod queue_tests;

pub use barrier::Barrier;
pub use client::{KubeconfigSource, connect, connect_to, is_answer, layer_client, no_cluster};
pub use clock::{Clock, Moment, SharedClock, Skew, SystemClock, TokioClock};
pub use cluster::Cluster;
pub use lease::{Elector, Leadership, LeaseOptions};
pub use outcome::WriteOutcome;
pub use patch::GuardedPatch;
pub use queue::KeyQueue;
pub use recorder::Recorder;
pub use request::ClientOptions;
pub use store::{Change, Delta, Entry, ObjectKey, Store, Unreadable};
pub use watch::{WatchFatal, WatchNote, WatchOptions, WatchTiming, list_once, run_watch};
