//! PUT and PATCH of objects and of subresources like status.

use serde_json::{Value, json};

use crate::schema::conversion::in_version;
use crate::schema::kinds::{Part, decode};
use crate::schema::patch::{self, Patch, Strategic};
use crate::server::verbs::apply;
use crate::server::verbs::create::{create_object, place};
use crate::server::verbs::write::commit::{MAX_ATTEMPTS, Written, commit_update};
use crate::server::verbs::write::decode::{check_type, decode_object, judge_fields, name_owners_once};
use crate::server::verbs::write::prepare::{check_manager, manager_problems, prepare_update};
use crate::server::verbs::{Answer, Call};
use crate::values::key::Key;
use crate::values::object::{MANAGED_FIELDS, meta_str, set_meta};
use crate::values::status::{ApiError, ApiResult, FieldErrors};

pub(crate) fn update(call: &Call, part: Part) -> ApiResult<Answer> {
    check_manager(call, "UpdateOptions")?;
    let mut value = decode_object(call)?;
    name_owners_once(call, &mut value, "");
    place(&mut value, &call.served, &call.path.namespace)?;
    check_name(call, &value)?;
    let key = Key::new(&call.path.namespace, &call.path.name);
    for _ in 0..MAX_ATTEMPTS {
        let Some(read) = call.core.store.get(&call.served.resource.collection, &key) else {
            if call.served.allows_create_on_update() && part == Part::Main {
                check_uid(call, &value, "")?;
                // There is no current revision to compare with.
                set_meta(&mut value, "resourceVersion", None);
                return create_object(call, value);
            }
            return Err(call.served.not_found(&call.path.name));
        };
        check_uid(call, &value, read.uid())?;
        check_revision(call, &value, read.revision())?;
        let mut new = value.clone();
        prepare_update(call, &mut new, &read, part)?;
        // A concurrent write decides the error: the object may have been recreated or deleted.
        if let Ok(written) = commit_update(call, &read, new) {
            return Ok(answer(call, &written, read.revision()));
        }
    }
    Err(ApiError::stale(&call.served.target(&call.path.name)))
}

/// Rejects a body with another uid than the current object.
pub(crate) fn check_uid(call: &Call, value: &Value, current: &str) -> ApiResult<()> {
    let claimed = meta_str(value, "uid");
    if claimed.is_empty() || claimed == current {
        return Ok(());
    }
    Err(precondition_failed(call, &format!("UID in precondition: {claimed}, UID in object meta: {current}")))
}

pub(crate) fn precondition_failed(call: &Call, what: &str) -> ApiError {
    let why = format!(
        "StorageError: invalid object, Code: 4, Key: {}, ResourceVersion: 0, AdditionalErrorMsg: Precondition failed: {what}",
        storage_key(call),
    );
    ApiError::conflict(&call.served.target(&call.path.name), &why)
}

/// Rejects a body with another name than the path.
pub(crate) fn check_name(call: &Call, value: &Value) -> ApiResult<()> {
    let (named, asked) = (meta_str(value, "name"), &call.path.name);
    if named == asked {
        return Ok(());
    }
    Err(ApiError::bad_request(if named.is_empty() {
        format!("the name of the object ({asked} based on URL) was undeterminable: name must be provided")
    } else {
        format!("the name of the object ({named}) does not match the name on the URL ({asked})")
    }))
}

/// Path of the object in etcd, which some error messages contain.
fn storage_key(call: &Call) -> String {
    let of = &call.served.resource;
    let group = if call.served.is_custom() { format!("{}/", of.group) } else { String::new() };
    format!("/registry/{group}{}/{}", of.plural, Key::new(&call.path.namespace, &call.path.name))
}

/// Rejects an update with an outdated revision, or without a required one.
pub(crate) fn check_revision(call: &Call, value: &Value, current: u64) -> ApiResult<()> {
    match meta_str(value, "resourceVersion") {
        "" | "0" => {
            if call.served.allows_unconditional_update() {
                return Ok(());
            }
            let mut errors = FieldErrors::default();
            errors.invalid("metadata.resourceVersion", json!(0), "must be specified for an update");
            let of = &call.served.resource;
            Err(ApiError::invalid(&of.group, &of.plural, &call.path.name, &errors))
        }
        claimed => {
            let parsed: u64 = claimed.parse().map_err(|_| {
                ApiError::unexpected(format!("strconv.ParseUint: parsing \"{claimed}\": invalid syntax"))
            })?;
            if parsed == current {
                Ok(())
            } else {
                Err(ApiError::stale(&call.served.target(&call.path.name)))
            }
        }
    }
}

