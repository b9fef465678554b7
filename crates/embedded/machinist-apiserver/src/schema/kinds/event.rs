//! Events, served as core/v1 and as events.k8s.io/v1 from one store. The stored form is core/v1.

use serde_json::{Map, Value, json};

use crate::schema::kinds::{Part, Rules};
use crate::values::meta::qualified_name_problems;
use crate::values::object::meta_str;
use crate::values::status::{FieldErrorKind, FieldErrors};

/// Renamed fields: (name in events.k8s.io, name in core).
const RENAMED: [(&str, &str); 7] = [
    ("regarding", "involvedObject"),
    ("note", "message"),
    ("reportingController", "reportingComponent"),
    ("deprecatedSource", "source"),
    ("deprecatedFirstTimestamp", "firstTimestamp"),
    ("deprecatedLastTimestamp", "lastTimestamp"),
    ("deprecatedCount", "count"),
];

/// Maximum length of the action, the reason and the reporting instance, in bytes.
const MAX_WORD_LEN: usize = 128;
/// Maximum length of the message, in bytes.
const MAX_MESSAGE_LEN: usize = 1024;

pub(crate) struct CoreEvents;

impl Rules for CoreEvents {
    fn takes_plain_finalizers(&self) -> bool {
        true
    }

    fn validate(&self, object: &Value, _old: Option<&Value>, _part: Part, errors: &mut FieldErrors) {
        validate_as_ever(object, "reportingComponent", errors);
    }
}

/// Events of the current API. Events of the old API are checked less strictly.
pub(crate) struct GroupEvents;

impl Rules for GroupEvents {
    fn validate(&self, object: &Value, old: Option<&Value>, _part: Part, errors: &mut FieldErrors) {
        validate_as_ever(object, "reportingController", errors);
        match old {
            None => validate_new(object, errors),
            Some(old) => {
                if object.get("series") != old.get("series") {
                    validate_series(object, errors);
                }
                validate_unchanged(object, old, errors);
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

fn text<'a>(object: &'a Value, field: &str) -> &'a str {
    object.get(field).and_then(Value::as_str).unwrap_or_default()
}

/// Validates what applies to all Events. An Event with `eventTime` belongs to the new API and needs
/// more fields.
fn validate_as_ever(object: &Value, reporter: &str, errors: &mut FieldErrors) {
    let about = object.pointer("/involvedObject/namespace").and_then(Value::as_str).unwrap_or_default();
    let own = meta_str(object, "namespace");
    let is_new = !text(object, "eventTime").is_empty();
    // An Event is in the namespace of its object. An Event about a cluster-scoped object is in a
    // namespace that always exists.
    let is_in_place = match (about, is_new) {
        ("", true) => own == "default" || own == "kube-system",
        ("", false) => own == "default",
        (_, true) => true,
        (about, false) => own == about,
    };
    if !is_in_place {
        errors.invalid("involvedObject.namespace", json!(about), "does not match event.namespace");
    }
    if !is_new {
        return;
    }
    let from = text(object, "reportingComponent");
    if from.is_empty() {
        errors.required(reporter, "");
    }
    for problem in qualified_name_problems(from) {
        errors.invalid(reporter, json!(from), problem);
    }
    for field in ["reportingInstance", "action", "reason"] {
        if text(object, field).is_empty() {
            errors.required(field, "");
        }
        validate_length(object, field, MAX_WORD_LEN, errors);
    }
    validate_length(object, "message", MAX_MESSAGE_LEN, errors);
}

fn validate_length(object: &Value, field: &str, longest: usize, errors: &mut FieldErrors) {
    if longest < text(object, field).len() {
        errors.invalid(field, json!(""), format!("can have at most {longest} characters"));
    }
}

fn validate_new(object: &Value, errors: &mut FieldErrors) {
    validate_series(object, errors);
    if text(object, "eventTime").is_empty() {
        errors.required("eventTime", "");
    }
    let of = text(object, "type");
    if !matches!(of, "Normal" | "Warning") {
        errors.invalid("type", json!(""), format!("has invalid value: {of}"));
    }
    let source = |field: &str| object.get("source").is_some_and(|source| !text(source, field).is_empty());
    for (field, is_set) in [
        ("firstTimestamp", !text(object, "firstTimestamp").is_empty()),
        ("lastTimestamp", !text(object, "lastTimestamp").is_empty()),
        ("count", object.get("count").and_then(Value::as_i64).unwrap_or_default() != 0),
        ("source", source("component") || source("host")),
    ] {
        if is_set {
            errors.invalid(field, json!(""), "needs to be unset");
        }
    }
}

fn validate_series(object: &Value, errors: &mut FieldErrors) {
    let Some(series) = object.get("series").filter(|series| !series.is_null()) else { return };
    if series.get("count").and_then(Value::as_i64).unwrap_or_default() < 2 {
        errors.invalid("series.count", json!(""), "should be at least 2");
    }
    if text(series, "lastObservedTime").is_empty() {
        errors.required("series.lastObservedTime", "");
    }
}

/// Rejects changes of an Event. Only its series may change.
fn validate_unchanged(object: &Value, old: &Value, errors: &mut FieldErrors) {
    // The reason is checked twice.
    for (field, shown_as) in [
        ("involvedObject", "involvedObject"),
        ("reason", "reason"),
        ("message", "message"),
        ("source", "source"),
        ("firstTimestamp", "firstTimestamp"),
        ("lastTimestamp", "lastTimestamp"),
        ("count", "count"),
        ("reason", "reason"),
        ("type", "type"),
        ("eventTime", "eventTime"),
        ("action", "action"),
        ("related", "related"),
        ("reportingComponent", "reportingController"),
        ("reportingInstance", "reportingInstance"),
    ] {
        let (new, before) = (object.get(field), old.get(field));
        if is_something(new) != is_something(before) || (is_something(new) && new != before) {
            let why = "field is immutable";
            errors.push_shown(FieldErrorKind::Invalid, shown_as, Some(shown(field, new)), why);
        }
    }
}

fn is_something(value: Option<&Value>) -> bool {
    value.is_some_and(|value| match value {
        Value::Null => false,
        Value::String(text) => !text.is_empty(),
        Value::Object(map) => !map.is_empty(),
        Value::Number(number) => number.as_i64() != Some(0),
        Value::Bool(_) | Value::Array(_) => true,
    })
}

/// Formats a value of an Event as the Go type that is compared, which has field names of its own.
fn shown(field: &str, value: Option<&Value>) -> String {
    let none = Value::Null;
    let value = value.unwrap_or(&none);
    let with = |fields: &[(&str, &str)]| {
        let shown = fields.iter().map(|(name, key)| format!("{name:?}:{:?}", text(value, key)));
        format!("{{{}}}", shown.collect::<Vec<_>>().join(","))
    };
    match field {
        "related" if value.is_null() => "\"null\"".to_owned(),
        "involvedObject" | "related" => with(&[
            ("Kind", "kind"),
            ("Namespace", "namespace"),
            ("Name", "name"),
            ("UID", "uid"),
            ("APIVersion", "apiVersion"),
            ("ResourceVersion", "resourceVersion"),
            ("FieldPath", "fieldPath"),
        ]),
        "source" => with(&[("Component", "component"), ("Host", "host")]),
        "count" if value.is_null() => "0".to_owned(),
        "firstTimestamp" | "lastTimestamp" | "eventTime" => value.to_string(),
        _ if value.is_null() => "\"\"".to_owned(),
        _ => value.to_string(),
    }
}
