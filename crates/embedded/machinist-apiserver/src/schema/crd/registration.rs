//! Turns CustomResourceDefinitions into served resources and sets their conditions.
//!
//! In kube-apiserver, controllers establish a definition a moment after the POST. Here it happens
//! right after the commit, so a definition is already served when its POST returns.

use std::collections::BTreeSet;
use std::sync::Arc;

use serde_json::{Value, json};

use crate::schema::crd::schema::{Schema, Type};
use crate::schema::resource::{Behaviour, Resource, ScalePaths, ScaleSelector, Version};
use crate::schema::table;
use crate::values::object::{self, Object, child_map};
use crate::values::status::FieldErrors;

/// Reports the reasons why `schema` is not structural.
pub(crate) fn check_schema(schema: &Value, field: &str, errors: &mut FieldErrors) {
    let parsed = Schema::parse(schema, field, errors);
    if parsed.of != Some(Type::Object) && parsed.of.is_some() {
        errors.invalid(format!("{field}.type"), schema["type"].clone(), "must be object at the root");
    }
}

/// Returns the resource that a definition describes, or `None` if it serves no version.
pub(crate) fn resource(definition: &Value) -> Option<Resource> {
    let text =
        |pointer: &str| definition.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned();
    let strings = |pointer: &str| -> Vec<String> {
        let list = definition.pointer(pointer).and_then(Value::as_array);
        list.into_iter().flatten().filter_map(|v| v.as_str().map(str::to_owned)).collect()
    };
    let (group, plural) = (text("/spec/group"), text("/spec/names/plural"));
    let declared = definition.pointer("/spec/versions").and_then(Value::as_array)?;
    let storage = declared.iter().find(|v| v["storage"] == true)?["name"].as_str()?.to_owned();
    let mut versions = Vec::with_capacity(declared.len());
    for declared in declared.iter().filter(|v| v["served"] == true) {
        let mut problems = FieldErrors::default();
        versions.extend(version(declared, &mut problems));
        if !problems.is_empty() {
            // Another version of this server accepted the schema. Parts that this version does not
            // understand are not enforced.
            tracing::warn!(
                definition = format!("{plural}.{group}"),
                version = declared["name"].as_str(),
                problems = problems.lines().join("; "),
                "A part of a definition's schema is not enforced",
            );
        }
    }
    if versions.is_empty() {
        return None;
    }
    Some(Resource {
        collection: format!("{plural}.{group}").into(),
        kind: text("/status/acceptedNames/kind"),
        list_kind: text("/status/acceptedNames/listKind"),
        singular: text("/status/acceptedNames/singular"),
        short_names: strings("/status/acceptedNames/shortNames"),
        categories: strings("/status/acceptedNames/categories"),
        namespaced: text("/spec/scope") == "Namespaced",
        storage_version: storage,
        versions,
        behaviour: Behaviour::Custom,
        group,
        plural,
    })
}

/// Parses one version. The definition was validated when it was stored. Parts that are invalid now
/// are left out and reported in `problems`.
fn version(declared: &Value, problems: &mut FieldErrors) -> Option<Version> {
    let published = declared.pointer("/schema/openAPIV3Schema")?;
    let schema = Schema::parse(published, "openAPIV3Schema", problems);
    let fields = declared.get("selectableFields").and_then(Value::as_array).into_iter().flatten();
    Some(Version {
        name: declared["name"].as_str()?.to_owned(),
        schema: Arc::new(schema),
        has_status: declared.pointer("/subresources/status").is_some_and(Value::is_object),
        scale: declared.pointer("/subresources/scale").and_then(scale_paths),
        fields: fields
            .filter_map(|f| f["jsonPath"].as_str())
            .map(|path| path.trim_start_matches('.').to_owned())
            .map(|path| (path.clone(), path))
            .collect(),
        columns: table::custom::parse(declared),
        declared: Some(Arc::new(published.clone())),
    })
}

fn scale_paths(scale: &Value) -> Option<ScalePaths> {
    let path = |key: &str| -> Option<Vec<String>> {
        let text = scale.get(key)?.as_str()?;
        Some(text.trim_start_matches('.').split('.').map(str::to_owned).collect())
    };
    Some(ScalePaths {
        spec_replicas: path("specReplicasPath")?,
        status_replicas: path("statusReplicasPath")?,
        selector: path("labelSelectorPath").map_or(ScaleSelector::None, ScaleSelector::Text),
    })
}

/// Names in use by the definitions of a group.
#[derive(Debug, Default)]
pub(crate) struct Taken {
    resources: BTreeSet<String>,
    kinds: BTreeSet<String>,
}

impl Taken {
    /// Adds the names of a definition, if it belongs to this group.
    pub(crate) fn add(&mut self, group: &str, definition: &Value) {
        let names = definition.pointer("/status/acceptedNames");
        let Some(names) = names.filter(|_| group_and_plural(definition).0 == group) else { return };
        let text = |key: &str| names.get(key).and_then(Value::as_str).map(str::to_owned);
        self.resources.extend(["plural", "singular"].into_iter().filter_map(text));
        self.resources.extend(short_names(Some(names)).map(str::to_owned));
        self.kinds.extend(["kind", "listKind"].into_iter().filter_map(text));
    }
}

fn short_names(names: Option<&Value>) -> impl Iterator<Item = &str> {
    let list = names.and_then(|names| names.get("shortNames")).and_then(Value::as_array);
    list.into_iter().flatten().filter_map(Value::as_str)
}

