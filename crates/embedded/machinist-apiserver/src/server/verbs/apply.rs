//! Server-side apply: PATCH with the wanted fields, as YAML or JSON. A missing object is created.

use std::sync::Arc;

use serde_json::{Value, json};

use crate::schema::body::{self, Decoded, FieldValidation};
use crate::schema::fields::apply::{Applied, Force, Refused, conflict_error};
use crate::schema::fields::managers::{Managers, Operation};
use crate::schema::fields::merge::joined;
use crate::schema::fields::versions::unmade;
use crate::schema::kinds::Part;
use crate::schema::resource::split_api_version;
use crate::server::verbs::create::{finish, place};
use crate::server::verbs::update::{answer, check_name, check_revision};
use crate::server::verbs::write::commit::{MAX_ATTEMPTS, after_commit, commit_update, key_of};
use crate::server::verbs::write::decode::check_type;
use crate::server::verbs::write::prepare::{
    admit_namespace, as_served, manager_problems, normalise_applied, ownership, prepare_stored_update,
};
use crate::server::verbs::{Answer, Call};
use crate::store::mvcc::{Change, Raced};
use crate::values::key::Key;
use crate::values::object::{MANAGED_FIELDS, Object, meta_str, metadata, set_meta};
use crate::values::status::{ApiError, ApiResult, FieldErrors};

pub(crate) fn apply(call: &Call, part: Part) -> ApiResult<Answer> {
    let force = options(call)?;
    let wanted = decode(call)?;
    let key = Key::new(&call.path.namespace, &call.path.name);
    for _ in 0..MAX_ATTEMPTS {
        let outcome = match call.core.store.get(&call.served.resource.collection, &key) {
            Some(read) => change(call, &read, &wanted, force, part)?,
            None if part == Part::Main => create(call, &wanted, force)?,
            None => return Err(call.served.not_found(&call.path.name)),
        };
        if let Ok(answer) = outcome {
            return Ok(answer);
        }
    }
    Err(ApiError::stale(&call.served.target(&call.path.name)))
}

/// Reads the `force` option. Rejects an apply without a field manager.
pub(crate) fn options(call: &Call) -> ApiResult<Force> {
    let mut errors = FieldErrors::default();
    let manager = call.query.text("fieldManager");
    if manager.is_empty() {
        errors.required("fieldManager", "is required for apply patch");
    }
    manager_problems(manager, &mut errors);
    if !errors.is_empty() {
        return Err(ApiError::invalid("meta.k8s.io", "PatchOptions", "", &errors));
    }
    Ok(if call.query.flag("force") { Force::Take } else { Force::Refrain })
}

/// Decodes the body: an object of the served kind and version without managedFields. Also returns
/// the fields that the body contains twice.
pub(crate) fn decode(call: &Call) -> ApiResult<Decoded> {
    let wrong = |why: String| ApiError::bad_request(format!("error decoding YAML: {why}"));
    let text = std::str::from_utf8(&call.body).map_err(|e| wrong(e.to_string()))?;
    let decoded = body::applied(text).map_err(wrong)?;
    if !decoded.value.is_object() {
        return Err(wrong("the body is not an object".to_owned()));
    }
    Ok(decoded)
}

/// Warns about, or rejects, duplicate fields in the body. Called after all other checks of the
/// body.
pub(crate) fn judge_repeated(call: &Call, repeated: &[String]) -> ApiResult<()> {
    match (repeated.is_empty(), call.validation) {
        (true, _) | (_, FieldValidation::Ignore) => Ok(()),
        (false, FieldValidation::Warn) => {
            call.warn(repeated.to_vec());
            Ok(())
        }
        (false, FieldValidation::Strict) => Err(ApiError::bad_request(format!(
            "error strict decoding YAML: error converting YAML to JSON: yaml: unmarshal errors:\n  {}",
            repeated.join("\n  ")
        ))),
    }
}

/// Rejects an object with managedFields, or of another type than `kind` in `api_version`.
pub(crate) fn check_wanted(wanted: &Value, api_version: &str, kind: &str) -> ApiResult<()> {
    let text = |key: &str| wanted.get(key).and_then(Value::as_str).unwrap_or_default();
    if text("apiVersion") != api_version || text("kind") != kind {
        return Err(ApiError::bad_request(format!("invalid object type: {}", shown_type(wanted))));
    }
    if metadata(wanted).and_then(|m| m.get(MANAGED_FIELDS)).is_some_and(|list| !list.is_null()) {
        return Err(ApiError::bad_request("metadata.managedFields must be nil"));
    }
    Ok(())
}

