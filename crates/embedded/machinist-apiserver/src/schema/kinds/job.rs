//! Jobs: the selector that is generated for them, and the rules for updates.

use serde_json::{Value, json};

use crate::schema::kinds::workload::{shown_selector, validate_label_selector, validate_match};
use crate::schema::kinds::{Context, Part, Rules, pod_template};
use crate::values::amount::not_negative;
use crate::values::meta::IMMUTABLE;
use crate::values::object::{child_map, child_value, labels, meta_str, metadata};
use crate::values::status::{ApiResult, FieldErrorKind, FieldErrors};

/// Labels of a Job's pods with its name and with its UID: first the old label without a prefix,
/// then the current one.
const NAME_LABELS: [&str; 2] = ["job-name", "batch.kubernetes.io/job-name"];
const UID_LABELS: [&str; 2] = ["controller-uid", "batch.kubernetes.io/controller-uid"];
/// Backoff limit of a Job that limits failures per index: no limit.
const NO_LIMIT: i32 = i32::MAX;

pub(crate) struct Jobs;

impl Rules for Jobs {
    fn fill_defaults(&self, object: &mut Value) {
        if let Some(spec) = object.pointer_mut("/spec/template/spec").and_then(Value::as_object_mut) {
            pod_template::fill_spec(spec);
        }
        let spec = child_map(object, "spec");
        if !spec.contains_key("parallelism") && !spec.contains_key("completions") {
            spec.insert("completions".into(), json!(1));
        }
        let limit = if spec.contains_key("backoffLimitPerIndex") { NO_LIMIT } else { 6 };
        let replaced_when =
            if spec.contains_key("podFailurePolicy") { "Failed" } else { "TerminatingOrFailed" };
        for (field, default) in [
            ("parallelism", json!(1)),
            ("backoffLimit", json!(limit)),
            ("podReplacementPolicy", json!(replaced_when)),
            ("manualSelector", json!(false)),
        ] {
            spec.entry(field).or_insert(default);
        }
        let given = object.pointer("/spec/template/metadata/labels").cloned();
        if let (Some(given), None) = (given, labels(object)) {
            *child_value(&mut object["metadata"], "labels") = given;
        }
    }

    fn on_create(&self, object: &mut Value, _context: &Context<'_>) -> ApiResult<()> {
        object["status"] = json!({});
        // A Job without labels of its own gets the labels of its pods, including the generated
        // ones.
        let of_pods = |object: &Value| object.pointer("/spec/template/metadata/labels").cloned();
        let has_own = labels(object).is_some()
            && metadata(object).and_then(|metadata| metadata.get("labels")) != of_pods(object).as_ref();
        if object["spec"]["manualSelector"] != true {
            select_own_pods(object);
        }
        if let (false, Some(made)) = (has_own, of_pods(object)) {
            *child_value(&mut object["metadata"], "labels") = made;
        }
        Ok(())
    }

    fn validate(&self, object: &Value, old: Option<&Value>, part: Part, errors: &mut FieldErrors) {
        if part == Part::Status {
            for count in ["active", "succeeded", "failed", "ready", "terminating"] {
                let place = format!("/status/{count}");
                not_negative(object.pointer(&place), &format!("status.{count}"), errors);
            }
            return;
        }
        if old.is_none() && object["spec"]["manualSelector"] != true {
            validate_made_labels(object, errors);
        }
        let spec = &object["spec"];
        for count in [
            "parallelism",
            "completions",
            "activeDeadlineSeconds",
            "backoffLimit",
            "ttlSecondsAfterFinished",
            "backoffLimitPerIndex",
            "maxFailedIndexes",
        ] {
            not_negative(spec.get(count), &format!("spec.{count}"), errors);
        }
        validate_completion(spec, errors);
        pod_template::validate_containers(spec.pointer("/template/spec"), "spec.template.spec", errors);
        validate_restarts(spec, errors);
        match spec.get("selector").filter(|selector| selector.is_object()) {
            None => errors.required("spec.selector", ""),
            Some(selector) => validate_label_selector(selector, "spec.selector", errors),
        }
        validate_match(spec, errors);
        if let Some(old) = old {
            validate_update(spec, &old["spec"], errors);
        }
    }
}

/// Gives the pods the UID of the Job as a label, so that no other Job selects them.
fn select_own_pods(object: &mut Value) {
    let (name, uid) = (json!(meta_str(object, "name")), json!(meta_str(object, "uid")));
    let spec = child_value(object, "spec");
    let template = child_value(child_value(child_value(spec, "template"), "metadata"), "labels");
    if let Some(template) = template.as_object_mut() {
        for (labels, value) in [(NAME_LABELS, &name), (UID_LABELS, &uid)] {
            for label in labels {
                template.entry(label).or_insert_with(|| value.clone());
            }
        }
    }
    if !spec["selector"].is_object() {
        spec["selector"] = json!({});
    }
    let matched = child_map(&mut spec["selector"], "matchLabels");
    matched.entry(UID_LABELS[1]).or_insert(uid);
}

