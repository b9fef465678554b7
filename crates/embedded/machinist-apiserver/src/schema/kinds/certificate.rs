//! CertificateSigningRequests. The server records the user that it authenticated, not the user in
//! the request. Approving and signing each need a permission on the requested signer.
//!
//! Not included: checks that the signature of a request belongs to its key, and that its usages
//! exist.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use crate::schema::kinds::{Context, Part, Rules};
use crate::values::object::{child_map, copy_field, drop_field, meta_str};
use crate::values::status::{ApiError, ApiResult, FieldErrors, Target};
use crate::values::tls;

const GROUP: &str = "certificates.k8s.io";
/// Signer of client certificates for any group.
const CLIENT_SIGNER: &str = "kubernetes.io/kube-apiserver-client";
/// Conditions that decide a request. Only `/approval` writes them.
const VERDICTS: [&str; 2] = ["Approved", "Denied"];
/// Conditions that stay once they are set, and that are always true.
const LASTING: [&str; 3] = ["Approved", "Denied", "Failed"];

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
        context.admission.admit_certificate_request(object)
    }

    fn on_update(&self, new: &mut Value, old: &Value, part: Part, context: &Context<'_>) -> ApiResult<()> {
        copy_field(new, old, "spec");
        match part {
            Part::Main | Part::Finalize => copy_field(new, old, "status"),
            Part::Approval => {
                restore(new, old, "certificate");
                stamp_conditions(new, old, &context.now);
            }
            Part::Status => {
                keep_verdicts(new, old);
                stamp_conditions(new, old, &context.now);
            }
        }
        Ok(())
    }

    fn validate(&self, object: &Value, old: Option<&Value>, part: Part, errors: &mut FieldErrors) {
        match (old, part) {
            (None, _) => validate_request(object, errors),
            (Some(old), Part::Approval | Part::Status) => {
                validate_conditions(object, errors);
                validate_certificate(object, old, errors);
                validate_verdicts(object, old, part, errors);
                if part == Part::Status
                    && certificate(old).is_some()
                    && certificate(old) != certificate(object)
                {
                    errors.forbidden(
                        "status.certificate",
                        "updates may not modify existing certificate content",
                    );
                }
            }
            (Some(_), Part::Main | Part::Finalize) => {}
        }
    }

    fn permit(
        &self,
        object: &Value,
        old: Option<&Value>,
        part: Part,
        context: &Context<'_>,
    ) -> ApiResult<()> {
        let target =
            Target { group: GROUP, resource: "certificatesigningrequests", name: meta_str(object, "name") };
        let refuse = |why: String| Err(ApiError::forbidden(&target, &why));
        // The stored signer counts, even if this write contains another one.
        let signer = signer_of(old.unwrap_or(object));
        match (old, part) {
            (None, _) if signer == CLIENT_SIGNER => match requested(object) {
                Err(why) => refuse(format!("failed to parse CSR: {why}")),
                Ok(names)
                    if names.organizations.iter().any(|organization| organization == "system:masters") =>
                {
                    refuse(format!("use of {CLIENT_SIGNER} signer with system:masters group is not allowed"))
                }
                Ok(_) => Ok(()),
            },
            (Some(_), Part::Approval) if !context.admission.may_use_signer("approve", signer) => {
                refuse(format!("user not permitted to approve requests with signerName \"{signer}\""))
            }
            (Some(old), Part::Status)
                if (certificate(object) != certificate(old) || conditions(object) != conditions(old))
                    && !context.admission.may_use_signer("sign", signer) =>
            {
                refuse(format!("user not permitted to sign requests with signerName \"{signer}\""))
            }
            (None | Some(_), _) => Ok(()),
        }
    }
}

fn signer_of(object: &Value) -> &str {
    object.pointer("/spec/signerName").and_then(Value::as_str).unwrap_or_default()
}

fn requested(object: &Value) -> Result<tls::Requested, String> {
    tls::Requested::parse(object.pointer("/spec/request").and_then(Value::as_str).unwrap_or_default())
}

