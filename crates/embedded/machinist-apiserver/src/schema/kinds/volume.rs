//! PersistentVolumes, PersistentVolumeClaims and VolumeAttachments. This server does not bind,
//! create or attach volumes.
//!
//! Not included: the difference that Go prints if an update changes a field that must not change.

use serde_json::{Map, Value, json};

use crate::schema::kinds::{Context, Part, Rules};
use crate::values::meta::{IMMUTABLE, NameRule, name_problems};
use crate::values::object::{child_map, copy_field, finalizers, meta_str, set_meta};
use crate::values::quantity;
use crate::values::status::{ApiError, ApiResult, FieldErrorKind, FieldErrors, Target};

/// Finalizers. Controllers remove them when a volume is not bound and a claim is not mounted.
const VOLUME_PROTECTION: &str = "kubernetes.io/pv-protection";
const CLAIM_PROTECTION: &str = "kubernetes.io/pvc-protection";

const ACCESS_MODES: [&str; 4] = ["ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod"];

pub(crate) struct PersistentVolumes;

impl Rules for PersistentVolumes {
    fn on_create(&self, object: &mut Value, context: &Context<'_>) -> ApiResult<()> {
        object["status"] = json!({"phase": "Pending", "lastPhaseTransitionTime": context.now});
        protect(object, VOLUME_PROTECTION);
        Ok(())
    }

    fn on_update(&self, new: &mut Value, old: &Value, part: Part, context: &Context<'_>) -> ApiResult<()> {
        if part == Part::Status && new["status"]["phase"] != old["status"]["phase"] {
            let status = child_map(new, "status");
            if status.get("lastPhaseTransitionTime") == old["status"].get("lastPhaseTransitionTime") {
                status.insert("lastPhaseTransitionTime".into(), json!(context.now));
            }
        }
        Ok(())
    }

    fn validate(&self, object: &Value, old: Option<&Value>, part: Part, errors: &mut FieldErrors) {
        if part == Part::Status {
            return;
        }
        let spec = &object["spec"];
        validate_access_modes(spec, "", errors);
        match spec.get("capacity").and_then(Value::as_object).filter(|capacity| !capacity.is_empty()) {
            None => {
                errors.required("spec.capacity", "");
                errors.not_supported("spec.capacity", spec["capacity"].clone(), &["storage".to_owned()]);
            }
            Some(capacity) if capacity.len() != 1 || !capacity.contains_key("storage") => {
                errors.not_supported("spec.capacity", spec["capacity"].clone(), &["storage".to_owned()]);
            }
            Some(_) => {}
        }
        errors.check_one_of(
            "spec.persistentVolumeReclaimPolicy",
            spec.get("persistentVolumeReclaimPolicy"),
            &["Delete", "Recycle", "Retain"],
        );
        let sources = sources(spec);
        if sources.is_empty() {
            errors.required("spec", "must specify a volume type");
        }
        for extra in sources.iter().skip(1) {
            errors.forbidden(format!("spec.{extra}"), "may not specify more than 1 volume type");
        }
        errors.check_one_of("spec.volumeMode", spec.get("volumeMode"), &["Block", "Filesystem"]);
        let Some(old) = old.map(|old| &old["spec"]) else { return };
        let before = self::sources(old);
        if sources != before || sources.iter().any(|source| spec[*source] != old[*source]) {
            errors.forbidden(
                "spec.persistentvolumesource",
                "spec.persistentvolumesource is immutable after creation",
            );
        }
        if spec["volumeMode"] != old["volumeMode"] {
            errors.invalid("volumeMode", spec["volumeMode"].clone(), IMMUTABLE);
        }
    }
}

/// Returns the fields of a volume's specification that define its source.
fn sources(spec: &Value) -> Vec<&str> {
    const OTHERS: [&str; 9] = [
        "capacity",
        "accessModes",
        "claimRef",
        "persistentVolumeReclaimPolicy",
        "storageClassName",
        "mountOptions",
        "volumeMode",
        "nodeAffinity",
        "volumeAttributesClassName",
    ];
    let fields = spec.as_object().into_iter().flatten();
    fields.map(|(field, _)| field.as_str()).filter(|field| !OTHERS.contains(field)).collect()
}

fn validate_access_modes(spec: &Value, missing: &str, errors: &mut FieldErrors) {
    let modes = spec.get("accessModes").and_then(Value::as_array).cloned().unwrap_or_default();
    if modes.is_empty() {
        errors.required("spec.accessModes", missing);
    }
    for mode in &modes {
        errors.check_one_of("spec.accessModes", Some(mode), &ACCESS_MODES);
    }
    let alone = |mode: &&Value| **mode == "ReadWriteOncePod";
    if modes.iter().any(|mode| alone(&mode)) && !modes.iter().all(|mode| alone(&mode)) {
        errors.forbidden("spec.accessModes", "may not use ReadWriteOncePod with other access modes");
    }
}

pub(crate) struct PersistentVolumeClaims;

impl Rules for PersistentVolumeClaims {
    fn on_create(&self, object: &mut Value, _context: &Context<'_>) -> ApiResult<()> {
        object["status"] = json!({"phase": "Pending"});
        name_source_twice(child_map(object, "spec"));
        protect(object, CLAIM_PROTECTION);
        Ok(())
    }

    fn on_update(&self, new: &mut Value, old: &Value, part: Part, _context: &Context<'_>) -> ApiResult<()> {
        if part == Part::Main { admit_size(new, old) } else { Ok(()) }
    }

