//! CustomResourceDefinitions as objects. `crd::registration` turns them into served resources.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

use crate::schema::crd::registration;
use crate::schema::crd::text_format::TextFormat;
use crate::schema::kinds::{Context, Part, Rules};
use crate::values::meta::{NameRule, label_1035_problem, name_problems};
use crate::values::object::{self, child_map, drop_field, meta_str};
use crate::values::status::{ApiResult, FieldErrorKind, FieldErrors};

/// Table of the definitions in the store.
pub(crate) const COLLECTION: &str = "customresourcedefinitions";
/// Finalizer that keeps a deleted definition until its instances are deleted.
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

    /// Makes the deleted definition wait for its instances.
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
        if old.is_none() {
            validate_name(object, errors);
        }
        validate_spec(object, errors);
        validate_approval(object, old, errors);
        let Some(old) = old else { return };
        // The kind and the scope may change until the definition is served.
        let is_served = registration::is_established(old);
        for (pointer, field, is_free) in [
            ("/spec/scope", "spec.scope", !is_served),
            ("/spec/names/kind", "spec.names.kind", !is_served),
            ("/spec/group", "spec.group", false),
            ("/spec/names/plural", "spec.names.plural", false),
        ] {
            if !is_free && object.pointer(pointer) != old.pointer(pointer) {
                let value = object.pointer(pointer).cloned().unwrap_or(Value::Null);
                errors.invalid(field, value, "field is immutable");
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

fn validate_name(object: &Value, errors: &mut FieldErrors) {
    let (group, plural) = registration::group_and_plural(object);
    let name = meta_str(object, "name");
    if name != format!("{plural}.{group}") {
        errors.invalid("metadata.name", json!(name), "must be spec.names.plural+\".\"+spec.group");
    }
}

fn validate_spec(object: &Value, errors: &mut FieldErrors) {
    let text = |pointer: &str| object.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
    let group = text("/spec/group");
    let problems = name_problems(group, NameRule::Subdomain);
    if group.is_empty() {
        errors.required("spec.group", "");
    } else if !problems.is_empty() {
        errors.invalid("spec.group", json!(group), problems.join(","));
    } else if !group.contains('.') {
        errors.invalid("spec.group", json!(group), "should be a domain with at least one dot");
    }
    let scopes = ["Cluster", "Namespaced"];
    if text("/spec/scope").is_empty() {
        errors.required("spec.scope", "");
    } else if !scopes.contains(&text("/spec/scope")) {
        errors.not_supported("spec.scope", json!(text("/spec/scope")), &scopes.map(str::to_owned));
    }
    validate_names(object.pointer("/spec/names").unwrap_or(&Value::Null), errors);
    if text("/spec/conversion/strategy") == "Webhook" {
        errors.not_supported("spec.conversion.strategy", json!("Webhook"), &["None".to_owned()]);
    }
    let stored = versions(object).iter().filter(|v| v["storage"] == true).count();
    let mut complain =
        |why: &str| errors.invalid("spec.versions", Value::Array(versions(object).to_vec()), why);
    let names: BTreeSet<&str> = versions(object).iter().filter_map(|v| v["name"].as_str()).collect();
    if names.len() < versions(object).len() {
        complain("must contain unique version names");
    }
    if stored != 1 {
        complain("must have exactly one version marked as storage version");
    }
    if stored == 0 {
        errors.invalid("status.storedVersions", Value::Null, "must have at least one stored version");
    }
    for (index, version) in versions(object).iter().enumerate() {
        let place = format!("spec.versions[{index}]");
        let name = version["name"].as_str().unwrap_or_default();
        if let Some(why) = label_1035_problem(name) {
            errors.invalid(format!("{place}.name"), json!(name), why.as_str());
            if index == 0 {
                // The error is also reported at the field that existed when a definition had one
                // version.
                errors.invalid("spec.version", json!(name), why);
            }
        }
        if version.pointer("/schema/openAPIV3Schema").is_none_or(Value::is_null) {
            errors.required(format!("{place}.schema.openAPIV3Schema"), "");
        }
    }
    validate_parts(versions(object), errors);
}

/// Validates the parts of each version except its name. A part that is equal in all versions is
/// reported once, at the field that existed when a definition had one version.
fn validate_parts(versions: &[Value], errors: &mut FieldErrors) {
    let part = |version: &Value, key: &str| version.get(key).cloned().unwrap_or(Value::Null);
    for (key, old_place) in [
        ("schema", "spec.validation"),
        ("subresources", "spec.subresources"),
        ("additionalPrinterColumns", "spec.additionalPrinterColumns"),
        ("selectableFields", "spec.selectableFields"),
    ] {
        let is_shared = versions.windows(2).all(|two| part(&two[0], key) == part(&two[1], key));
        let told = if is_shared { 1 } else { versions.len() };
        for (index, version) in versions.iter().take(told).enumerate() {
            let place =
                if is_shared { old_place.to_owned() } else { format!("spec.versions[{index}].{key}") };
            match (key, &part(version, key)) {
                ("schema", schema) => {
                    if let Some(schema) = schema.get("openAPIV3Schema").filter(|schema| !schema.is_null()) {
                        registration::check_schema(schema, &format!("{place}.openAPIV3Schema"), errors);
                    }
                }
                ("subresources", subresources) => {
                    if let Some(scale) = subresources.get("scale").filter(|scale| scale.is_object()) {
                        validate_scale(scale, &place, errors);
                    }
                }
                ("additionalPrinterColumns", Value::Array(columns)) => {
                    for (index, column) in columns.iter().enumerate() {
                        validate_column(column, &format!("{place}[{index}]"), errors);
                    }
                }
                ("selectableFields", Value::Array(fields)) => {
                    let schema = version.pointer("/schema/openAPIV3Schema").unwrap_or(&Value::Null);
                    validate_selectable(fields, schema, &place, errors);
                }
                _ => {}
            }
        }
    }
}

fn validate_names(names: &Value, errors: &mut FieldErrors) {
    let text = |key: &str| names.get(key).and_then(Value::as_str).unwrap_or_default();
    for key in ["plural", "singular", "kind", "listKind"] {
        let (name, place) = (text(key), format!("spec.names.{key}"));
        let is_kind = matches!(key, "kind" | "listKind");
        match label_1035_problem(&if is_kind { name.to_lowercase() } else { name.to_owned() }) {
            _ if name.is_empty() => errors.required(place, ""),
            Some(why) if is_kind => {
                let why = format!("may have mixed case, but should otherwise match: {why}");
                errors.invalid(place, json!(name), why);
            }
            Some(why) => errors.invalid(place, json!(name), why),
            None => {}
        }
    }
    if !text("kind").is_empty() && text("kind") == text("listKind") {
        errors.invalid("spec.names.listKind", json!(text("kind")), "kind and listKind may not be the same");
    }
    for key in ["shortNames", "categories"] {
        let list = names.get(key).and_then(Value::as_array).into_iter().flatten();
        for (index, name) in list.enumerate() {
            if let Some(why) = label_1035_problem(name.as_str().unwrap_or_default()) {
                errors.invalid(format!("spec.names.{key}[{index}]"), name.clone(), why);
            }
        }
    }
}

/// Whether a text is a path of fields. Reports a problem otherwise.
fn is_path(path: &str, place: &str, errors: &mut FieldErrors) -> bool {
    let is_path = path.starts_with('.');
    if !is_path {
        errors.invalid(place, json!(path), "must be a simple json path starting with .");
    }
    is_path
}

fn validate_scale(scale: &Value, place: &str, errors: &mut FieldErrors) {
    for (key, roots, why) in [
        ("specReplicasPath", &[".spec."][..], "should be a json path under .spec"),
        ("statusReplicasPath", &[".status."], "should be a json path under .status"),
        ("labelSelectorPath", &[".spec.", ".status."], "should be a json path under either .spec or .status"),
    ] {
        let (path, place) = (scale[key].as_str().unwrap_or_default(), format!("{place}.scale.{key}"));
        if path.is_empty() {
            if key != "labelSelectorPath" {
                errors.required(place, "");
            }
        } else if is_path(path, &place, errors) && !roots.iter().any(|root| path.starts_with(root)) {
            errors.invalid(place, json!(path), why);
        }
    }
}

const COLUMN_TYPES: [&str; 5] = ["boolean", "date", "integer", "number", "string"];
const COLUMN_FORMATS: [&str; 8] =
    ["byte", "date", "date-time", "double", "float", "int32", "int64", "password"];

fn validate_column(column: &Value, place: &str, errors: &mut FieldErrors) {
    let text = |key: &str| column.get(key).and_then(Value::as_str).unwrap_or_default();
    let one_of = |names: &[&str]| format!("must be one of {}", names.join(","));
    if text("name").is_empty() {
        errors.required(format!("{place}.name"), "");
    }
    if text("type").is_empty() {
        errors.required(format!("{place}.type"), one_of(&COLUMN_TYPES));
    } else if !COLUMN_TYPES.contains(&text("type")) {
        errors.invalid(format!("{place}.type"), json!(text("type")), one_of(&COLUMN_TYPES));
    }
    if !text("format").is_empty() && !COLUMN_FORMATS.contains(&text("format")) {
        errors.invalid(format!("{place}.format"), json!(text("format")), one_of(&COLUMN_FORMATS));
    }
    let at = format!("{place}.JSONPath");
    if text("jsonPath").is_empty() {
        errors.required(at, "");
    } else {
        is_path(text("jsonPath"), &at, errors);
    }
}

/// Maximum number of selectable fields.
const MAX_SELECTABLE: usize = 8;

fn validate_selectable(fields: &[Value], schema: &Value, place: &str, errors: &mut FieldErrors) {
    let mut seen = BTreeSet::new();
    for (index, field) in fields.iter().enumerate() {
        let (path, place) =
            (field["jsonPath"].as_str().unwrap_or_default(), format!("{place}[{index}].jsonPath"));
        if path.is_empty() {
            errors.required(place, "");
            continue;
        }
        let found = match field_at(schema, path) {
            Ok(found) => found,
            Err(why) => {
                errors.invalid(place, json!(path), format!("is an invalid path: {why}"));
                continue;
            }
        };
        if path.starts_with(".metadata.") {
            errors.invalid(place.clone(), json!(path), "must not point to fields in metadata");
        }
        if !matches!(found["type"].as_str(), Some("string" | "boolean" | "integer")) {
            let why = "must point to a field of type string, boolean or integer. Enum string fields and strings with formats \
                       are allowed.";
            errors.invalid(place.clone(), json!(path), why);
        }
        if !seen.insert(path) {
            errors.duplicate(place, json!(path));
        }
    }
    if MAX_SELECTABLE < seen.len() {
        let why = format!("must have at most {MAX_SELECTABLE} items");
        errors.push(FieldErrorKind::TooMany, place, Some(json!(seen.len())), why);
    }
}

/// Returns the schema of the field at a path.
fn field_at<'a>(schema: &'a Value, path: &str) -> Result<&'a Value, String> {
    let Some(steps) = path.strip_prefix('.') else {
        let first = path.split(['.', '[']).next().unwrap_or_default();
        return Err(format!("expected [ or . but got: {first}"));
    };
    steps.split('.').try_fold(schema, |at, step| {
        let found = at.get("properties").and_then(|below| below.get(step));
        found
            .or_else(|| at.get("additionalProperties").filter(|below| below.is_object()))
            .ok_or_else(|| "does not refer to a valid field".to_owned())
    })
}

