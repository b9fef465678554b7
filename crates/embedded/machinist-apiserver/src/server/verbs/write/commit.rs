//! Commits a prepared object, and does the server's own work that follows the commit.

use std::sync::Arc;

use serde_json::{Value, json};

use crate::schema::fields::managers::differ_in_time_only;
use crate::schema::kinds::custom_resource_definition;
use crate::server::verbs::write::definitions;
use crate::server::verbs::{Call, Effect};
use crate::store::mvcc::{Change, Raced};
use crate::values::key::Key;
use crate::values::object::{
    self, MANAGED_FIELDS, Object, is_deleting, meta_str, set_meta, take_managed_fields,
};

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

/// Performs the server's own follow-up work after a change: serves or deletes definitions, and
/// deletes expired Events.
pub(crate) fn after_commit(call: &Call, object: &Value) {
    if call.effect == Effect::DryRun {
        return;
    }
    if call.served.is_custom() {
        definitions::finish(call, &call.served.resource.collection);
    } else if &*call.served.resource.collection == "events" {
        let revision = meta_str(object, "resourceVersion").parse().unwrap_or_default();
        call.core.expire_events(&key_of(object), revision);
    } else if &*call.served.resource.collection == custom_resource_definition::COLLECTION {
        definitions::after_change(call, object);
    }
}

pub(crate) fn key_of(object: &Value) -> Key {
    Key::new(meta_str(object, "namespace"), meta_str(object, "name"))
}