fn certificate(object: &Value) -> Option<&Value> {
    object.pointer("/status/certificate").filter(|certificate| !certificate.is_null() && *certificate != "")
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

/// Restores the verdicts if their number is unchanged, because a signer may not change them.
fn keep_verdicts(new: &mut Value, old: &Value) {
    let before = conditions(old);
    for verdict in VERDICTS {
        let held: Vec<&Value> = before.iter().filter(|condition| condition["type"] == verdict).collect();
        let list = new.pointer_mut("/status/conditions").and_then(Value::as_array_mut);
        let written: Vec<&mut Value> =
            list.into_iter().flatten().filter(|condition| condition["type"] == verdict).collect();
        if held.len() == written.len() {
            for (written, held) in written.into_iter().zip(held) {
                written.clone_from(held);
            }
        }
    }
}

/// Sets the update time and the transition time of each condition.
fn stamp_conditions(new: &mut Value, old: &Value, now: &str) {
    let before = conditions(old);
    let list = new.pointer_mut("/status/conditions").and_then(Value::as_array_mut);
    for condition in list.into_iter().flatten() {
        let is_same =
            |held: &&Value| held["type"] == condition["type"] && held["status"] == condition["status"];
        let mut times = before.iter().filter(is_same).map(|held| &held["lastTransitionTime"]);
        let since = times.find(|time| !time.is_null()).cloned().unwrap_or_else(|| json!(now));
        for (field, time) in [("lastUpdateTime", json!(now)), ("lastTransitionTime", since)] {
            if condition[field].is_null() {
                condition[field] = time;
            }
        }
    }
}

fn validate_conditions(object: &Value, errors: &mut FieldErrors) {
    let conditions = conditions(object);
    for (index, condition) in conditions.iter().enumerate() {
        let text = |key: &str| condition.get(key).and_then(Value::as_str).unwrap_or_default();
        let place = format!("status.conditions[{index}]");
        let (kind, status) = (text("type"), text("status"));
        if kind.is_empty() {
            errors.required(format!("{place}.type"), "");
        }
        let allowed: &[&str] =
            if LASTING.contains(&kind) { &["True"] } else { &["False", "True", "Unknown"] };
        if status.is_empty() {
            errors.required(format!("{place}.status"), "");
        } else if !allowed.contains(&status) {
            let allowed: Vec<String> = allowed.iter().map(ToString::to_string).collect();
            errors.not_supported(format!("{place}.status"), json!(status), &allowed);
        }
        let earlier = |wanted: &str| conditions[..index].iter().any(|condition| condition["type"] == wanted);
        let opposite = match kind {
            "Approved" => "Denied",
            "Denied" => "Approved",
            _ => "",
        };
        if !opposite.is_empty() && earlier(opposite) {
            errors.invalid(
                "status.conditions",
                json!(kind),
                "Approved and Denied conditions are mutually exclusive",
            );
        }
        if earlier(kind) {
            errors.duplicate(format!("{place}.type"), json!(kind));
        }
    }
}

fn validate_certificate(object: &Value, old: &Value, errors: &mut FieldErrors) {
    let Some(given) = certificate(object).filter(|given| Some(*given) != certificate(old)) else { return };
    let pem = STANDARD.decode(given.as_str().unwrap_or_default()).unwrap_or_default();
    if let Err(why) = tls::check_certificates(&pem) {
        errors.invalid("status.certificate", json!("<certificate data>"), why);
    }
}

fn validate_verdicts(object: &Value, old: &Value, part: Part, errors: &mut FieldErrors) {
    let (after, before) = (conditions(object), conditions(old));
    let count =
        |list: &[Value], kind: &str| list.iter().filter(|condition| condition["type"] == kind).count();
    for kind in LASTING {
        if count(&after, kind) < count(&before, kind) {
            errors.forbidden(
                "status.conditions",
                format!("updates may not remove a condition of type \"{kind}\""),
            );
        }
    }
    for verdict in VERDICTS {
        if part == Part::Status && count(&before, verdict) < count(&after, verdict) {
            errors.forbidden(
                "status.conditions",
                format!("updates may not add a condition of type \"{verdict}\""),
            );
        }
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
