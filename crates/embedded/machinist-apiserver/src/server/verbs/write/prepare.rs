//! Prepares an object for its commit: the stored form, defaults, field ownership, the rules of its
//! kind, and validation.
//!
//! Nothing is stored here. A write that loses a race is prepared again on top of the new object.

use std::borrow::Cow;

use serde_json::{Map, Value, json};

use crate::schema::conversion::{in_version, is_shown_as_stored};
use crate::schema::crd::rules::judge;
use crate::schema::crd::{default, embedded, prune, validate};
use crate::schema::fields::managers::{Manager, Operation};
use crate::schema::fields::track::{Claim, Write};
use crate::schema::fields::versions::Versions;
use crate::schema::kinds::{Context, Part, decode, notation};
use crate::schema::resource::Served;
use crate::server::verbs::Call;
use crate::values::go::quoted;
use crate::values::key::Key;
use crate::values::meta;
use crate::values::object::{
    self, MANAGED_FIELDS, Object, copy_field, copy_meta, is_deleting, meta_str, set_meta, take_managed_fields,
};
use crate::values::status::{ApiError, ApiResult, FieldErrorKind, FieldErrors, Target};

/// Merges `new` over the object that was read: fields that an update of `part` may change stay, all
/// other fields are restored. Then checks the result. The writer becomes the owner of the fields
/// that it changes.
pub(crate) fn prepare_update(call: &Call, new: &mut Value, read: &Object, part: Part) -> ApiResult<()> {
    let claim = normalise(new, &call.served)?;
    let owners = {
        let before = as_served(read.value(), &call.served);
        let after = as_served(new, &call.served);
        ownership(call, part, Operation::Update).updated(&before, &after, read.managed_fields(), claim)
    };
    prepare_stored_update(call, new, read.value(), part)?;
    if let Some(owners) = owners {
        set_meta(new, MANAGED_FIELDS, Some(json!(owners.text())));
    }
    Ok(())
}

/// Converts the served form to the stored one: normalises metadata, prunes unknown fields, fills in
/// defaults. Returns the managedFields that the client sent.
pub(crate) fn normalise(value: &mut Value, served: &Served) -> ApiResult<Claim> {
    if served.is_custom() {
        prune::drop_nulls(value, &served.version().schema);
    }
    normalise_applied(value, served)
}

/// Like `normalise`, for an object that was merged here. A null in an applied configuration stays
/// null.
pub(crate) fn normalise_applied(value: &mut Value, served: &Served) -> ApiResult<Claim> {
    let version = served.version();
    if !value.get("metadata").is_some_and(Value::is_object) {
        value["metadata"] = json!({});
    }
    let meta_schema = notation::object_meta();
    let claim;
    if served.is_custom() {
        decode::check_metadata(&value["metadata"], &served.resource.kind, &version.name)?;
        claim = Claim::of(take_managed_fields(value).as_ref());
        prune::normalise(&mut value["metadata"], &meta_schema);
        prune::prune(value, &version.schema);
        default::fill(value, &version.schema);
        value["apiVersion"] = json!(served.storage_api_version());
    } else {
        decode::check_types(value, &version.schema, &served.resource.kind, &version.name)?;
        claim = Claim::of(take_managed_fields(value).as_ref());
        prune::normalise(value, &version.schema);
        // The schema describes the served form, so it cannot describe the stored one.
        default::fill(value, &version.schema);
        served.rules().make_stored(value);
        served.rules().fill_defaults(value);
        if !served.is_converted() {
            prune::normalise(value, &version.schema);
        }
    }
    set_meta(value, "selfLink", None);
    Ok(claim)
}

/// Converts a stored object to the request's version.
pub(crate) fn as_served<'v>(stored: &'v Value, served: &Served) -> Cow<'v, Value> {
    if is_shown_as_stored(served) { Cow::Borrowed(stored) } else { Cow::Owned(in_version(stored, served)) }
}

