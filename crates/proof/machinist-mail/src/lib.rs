//! A contract of one kind, `Mail`: its letter is sent at most once, however often the process dies.
//!
//! It exists to prove that `machinist-runtime` serves any contract. It uses nothing else of the project but `machinist-kube` and
//! the pure crates below. `plan` decides; `contract` says what is watched and how actions are performed.

mod contract;
pub mod plan;

pub use contract::{Key, Letters, Mail, MailStatus, Mails, Post};
