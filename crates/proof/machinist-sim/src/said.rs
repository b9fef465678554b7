//! The answer of `why` about an object, as the invariants read it.

use machinist_core::{ContractReason, Reason, Step, Why};

/// The answer of `why` about an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Said {
    /// Whether the object counts as up to date.
    pub is_settled: bool,
    /// Whether a person must act.
    pub needs_person: bool,
    /// The reason as text.
    pub text: String,
}

impl Said {
    /// Reads a decision.
    pub(crate) fn of<R: ContractReason>(why: &Why<R>) -> Self {
        Self {
            is_settled: matches!(why.reason, Reason::Settled),
            needs_person: matches!(why.next, Step::Fix(_)),
            text: why.reason.to_string(),
        }
    }
}
