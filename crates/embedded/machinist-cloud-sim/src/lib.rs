//! The simulated cloud: accepts instances, keeps a durable [`Ledger`] of every one ever made, and misbehaves on
//! request.
//!
//! A [`Request`] comes in with a token, waits for the cloud's latency, meets its [`Fault`] if one is due, is
//! decided against the state (`effect`, pure), committed to the ledger, applied, and answered, in that order: what
//! was answered is on disk. A request runs on the cloud's own task, so a caller that dies does not take it back.
//! Time comes from the [`Clock`] that was given and from tokio, so everything runs under paused time; nothing
//! here draws a random number: who wants chance brings a [`Schedule`].
//!
//! Deliberately absent: Machines, classes, any credential of a Kubernetes cluster, and the machines themselves.
//! What boots, joins and heartbeats is in `machinist-node-sim`, which follows [`Cloud::follow`].

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

pub use call::{Call, CallRecord, Operation, Outcome};
pub use clock::Clock;
pub use cloud::{Cloud, NoAnswer};
pub use disk::Disk;
pub use entry::{Commit, Deletion, Entry, Foreigner};
pub use fault::{Fault, FaultRule, Faults, RuleId, Schedule};
pub use journal::OpenError;
pub use kept::Kept;
pub use ledger::Ledger;
pub use operator::Following;
pub use request::{Code, CreateRequest, DeleteRequest, Refusal, Reply, Request};
pub use settings::{IdStyle, Settings, Stockout};
