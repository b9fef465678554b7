//! Validates objects inside custom resources (`x-kubernetes-embedded-resource`): their type, and
//! their metadata as for any object.

use serde_json::{Map, Value, json};

use crate::schema::crd::schema::{MAX_DEPTH, Schema};
use crate::values::meta::{self, NameRule};
use crate::values::object::{meta_str, set_meta};
use crate::values::status::FieldErrors;

/// Appends the problems of the objects inside `value`.
pub(crate) fn validate(value: &Value, schema: &Schema, errors: &mut FieldErrors) {
    walk(value, schema, "", 0, errors);
}

fn walk(value: &Value, schema: &Schema, place: &str, depth: usize, errors: &mut FieldErrors) {
    if MAX_DEPTH < depth {
        return;
    }
    match value {
        Value::Object(map) => {
            if schema.embedded_resource {
                validate_object(map, value, place, errors);
            }
            for (key, child) in map {
                let (below, place) = match (schema.properties.get(key), &schema.additional) {
                    (Some(below), _) if place.is_empty() => (below, key.clone()),
                    (Some(below), _) => (below, format!("{place}.{key}")),
                    (None, Some(below)) => (below, format!("{place}[{key}]")),
                    (None, None) => continue,
                };
                walk(child, below, &place, depth + 1, errors);
            }
        }
        Value::Array(items) => {
            let Some(below) = &schema.items else { return };
            for (index, item) in items.iter().enumerate() {
                walk(item, below, &format!("{place}[{index}]"), depth + 1, errors);
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

fn validate_object(map: &Map<String, Value>, whole: &Value, place: &str, errors: &mut FieldErrors) {
    for key in ["apiVersion", "kind"] {
        match map.get(key) {
            None => errors.required(format!("{place}.{key}"), ""),
            Some(Value::String(text)) => {
                if let Some(why) = type_problem(key, text) {
                    errors.invalid(format!("{place}.{key}"), json!(text), why);
                }
            }
            Some(other) => errors.invalid(format!("{place}.{key}"), other.clone(), "must be a string"),
        }
    }
    if !map.get("metadata").is_some_and(Value::is_object) {
        return;
    }
    let mut object = json!({"metadata": map["metadata"]});
    if meta_str(whole, "name").is_empty() {
        // An embedded object needs no name, so validation gets a placeholder.
        set_meta(&mut object, "name", Some(json!("fakename")));
    }
    let is_namespaced = !meta_str(whole, "namespace").is_empty();
    let mut inside = FieldErrors::default();
    meta::validate(&object, is_namespaced, NameRule::PathSegment, &mut inside);
    errors.append_below(place, inside);
}

fn type_problem(key: &str, text: &str) -> Option<String> {
    if text.is_empty() {
        return Some("must not be empty".to_owned());
    }
    if key == "apiVersion" {
        let is_too_long = 1 < text.matches('/').count();
        return is_too_long.then(|| format!("unexpected GroupVersion string: {text}"));
    }
    let why = meta::label_1035_problem(&text.to_lowercase())?;
    Some(format!("may have mixed case, but should otherwise match: {why}"))
}
