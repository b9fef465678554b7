//! Building blocks for the decisions of every contract: plans, reasons, permits, cloud answers, and
//! the rules about instances.
//!
//! ```text
//! plan, why          the result of a decision
//! snapshot           known facts, driver answers, and the deciding process
//! freshness, unseen  how recent facts are, and the time that deadlines leave out
//! instance, ownership, permit   when an instance counts as deleted, and the permit to delete it
//! orphan             when an instance that no object has is deleted
//! reverted           fixes that the simulator takes back
//! ```
//!
//! This crate is pure, like the planners: no client, no async runtime, no clock, no randomness, no
//! logs. API types are deliberately absent. The rules of one contract, and the reasons that only
//! its objects have, are in its planners.

mod freshness;
pub mod instance;
pub mod orphan;
pub mod ownership;
mod permit;
mod plan;
pub mod reverted;
mod snapshot;
#[cfg(test)]
mod testing;
mod unseen;
mod why;

pub use freshness::{FreshRead, Freshness, Silence};
pub use permit::{Evidence, NodeProof, Permit};
pub use plan::{Plan, Wait};
pub use snapshot::{
    Absence, Answered, Answers, Attempts, Call, Deleted, Found, InQueue, Known, MAX_RETRY_AFTER, MadeIn,
    Process, READ_WITHIN, SKEW_LIMIT, Succession, is_past, just_before, just_past, minus, plus, retry_after,
    since,
};
pub use unseen::{GAP_AFTER, GRACE_AFTER_UNKNOWN, Unseen};
pub use why::{CLOUD_SILENT, ContractReason, Deadline, Reason, Step, Why, shared_section};
