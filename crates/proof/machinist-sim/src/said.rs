//! What `why` says about an object, as the invariants read it.

use machinist_core::Step;

/// What `why` says about an object.
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
    /// Reads a reason and its next step.
    pub(crate) fn new(is_settled: bool, next: &Step, text: String) -> Self {
        Self { is_settled, needs_person: matches!(next, Step::Fix(_)), text }
    }
}