/// Returns the definition with its conditions and accepted names, or `None` if nothing changes.
pub(crate) fn established(definition: &Object, taken: &Taken, now: &str) -> Option<Value> {
    let mut value = definition.value().clone();
    if object::is_deleting(&value) {
        return None;
    }
    let wanted = value.pointer("/spec/names").cloned().unwrap_or(Value::Null);
    let status = child_map(&mut value, "status");
    let held = status.get("acceptedNames").cloned().unwrap_or(Value::Null);
    let (given, conflict) = give_names(&wanted, &held, taken);
    status.insert("acceptedNames".into(), given);
    match &conflict {
        None => {
            set_condition(status, now, "NamesAccepted", "True", "NoConflicts", "no conflicts found");
            set_condition(
                status,
                now,
                "Established",
                "True",
                "InitialNamesAccepted",
                "the initial names have been accepted",
            );
        }
        Some((reason, why)) => {
            set_condition(status, now, "NamesAccepted", "False", reason, why);
            // An established resource stays served under its current names.
            if !has_condition(status, "Established") {
                let why = "not all names are accepted";
                set_condition(status, now, "Established", "False", "NotAccepted", why);
            }
        }
    }
    (value != *definition.value()).then_some(value)
}

/// Accepts the wanted names that are free. For each other name the current one stays. Also returns
/// the last conflict.
fn give_names(wanted: &Value, held: &Value, taken: &Taken) -> (Value, Option<(&'static str, String)>) {
    let mut given = held.as_object().cloned().unwrap_or_default();
    let mut conflict = None;
    let text = |names: &Value, key: &str| names[key].as_str().unwrap_or_default().to_owned();
    let in_use = |name: &str| format!("\"{name}\" is already in use");
    let mut give =
        |key: &'static str, reason: &'static str, used: &BTreeSet<String>, conflict: &mut Option<_>| {
            let name = text(wanted, key);
            if name != text(held, key) && used.contains(&name) {
                *conflict = Some((reason, in_use(&name)));
            } else {
                given.insert(key.to_owned(), json!(name));
            }
        };
    give("plural", "PluralConflict", &taken.resources, &mut conflict);
    give("singular", "SingularConflict", &taken.resources, &mut conflict);
    let own: Vec<&str> = short_names(Some(held)).collect();
    let used: Vec<String> = short_names(Some(wanted))
        .filter(|name| !own.contains(name) && taken.resources.contains(*name))
        .map(in_use)
        .collect();
    match used.as_slice() {
        [] => {}
        [only] => conflict = Some(("ShortNamesConflict", only.clone())),
        many => conflict = Some(("ShortNamesConflict", format!("[{}]", many.join(", ")))),
    }
    give("kind", "KindConflict", &taken.kinds, &mut conflict);
    give("listKind", "ListKindConflict", &taken.kinds, &mut conflict);
    let mut copied = vec!["categories"];
    copied.extend(used.is_empty().then_some("shortNames"));
    for key in copied {
        match wanted.get(key) {
            Some(list) => given.insert(key.to_owned(), list.clone()),
            None => given.remove(key),
        };
    }
    (Value::Object(given), conflict)
}

fn has_condition(status: &serde_json::Map<String, Value>, kind: &str) -> bool {
    let conditions = status.get("conditions").and_then(Value::as_array);
    conditions.is_some_and(|list| list.iter().any(|condition| condition["type"] == kind))
}

/// Whether a definition waits for a name that another definition uses.
pub(crate) fn waits_for_names(definition: &Value) -> bool {
    let conditions = definition.pointer("/status/conditions").and_then(Value::as_array);
    conditions.is_some_and(|list| list.iter().any(|c| c["type"] == "NamesAccepted" && c["status"] == "False"))
}

/// Returns the group and the plural that a definition names.
pub(crate) fn group_and_plural(definition: &Value) -> (&str, &str) {
    let text = |pointer: &str| definition.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
    (text("/spec/group"), text("/spec/names/plural"))
}

/// Whether the resource of a definition must be served.
pub(crate) fn is_established(definition: &Value) -> bool {
    let conditions = definition.pointer("/status/conditions").and_then(Value::as_array);
    conditions.is_some_and(|list| list.iter().any(|c| c["type"] == "Established" && c["status"] == "True"))
}

/// Sets a condition in a definition's status. The transition time changes only if the condition
/// changes.
pub(crate) fn set_condition(
    status: &mut serde_json::Map<String, Value>,
    now: &str,
    kind: &str,
    value: &str,
    reason: &str,
    message: &str,
) {
    let conditions = status.entry("conditions").or_insert(Value::Null);
    if !conditions.is_array() {
        *conditions = json!([]);
    }
    let Some(list) = conditions.as_array_mut() else { return };
    let held = list.iter().position(|c| c["type"] == kind);
    if held.is_some_and(|at| list[at]["status"] == value && list[at]["reason"] == reason) {
        return;
    }
    let condition = json!({
        "type": kind, "status": value, "reason": reason, "message": message, "lastTransitionTime": now
    });
    match held {
        Some(at) => list[at] = condition,
        None => list.push(condition),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rule_that_no_longer_compiles_is_reported_and_skipped() {
        let declared = json!({ "name": "v1", "schema": { "openAPIV3Schema": { "type": "object", "properties": { "spec": {
            "type": "object", "properties": { "n": { "type": "integer" } }, "x-kubernetes-validations": [
                { "rule": "self.n.unheardOf() > 0" },
                { "rule": "self.n > 0" },
            ],
        } } } } });
        let mut problems = FieldErrors::default();
        let version = version(&declared, &mut problems).expect("the version is still served");
        let [problem] = &*problems.lines() else { panic!("{:?}", problems.lines()) };
        assert!(
            problem.starts_with("openAPIV3Schema.properties[spec].x-kubernetes-validations[0].rule: "),
            "{problem}"
        );
        assert!(problem.contains("unheardOf"), "{problem}");
        assert_eq!(version.schema.property("spec").map(|spec| spec.rules.len()), Some(1));
    }
}