pub(crate) fn patch(call: &Call, part: Part) -> ApiResult<Answer> {
    if is_apply(call) {
        return apply::apply(call, part);
    }
    let patch = decode_patch(call)?;
    // Only a patch that contains managedFields sees them. For all others they stay unchanged.
    let sees_owners = memory_contains(&call.body, MANAGED_FIELDS.as_bytes());
    let key = Key::new(&call.path.namespace, &call.path.name);
    for _ in 0..MAX_ATTEMPTS {
        let Some(read) = call.core.store.get(&call.served.resource.collection, &key) else {
            return Err(call.served.not_found(&call.path.name));
        };
        let base = if sees_owners {
            in_version(&read.whole(), &call.served)
        } else {
            in_version(read.value(), &call.served)
        };
        let mut new = patch.apply(base, &call.served.version().schema)?;
        check_type(&mut new, &call.served)?;
        decodes(call, &new)?;
        check_name(call, &new)?;
        place(&mut new, &call.served, &call.path.namespace)?;
        // A patch with a revision applies only to that version. Without one, it applies to the
        // current version.
        let claimed = meta_str(&new, "resourceVersion");
        let guarded = !claimed.is_empty() && claimed != read.revision().to_string();
        if guarded {
            check_revision(call, &new, read.revision())?;
        }
        set_meta(&mut new, "resourceVersion", Some(json!(read.revision().to_string())));
        judge_fields(call, &new, Vec::new(), |why| {
            wrong_patch(&new, &format!("strict decoding error: {why}"))
        })?;
        name_owners_once(call, &mut new, " after mutating admission happens");
        prepare_update(call, &mut new, &read, part)?;
        if let Ok(written) = commit_update(call, &read, new) {
            return Ok(answer(call, &written, read.revision()));
        }
    }
    Err(ApiError::stale(&call.served.target(&call.path.name)))
}

/// Rejects a patch with an invalid object of its kind as a result.
fn decodes(call: &Call, patched: &Value) -> ApiResult<()> {
    let of = &call.served.resource;
    if call.served.is_custom() {
        return decode::check_metadata(&patched["metadata"], &of.kind, &call.served.version().name)
            .map_err(|e| wrong_patch(patched, e.message()));
    }
    decode::check_types(patched, &call.served.version().schema, &of.kind, &call.served.version().name)
        .map_err(|e| wrong_patch(patched, e.message()))
}

pub(crate) fn wrong_patch(patched: &Value, why: &str) -> ApiError {
    let mut errors = FieldErrors::default();
    errors.invalid("patch", Value::String(patched.to_string()), why);
    ApiError::invalid("", "", "", &errors)
}

pub(crate) fn decode_patch(call: &Call) -> ApiResult<Patch> {
    let content_type =
        call.headers.get(http::header::CONTENT_TYPE).and_then(|c| c.to_str().ok()).unwrap_or_default();
    let strategic = if call.served.is_custom() { Strategic::Unsupported } else { Strategic::Supported };
    let mut errors = FieldErrors::default();
    if call.query.named("force").is_some() {
        errors.forbidden("force", "may not be specified for non-apply patch");
    }
    manager_problems(call.query.text("fieldManager"), &mut errors);
    if !errors.is_empty() {
        return Err(ApiError::invalid("meta.k8s.io", "PatchOptions", "", &errors));
    }
    Patch::decode(content_type, &call.body, strategic)
}

/// Reports whether the patch is a server-side apply.
pub(crate) fn is_apply(call: &Call) -> bool {
    call.content_type().split(';').next().unwrap_or_default().trim() == patch::APPLY
}

fn memory_contains(body: &[u8], word: &[u8]) -> bool {
    body.windows(word.len()).any(|window| window == word)
}

pub(crate) fn answer(call: &Call, written: &Written, before: u64) -> Answer {
    let answer = Answer::json(200, call.render(written.object()));
    match written {
        Written::Kept(object) if object.revision() == before => answer,
        Written::Kept(object) => answer.committed(call, object.revision()),
        Written::Ended(_, revision) => answer.committed(call, *revision),
    }
}
