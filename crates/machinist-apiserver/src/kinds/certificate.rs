//! CertificateSigningRequests: who asked is what the server saw, not what the request says.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use crate::kinds::{Context, Part, Rules};
use crate::object::{child_map, copy_field, drop_field};
use crate::status::{ApiResult, FieldErrors};

pub(crate) struct CertificateSigningRequests;

impl Rules for CertificateSigningRequests {
    fn on_create(&self, object: &mut Value, context: &Context<'_>) -> ApiResult<()> {
        drop_field(object, "status");
        object["status"] = json!({});
        let spec = child_map(object, "spec");
        for claimed in ["username", "uid", "groups", "extra"] {
            spec.remove(claimed);
        }
        if let Value::Object(known) = context.identity.user_info() {
            spec.extend(known);
        }
        Ok(())
    }

    fn on_update(&self, new: &mut Value, old: &Value, part: Part, context: &Context<'_>) -> ApiResult<()> {
        copy_field(new, old, "spec");
        match part {
            Part::Main | Part::Finalize => copy_field(new, old, "status"),
            Part::Approval => {
                restore(new, old, "certificate");
                stamp_conditions(new, &context.now);
            }
            Part::Status => stamp_conditions(new, &context.now),
        }
        Ok(())
    }

    fn validate(&self, object: &Value, old: Option<&Value>, part: Part, errors: &mut FieldErrors) {
        if let (Some(old), Part::Approval | Part::Status) = (old, part) {
            validate_verdicts(object, old, errors);
        }
        if old.is_none() {
            validate_request(object, errors);
        }
    }
}

fn conditions(object: &Value) -> Vec<Value> {
    object.pointer("/status/conditions").and_then(Value::as_array).cloned().unwrap_or_default()
}

fn restore(new: &mut Value, old: &Value, field: &str) {
    let before = old.pointer(&format!("/status/{field}")).cloned();
    let status = child_map(new, "status");
    match before {
        Some(value) => {
            status.insert(field.to_owned(), value);
        }
        None => {
            status.remove(field);
        }
    }
}

fn stamp_conditions(new: &mut Value, now: &str) {
    let list = new.pointer_mut("/status/conditions").and_then(Value::as_array_mut);
    for condition in list.into_iter().flatten() {
        if let Some(condition) = condition.as_object_mut() {
            for stamp in ["lastUpdateTime", "lastTransitionTime"] {
                condition.entry(stamp).or_insert_with(|| json!(now));
            }
        }
    }
}

fn validate_verdicts(object: &Value, old: &Value, errors: &mut FieldErrors) {
    let held = |list: &[Value], kind: &str| list.iter().any(|c| c["type"] == kind);
    let (after, before) = (conditions(object), conditions(old));
    for verdict in ["Approved", "Denied"] {
        if held(&before, verdict) && !held(&after, verdict) {
            errors.forbidden(
                "status.conditions",
                format!("updates may not remove a condition of type \"{verdict}\""),
            );
        }
    }
    if held(&after, "Approved") && held(&after, "Denied") {
        errors.invalid(
            "status.conditions",
            json!("Denied"),
            "Approved and Denied conditions are mutually exclusive",
        );
    }
    let certificate = |object: &Value| object.pointer("/status/certificate").cloned();
    if certificate(old).is_some() && certificate(old) != certificate(object) {
        errors.forbidden("status.certificate", "updates may not change certificate content");
    }
}

fn validate_request(object: &Value, errors: &mut FieldErrors) {
    let text =
        |key: &str| object.get("spec").and_then(|s| s.get(key)).and_then(Value::as_str).unwrap_or_default();
    let pem = STANDARD.decode(text("request")).unwrap_or_default();
    let is_request =
        std::str::from_utf8(&pem).is_ok_and(|p| p.contains("-----BEGIN CERTIFICATE REQUEST-----"));
    if !is_request {
        errors.invalid("spec.request", json!(text("request")), "PEM block type must be CERTIFICATE REQUEST");
    }
    if text("signerName").is_empty() {
        errors.required("spec.signerName", "");
    } else if !text("signerName").contains('/') {
        errors.invalid(
            "spec.signerName",
            json!(text("signerName")),
            "must be a fully qualified domain and path of the form 'example.com/signer-name'",
        );
    }
    let no_usages = object.pointer("/spec/usages").and_then(Value::as_array).is_none_or(Vec::is_empty);
    if no_usages {
        errors.required("spec.usages", "");
    }
}
