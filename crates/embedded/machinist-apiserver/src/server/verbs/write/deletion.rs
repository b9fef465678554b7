//! Deletes one object: options, preconditions, finalizers and grace period. The verbs, evictions
//! and deleted definitions share this path.

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use crate::schema::kinds::{decode, notation};
use crate::server::verbs::write::commit::{MAX_ATTEMPTS, after_commit};
use crate::server::verbs::write::decode::decode_body;
use crate::server::verbs::{Call, Effect};
use crate::store::mvcc::{Change, Raced};
use crate::values::clock::rfc3339_seconds;
use crate::values::key::Key;
use crate::values::meta::{FOREGROUND, ORPHAN};
use crate::values::object::{self, Object, is_deleting, meta_str, set_meta};
use crate::values::query::Query;
use crate::values::status::{ApiError, ApiResult, FieldErrors, Target};

const KIND: &str = "DeleteOptions";
const POLICIES: [&str; 3] = ["Foreground", "Background", "Orphan"];

/// Options of a DELETE.
#[derive(Debug, Clone, Default)]
pub(crate) struct DeleteOptions {
    pub(crate) uid: Option<String>,
    pub(crate) resource_version: Option<String>,
    grace: Option<i64>,
    policy: Option<String>,
    /// Older form of the propagation policy.
    pub(crate) orphan_dependents: Option<bool>,
    pub(crate) dry_run: Vec<String>,
}

impl DeleteOptions {
    /// Reads the options from the body only, if there is one, and otherwise from the query.
    pub(crate) fn of(call: &Call) -> ApiResult<Self> {
        let options = if call.body.is_empty() {
            Self::in_query(&call.query)?
        } else {
            let body = decode_body(call)?;
            if let Some(why) = decode::mismatch(&body, &notation::schema(KIND), KIND) {
                return Err(ApiError::bad_request(why));
            }
            let (kind, version) = (&body["kind"], body["apiVersion"].as_str().unwrap_or("v1"));
            if kind.as_str().is_some_and(|kind| !kind.is_empty() && kind != KIND) {
                return Err(ApiError::bad_request(decode::unregistered(
                    kind.as_str().unwrap_or_default(),
                    version,
                )));
            }
            Self::read(&body)
        };
        options.check()?;
        Ok(options)
    }

    /// Reads decoded options.
    pub(crate) fn read(options: &Value) -> Self {
        let text = |pointer: &str| options.pointer(pointer).and_then(Value::as_str).map(str::to_owned);
        let dry_run = options.get("dryRun").and_then(Value::as_array).into_iter().flatten();
        DeleteOptions {
            uid: text("/preconditions/uid"),
            resource_version: text("/preconditions/resourceVersion"),
            grace: options.get("gracePeriodSeconds").and_then(Value::as_i64),
            policy: text("/propagationPolicy"),
            orphan_dependents: options.get("orphanDependents").and_then(Value::as_bool),
            dry_run: dry_run.filter_map(|value| value.as_str().map(str::to_owned)).collect(),
        }
    }

    fn in_query(query: &Query) -> ApiResult<Self> {
        // An empty precondition is ignored. An empty policy is an error.
        let guard = |key: &str| Some(query.text(key).to_owned()).filter(|text| !text.is_empty());
        Ok(DeleteOptions {
            uid: guard("uid"),
            resource_version: guard("resourceVersion"),
            grace: query.number("gracePeriodSeconds")?,
            policy: query.named("propagationPolicy").map(str::to_owned),
            orphan_dependents: query.switch("orphanDependents"),
            dry_run: query.all("dryRun").to_vec(),
        })
    }

    /// Rejects contradictory options.
    pub(crate) fn check(&self) -> ApiResult<()> {
        let mut errors = FieldErrors::default();
        if let (Some(policy), Some(_)) = (&self.policy, self.orphan_dependents) {
            let why = "orphanDependents and deletionPropagation cannot be both set";
            errors.invalid("propagationPolicy", json!(policy), why);
        }
        if let Some(policy) = self.policy.as_ref().filter(|policy| !POLICIES.contains(&policy.as_str())) {
            let supported = [&POLICIES[..], &["nil"]].concat();
            errors.not_supported(
                "propagationPolicy",
                json!(policy),
                &supported.into_iter().map(str::to_owned).collect::<Vec<_>>(),
            );
        }
        Effect::check(&self.dry_run, &mut errors);
        if errors.is_empty() { Ok(()) } else { Err(ApiError::invalid("meta.k8s.io", KIND, "", &errors)) }
    }