    fn validate(&self, object: &Value, old: Option<&Value>, part: Part, errors: &mut FieldErrors) {
        if part == Part::Status {
            return;
        }
        let spec = &object["spec"];
        validate_access_modes(spec, "at least 1 access mode is required", errors);
        if spec.pointer("/resources/requests/storage").is_none() {
            errors.required("spec.resources[storage]", "");
        }
        if let Some(class) =
            spec.get("storageClassName").and_then(Value::as_str).filter(|class| !class.is_empty())
        {
            for problem in name_problems(class, NameRule::Subdomain) {
                errors.invalid("spec.storageClassName", json!(class), problem);
            }
        }
        errors.check_one_of("spec.volumeMode", spec.get("volumeMode"), &["Block", "Filesystem"]);
        let Some(old) = old else { return };
        if kept_spec(object, old) != old["spec"] {
            errors.forbidden(
                "spec",
                "spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims",
            );
        }
        if spec["volumeMode"] != old["spec"]["volumeMode"] {
            errors.invalid("volumeMode", spec["volumeMode"].clone(), IMMUTABLE);
        }
    }
}

/// Sets `dataSource` and `dataSourceRef` to the same source, unless the source names a namespace.
fn name_source_twice(spec: &mut Map<String, Value>) {
    match (spec.get("dataSource").cloned(), spec.get("dataSourceRef").cloned()) {
        (Some(source), None) => {
            spec.insert("dataSourceRef".into(), source);
        }
        (None, Some(source)) if source.get("namespace").is_none() => {
            spec.insert("dataSource".into(), source);
        }
        _ => {}
    }
}

/// The StorageObjectInUseProtection admission: an object in use is not deleted.
fn protect(object: &mut Value, finalizer: &str) {
    let mut finalizers: Vec<Value> = finalizers(object).into_iter().map(Value::from).collect();
    if !finalizers.iter().any(|held| held == finalizer) {
        finalizers.push(json!(finalizer));
        set_meta(object, "finalizers", Some(Value::Array(finalizers)));
    }
}

/// The PersistentVolumeClaimResize admission: a claim may grow only if its StorageClass allows it,
/// and no StorageClasses are served here.
fn admit_size(claim: &Value, old: &Value) -> ApiResult<()> {
    let size = |claim: &Value| {
        let size = claim.pointer("/spec/resources/requests/storage").and_then(Value::as_str);
        size.unwrap_or("0").to_owned()
    };
    if !quantity::is_more(&size(claim), &size(old)) {
        return Ok(());
    }
    let why = if old["status"]["phase"] == "Bound" {
        "only dynamically provisioned pvc can be resized and the storageclass that provisions the pvc must support resize"
    } else {
        "Only bound persistent volume claims can be expanded"
    };
    let name = meta_str(claim, "name");
    Err(ApiError::forbidden(&Target { group: "", resource: "persistentvolumeclaims", name }, why))
}

/// Returns the specification of a claim, with the old values of all fields that may change.
fn kept_spec(claim: &Value, old: &Value) -> Value {
    let mut kept = claim["spec"].clone();
    let before = &old["spec"];
    let was_unset = |field: &str| before.get(field).and_then(Value::as_str).unwrap_or_default().is_empty();
    if was_unset("volumeName") {
        copy_field(&mut kept, before, "volumeName");
    }
    if before.get("storageClassName").is_none() {
        copy_field(&mut kept, before, "storageClassName");
    }
    if claim["status"]["phase"] == "Bound" {
        copy_field(&mut kept, before, "volumeAttributesClassName");
        if let (Some(requests), Some(size)) = (
            kept.pointer_mut("/resources/requests").and_then(Value::as_object_mut),
            before.pointer("/resources/requests/storage"),
        ) {
            requests.insert("storage".into(), size.clone());
        }
    }
    kept
}

pub(crate) struct VolumeAttachments;

impl Rules for VolumeAttachments {
    fn on_create(&self, object: &mut Value, _context: &Context<'_>) -> ApiResult<()> {
        object["status"] = json!({"attached": false});
        Ok(())
    }

    fn validate(&self, object: &Value, old: Option<&Value>, part: Part, errors: &mut FieldErrors) {
        if part == Part::Status {
            return;
        }
        let spec = &object["spec"];
        if spec["attacher"].as_str().unwrap_or_default().is_empty() {
            errors.required("spec.attacher", "");
        }
        let node = spec["nodeName"].as_str().unwrap_or_default();
        for problem in name_problems(node, NameRule::Subdomain) {
            errors.invalid("spec.nodeName", json!(node), problem);
        }
        let source = |field: &str| spec["source"].get(field);
        let either = "must specify exactly one of inlineVolumeSpec and persistentVolumeName";
        match (source("inlineVolumeSpec"), source("persistentVolumeName")) {
            (None, None) => errors.required("spec.source", either),
            (Some(_), Some(_)) => errors.forbidden("spec.source", either),
            (Some(_), None) | (None, Some(_)) => {}
        }
        if old.is_some_and(|old| old["spec"] != *spec) {
            let shown = format!(
                "{{\"Attacher\":{},\"Source\":{{\"PersistentVolumeName\":{},\"InlineVolumeSpec\":{}}},\"NodeName\":{}}}",
                spec["attacher"],
                spec["source"]["persistentVolumeName"],
                spec["source"]["inlineVolumeSpec"],
                spec["nodeName"]
            );
            errors.push_shown(FieldErrorKind::Invalid, "spec", Some(shown), IMMUTABLE);
        }
    }
}
