//! POST of a new object.

use serde_json::{Value, json};

use crate::access::authz::attributes::Attributes;
use crate::schema::fields::managers::Operation;
use crate::schema::kinds::Part;
use crate::schema::resource::Served;
use crate::server::verbs::write::commit::{after_commit, key_of};
use crate::server::verbs::write::decode::{decode_object, name_owners_once};
use crate::server::verbs::write::prepare::{
    admit_namespace, as_served, check, check_manager, context, normalise, ownership,
};
use crate::server::verbs::{Answer, Call};
use crate::store::mvcc::{Change, Raced};
use crate::values::object::{MANAGED_FIELDS, drop_field, is_deleting, meta_str, set_meta};
use crate::values::route::Verb;
use crate::values::status::{ApiError, ApiResult};

/// Number of random names tried for a `generateName`, as in kube-apiserver.
const GENERATE_ATTEMPTS: usize = 8;

pub(crate) fn create(call: &Call) -> ApiResult<Answer> {
    check_manager(call, "CreateOptions")?;
    let mut value = decode_object(call)?;
    name_owners_once(call, &mut value, "");
    create_object(call, value)
}

/// Creates a decoded object. A PUT of a missing object also calls this, if its kind allows that.
pub(crate) fn create_object(call: &Call, value: Value) -> ApiResult<Answer> {
    let prefix = meta_str(&value, "generateName").to_owned();
    let generated = meta_str(&value, "name").is_empty() && !prefix.is_empty();
    let attempts = if generated { GENERATE_ATTEMPTS } else { 1 };
    for attempt in 1..=attempts {
        let mut value = value.clone();
        if generated {
            let name = format!("{}{}", longest_prefix(&prefix), call.core.config.ids.suffix());
            set_meta(&mut value, "name", Some(json!(name)));
        }
        let object = prepare(call, value)?;
        let key = key_of(&object);
        let collection = &call.served.resource.collection;
        let exists = ApiError::already_exists(&call.served.target(meta_str(&object, "name")));
        match call.commit(collection, &key, Change::Create(object)) {
            Ok(stored) => {
                after_commit(call, stored.value());
                let body = call.render(&stored);
                return Ok(Answer::json(201, body).committed(call, stored.revision()).named(stored.name()));
            }
            Err(Raced) if attempt < attempts => {}
            Err(Raced) => {
                let held = call.core.store.get(collection, &key);
                let is_going = held.is_some_and(|held| is_deleting(held.value()));
                return Err(if is_going { exists.with_preface("object is being deleted: ") } else { exists });
            }
        }
    }
    Err(ApiError::internal("no free name was found"))
}

/// Truncates the prefix so that the generated name is a valid label.
fn longest_prefix(prefix: &str) -> &str {
    const LONGEST: usize = 63 - 5;
    prefix.char_indices().nth(LONGEST).map_or(prefix, |(end, _)| &prefix[..end])
}

/// Prepares a decoded object for the commit.
fn prepare(call: &Call, mut object: Value) -> ApiResult<Value> {
    let served = &call.served;
    place(&mut object, served, &call.path.namespace)?;
    admit_namespace(call, meta_str(&object, "name"))?;
    let claim = normalise(&mut object, served)?;
    // A new object cannot already be in deletion.
    for ignored in ["deletionTimestamp", "deletionGracePeriodSeconds"] {
        set_meta(&mut object, ignored, None);
    }
    let owners = ownership(call, Part::Main, Operation::Update).created(&as_served(&object, served), claim);
    finish(call, &mut object)?;
    if !meta_str(&object, "resourceVersion").is_empty() {
        return Err(ApiError::unexpected("resourceVersion should not be set on objects to be created"));
    }
    set_meta(&mut object, MANAGED_FIELDS, Some(json!(owners.text())));
    Ok(object)
}

/// Completes a new object in its stored form with the fields that the server and admission set, and
/// checks it.
pub(crate) fn finish(call: &Call, object: &mut Value) -> ApiResult<()> {
    let served = &call.served;
    set_meta(object, "uid", Some(json!(call.core.config.ids.uid())));
    set_meta(object, "creationTimestamp", Some(json!(call.core.now())));
    for ignored in ["deletionTimestamp", "deletionGracePeriodSeconds", "generation"] {
        set_meta(object, ignored, None);
    }
    if served.counts_generations() {
        set_meta(object, "generation", Some(json!(1)));
    }
    if served.is_custom() && served.has_status() {
        drop_field(object, "status");
    }
    served.rules().on_create(object, &context(call))?;
    check(call, object, None, Part::Main)?;
    may_make(call)?;
    served.rules().permit(object, None, Part::Main, &context(call))
}

/// Checks the permission to create. PUT and apply of a missing object need it in addition to the
/// permission to change. The path of a POST has no name.
fn may_make(call: &Call) -> ApiResult<()> {
    if call.path.name.is_empty() {
        return Ok(());
    }
    call.core.authorizer().authorize(&call.identity, &Attributes::on(Verb::Create.into(), &call.path))
}

/// Puts the object into the path's namespace.
pub(crate) fn place(object: &mut Value, served: &Served, namespace: &str) -> ApiResult<()> {
    if !object.get("metadata").is_some_and(Value::is_object) {
        object["metadata"] = json!({});
    }
    let own = meta_str(object, "namespace");
    if !served.resource.namespaced {
        set_meta(object, "namespace", None);
        return Ok(());
    }
    if !own.is_empty() && own != namespace {
        return Err(ApiError::bad_request(
            "the namespace of the provided object does not match the namespace sent on the request",
        ));
    }
    set_meta(object, "namespace", Some(json!(namespace)));
    Ok(())
}