    pub(crate) fn propagation(&self) -> Option<Propagation> {
        match (self.policy.as_deref(), self.orphan_dependents) {
            (_, Some(true)) | (Some("Orphan"), None) => Some(Propagation::Orphan),
            (_, Some(false)) | (Some("Background"), None) => Some(Propagation::Background),
            (Some("Foreground"), None) => Some(Propagation::Foreground),
            (Some(_) | None, None) => None,
        }
    }
}

/// Treatment of the objects that the deleted object owns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Propagation {
    Orphan,
    Background,
    Foreground,
}

/// Result of deleting an object.
pub(crate) enum Deleted {
    /// The object was deleted at this revision.
    Gone(Arc<Object>),
    /// The object stays for now, because of finalizers or a grace period.
    Deleting(Arc<Object>),
    /// Nothing changed: the object was already being deleted.
    Unchanged(Arc<Object>),
}

/// Deletes the object at `key`, as far as its finalizers and grace period allow.
pub(crate) fn delete_one(call: &Call, key: &Key, options: &DeleteOptions) -> ApiResult<Deleted> {
    let name = key.as_str().rsplit('/').next().unwrap_or_default().to_owned();
    for _ in 0..MAX_ATTEMPTS {
        let Some(read) = call.core.store.get(&call.served.resource.collection, key) else {
            return Err(call.served.not_found(&name));
        };
        check_preconditions(call, &read, options)?;
        if let Ok(deleted) = attempt(call, key, &read, options) {
            return Ok(deleted);
        }
    }
    Err(ApiError::stale(&call.served.target(&name)))
}

pub(crate) fn check_preconditions(call: &Call, read: &Object, options: &DeleteOptions) -> ApiResult<()> {
    // This message names the kind; all others name the resource.
    let target = Target { resource: &call.served.resource.kind, ..call.served.target(read.name()) };
    if let Some(uid) = options.uid.as_deref().filter(|uid| *uid != read.uid()) {
        let why = format!(
            "the UID in the precondition ({uid}) does not match the UID in record ({}). The object might have been deleted and then recreated",
            read.uid()
        );
        return Err(ApiError::conflict(&target, &why));
    }
    let current = read.revision().to_string();
    if let Some(claimed) = options.resource_version.as_deref().filter(|rv| *rv != current) {
        let why = format!(
            "the ResourceVersion in the precondition ({claimed}) does not match the ResourceVersion in record ({current}). The object might have been modified"
        );
        return Err(ApiError::conflict(&target, &why));
    }
    Ok(())
}

fn attempt(call: &Call, key: &Key, read: &Arc<Object>, options: &DeleteOptions) -> Result<Deleted, Raced> {
    let collection = &call.served.resource.collection;
    let rules = call.served.rules();
    let mut marked = read.value().clone();
    let graceful = match mark_graceful(call, &mut marked, options) {
        Grace::Pending => return Ok(Deleted::Unchanged(read.clone())),
        Grace::Unsupported => None,
        Grace::Seconds(seconds) => Some(seconds),
    };
    let orphans = call.served.built_in().is_some_and(|kind| kind.orphans);
    let finalizers_changed = propagate(&mut marked, options, orphans);
    let pending = !object::finalizers(&marked).is_empty();
    let only_marked = rules.is_only_marked(read.value());
    let stays = pending || only_marked || graceful.is_some_and(|seconds| 0 < seconds);
    if only_marked && !is_deleting(&marked) {
        // A namespace first loses its content, without a time limit. It therefore has no grace
        // period.
        set_meta(&mut marked, "deletionTimestamp", Some(json!(call.core.now())));
    } else if pending && graceful.is_none() {
        mark_deleting(call, &mut marked);
    }
    rules.on_delete(&mut marked, &call.core.now());
    if stays {
        if marked == *read.value() {
            return Ok(Deleted::Unchanged(read.clone()));
        }
        let change = Change::Update { read: read.clone(), value: marked };
        let object = call.commit(collection, key, change)?;
        after_commit(call, object.value());
        return Ok(Deleted::Deleting(object));
    }
    // Kinds with graceful deletion pass through the deleting state even if their grace period is
    // zero.
    let last = if graceful.is_some() && (marked != *read.value() || finalizers_changed) {
        call.commit(collection, key, Change::Update { read: read.clone(), value: marked })?
    } else {
        read.clone()
    };
    let gone = call.commit(collection, key, Change::Delete { read: last })?;
    after_commit(call, gone.value());
    Ok(Deleted::Gone(gone))
}

