//! Reviews of identities and permissions. The server answers them without storing them.

mod access;
mod rules;
mod token;

use serde_json::{Value, json};

use crate::schema::fields::managers::Operation;
use crate::schema::kinds::Part;
use crate::server::verbs::create::place;
use crate::server::verbs::write::decode::decode_object;
use crate::server::verbs::write::prepare::{normalise, ownership};
use crate::server::verbs::{Answer, Call};
use crate::values::object::{MANAGED_FIELDS, Object, drop_field, set_meta, to_bytes};
use crate::values::status::{ApiError, ApiResult, FieldErrors};

/// Answers the review in the request's body.
pub(crate) fn create(call: &Call) -> ApiResult<Answer> {
    let mut asked = decode_object(call)?;
    place(&mut asked, &call.served, &call.path.namespace)?;
    let claim = normalise(&mut asked, &call.served)?;
    // The status is the server's answer, so a status in the request is dropped.
    drop_field(&mut asked, "status");
    let owners = ownership(call, Part::Main, Operation::Update).created(&asked, claim);
    let mut answered = match call.served.resource.kind.as_str() {
        "TokenReview" => token::review(call, asked)?,
        "SelfSubjectReview" => {
            asked["metadata"]["creationTimestamp"] = json!(call.core.now());
            asked["status"] = json!({"userInfo": call.identity.user_info()});
            asked
        }
        // This answer is a separate object without the fields of the request.
        "SelfSubjectRulesReview" => return Ok(Answer::json(201, to_bytes(&rules::review(call, asked)?))),
        _ => access::review(call, asked)?,
    };
    if !owners.is_empty() {
        set_meta(&mut answered, MANAGED_FIELDS, Some(json!(owners.text())));
    }
    Ok(Answer::json(201, to_bytes(&Object::new(answered, 0).whole())))
}

/// 422. As in kube-apiserver, the error for a review does not name the kind.
fn invalid(call: &Call, errors: &FieldErrors) -> ApiError {
    ApiError::invalid(&call.served.resource.group, "", "", errors)
}

/// Checks that a review has no metadata.
fn check_metadata(asked: &Value, errors: &mut FieldErrors) {
    let metadata = asked["metadata"].as_object();
    let is_empty = metadata.is_none_or(|map| map.keys().all(|key| key == "namespace"));
    if !is_empty {
        errors.invalid("metadata", asked["metadata"].clone(), "must be empty");
    }
}

/// Returns a text below `value`, empty if absent.
fn text(value: &Value, pointer: &str) -> String {
    value.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned()
}

/// Returns a list of texts below `value`.
fn texts(value: &Value, pointer: &str) -> Vec<String> {
    let items = value.pointer(pointer).and_then(Value::as_array).into_iter().flatten();
    items.filter_map(|item| item.as_str().map(str::to_owned)).collect()
}