fn validate_made_labels(object: &Value, errors: &mut FieldErrors) {
    let given = object.pointer("/spec/template/metadata/labels").unwrap_or(&Value::Null);
    let wanted = [
        (UID_LABELS[0], meta_str(object, "uid")),
        (UID_LABELS[1], meta_str(object, "uid")),
        (NAME_LABELS[0], meta_str(object, "name")),
        (NAME_LABELS[1], meta_str(object, "name")),
    ];
    for (label, value) in wanted {
        if given[label] != value {
            errors.invalid("spec.template.metadata.labels", given.clone(), format!("must be '{value}'"));
        }
    }
    if object
        .pointer("/spec/selector/matchLabels")
        .is_none_or(|labels| labels[UID_LABELS[1]] != meta_str(object, "uid"))
    {
        errors.push_shown(
            FieldErrorKind::Invalid,
            "spec.selector",
            Some(shown_selector(&object["spec"]["selector"])),
            "`selector` not auto-generated",
        );
    }
}

fn validate_completion(spec: &Value, errors: &mut FieldErrors) {
    match spec["completionMode"].as_str().unwrap_or_default() {
        "Indexed" => {
            if spec.get("completions").is_none() {
                errors.required("spec.completions", "when completion mode is Indexed");
            }
        }
        "NonIndexed" => {
            for field in ["backoffLimitPerIndex", "maxFailedIndexes"] {
                if let Some(value) = spec.get(field) {
                    errors.invalid(
                        format!("spec.{field}"),
                        value.clone(),
                        "requires indexed completion mode",
                    );
                }
            }
        }
        other => errors.not_supported(
            "spec.completionMode",
            json!(other),
            &["NonIndexed", "Indexed"].map(str::to_owned),
        ),
    }
}

fn validate_restarts(spec: &Value, errors: &mut FieldErrors) {
    let policy = spec.pointer("/template/spec/restartPolicy").and_then(Value::as_str).unwrap_or_default();
    let place = "spec.template.spec.restartPolicy";
    match policy {
        "OnFailure" if spec.get("podFailurePolicy").is_some() => errors.invalid(
            place,
            json!(policy),
            "only \"Never\" is supported when podFailurePolicy is specified",
        ),
        "OnFailure" | "Never" => {}
        "" | "Always" => errors.required(place, "valid values: \"OnFailure\", \"Never\""),
        other => errors.not_supported(place, json!(other), &["OnFailure", "Never"].map(str::to_owned)),
    }
}

fn validate_update(spec: &Value, old: &Value, errors: &mut FieldErrors) {
    // The completions of an indexed Job may change together with its parallelism.
    let elastic = spec["completionMode"] == "Indexed" && spec["completions"] == spec["parallelism"];
    if !elastic && spec["completions"] != old["completions"] {
        errors.invalid("spec.completions", spec["completions"].clone(), IMMUTABLE);
    }
    if spec["selector"] != old["selector"] {
        let shown = Some(shown_selector(&spec["selector"]));
        errors.push_shown(FieldErrorKind::Invalid, "spec.selector", shown, IMMUTABLE);
    }
    let template = if old["suspend"] == true {
        schedulable(&spec["template"], &old["template"])
    } else {
        spec["template"].clone()
    };
    if template != old["template"] {
        errors.invalid("spec.template", spec["template"].clone(), IMMUTABLE);
    }
    for field in ["completionMode", "podFailurePolicy", "backoffLimitPerIndex", "managedBy", "successPolicy"]
    {
        if spec.get(field) != old.get(field) {
            errors.invalid(format!("spec.{field}"), spec[field].clone(), IMMUTABLE);
        }
    }
}

/// Returns the template with the old scheduling fields, because these may change while a Job is
/// suspended.
fn schedulable(template: &Value, old: &Value) -> Value {
    let mut template = template.clone();
    for (at, field) in [
        ("/metadata", "labels"),
        ("/metadata", "annotations"),
        ("/spec", "nodeSelector"),
        ("/spec", "tolerations"),
        ("/spec", "affinity"),
        ("/spec", "schedulingGates"),
    ] {
        let before = old.pointer(at).and_then(|part| part.get(field)).cloned();
        if let Some(map) = template.pointer_mut(at).and_then(Value::as_object_mut) {
            match before {
                Some(before) => map.insert(field.into(), before),
                None => map.remove(field),
            };
        }
    }
    template
}
