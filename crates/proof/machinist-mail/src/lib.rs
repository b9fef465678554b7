//! A contract with one kind, `Mail`. The controller sends each letter at most once, even if its
//! process crashes at any point.
//!
//! The crate proves that `machinist-runtime` serves any contract. Besides the runtime, it uses only
//! `machinist-kube` and the pure crates below. `plan` decides. `contract` defines the watched kind
//! and performs the actions.

mod contract;
pub mod plan;

pub use contract::{Key, Letters, Mail, MailStatus, Mails, Post};
