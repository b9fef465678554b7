//! CustomResourceDefinitions as objects. What they make servable is in `crd::registration`.

use serde_json::{Map, Value, json};

use crate::crd::registration;
use crate::kinds::{Context, Part, Rules};
use crate::meta::{NameRule, name_problems};
use crate::object::{self, child_map, drop_field, meta_str};
use crate::status::{ApiResult, FieldErrors};

/// Where definitions lie in the store.
pub(crate) const TABLE: &str = "customresourcedefinitions";
/// Keeps a deleted definition until its instances are gone.
pub(crate) const INSTANCES_FINALIZER: &str = "customresourcecleanup.apiextensions.k8s.io";

pub(crate) struct CustomResourceDefinitions;

impl Rules for CustomResourceDefinitions {
    fn takes_plain_finalizers(&self) -> bool {
        true
    }

    fn fill_defaults(&self, object: &mut Value) {
        default_names(object);
    }

    fn on_create(&self, object: &mut Value, _context: &Context<'_>) -> ApiResult<()> {
        drop_field(object, "status");
        let storage = storage_version(object);
        object["status"] = json!({
            "conditions": Value::Null,
            "acceptedNames": {"plural": "", "kind": ""},
            "storedVersions": storage.map_or_else(Vec::new, |v| vec![v]),
        });
        Ok(())
    }

    fn on_update(&self, new: &mut Value, _old: &Value, part: Part, _context: &Context<'_>) -> ApiResult<()> {
        if let (Part::Main, Some(storage)) = (part, storage_version(new)) {
            let status = child_map(new, "status");
            let stored = status.entry("storedVersions").or_insert_with(|| json!([]));
            if let Some(stored) = stored.as_array_mut()
                && !stored.iter().any(|v| *v == storage)
            {
                stored.push(json!(storage));
            }
        }
        Ok(())
    }

    fn is_only_marked(&self, object: &Value) -> bool {
        !object::is_deleting(object)
    }

    /// From now on the definition waits for its instances.
    fn on_delete(&self, object: &mut Value, now: &str) {
        let mut finalizers: Vec<String> = object::finalizers(object).into_iter().map(str::to_owned).collect();
        if !finalizers.iter().any(|f| f == INSTANCES_FINALIZER) {
            finalizers.push(INSTANCES_FINALIZER.to_owned());
        }
        object::set_meta(object, "finalizers", Some(json!(finalizers)));
        registration::set_condition(
            child_map(object, "status"),
            now,
            "Terminating",
            "True",
            "InstanceDeletionPending",
            "CustomResourceDefinition marked for deletion; CustomResource deletion will begin soon",
        );
    }

    fn validate(&self, object: &Value, old: Option<&Value>, part: Part, errors: &mut FieldErrors) {
        if part != Part::Main {
            return;
        }
        validate_spec(object, errors);
        if let Some(old) = old {
            for (pointer, field) in [
                ("/spec/group", "spec.group"),
                ("/spec/names/plural", "spec.names.plural"),
                ("/spec/scope", "spec.scope"),
                ("/spec/names/kind", "spec.names.kind"),
            ] {
                if object.pointer(pointer) != old.pointer(pointer) {
                    let value = object.pointer(pointer).cloned().unwrap_or(Value::Null);
                    errors.invalid(field, value, "field is immutable");
                }
            }
        }
    }
}

fn default_names(object: &mut Value) {
    let Some(names) = object.pointer_mut("/spec/names").and_then(Value::as_object_mut) else { return };
    let kind = names.get("kind").and_then(Value::as_str).unwrap_or_default().to_owned();
    let absent = |names: &Map<String, Value>, key: &str| {
        names.get(key).and_then(Value::as_str).unwrap_or_default().is_empty()
    };
    if absent(names, "singular") {
        names.insert("singular".into(), json!(kind.to_lowercase()));
    }
    if absent(names, "listKind") {
        names.insert("listKind".into(), json!(format!("{kind}List")));
    }
}

fn versions(object: &Value) -> &[Value] {
    object.pointer("/spec/versions").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
}

fn storage_version(object: &Value) -> Option<String> {
    let storage = versions(object).iter().find(|v| v["storage"] == true)?;
    storage["name"].as_str().map(str::to_owned)
}

fn validate_spec(object: &Value, errors: &mut FieldErrors) {
    let text = |pointer: &str| object.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
    let (group, plural) = (text("/spec/group"), text("/spec/names/plural"));
    let name = meta_str(object, "name");
    if name != format!("{plural}.{group}") {
        errors.invalid("metadata.name", json!(name), "must be spec.names.plural+\".\"+spec.group");
    }
    for (value, field, rule) in [
        (group, "spec.group", NameRule::Subdomain),
        (plural, "spec.names.plural", NameRule::Label),
        (text("/spec/names/singular"), "spec.names.singular", NameRule::Label),
    ] {
        if value.is_empty() {
            errors.required(field, "");
            continue;
        }
        for problem in name_problems(value, rule) {
            errors.invalid(field, json!(value), problem);
        }
    }
    if !group.is_empty() && !group.contains('.') {
        errors.invalid("spec.group", json!(group), "should be a domain with at least one dot");
    }
    if text("/spec/names/kind").is_empty() {
        errors.required("spec.names.kind", "");
    }
    let scopes = ["Cluster", "Namespaced"];
    if text("/spec/scope").is_empty() {
        errors.required("spec.scope", "");
    } else if !scopes.contains(&text("/spec/scope")) {
        errors.not_supported("spec.scope", json!(text("/spec/scope")), &scopes.map(str::to_owned));
    }
    if text("/spec/conversion/strategy") == "Webhook" {
        errors.not_supported("spec.conversion.strategy", json!("Webhook"), &["None".to_owned()]);
    }
    let stored = versions(object).iter().filter(|v| v["storage"] == true).count();
    if stored != 1 {
        errors.invalid(
            "spec.versions",
            Value::Array(versions(object).to_vec()),
            "must have exactly one version marked as storage version",
        );
    }
    if stored == 0 {
        errors.invalid("status.storedVersions", Value::Null, "must have at least one stored version");
    }
    for (index, version) in versions(object).iter().enumerate() {
        let place = format!("spec.versions[{index}]");
        if version["name"].as_str().unwrap_or_default().is_empty() {
            errors.required(format!("{place}.name"), "");
        }
        match version.pointer("/schema/openAPIV3Schema") {
            None | Some(Value::Null) => {
                errors.required(format!("{place}.schema.openAPIV3Schema"), "");
            }
            Some(schema) if versions(object).len() == 1 => {
                // A schema that all versions share is reported under its old place.
                registration::check_schema(schema, "spec.validation.openAPIV3Schema", errors);
            }
            Some(schema) => {
                registration::check_schema(schema, &format!("{place}.schema.openAPIV3Schema"), errors);
            }
        }
    }
}
