//! Namespaces: their initial state, and the rule that a deleted namespace stays until its content
//! is deleted.

use serde_json::{Value, json};

use crate::schema::kinds::{Context, Part, Rules};
use crate::values::key::Key;
use crate::values::meta::qualified_name_problem;
use crate::values::object::{self, child_map, copy_field};
use crate::values::status::{ApiError, ApiResult, FieldErrors, Target};

/// Label with the name of the namespace, for selectors.
const NAME_LABEL: &str = "kubernetes.io/metadata.name";
/// Entry in `spec.finalizers` that the namespace controller removes when the namespace is empty.
const CONTENT_FINALIZER: &str = "kubernetes";
/// Namespaces that every cluster needs and that cannot be deleted (NamespaceLifecycle).
const IMMORTAL: [&str; 3] = ["default", "kube-system", "kube-public"];

pub(crate) struct Namespaces;

impl Rules for Namespaces {
    fn fill_defaults(&self, object: &mut Value) {
        label_with_name(object);
    }

    fn on_create(&self, object: &mut Value, _context: &Context<'_>) -> ApiResult<()> {
        object["status"] = json!({"phase": "Active"});
        let spec = child_map(object, "spec");
        let finalizers = spec.entry("finalizers").or_insert_with(|| json!([]));
        if let Some(list) = finalizers.as_array_mut()
            && !list.iter().any(|f| f == CONTENT_FINALIZER)
        {
            list.push(json!(CONTENT_FINALIZER));
        }
        label_with_name(object);
        Ok(())
    }

    fn on_update(&self, new: &mut Value, old: &Value, part: Part, _context: &Context<'_>) -> ApiResult<()> {
        match part {
            // `spec` contains only the finalizers, which only the finalize subresource may change.
            Part::Main | Part::Status | Part::Approval => copy_field(new, old, "spec"),
            Part::Finalize => copy_field(new, old, "status"),
        }
        label_with_name(new);
        Ok(())
    }

    fn validate(&self, object: &Value, old: Option<&Value>, part: Part, errors: &mut FieldErrors) {
        if old.is_none() || part == Part::Finalize {
            validate_finalizers(object, errors);
        }
        if let (Some(old), Part::Status) = (old, part) {
            validate_phase(object, old, errors);
        }
    }

    fn admit_delete(&self, object: &Target<'_>, _key: &Key, _context: &Context<'_>) -> ApiResult<()> {
        if IMMORTAL.contains(&object.name) {
            Err(ApiError::forbidden(object, "this namespace may not be deleted"))
        } else {
            Ok(())
        }
    }

    fn on_delete(&self, object: &mut Value, _now: &str) {
        child_map(object, "status").insert("phase".into(), json!("Terminating"));
    }

    fn outlives_finalizers(&self, object: &Value) -> bool {
        object.pointer("/spec/finalizers").and_then(Value::as_array).is_some_and(|list| !list.is_empty())
    }
}

fn label_with_name(object: &mut Value) {
    let name = object::meta_str(object, "name").to_owned();
    if !name.is_empty() {
        let labels = object::metadata_mut(object).entry("labels").or_insert_with(|| json!({}));
        if let Some(labels) = labels.as_object_mut() {
            labels.insert(NAME_LABEL.into(), json!(name));
        }
    }
}

fn validate_finalizers(object: &Value, errors: &mut FieldErrors) {
    let finalizers = object.pointer("/spec/finalizers").and_then(Value::as_array).into_iter().flatten();
    for (index, finalizer) in finalizers.enumerate() {
        let name = finalizer.as_str().unwrap_or_default();
        let place = format!("spec.finalizers[{index}]");
        if let Some(problem) = qualified_name_problem(name) {
            errors.invalid(place, json!(name), problem);
        } else if name != CONTENT_FINALIZER && !name.contains('/') {
            let problem = "name is neither a standard finalizer name nor is it fully qualified";
            errors.invalid(place, json!(name), problem);
        }
    }
}

/// Checks that the phase matches the deletion timestamp.
fn validate_phase(object: &Value, old: &Value, errors: &mut FieldErrors) {
    let phase = object.pointer("/status/phase").and_then(Value::as_str).unwrap_or_default();
    let (terminating, deleting) = (phase == "Terminating", object::is_deleting(old));
    let problem = match (deleting, terminating) {
        (true, false) => "may only be 'Terminating' if `deletionTimestamp` is not empty",
        (false, true) => "may only be 'Active' if `deletionTimestamp` is empty",
        (true, true) | (false, false) => return,
    };
    errors.invalid("status.Phase", json!(phase), problem);
}
