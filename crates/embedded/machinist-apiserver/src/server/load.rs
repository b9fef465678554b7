//! Objects put into the store as they are, as restoring etcd from a backup would: for taking over what another server held.
//!
//! A request makes an object anew: uid, times and generation are the server's, status and deletion come later, by other requests.
//! Here nothing is made. What is checked is only what decides where an object lies: its type, its namespace and its name.
//!
//! Deliberately absent: admission, defaulting, pruning, validation. An object that no request could have made is stored all the same,
//! and the next request that changes it meets the rules.

use std::sync::Arc;

use serde_json::Value;

use crate::schema::kinds::custom_resource_definition;
use crate::schema::resource::{Served, split_api_version};
use crate::server::core::Core;
use crate::server::verbs::write::register;
use crate::store::commits::Origin;
use crate::store::key::Key;
use crate::store::mvcc::{Change, Raced};
use crate::values::object::{Object, meta_str};

/// Why an object could not be loaded. Nothing was changed then.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LoadError {
    /// A field that decides where the object lies is not as it must be.
    #[error("{field}: expected {expected}")]
    Field {
        /// Its path.
        field: &'static str,
        /// What it must be.
        expected: String,
    },
    /// The name is taken.
    #[error("metadata.name: expected a free name, and {resource} {key} exists")]
    Taken {
        /// The resource, as the store names it: `pods`, `machines.machine.sapcloud.io`.
        resource: String,
        /// `namespace/name`, or `name`.
        key: String,
    },
}

/// Stores an object as it is.
pub(crate) fn load(core: &Core, mut object: Value) -> Result<Arc<Object>, LoadError> {
    let served = served(core, &object)?;
    let key = place(&served, &object)?;
    let resource = &served.resource;
    // Every served version is one object: it lies in the store in one form.
    if served.is_custom() {
        object["apiVersion"] = Value::String(served.storage_api_version());
    } else {
        served.rules().make_stored(&mut object);
    }
    let stored = core
        .store
        .commit(&resource.table, &key, Change::Create(object), &Origin::default())
        .map_err(|Raced| LoadError::Taken { resource: resource.table.to_string(), key: key.to_string() })?;
    match &*resource.table {
        custom_resource_definition::TABLE => register(core, &stored),
        "events" => core.expire_events(&key, stored.revision()),
        _ => {}
    }
    Ok(stored)
}

/// The resource and version that the object's type names.
fn served(core: &Core, object: &Value) -> Result<Served, LoadError> {
    let text = |key: &str| object.get(key).and_then(Value::as_str).unwrap_or_default();
    let (group, version) = split_api_version(text("apiVersion"));
    let registry = core.registry();
    let Some(mut served) = registry.resources(group, version) else {
        return Err(field("apiVersion", "a group and version that is served"));
    };
    let found = served.find(|served| served.resource.kind == text("kind")).cloned();
    found.ok_or_else(|| field("kind", format!("a kind that is served in {}", text("apiVersion"))))
}

/// Where the object lies.
fn place(served: &Served, object: &Value) -> Result<Key, LoadError> {
    let (namespace, name) = (meta_str(object, "namespace"), meta_str(object, "name"));
    let kind = &served.resource.kind;
    if served.resource.namespaced == namespace.is_empty() {
        let expected = if namespace.is_empty() { "a namespace" } else { "none" };
        return Err(field("metadata.namespace", format!("{expected}, for a {kind}")));
    }
    for (path, part) in [("metadata.namespace", namespace), ("metadata.name", name)] {
        // The two are one key, with a slash between them.
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
