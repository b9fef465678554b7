//! The validation error of a set or deployment, reported as a condition, an Event and a `why`.

use machinist_api::constants::reasons;
use machinist_labels::Selector;

use super::why::{McmReason, Step, Why};

/// A validation error of a spec. The object is not reconciled until a user fixes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// Reason for conditions and Events.
    pub reason: &'static str,
    /// The invalid field.
    pub field: String,
    /// The field, the problem and the expected value.
    pub message: String,
}

impl Refusal {
    /// Creates the rejection of an invalid field.
    pub(crate) fn invalid(field: &str, message: impl Into<String>) -> Self {
        Self { reason: reasons::INVALID_SPEC, field: field.to_owned(), message: message.into() }
    }

    /// Rejects a selector without any requirement: it would select every machine of the namespace.
    pub(crate) fn if_selecting_all(selector: Option<&Selector>) -> Option<Self> {
        let selects_all = selector.is_none_or(Selector::is_empty);
        let message = "spec.selector is empty and would select every machine: expected at least one label";
        selects_all
            .then(|| Self { reason: reasons::SELECTING_ALL, ..Self::invalid("spec.selector", message) })
    }

    /// Returns why the object is not reconciled.
    pub(crate) fn why(&self) -> Why {
        let fix = Step::Fix(format!("fix {}", self.field));
        Why::new(McmReason::InvalidSpec(self.message.clone()), fix)
    }

    /// Whether a condition already reports this rejection, so that no further Event is needed.
    pub(crate) fn is_reported(&self, reason: Option<&str>, message: Option<&str>) -> bool {
        reason == Some(self.reason) && message == Some(&self.message)
    }
}