/// Like `prepare_update`, for an object in its stored form with up-to-date managedFields.
pub(crate) fn prepare_stored_update(call: &Call, new: &mut Value, old: &Value, part: Part) -> ApiResult<()> {
    let served = &call.served;
    // An object that was stored before its definition got a default is compared with the default,
    // as it is shown.
    let filled = served.is_custom().then(|| default::filled(old, &served.version().schema)).flatten();
    let old = filled.as_ref().unwrap_or(old);
    copy_meta(new, old, "generation");
    match part {
        Part::Status if served.is_custom() => {
            // A status write of a custom resource changes nothing else, not even metadata.
            let claimed = meta_str(new, "resourceVersion").to_owned();
            let fields = old.as_object().into_iter().flatten().filter(|(key, _)| *key != "status");
            let mut kept: Map<_, _> = fields.map(|(key, value)| (key.clone(), value.clone())).collect();
            if let Some(status) = new.as_object_mut().and_then(|new| new.remove("status")) {
                kept.insert("status".to_owned(), status);
            }
            *new = Value::Object(kept);
            set_meta(new, "resourceVersion", Some(json!(claimed)));
        }
        Part::Status => copy_field(new, old, "spec"),
        Part::Main if served.has_status() => copy_field(new, old, "status"),
        Part::Main | Part::Approval | Part::Finalize => {}
    }
    served.rules().on_update(new, old, part, &context(call))?;
    if meta_str(new, "uid").is_empty() {
        copy_meta(new, old, "uid");
    }
    copy_meta(new, old, "creationTimestamp");
    if is_deleting(old) {
        copy_meta(new, old, "deletionTimestamp");
    }
    let has_grace = |object: &Value| {
        object::metadata(object).is_some_and(|m| m.contains_key("deletionGracePeriodSeconds"))
    };
    if has_grace(old) && !has_grace(new) {
        copy_meta(new, old, "deletionGracePeriodSeconds");
    }
    if served.counts_generations() && part == Part::Main && specification_changed(new, old, served) {
        set_meta(new, "generation", Some(json!(object::generation(old) + 1)));
    }
    check(call, new, Some(old), part)?;
    served.rules().permit(new, Some(old), part, &context(call))
}

/// Reports whether anything except metadata (and status, if it is a subresource) differs.
fn specification_changed(new: &Value, old: &Value, served: &Served) -> bool {
    let counts = |key: &str| key != "metadata" && !(served.has_status() && key == "status");
    let (Some(new), Some(old)) = (new.as_object(), old.as_object()) else { return new != old };
    let fields = |map: &Map<String, Value>| map.keys().filter(|key| counts(key)).count();
    fields(new) != fields(old) || new.iter().any(|(key, value)| counts(key) && old.get(key) != Some(value))
}

/// Checks `object` and answers all errors in one 422.
pub(crate) fn check(call: &Call, object: &Value, old: Option<&Value>, part: Part) -> ApiResult<()> {
    let served = &call.served;
    let mut errors = FieldErrors::default();
    if part == Part::Main || served.is_custom() {
        meta::validate(object, served.resource.namespaced, served.name_rule(), &mut errors);
    }
    if let Some(old) = old {
        // The general rules and the kind's own rules both check this, so each error is a cause
        // twice.
        meta::validate_update(object, old, &mut errors);
        meta::validate_update(object, old, &mut errors);
    }
    if served.is_custom() {
        let schema = &served.version().schema;
        validate::validate(object, old, schema, "", &mut errors);
        embedded::validate(object, schema, &mut errors);
        if schema.has_rules && !errors.say_that_rules_wait() {
            let left_alone = judge::judge(object, old, schema, &mut errors);
            call.warn(left_alone.lines());
        }
        if let (Some(scale), true) = (&served.version().scale, part == Part::Main) {
            scale.validate(object, &mut errors);
        }
    } else {
        if !served.rules().takes_plain_finalizers() {
            meta::validate_plain_finalizers(object, &mut errors);
        }
        served.rules().validate(object, old, part, &mut errors);
    }
    if errors.is_empty() {
        if served.is_custom() && part == Part::Main {
            call.warn(meta::plain_finalizer_warnings(object, old));
        }
        return Ok(());
    }
    // The error for a converted kind names the stored kind.
    let group = if served.is_converted() { "" } else { served.resource.group.as_str() };
    Err(ApiError::invalid(group, &served.resource.kind, meta_str(object, "name"), &errors))
}

