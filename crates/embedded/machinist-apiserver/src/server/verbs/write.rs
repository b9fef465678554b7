//! The write path between decoding and commit, shared by create, update, patch and delete.

use std::borrow::Cow;
use std::sync::Arc;

use serde_json::{Map, Value, json};

use crate::schema::body::{self, Decoded, FieldValidation};
use crate::schema::conversion::{in_version, is_shown_as_stored};
use crate::schema::crd::rules::judge;
use crate::schema::crd::{default, embedded, prune, registration, validate};
use crate::schema::fields::managers::{Manager, Operation, differ_in_time_only};
use crate::schema::fields::track::{Claim, Write};
use crate::schema::fields::versions::Versions;
use crate::schema::kinds::{Context, Part, custom_resource_definition, decode, notation};
use crate::schema::resource::Served;
use crate::server::core::Core;
use crate::server::verbs::{Call, Effect};
use crate::store::mvcc::{Change, Raced};
use crate::values::go::quoted;
use crate::values::key::Key;
use crate::values::meta;
use crate::values::object::{
    self, MANAGED_FIELDS, Object, copy_field, copy_meta, is_deleting, meta_str, set_meta, take_managed_fields,
};
use crate::values::status::{ApiError, ApiResult, FieldErrorKind, FieldErrors, Target};

/// Number of attempts to commit on top of concurrent writes. Then the caller must retry.
pub(crate) const MAX_ATTEMPTS: usize = 8;

/// Result of a write.
pub(crate) enum Written {
    /// A new version, or the current one if nothing changed.
    Kept(Arc<Object>),
    /// The update removed the last finalizer of a deleting object. Holds the object after the
    /// update, and the revision of its deletion.
    Ended(Arc<Object>, u64),
}

impl Written {
    pub(crate) fn object(&self) -> &Arc<Object> {
        match self {
            Written::Kept(object) | Written::Ended(object, _) => object,
        }
    }
}

