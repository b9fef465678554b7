//! Common parts of pods and pod templates: defaults that a row cannot express, and checks.

use std::collections::HashSet;

use serde_json::{Map, Value, json};

use crate::values::meta::{NameRule, name_problems};
use crate::values::status::FieldErrors;

/// Sets the defaults of a pod's specification, in a pod or in a template.
pub(crate) fn fill_spec(spec: &mut Map<String, Value>) {
    for list in ["containers", "initContainers", "ephemeralContainers"] {
        for container in items_mut(spec, list) {
            default_pull_policy(container);
        }
    }
    for volume in items_mut(spec, "volumes") {
        // A volume without a source is an empty directory.
        if let Some(volume) = volume.as_object_mut().filter(|volume| volume.keys().all(|key| key == "name")) {
            volume.insert("emptyDir".into(), json!({}));
        }
    }
    if let Some(account) = spec.get("serviceAccountName").cloned() {
        spec.insert("serviceAccount".into(), account);
    }
}

/// Sets the defaults of a pod that its template does not have yet.
pub(crate) fn fill_pod(spec: &mut Map<String, Value>) {
    spec.entry("enableServiceLinks").or_insert(json!(true));
    let on_host = spec.get("hostNetwork") == Some(&Value::Bool(true));
    for list in ["containers", "initContainers"] {
        for container in items_mut(spec, list) {
            request_what_is_limited(container);
            for port in container.get_mut("ports").and_then(Value::as_array_mut).into_iter().flatten() {
                if let (true, None, Some(number)) =
                    (on_host, port.get("hostPort"), port.get("containerPort").cloned())
                {
                    port["hostPort"] = number;
                }
            }
        }
    }
}

fn items_mut<'a>(spec: &'a mut Map<String, Value>, list: &str) -> impl Iterator<Item = &'a mut Value> {
    spec.get_mut(list).and_then(Value::as_array_mut).into_iter().flatten()
}

/// Sets missing resource requests to the limits.
fn request_what_is_limited(container: &mut Value) {
    let Some(limits) = container.pointer("/resources/limits").and_then(Value::as_object).cloned() else {
        return;
    };
    let requests = crate::values::object::child_value(
        crate::values::object::child_value(container, "resources"),
        "requests",
    );
    if let Some(requests) = requests.as_object_mut() {
        for (resource, limit) in limits {
            requests.entry(resource).or_insert(limit);
        }
    }
}

fn default_pull_policy(container: &mut Value) {
    let image = container.get("image").and_then(Value::as_str).unwrap_or_default();
    let tag = image.rsplit('/').next().and_then(|last| last.split_once(':')).map(|(_, tag)| tag);
    let floating = !image.contains('@') && tag.is_none_or(|tag| tag == "latest");
    if let Some(container) = container.as_object_mut() {
        let policy = if floating { "Always" } else { "IfNotPresent" };
        container.entry("imagePullPolicy").or_insert(json!(policy));
    }
}

/// Validates the containers of the specification at `place`.
pub(crate) fn validate_containers(spec: Option<&Value>, place: &str, errors: &mut FieldErrors) {
    let containers = spec.and_then(|spec| spec.get("containers")).and_then(Value::as_array);
    let Some(containers) = containers.filter(|list| !list.is_empty()) else {
        errors.required(format!("{place}.containers"), "");
        return;
    };
    let mut names = HashSet::new();
    for (index, container) in containers.iter().enumerate() {
        let text = |key: &str| container.get(key).and_then(Value::as_str).unwrap_or_default();
        let place = format!("{place}.containers[{index}]");
        if text("name").is_empty() {
            errors.required(format!("{place}.name"), "");
        } else {
            for problem in name_problems(text("name"), NameRule::Label) {
                errors.invalid(format!("{place}.name"), json!(text("name")), problem);
            }
            if !names.insert(text("name")) {
                errors.duplicate(format!("{place}.name"), json!(text("name")));
            }
        }
        if text("image").is_empty() {
            errors.required(format!("{place}.image"), "");
        }
    }
}
