//! SubjectAccessReview and its variants for oneself and for one namespace: checks a user's
//! permissions.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::{check_metadata, invalid, text, texts};
use crate::access::authz::attributes::{Attributes, field_selected};
use crate::server::verbs::Call;
use crate::values::identity::Identity;
use crate::values::status::{ApiResult, FieldErrorKind, FieldErrors};

pub(super) fn review(call: &Call, mut asked: Value) -> ApiResult<Value> {
    let kind = call.served.resource.kind.as_str();
    let mut errors = FieldErrors::default();
    if kind == "LocalSubjectAccessReview" {
        check_place(call, &asked, &mut errors);
        if !errors.is_empty() {
            return Err(invalid(call, &errors));
        }
    }
    check(&asked, kind, &mut errors);
    check_metadata(&asked, &mut errors);
    if !errors.is_empty() {
        return Err(invalid(call, &errors));
    }
    let own = (kind == "SelfSubjectAccessReview").then(|| call.identity.as_ref().clone());
    let subject = own.unwrap_or_else(|| subject(&asked));
    let decision = call.core.authorizer().decide(&subject, &attributes(&asked));
    let mut status = json!({"allowed": decision.allowed});
    if !decision.reason.is_empty() {
        status["reason"] = json!(decision.reason);
    }
    if let Some(trouble) = field_selector_trouble(&asked) {
        status["evaluationError"] = json!(trouble);
    }
    asked["status"] = status;
    Ok(asked)
}

fn check(asked: &Value, kind: &str, errors: &mut FieldErrors) {
    let has = |key: &str| asked["spec"].get(key).is_some_and(|value| !value.is_null());
    match (has("resourceAttributes"), has("nonResourceAttributes")) {
        (true, true) => {
            push_paths(asked, "cannot be specified in combination with resourceAttributes", errors)
        }
        (false, false) => errors.invalid(
            "spec.resourceAttributes",
            Value::Null,
            "exactly one of nonResourceAttributes or resourceAttributes must be specified",
        ),
        (true, false) | (false, true) => {}
    }
    let names_nobody = text(asked, "/spec/user").is_empty() && texts(asked, "/spec/groups").is_empty();
    if kind != "SelfSubjectAccessReview" && names_nobody {
        errors.invalid("spec.user", json!(""), "at least one of user or group must be specified");
    }
}

/// Checks that the review of one namespace concerns that namespace.
fn check_place(call: &Call, asked: &Value, errors: &mut FieldErrors) {
    let asked_about = text(asked, "/spec/resourceAttributes/namespace");
    if asked["spec"].get("resourceAttributes").is_some() && asked_about != call.path.namespace {
        let field = "spec.resourceAttributes.namespace";
        errors.invalid(field, json!(asked_about), "must match metadata.namespace");
    }
    if asked["spec"].get("nonResourceAttributes").is_some() {
        push_paths(asked, "disallowed on this kind of request", errors);
    }
}

/// Adds errors for the path attributes, with the names and order of their internal type.
fn push_paths(asked: &Value, problem: &str, errors: &mut FieldErrors) {
    let of = |key: &str| json!(text(asked, &format!("/spec/nonResourceAttributes/{key}")));
    let shown = format!("{{\"Path\":{},\"Verb\":{}}}", of("path"), of("verb"));
    errors.push_shown(FieldErrorKind::Invalid, "spec.nonResourceAttributes", Some(shown), problem);
}

fn subject(asked: &Value) -> Identity {
    let extra = asked.pointer("/spec/extra").and_then(Value::as_object).into_iter().flatten();
    let extra: BTreeMap<String, Vec<String>> =
        extra.map(|(key, values)| (key.to_lowercase(), texts(values, ""))).collect();
    Identity {
        user: text(asked, "/spec/user"),
        uid: text(asked, "/spec/uid"),
        groups: texts(asked, "/spec/groups"),
        extra,
    }
}

fn attributes(asked: &Value) -> Attributes {
    if asked["spec"].get("nonResourceAttributes").is_some() {
        let of = |key: &str| text(asked, &format!("/spec/nonResourceAttributes/{key}"));
        return Attributes { verb: of("verb").into(), path: Some(of("path")), ..Attributes::default() };
    }
    let of = |key: &str| text(asked, &format!("/spec/resourceAttributes/{key}"));
    Attributes {
        verb: of("verb").into(),
        group: of("group"),
        resource: of("resource"),
        subresource: of("subresource"),
        namespace: of("namespace"),
        name: of("name"),
        path: None,
        selected_node: selected_node(asked),
    }
}

/// Returns the single node that the review's field selector demands. A selector for several nodes
/// demands none.
fn selected_node(asked: &Value) -> Option<String> {
    let by_requirement = field_requirements(asked)
        .filter(|requirement| requirement["key"] == "spec.nodeName" && requirement["operator"] == "In")
        .find_map(only_value);
    let raw = text(asked, "/spec/resourceAttributes/fieldSelector/rawSelector");
    by_requirement.map(str::to_owned).or_else(|| field_selected(&raw, "spec.nodeName"))
}

fn field_requirements(asked: &Value) -> impl Iterator<Item = &Value> {
    let list = asked.pointer("/spec/resourceAttributes/fieldSelector/requirements");
    list.and_then(Value::as_array).into_iter().flatten()
}

fn only_value(requirement: &Value) -> Option<&str> {
    match requirement["values"].as_array()?.as_slice() {
        [only] => only.as_str(),
        _ => None,
    }
}

/// Returns the message about requirements that are not equalities and were ignored.
fn field_selector_trouble(asked: &Value) -> Option<&'static str> {
    let is_understood = |requirement: &&Value| {
        (requirement["operator"] == "In" || requirement["operator"] == "NotIn")
            && only_value(requirement).is_some()
    };
    let understood = field_requirements(asked).filter(is_understood).count();
    match (understood, field_requirements(asked).count()) {
        (understood, all) if understood == all => None,
        (0, _) => Some("spec.resourceAttributes.fieldSelector ignored due to parse error"),
        _ => Some("spec.resourceAttributes.fieldSelector partially ignored due to parse error"),
    }
}
