//! Patches of our objects.

use jiff::Timestamp;
use machinist_api::capi::constants;
use machinist_kube::GuardedPatch;
use machinist_plan::capi::Claim;
use machinist_plan::capi::facts::ObjectFacts;
use machinist_plan::facts::EARLIER_CALLS_SINCE;
use serde::Serialize;
use serde_json::{Map, Value};

/// Returns the patch that claims an object: finalizer, key and engine together.
pub(super) fn claim(object: &ObjectFacts, claim: &Claim) -> GuardedPatch {
    let annotations = object.annotations.as_ref();
    GuardedPatch::new(&object.uid)
        .add_finalizer(object.finalizers.as_deref(), claim.finalizer)
        .set_annotation(annotations, constants::KEY_ANNOTATION, &claim.key)
        .set_annotation(annotations, constants::ENGINE_ANNOTATION, &claim.engine)
}

/// Returns the patch that records since when nothing is created for an object.
pub(super) fn wait_recorded(object: &ObjectFacts, since: Timestamp) -> GuardedPatch {
    let since = object.bound(&since.to_string());
    GuardedPatch::new(&object.uid).set_annotation(object.annotations.as_ref(), EARLIER_CALLS_SINCE, &since)
}

/// Returns the patch of the fields of a status that differ.
///
/// A status has several writers, and its conditions are written as a whole list. So the patch
/// applies only to the version of the object that was read.
pub(super) fn status<T: Serialize>(object: &ObjectFacts, old: Option<&T>, new: &T) -> GuardedPatch {
    let fields = |value: Option<&T>| match value.and_then(|status| serde_json::to_value(status).ok()) {
        Some(Value::Object(fields)) => fields,
        Some(_) | None => Map::new(),
    };
    let (before, after) = (fields(old), fields(Some(new)));
    let version = Value::from(object.resource_version.as_precondition());
    let mut patch = GuardedPatch::new(&object.uid)
        .test(&["metadata", "resourceVersion"], Some(&version))
        .ensure_map(&["status"], old);
    for (name, value) in &after {
        if before.get(name) != Some(value) {
            patch = patch.add(&["status", name], value.clone());
        }
    }
    for name in before.keys().filter(|name| !after.contains_key(*name)) {
        patch = patch.remove(&["status", name]);
    }
    patch
}
