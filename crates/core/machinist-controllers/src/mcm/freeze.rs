//! Patches of the marks of a freeze, if these are unchanged since they were read.

use std::collections::BTreeMap;

use machinist_api::constants::{annotations, conditions, labels};
use machinist_kube::GuardedPatch;
use serde_json::Value;

/// Adds the label `freeze`.
pub(crate) fn with_freeze(uid: &str, labels: Option<&BTreeMap<String, String>>) -> GuardedPatch {
    GuardedPatch::new(uid).set_label(labels, labels::FREEZE, labels::TRUE)
}

/// Removes the condition `Frozen` at that path of the status, if that path still holds it. Other
/// programs write conditions of the same object, and those stay unchanged.
pub(crate) fn without_frozen(uid: &str, condition: &[&str]) -> GuardedPatch {
    let kind = [condition, &["type"]].concat();
    GuardedPatch::new(uid).test(&kind, Some(&Value::from(conditions::FROZEN))).remove(condition)
}

/// Removes the label `freeze` and the annotation `unfreeze` in one patch.
pub(crate) fn without_freeze(
    uid: &str,
    labels: Option<&BTreeMap<String, String>>,
    annotations: Option<&BTreeMap<String, String>>,
) -> GuardedPatch {
    let patch = GuardedPatch::new(uid).remove_annotation(annotations, annotations::UNFREEZE);
    match labels.and_then(|labels| labels.get(labels::FREEZE)).map(String::as_str) {
        // A label with another value is not a freeze, so it stays.
        Some(labels::TRUE) => patch.remove_label(labels, labels::FREEZE),
        Some(_) | None => patch,
    }
}
