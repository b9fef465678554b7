//! Follow-up work for CustomResourceDefinitions: serves their resources, assigns names, and deletes
//! definitions after their instances.
//!
//! In a real cluster, controllers inside kube-apiserver do this work. Here, the write that makes it
//! necessary does it, before the client gets its answer.

use std::sync::Arc;

use serde_json::Value;

use crate::log::origin::Origin;
use crate::schema::crd::registration;
use crate::schema::kinds::custom_resource_definition::{COLLECTION, INSTANCES_FINALIZER};
use crate::server::core::Core;
use crate::server::verbs::Call;
use crate::server::verbs::write::deletion::{DeleteOptions, delete_one};
use crate::store::mvcc::{Change, Raced};
use crate::values::key::Key;
use crate::values::object::{self, Object, is_deleting, meta_str, set_meta};

/// Follows a change of a definition: serves its resource, or deletes its instances and then the
/// definition.
pub(crate) fn after_change(call: &Call, definition: &Value) {
    let core = &call.core;
    let name = meta_str(definition, "name");
    match core.store.get(COLLECTION, &Key::new("", name)) {
        None => {
            unregister(core, definition);
            reconsider(core, registration::group_and_plural(definition).0);
        }
        Some(held) if is_deleting(held.value()) => {
            delete_instances(call, held.value());
            finish(call, name);
        }
        Some(held) => register(core, &held),
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
        let served = registry.find("apiextensions.k8s.io", "v1", COLLECTION);
        if let Some(served) = served {
            core.own_writes().changed_status(served, &current, &mut value);
        }
        let collection: Arc<str> = COLLECTION.into();
        let change = Change::Update { read: current.clone(), value };
        // A concurrent writer also calls this function.
        match core.store.commit(&collection, &Key::new("", current.name()), change, &Origin::default()) {
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
    let slice = core.store.slice(COLLECTION, "", None, None);
    slice
        .map(|slice| slice.items.into_iter().map(|(_, definition)| definition.opened()).collect())
        .unwrap_or_default()
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
pub(crate) fn finish(call: &Call, collection: &str) {
    let core = &call.core;
    let key = Key::new("", collection);
    let Some(definition) = core.store.get(COLLECTION, &key) else { return };
    let has_instances = !is_built_in(core, definition.value()) && !core.store.is_empty(collection);
    if !is_deleting(definition.value()) || has_instances {
        return;
    }
    let kept: Vec<Value> = object::finalizers(definition.value())
        .into_iter()
        .filter(|f| *f != INSTANCES_FINALIZER)
        .map(Value::from)
        .collect();
    let definitions: Arc<str> = COLLECTION.into();
    let origin = Origin::default();
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

/// Deletes all instances of a definition in deletion.
fn delete_instances(call: &Call, definition: &Value) {
    let (group, plural) = registration::group_and_plural(definition);
    let registry = call.core.registry();
    // Objects of a built-in kind with the same name do not belong to the definition.
    let Some(served) = registry.find_any(group, plural).filter(|served| served.is_custom()) else { return };
    let instances = call.on(served.clone());
    let slice = instances.core.store.slice(&served.resource.collection, "", None, None);
    for (key, _) in slice.map(|slice| slice.items).unwrap_or_default() {
        if let Err(error) = delete_one(&instances, &key, &DeleteOptions::default()) {
            tracing::warn!(%key, %error, "Could not delete an instance of a deleted definition");
        }
    }
}