/// Annotation that names the document in which the Kubernetes community approved a definition.
const APPROVED: &str = "api-approved.kubernetes.io";

/// Definitions in the groups of the Kubernetes community need its approval. A stored definition
/// without approval is accepted until the approval changes.
fn validate_approval(object: &Value, old: Option<&Value>, errors: &mut FieldErrors) {
    let group = object.pointer("/spec/group").and_then(Value::as_str).unwrap_or_default();
    let is_protected = ["k8s.io", "kubernetes.io"]
        .iter()
        .any(|suffix| group == *suffix || group.ends_with(&format!(".{suffix}")));
    if !is_protected || old.is_some_and(|old| approval(old) == approval(object)) {
        return;
    }
    let place = format!("metadata.annotations[{APPROVED}]");
    let wanted = format!("protected groups must have approval annotation \"{APPROVED}\"");
    let see = "see https://github.com/kubernetes/enhancements/pull/1111";
    match approval(object) {
        Approval::Given | Approval::Bypassed => {}
        Approval::Missing => errors.required(place, format!("{wanted}, {see}")),
        Approval::Wrong => {
            let why = format!("{wanted} with either a URL or a reason starting with \"unapproved\", {see}");
            errors.invalid(place, json!(approved_in(object)), why);
        }
    }
}

#[derive(PartialEq, Eq)]
enum Approval {
    Missing,
    Bypassed,
    Given,
    Wrong,
}

fn approval(object: &Value) -> Approval {
    let text = approved_in(object);
    let has_host = text.split_once("://").is_some_and(|(_, rest)| !rest.is_empty() && !rest.starts_with('/'));
    match text {
        "" => Approval::Missing,
        text if text.starts_with("unapproved") => Approval::Bypassed,
        text if has_host && TextFormat::Uri.admits(text) => Approval::Given,
        _ => Approval::Wrong,
    }
}

fn approved_in(object: &Value) -> &str {
    let annotations = object::metadata(object).and_then(|metadata| metadata.get("annotations"));
    annotations.and_then(|annotations| annotations.get(APPROVED)).and_then(Value::as_str).unwrap_or_default()
}