pub(crate) fn context<'a>(call: &'a Call) -> Context<'a> {
    Context {
        store: &call.core.store,
        addresses: &call.core.service_addresses,
        identity: &call.identity,
        admission: Box::new(call.caller()),
        now: call.core.now(),
    }
}

/// Checks that the namespace exists, and that it is not being deleted if an object is created in
/// it.
pub(crate) fn admit_namespace(call: &Call, object: &str) -> ApiResult<()> {
    if !call.served.resource.namespaced {
        return Ok(());
    }
    let name = call.path.namespace.as_str();
    let (store, key) = (&call.core.store, Key::new("", name));
    // A request without a commit is answered at once, and only from saved state.
    let held =
        if call.is_kept() { store.get("namespaces", &key) } else { store.get_shown("namespaces", &key) };
    let Some(namespace) = held else {
        return Err(ApiError::not_found(&Target { group: "", resource: "namespaces", name }));
    };
    let terminating = namespace.value().pointer("/status/phase").is_some_and(|p| p == "Terminating");
    if terminating || is_deleting(namespace.value()) {
        let why = format!("unable to create new content in namespace {name} because it is being terminated");
        return Err(ApiError::forbidden(&call.served.target(object), &why).with_cause(
            "NamespaceTerminating",
            &format!("namespace {name} is being terminated"),
            "metadata.namespace",
        ));
    }
    Ok(())
}

/// Describes this write, for field ownership.
pub(crate) fn ownership(call: &Call, part: Part, operation: Operation) -> Write<'_> {
    let asked = call.query.text("fieldManager");
    let name = if asked.is_empty() { manager_of_agent(&call.origin.user_agent) } else { asked.to_owned() };
    Write {
        versions: Versions::new(call.core.registry(), &call.served),
        manager: Manager {
            name: if name.is_empty() { "unknown".to_owned() } else { name },
            operation,
            api_version: call.served.api_version(),
            subresource: call.path.subresource.clone(),
        },
        part,
        now: call.core.now(),
    }
}

/// Maximum length of a field manager's name, in bytes.
const MAX_MANAGER_LEN: usize = 128;

/// Returns the program name in a `User-Agent`, without control characters.
fn manager_of_agent(agent: &str) -> String {
    let mut name = String::new();
    for letter in agent.split('/').next().unwrap_or_default().chars().filter(|c| !c.is_control()) {
        if MAX_MANAGER_LEN < name.len() + letter.len_utf8() {
            break;
        }
        name.push(letter);
    }
    name
}

/// Rejects a `fieldManager` that is too long or not printable. `options` is the kind of the write's
/// options.
pub(crate) fn check_manager(call: &Call, options: &str) -> ApiResult<()> {
    let mut errors = FieldErrors::default();
    manager_problems(call.query.text("fieldManager"), &mut errors);
    if errors.is_empty() { Ok(()) } else { Err(ApiError::invalid("meta.k8s.io", options, "", &errors)) }
}

pub(crate) fn manager_problems(name: &str, errors: &mut FieldErrors) {
    if MAX_MANAGER_LEN < name.len() {
        let why = format!("may not be more than {MAX_MANAGER_LEN} bytes");
        errors.push(FieldErrorKind::TooLong, "fieldManager", None, why);
    }
    for (at, letter) in name.char_indices().filter(|(_, letter)| letter.is_control()) {
        let why = format!("invalid character U+{:04X} (at position {at})", u32::from(letter));
        errors.push_shown(FieldErrorKind::Invalid, "fieldManager", Some(quoted(name)), why);
    }
}
