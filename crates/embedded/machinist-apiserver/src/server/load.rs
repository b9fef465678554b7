//! Loads objects into the store unchanged, like an etcd restore from a backup. This takes over the
//! objects of another server.
//!
//! A create request makes a new object: the server sets its uid, times and generation, and later
//! requests set its status and delete it. Loading sets nothing. It checks only the fields that
//! determine the object's place in the store: type, namespace and name.
//!
//! Not included: admission, defaulting, pruning, validation. An object that no request could have
//! created is stored all the same. The next request that changes it must follow the rules.

use std::sync::Arc;

use serde_json::Value;

use crate::log::origin::Origin;
use crate::schema::kinds::custom_resource_definition;
use crate::schema::resource::{Served, split_api_version};
use crate::server::core::Core;
use crate::server::verbs::write::definitions::register;
use crate::store::mvcc::{Change, Raced};
use crate::values::key::Key;
use crate::values::object::{Object, meta_str};

/// Reason why an object was not loaded. The store is unchanged.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LoadError {
    /// A field that determines the object's place in the store has an invalid value.
    #[error("{field}: expected {expected}")]
    Field {
        /// Path of the field.
        field: &'static str,
        /// Expected value, in words.
        expected: String,
    },
    /// An object with this name exists.
    #[error("metadata.name: expected a free name, but {resource} {key} already exists")]
    Taken {
        /// The resource, as the store names it: `pods`, `machines.machine.sapcloud.io`.
        resource: String,
        /// Key of the existing object: `namespace/name`, or `name`.
        key: String,
    },
}

/// Stores an object unchanged.
pub(crate) fn load(core: &Core, mut object: Value) -> Result<Arc<Object>, LoadError> {
    let served = served(core, &object)?;
    let key = place(&served, &object)?;
    let resource = &served.resource;
    // All served versions are the same object, so the store keeps one form of it.
    if served.is_custom() {
        object["apiVersion"] = Value::String(served.storage_api_version());
    } else {
        served.rules().make_stored(&mut object);
    }
    let stored =
        core.store.commit(&resource.collection, &key, Change::Create(object), &Origin::default()).map_err(
            |Raced| LoadError::Taken { resource: resource.collection.to_string(), key: key.to_string() },
        )?;
    match &*resource.collection {
        custom_resource_definition::COLLECTION => register(core, &stored),
        "events" => core.expire_events(&key, stored.revision()),
        _ => {}
    }
    Ok(stored)
}

/// Returns the resource and version of the object's type.
fn served(core: &Core, object: &Value) -> Result<Served, LoadError> {
    let text = |key: &str| object.get(key).and_then(Value::as_str).unwrap_or_default();
    let (group, version) = split_api_version(text("apiVersion"));
    let registry = core.registry();
    let Some(mut served) = registry.resources(group, version) else {
        return Err(field("apiVersion", "a served group and version"));
    };
    let found = served.find(|served| served.resource.kind == text("kind")).cloned();
    found.ok_or_else(|| field("kind", format!("a kind served in {}", text("apiVersion"))))
}

/// Returns the object's key in the store.
fn place(served: &Served, object: &Value) -> Result<Key, LoadError> {
    let (namespace, name) = (meta_str(object, "namespace"), meta_str(object, "name"));
    let kind = &served.resource.kind;
    if served.resource.namespaced == namespace.is_empty() {
        let expected = if namespace.is_empty() { "a namespace" } else { "no namespace" };
        return Err(field("metadata.namespace", format!("{expected} for a {kind}")));
    }
    for (path, part) in [("metadata.namespace", namespace), ("metadata.name", name)] {
        // A slash joins the two parts to one key.
        if part.contains('/') {
            return Err(field(path, "no slash"));
        }
    }
    if name.is_empty() {
        return Err(field("metadata.name", "a name"));
    }
    Ok(Key::new(namespace, name))
}

fn field(field: &'static str, expected: impl Into<String>) -> LoadError {
    LoadError::Field { field, expected: expected.into() }
}
