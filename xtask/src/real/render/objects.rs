//! Objects of manifests, and the differences between two sets of them.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, Result, ensure};
use serde_json::Value;

/// Labels that only an installation by Helm has, wherever they are, selectors included.
const LABELS_OF_HELM: [&str; 3] =
    ["helm.sh/chart", "app.kubernetes.io/managed-by", "app.kubernetes.io/instance"];

/// Fields that a server sets, and that differ between two requests.
const FIELDS_OF_THE_SERVER: [&str; 5] =
    ["uid", "creationTimestamp", "resourceVersion", "generation", "managedFields"];

/// Objects by kind, namespace and name.
pub(super) type Objects = BTreeMap<String, Value>;

/// Parses the JSON objects that kubectl printed one after the other.
///
/// # Errors
/// If the text is not JSON, or has an object without a kind or a name, or twice.
pub(super) fn parse(text: &str) -> Result<Objects> {
    let mut objects = Objects::new();
    for value in serde_json::Deserializer::from_str(text).into_iter::<Value>() {
        let mut value = value.context("kubectl printed no JSON")?;
        let text_at = |path: &str| value.pointer(path).and_then(Value::as_str).map(str::to_owned);
        let kind = text_at("/kind").context("an object has no kind")?;
        let name = text_at("/metadata/name").with_context(|| format!("a {kind} has no name"))?;
        let namespace = text_at("/metadata/namespace").unwrap_or_default();
        let title = format!("{kind} {namespace}/{name}");
        normalise(&mut value);
        ensure!(objects.insert(title.clone(), value).is_none(), "{title} is rendered twice");
    }
    Ok(objects)
}

/// Removes what may differ between two descriptions of the same installation.
fn normalise(object: &mut Value) {
    if let Some(fields) = object.as_object_mut() {
        fields.remove("status");
        if let Some(metadata) = fields.get_mut("metadata").and_then(Value::as_object_mut) {
            FIELDS_OF_THE_SERVER.iter().for_each(|field| drop(metadata.remove(*field)));
        }
    }
    remove_labels(object);
}

fn remove_labels(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.retain(|name, _value| !LABELS_OF_HELM.contains(&name.as_str()));
            fields.values_mut().for_each(remove_labels);
        }
        Value::Array(items) => items.iter_mut().for_each(remove_labels),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// Returns one line for each difference.
pub(super) fn differences(left: &Objects, right: &Objects) -> Vec<String> {
    let mut found = Vec::new();
    let titles: BTreeSet<&String> = left.keys().chain(right.keys()).collect();
    for title in titles {
        compare(title, left.get(title), right.get(title), &mut found);
    }
    found
}

fn compare(path: &str, left: Option<&Value>, right: Option<&Value>, found: &mut Vec<String>) {
    match (left, right) {
        (Some(Value::Object(left)), Some(Value::Object(right))) => {
            let names: BTreeSet<&String> = left.keys().chain(right.keys()).collect();
            for name in names {
                compare(&format!("{path}.{name}"), left.get(name), right.get(name), found);
            }
        }
        (Some(Value::Array(left)), Some(Value::Array(right))) => {
            for index in 0..left.len().max(right.len()) {
                compare(&format!("{path}[{index}]"), left.get(index), right.get(index), found);
            }
        }
        (left, right) if left == right => {}
        (left, right) => {
            let text = |value: Option<&Value>| value.map_or_else(|| "absent".to_owned(), Value::to_string);
            found.push(format!("{path}: {} != {}", text(left), text(right)));
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn role(metadata: &Value, verbs: &Value) -> Objects {
        let role = json!({"kind": "Role", "metadata": metadata, "rules": [{"verbs": verbs}]});
        parse(&role.to_string()).expect("an object with a kind and a name")
    }

    #[test]
    fn a_changed_verb_is_a_difference() {
        let metadata = json!({"name": "a", "namespace": "b"});
        let (left, right) = (role(&metadata, &json!(["get"])), role(&metadata, &json!(["get", "update"])));
        assert_eq!(differences(&left, &right), [r#"Role b/a.rules[0].verbs[1]: absent != "update""#]);
        assert!(differences(&left, &left).is_empty());
    }

    #[test]
    fn an_object_on_one_side_is_a_difference() {
        let left = role(&json!({"name": "a"}), &json!([]));
        assert!(differences(&left, &Objects::new()).concat().starts_with("Role /a: {"));
    }

    #[test]
    fn labels_of_helm_and_server_fields_are_no_difference() {
        let plain = role(&json!({"name": "a", "uid": "1", "labels": {"app": "x"}}), &json!([]));
        let labels = json!({"app": "x", "helm.sh/chart": "c-1", "app.kubernetes.io/managed-by": "Helm"});
        let ours = role(&json!({"name": "a", "uid": "2", "labels": labels}), &json!([]));
        assert!(differences(&plain, &ours).is_empty(), "{:?}", differences(&plain, &ours));
    }

    #[test]
    fn an_object_that_is_rendered_twice_is_rejected() {
        let text = r#"{"kind": "Role", "metadata": {"name": "a"}}"#;
        let error = parse(&text.repeat(2)).expect_err("the same name twice").to_string();
        assert!(error.contains("Role /a is rendered twice"), "{error}");
    }
}