/// Decodes the body into an object of any kind.
pub(crate) fn decode_body(call: &Call) -> ApiResult<Value> {
    body::decode(call.content_type(), &call.body, &call.served).map(|decoded| decoded.value)
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

/// Rejects a body of another kind or version, or one that is not an object. A body of a built-in
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
        // The schema is that of the served form, so it cannot describe the stored one.
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
const LONGEST_MANAGER: usize = 128;

/// Returns the program name in a `User-Agent`, without control characters.
fn manager_of_agent(agent: &str) -> String {
    let mut name = String::new();
    for letter in agent.split('/').next().unwrap_or_default().chars().filter(|c| !c.is_control()) {
        if LONGEST_MANAGER < name.len() + letter.len_utf8() {
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
    if LONGEST_MANAGER < name.len() {
        let why = format!("may not be more than {LONGEST_MANAGER} bytes");
        errors.push(FieldErrorKind::TooLong, "fieldManager", None, why);
    }
    for (at, letter) in name.char_indices().filter(|(_, letter)| letter.is_control()) {
        let why = format!("invalid character U+{:04X} (at position {at})", u32::from(letter));
        errors.push_shown(FieldErrorKind::Invalid, "fieldManager", Some(quoted(name)), why);
    }
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
    settle(call, new, read.value(), part)?;
    if let Some(owners) = owners {
        set_meta(new, MANAGED_FIELDS, Some(json!(owners.text())));
    }
    Ok(())
}

/// Converts a stored object to the request's version.
pub(crate) fn as_served<'v>(stored: &'v Value, served: &Served) -> Cow<'v, Value> {
    if is_shown_as_stored(served) { Cow::Borrowed(stored) } else { Cow::Owned(in_version(stored, served)) }
}

/// Like `prepare_update`, for an object in its stored form with up-to-date managedFields.
pub(crate) fn settle(call: &Call, new: &mut Value, old: &Value, part: Part) -> ApiResult<()> {
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

/// Commits an update that was prepared on top of `read`.
pub(crate) fn commit_update(call: &Call, read: &Arc<Object>, mut new: Value) -> Result<Written, Raced> {
    set_meta(&mut new, "resourceVersion", Some(json!(read.revision().to_string())));
    let key = key_of(&new);
    let owners = take_managed_fields(&mut new);
    let is_same = new == *read.value()
        && match owners.as_ref().and_then(Value::as_str) {
            // A write without changes does not renew the time of its managedFields entry.
            Some(owners) => {
                differ_in_time_only(read.managed_fields(), Some(owners).filter(|o| !o.is_empty()))
            }
            None => true,
        };
    if let Some(owners) = owners {
        set_meta(&mut new, MANAGED_FIELDS, Some(owners));
    }
    if ends(call, &new, read.value()) {
        let collection = &call.served.resource.collection;
        let gone = call.commit(collection, &key, Change::Delete { read: read.clone() })?;
        after_commit(call, gone.value());
        return Ok(Written::Ended(Object::following(read, new, read.revision()), gone.revision()));
    }
    if is_same {
        return Ok(Written::Kept(read.clone()));
    }
    let change = Change::Update { read: read.clone(), value: new };
    let object = call.commit(&call.served.resource.collection, &key, change)?;
    after_commit(call, object.value());
    Ok(Written::Kept(object))
}

/// Reports whether the update removes the last reason that keeps a deleting object.
fn ends(call: &Call, new: &Value, old: &Value) -> bool {
    let grace =
        object::metadata(old).and_then(|m| m.get("deletionGracePeriodSeconds")).and_then(Value::as_i64);
    is_deleting(old)
        && grace.unwrap_or_default() == 0
        && object::finalizers(new).is_empty()
        && !call.served.rules().outlives_finalizers(new)
}

pub(crate) fn key_of(object: &Value) -> Key {
    Key::new(meta_str(object, "namespace"), meta_str(object, "name"))
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

/// Performs the server's own follow-up work after a change: serves definitions, or deletes them
/// with their instances.
pub(crate) fn after_commit(call: &Call, object: &Value) {
    if call.effect == Effect::DryRun {
        return;
    }
    let core = &call.core;
    if call.served.is_custom() {
        finish_definition(call, &call.served.resource.collection);
    } else if &*call.served.resource.collection == "events" {
        let revision = meta_str(object, "resourceVersion").parse().unwrap_or_default();
        core.expire_events(&key_of(object), revision);
    } else if &*call.served.resource.collection == custom_resource_definition::COLLECTION {
        let name = meta_str(object, "name");
        let key = Key::new("", name);
        match core.store.get(custom_resource_definition::COLLECTION, &key) {
            None => {
                unregister(core, object);
                reconsider(core, registration::group_and_plural(object).0);
            }
            Some(held) if is_deleting(held.value()) => {
                super::delete::delete_instances(call, held.value());
                finish_definition(call, name);
            }
            Some(held) => register(core, &held),
        }
    }
}

/// Sets a definition's conditions, and serves its resource.
pub(crate) fn register(core: &Core, definition: &Arc<Object>) {
    let mut current = definition.clone();
    let (group, _) = registration::group_and_plural(definition.value());
    let mut taken = registration::Taken::default();
    for other in definitions(core) {
        taken.add(group, other.value());
    }
    let names = |definition: &Object| definition.value().pointer("/status/acceptedNames").cloned();
    let before = names(&current);
    if let Some(mut value) = registration::established(&current, &taken, &core.now()) {
        let registry = core.registry();
        let served = registry.find("apiextensions.k8s.io", "v1", custom_resource_definition::COLLECTION);
        if let Some(served) = served {
            core.own_writes().changed_status(served, &current, &mut value);
        }
        let collection: Arc<str> = custom_resource_definition::COLLECTION.into();
        let change = Change::Update { read: current.clone(), value };
        // A concurrent writer also calls this function.
        match core.store.commit(
            &collection,
            &Key::new("", current.name()),
            change,
            &crate::log::origin::Origin::default(),
        ) {
            Ok(object) => current = object,
            Err(Raced) => return,
        }
    }
    if !registration::is_established(current.value()) || is_built_in(core, current.value()) {
        return;
    }
    match registration::resource(current.value()) {
        Some(resource) => core.update_registry(|registry| {
            registry.remove(&resource.group, &resource.plural);
            registry.add(Arc::new(resource));
        }),
        None => unregister(core, current.value()),
    }
    if names(&current) != before {
        reconsider(core, group);
    }
}

fn definitions(core: &Core) -> Vec<Arc<Object>> {
    let slice = core.store.slice(custom_resource_definition::COLLECTION, "", None, None);
    slice.map(|slice| slice.items.into_iter().map(|(_, it)| it.opened()).collect()).unwrap_or_default()
}

/// Checks the definitions of a group again, because names may have become free.
fn reconsider(core: &Core, group: &str) {
    let waits = |definition: &Arc<Object>| {
        let value = definition.value();
        registration::group_and_plural(value).0 == group && registration::waits_for_names(value)
    };
    for definition in definitions(core).iter().filter(|definition| waits(definition)) {
        register(core, definition);
    }
}

fn unregister(core: &Core, definition: &Value) {
    if is_built_in(core, definition) {
        return;
    }
    let (group, plural) = registration::group_and_plural(definition);
    core.update_registry(|registry| registry.remove(group, plural));
}

/// Reports whether a definition names a built-in kind. Objects of that kind are not its instances.
fn is_built_in(core: &Core, definition: &Value) -> bool {
    let (group, plural) = registration::group_and_plural(definition);
    core.registry().is_built_in(group, plural)
}

/// Finishes the deletion of a definition after its last instance is deleted. `collection` is the
/// definition's name.
fn finish_definition(call: &Call, collection: &str) {
    let core = &call.core;
    let key = Key::new("", collection);
    let Some(definition) = core.store.get(custom_resource_definition::COLLECTION, &key) else { return };
    let has_instances = !is_built_in(core, definition.value()) && !core.store.is_empty(collection);
    if !is_deleting(definition.value()) || has_instances {
        return;
    }
    let kept: Vec<Value> = object::finalizers(definition.value())
        .into_iter()
        .filter(|f| *f != custom_resource_definition::INSTANCES_FINALIZER)
        .map(Value::from)
        .collect();
    let definitions: Arc<str> = custom_resource_definition::COLLECTION.into();
    let origin = crate::log::origin::Origin::default();
    if kept.is_empty() {
        let change = Change::Delete { read: definition.clone() };
        if core.store.commit(&definitions, &key, change, &origin).is_ok() {
            unregister(core, definition.value());
            reconsider(core, registration::group_and_plural(definition.value()).0);
        }
        return;
    }
    let mut value = definition.value().clone();
    set_meta(&mut value, "finalizers", Some(Value::Array(kept)));
    // A concurrent writer also calls this function.
    let _raced = core.store.commit(&definitions, &key, Change::Update { read: definition, value }, &origin);
}
