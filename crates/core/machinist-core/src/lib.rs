//! What every contract's decisions are made of: plans, reasons, permits, answers of a cloud, and the rules about instances.
//!
//! ```text
//! plan, why          what a decision results in
//! snapshot           what is known, what was asked, who decides
//! instance, ownership, permit   when an instance may be believed gone, and the permit to delete it
//! ```
//!
//! Pure, as the planners are: no client, no async runtime, no clock, no randomness, no logs. Deliberately absent: API types. A
//! contract's own rules, and the reasons that only its objects have, are in its planners.

pub mod instance;
pub mod ownership;
mod permit;
mod plan;
mod snapshot;
mod why;

pub use permit::{Evidence, Permit};
pub use plan::{Plan, Wait};
pub use snapshot::{
    Absence, Answered, Answers, Attempts, Call, Found, Known, LONGEST_RETRY_AFTER, MadeIn, Process,
    SKEW_LIMIT, Version, is_past, just_before, just_past, plus, retry_after, since,
};
pub use why::{ContractReason, Deadline, Reason, Step, Why};