/// Changes the object that was read.
fn change(
    call: &Call,
    read: &Arc<Object>,
    wanted: &Decoded,
    force: Force,
    part: Part,
) -> ApiResult<Result<Answer, Raced>> {
    let served = &call.served;
    check_wanted(&wanted.value, &served.api_version(), &served.resource.kind)?;
    let live = as_served(read.value(), served);
    let applied = merge(call, &live, Managers::stored(read.managed_fields()), wanted, force, part)?;
    let mut new = applied.value.unwrap_or_else(|| live.clone().into_owned());
    check_type(&mut new, served)?;
    place(&mut new, served, &call.path.namespace)?;
    check_name(call, &new)?;
    // A request with a resourceVersion applies only to that version.
    let claimed = meta_str(&new, "resourceVersion");
    if claimed != read.revision().to_string() {
        check_revision(call, &new, read.revision())?;
    }
    set_meta(&mut new, "resourceVersion", Some(json!(read.revision().to_string())));
    normalise_applied(&mut new, served).map_err(|error| unconvertible(call, &wanted.value, error))?;
    prepare_stored_update(call, &mut new, read.value(), part)?;
    set_meta(&mut new, MANAGED_FIELDS, Some(json!(applied.managers.text())));
    Ok(commit_update(call, read, new).map(|written| answer(call, &written, read.revision())))
}

/// Creates the object.
fn create(call: &Call, wanted: &Decoded, force: Force) -> ApiResult<Result<Answer, Raced>> {
    let served = &call.served;
    check_wanted(&wanted.value, &served.api_version(), &served.resource.kind)?;
    let live = unmade(served);
    let applied = merge(call, &live, Managers::default(), wanted, force, Part::Main)?;
    let mut object = applied.value.unwrap_or(live);
    let uid = meta_str(&object, "uid");
    if !uid.is_empty() {
        let why = format!(
            "uid mismatch: the provided object specified uid {uid}, and no existing object was found"
        );
        return Err(ApiError::conflict(&served.target(&call.path.name), &why));
    }
    check_type(&mut object, served)?;
    place(&mut object, served, &call.path.namespace)?;
    check_name(call, &object)?;
    // A new object has no revision yet that the request could contradict.
    set_meta(&mut object, "resourceVersion", None);
    admit_namespace(call, meta_str(&object, "name"))?;
    normalise_applied(&mut object, served).map_err(|error| unconvertible(call, &wanted.value, error))?;
    finish(call, &mut object)?;
    set_meta(&mut object, MANAGED_FIELDS, Some(json!(applied.managers.text())));
    let key = key_of(&object);
    Ok(call.commit(&served.resource.collection, &key, Change::Create(object)).map(|stored| {
        after_commit(call, stored.value());
        Answer::json(201, call.render(&stored)).committed(call, stored.revision()).named(stored.name())
    }))
}

fn merge(
    call: &Call,
    live: &Value,
    held: Managers,
    wanted: &Decoded,
    force: Force,
    part: Part,
) -> ApiResult<Applied> {
    let write = ownership(call, part, Operation::Apply);
    let applied = write.applied(live, held, &wanted.value, force).map_err(|refused| match refused {
        Refused::Conflicts(conflicts) => conflict_error(&conflicts),
        Refused::Wrong(problems) => wrong_type(&wanted.value, &problems),
        Refused::Unconvertible(why) => ApiError::unexpected(why),
    })?;
    judge_repeated(call, &wanted.repeated)?;
    Ok(applied)
}

/// Wraps an error of the kind's decoder. For an applied value, kube-apiserver answers it as an
/// unexpected error.
fn unconvertible(call: &Call, wanted: &Value, error: ApiError) -> ApiError {
    if call.served.is_custom() {
        return error;
    }
    let kind = shown_type(wanted);
    let why = error.message().split_once(": ").map_or(error.message(), |(_, why)| why);
    ApiError::unexpected(format!(
        "failed to convert new object ({}/{}; {kind}) to proper version: unable to convert unstructured object to {kind}: error decoding from json: {why}",
        meta_str(wanted, "namespace"),
        meta_str(wanted, "name"),
    ))
}

/// Creates the error for an object that does not fit the schema. kube-apiserver answers it as an
/// unexpected error.
pub(crate) fn wrong_type(wanted: &Value, problems: &[String]) -> ApiError {
    let what = joined(problems);
    ApiError::unexpected(format!(
        "failed to create typed patch object ({}/{}; {}): {what}",
        meta_str(wanted, "namespace"),
        meta_str(wanted, "name"),
        shown_type(wanted)
    ))
}

/// Formats a type like Go does, including the core group.
fn shown_type(object: &Value) -> String {
    let text = |key: &str| object.get(key).and_then(Value::as_str).unwrap_or_default();
    let (group, version) = split_api_version(text("apiVersion"));
    format!("{group}/{version}, Kind={}", text("kind"))
}
