//! Events, readable and writable as core/v1 and as events.k8s.io/v1 over one store. The stored form is core/v1.

use serde_json::{Map, Value, json};

use crate::kinds::{Part, Rules};
use crate::object::meta_str;
use crate::status::FieldErrors;

/// (name in events.k8s.io, name in core).
const RENAMED: [(&str, &str); 7] = [
    ("regarding", "involvedObject"),
    ("note", "message"),
    ("reportingController", "reportingComponent"),
    ("deprecatedSource", "source"),
    ("deprecatedFirstTimestamp", "firstTimestamp"),
    ("deprecatedLastTimestamp", "lastTimestamp"),
    ("deprecatedCount", "count"),
];

pub(crate) struct CoreEvents;

impl Rules for CoreEvents {
    fn validate(&self, object: &Value, old: Option<&Value>, _part: Part, errors: &mut FieldErrors) {
        if old.is_none() {
            validate_namespace(object, "involvedObject.namespace", errors);
        }
    }
}

pub(crate) struct GroupEvents;

impl Rules for GroupEvents {
    fn validate(&self, object: &Value, old: Option<&Value>, _part: Part, errors: &mut FieldErrors) {
        if old.is_some() {
            return;
        }
        validate_namespace(object, "regarding.namespace", errors);
        for (field, shown) in [
            ("eventTime", "eventTime"),
            ("reportingComponent", "reportingController"),
            ("reportingInstance", "reportingInstance"),
            ("action", "action"),
            ("reason", "reason"),
        ] {
            if object.get(field).and_then(Value::as_str).unwrap_or_default().is_empty() {
                errors.required(shown, "");
            }
        }
    }

    fn make_stored(&self, object: &mut Value) {
        if let Some(map) = object.as_object_mut() {
            map.insert("apiVersion".into(), json!("v1"));
            rename(map, RENAMED.iter().map(|(group, core)| (*group, *core)));
            map.entry("involvedObject").or_insert_with(|| json!({}));
            map.entry("source").or_insert_with(|| json!({}));
            for text in ["reportingComponent", "reportingInstance"] {
                map.entry(text).or_insert_with(|| json!(""));
            }
        }
    }

    fn show_stored(&self, object: &mut Value) {
        if let Some(map) = object.as_object_mut() {
            map.insert("apiVersion".into(), json!("events.k8s.io/v1"));
            rename(map, RENAMED.iter().map(|(group, core)| (*core, *group)));
            for text in ["reportingController", "reportingInstance"] {
                if map.get(text).is_some_and(|t| t == "") {
                    map.remove(text);
                }
            }
        }
    }
}

fn rename<'a>(map: &mut Map<String, Value>, names: impl Iterator<Item = (&'a str, &'a str)>) {
    for (from, to) in names {
        if let Some(value) = map.remove(from) {
            map.insert(to.to_owned(), value);
        }
    }
}

/// An event lies in its object's namespace, those about cluster-scoped objects in `default`.
fn validate_namespace(object: &Value, field: &str, errors: &mut FieldErrors) {
    let about = object.pointer("/involvedObject/namespace").and_then(Value::as_str).unwrap_or_default();
    let own = meta_str(object, "namespace");
    let expected = if about.is_empty() { own == "default" || own == "kube-system" } else { about == own };
    if !expected {
        errors.invalid(field, json!(about), "does not match event.namespace");
    }
}
