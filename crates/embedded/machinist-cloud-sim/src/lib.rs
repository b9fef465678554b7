//! The simulated cloud: creates instances, keeps a durable [`Ledger`] of every instance ever made,
//! and fails on request.
//!
//! A [`Request`] arrives with a token, waits for the cloud's latency, and meets its [`Fault`] if
//! one is due. `effect` (pure) then decides it against the state. The result is committed to the
//! ledger, applied, and answered, in that order, so everything answered is on disk. A request runs
//! on the cloud's own task, so it continues when its caller dies. Time comes from the given
//! [`Clock`] and from tokio, so everything runs under paused time. The cloud draws no random
//! numbers: a test that wants chance sets a [`Schedule`].
//!
//! Deliberately absent: Machines, classes, credentials of a Kubernetes cluster, and the simulated
//! machines, which boot, join and send heartbeats. Those are in `machinist-node-sim`, which reads
//! [`Cloud::follow`].

mod books;
mod call;
mod clock;
mod cloud;
mod console;
mod disk;
mod effect;
mod entry;
mod fault;
mod journal;
mod kept;
mod ledger;
mod limit;
mod operator;
mod request;
mod seconds;
mod settings;
mod state;

pub mod http;

pub use call::{CallOutcome, CallRecord, IncomingCall, Operation};
pub use clock::Clock;
pub use cloud::{Cloud, NoAnswer};
pub use disk::Disk;
pub use entry::{Deletion, Foreigner, LedgerCommit, LedgerEntry};
pub use fault::{Fault, FaultRule, Faults, RuleId, Schedule};
pub use journal::OpenError;
pub use kept::Kept;
pub use ledger::Ledger;
pub use operator::Following;
pub use request::{Caller, CloudRefusal, Code, CreateRequest, DeleteRequest, Reply, Request};
pub use settings::{IdStyle, Settings, Stockout};
