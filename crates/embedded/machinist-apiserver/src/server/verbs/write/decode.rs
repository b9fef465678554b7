//! Decodes the body of a write into an object, and checks its type and its field names.
//!
//! The values of the fields are checked later, by [`prepare`](super::prepare).

use serde_json::{Value, json};

use crate::schema::body::{self, Decoded, FieldValidation};
use crate::schema::crd::prune;
use crate::schema::kinds::{decode, notation};
use crate::schema::resource::Served;
use crate::server::verbs::Call;
use crate::values::meta;
use crate::values::object::meta_str;
use crate::values::status::{ApiError, ApiResult, FieldErrors};

/// Decodes the body into an object of any kind.
pub(crate) fn decode_body(call: &Call) -> ApiResult<Value> {
    body::decode(call.content_type(), &call.body, &call.served).map(|decoded| decoded.value)
}

/// Decodes the body into an object of the served kind, and checks its field names.
pub(crate) fn decode_object(call: &Call) -> ApiResult<Value> {
    let Decoded { mut value, repeated } = body::decode(call.content_type(), &call.body, &call.served)?;
    check_type(&mut value, &call.served)?;
    let (kind, version) = (&call.served.resource.kind, call.served.version());
    if call.served.is_custom() {
        decode::check_metadata(&value["metadata"], kind, &version.name)?;
    } else {
        decode::check_types(&value, &version.schema, kind, &version.name)?;
    }
    judge_fields(call, &value, repeated, |why| {
        let version = &call.served.version().name;
        ApiError::bad_request(format!(
            "{kind} in version \"{version}\" cannot be handled as a {kind}: strict decoding error: {why}"
        ))
    })?;
    Ok(value)
}

/// Warns about duplicate owner references and stores each once. `when` is the warning's text about
/// the stage of the request.
pub(crate) fn name_owners_once(call: &Call, object: &mut Value, when: &str) {
    let repeated = meta::drop_repeated_owners(object);
    if !repeated.is_empty() {
        call.warn(vec![format!(
            ".metadata.ownerReferences contains duplicate entries{when}; API server dedups owner references in 1.20+, and may \
             reject such requests as early as 1.24; please fix your requests; duplicate UID(s) observed: {}",
            repeated.join(", ")
        )]);
    }
}

/// Warns about, or rejects, fields that are unknown to the object's type or duplicated in its text.
pub(crate) fn judge_fields(
    call: &Call,
    value: &Value,
    repeated: Vec<String>,
    refusal: impl FnOnce(String) -> ApiError,
) -> ApiResult<()> {
    if call.validation == FieldValidation::Ignore {
        return Ok(());
    }
    let served = &call.served;
    let mut complaints = repeated;
    let mut unknown = prune::Unknown::default();
    if served.is_custom() {
        if let Some(metadata) = value.get("metadata") {
            unknown.look("metadata", metadata, &notation::object_meta());
        }
        unknown.look_at_resource(value, &served.version().schema);
    } else {
        unknown.look("", value, &served.version().schema);
    }
    complaints.extend(unknown.0.into_iter().map(|field| format!("unknown field \"{field}\"")));
    match (complaints.is_empty(), call.validation) {
        (true, _) | (_, FieldValidation::Ignore) => Ok(()),
        (false, FieldValidation::Strict) => Err(refusal(complaints.join(", "))),
        (false, FieldValidation::Warn) => {
            call.warn(complaints);
            Ok(())
        }
    }
}

/// Rejects a body of another kind or version, or a body that is not an object. A body of a built-in
/// kind may omit kind and version.
pub(crate) fn check_type(value: &mut Value, served: &Served) -> ApiResult<()> {
    if !value.is_object() {
        return Err(body::unrecognised("the body is not an object"));
    }
    let text = |key: &str| value.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
    let (kind, api_version) = (text("kind"), text("apiVersion"));
    let (want_kind, want_version) = (&served.resource.kind, served.api_version());
    if served.is_custom() {
        for (key, found) in [("Kind", &kind), ("apiVersion", &api_version)] {
            if found.is_empty() {
                return Err(ApiError::bad_request(format!(
                    "{want_kind} in version \"{}\" cannot be handled as a {want_kind}: Object '{key}' is missing in '{value}'",
                    served.version().name
                )));
            }
        }
    }
    if !api_version.is_empty() && api_version != want_version {
        return Err(ApiError::bad_request(format!(
            "the API version in the data ({api_version}) does not match the expected API version ({want_version})"
        )));
    }
    if !kind.is_empty() && kind != *want_kind {
        if served.is_custom() {
            let mut errors = FieldErrors::default();
            errors.invalid("kind", json!(kind), format!("must be {want_kind}"));
            return Err(ApiError::invalid(&served.resource.group, &kind, meta_str(value, "name"), &errors));
        }
        let version = &served.version().name;
        return Err(ApiError::bad_request(format!(
            "{kind} in version \"{version}\" cannot be handled as a {want_kind}: converting to {want_kind} is not possible"
        )));
    }
    value["kind"] = json!(want_kind);
    value["apiVersion"] = json!(want_version);
    Ok(())
}
