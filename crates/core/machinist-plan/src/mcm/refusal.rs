//! Why a set or deployment is not acted upon until its author changes it: as a condition, an Event and a `why`.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use machinist_api::constants::reasons;

/// What is wrong with a spec.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// The word for conditions and Events.
    pub reason: &'static str,
    /// Which field is to be mended.
    pub field: String,
    /// A sentence that says what was expected.
    pub message: String,
}

impl Refusal {
    /// A field that is not as it must be.
    pub(crate) fn invalid(field: &str, message: impl Into<String>) -> Self {
        Self { reason: reasons::INVALID_SPEC, field: field.to_owned(), message: message.into() }
    }

    /// A selector without any requirement: it would make every machine of the namespace ours.
    pub(crate) fn if_selecting_all(selector: Option<&LabelSelector>) -> Option<Self> {
        let selects_all = selector.is_none_or(|selector| {
            selector.match_labels.as_ref().is_none_or(BTreeMap::is_empty)
                && selector.match_expressions.as_ref().is_none_or(Vec::is_empty)
        });
        let message = "spec.selector is empty and would select every machine: expected at least one label";
        selects_all
            .then(|| Self { reason: reasons::SELECTING_ALL, ..Self::invalid("spec.selector", message) })
    }

    /// Whether a condition tells just this already, so that it needs no further Event.
    pub(crate) fn is_told(&self, reason: Option<&str>, message: Option<&str>) -> bool {
        reason == Some(self.reason) && message == Some(&self.message)
    }
}
