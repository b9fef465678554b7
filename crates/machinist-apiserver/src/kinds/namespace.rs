//! Namespaces: what they start as, and why a deleted one stays until its content is gone.

use serde_json::{Value, json};

use crate::kinds::{Context, Part, Rules};
use crate::object::{self, child_map, copy_field};
use crate::status::ApiResult;

/// The label by which selectors find a namespace by name.
const NAME_LABEL: &str = "kubernetes.io/metadata.name";
/// The entry in `spec.finalizers` that the namespace controller takes out when the namespace is empty.
const CONTENT_FINALIZER: &str = "kubernetes";

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
            // `spec` is nothing but the finalizers, which only the finalize subresource may change.
            Part::Main | Part::Status | Part::Approval => copy_field(new, old, "spec"),
            Part::Finalize => copy_field(new, old, "status"),
        }
        label_with_name(new);
        Ok(())
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