enum Grace {
    /// The kind has no grace period.
    Unsupported,
    /// The object is already being deleted, and the request does not shorten the grace period.
    Pending,
    /// The object is marked and will be deleted after this many seconds.
    Seconds(i64),
}

fn mark_graceful(call: &Call, object: &mut Value, options: &DeleteOptions) -> Grace {
    let Some(grace) = call.served.rules().grace(object, options.grace) else {
        return Grace::Unsupported;
    };
    let stamp = |at: Timestamp| json!(rfc3339_seconds(at));
    if is_deleting(object) {
        let held = object::metadata(object)
            .and_then(|m| m.get("deletionGracePeriodSeconds"))
            .and_then(Value::as_i64);
        // Without a remaining grace period, only finalizers delay the deletion.
        let Some(held) = held.filter(|seconds| 0 < *seconds) else { return Grace::Seconds(0) };
        // A request can only shorten the grace period, and only explicitly.
        let Some(asked) = options.grace.map(|s| if s < 0 { 1 } else { s }) else { return Grace::Pending };
        if held <= asked {
            return Grace::Pending;
        }
        let marked_at: Option<Timestamp> = meta_str(object, "deletionTimestamp").parse().ok();
        let sooner = marked_at.and_then(|at| at.checked_sub(SignedDuration::from_secs(held - asked)).ok());
        if let Some(sooner) = sooner {
            set_meta(object, "deletionTimestamp", Some(stamp(sooner)));
        }
        set_meta(object, "deletionGracePeriodSeconds", Some(json!(asked)));
        return Grace::Seconds(asked);
    }
    let now = call.core.config.clock.now();
    let due = now.checked_add(SignedDuration::from_secs(grace)).unwrap_or(now);
    set_meta(object, "deletionTimestamp", Some(stamp(due)));
    set_meta(object, "deletionGracePeriodSeconds", Some(json!(grace)));
    count_generation(object);
    Grace::Seconds(grace)
}

fn mark_deleting(call: &Call, object: &mut Value) {
    let graced = object::metadata(object).is_some_and(|m| m.contains_key("deletionGracePeriodSeconds"));
    if !graced {
        count_generation(object);
    }
    if !is_deleting(object) {
        set_meta(object, "deletionTimestamp", Some(json!(call.core.now())));
    }
    set_meta(object, "deletionGracePeriodSeconds", Some(json!(0)));
}

fn count_generation(object: &mut Value) {
    let generation = object::generation(object);
    if 0 < generation {
        set_meta(object, "generation", Some(json!(generation + 1)));
    }
}

/// Converts the propagation policy into the garbage collector's finalizers. Returns whether they
/// changed. The object's own finalizers take precedence over the default of its kind.
fn propagate(object: &mut Value, options: &DeleteOptions, orphans: bool) -> bool {
    let before: Vec<String> = object::finalizers(object).into_iter().map(str::to_owned).collect();
    let asks = before.iter().any(|finalizer| finalizer == ORPHAN || finalizer == FOREGROUND);
    let of_kind = (orphans && !asks).then_some(Propagation::Orphan);
    let Some(policy) = options.propagation().or(of_kind) else { return false };
    let mut after: Vec<String> =
        before.iter().filter(|f| *f != ORPHAN && *f != FOREGROUND).cloned().collect();
    match policy {
        Propagation::Orphan => after.push(ORPHAN.to_owned()),
        Propagation::Foreground => after.push(FOREGROUND.to_owned()),
        Propagation::Background => {}
    }
    if after == before {
        return false;
    }
    set_meta(object, "finalizers", (!after.is_empty()).then(|| json!(after)));
    true
}
