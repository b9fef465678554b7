//! The kinds of the machine API: what is observed of each, and how its actions are performed.

mod machine;
mod machine_class;
mod machine_deployment;
mod machine_set;
mod replacement;

use std::time::Duration;

use k8s_openapi::api::core::v1::ObjectReference;

use crate::Key;
use crate::world::World;

/// The kinds, as the loop knows them.
pub(crate) mod kinds {
    pub(crate) use super::machine::Machines;
    pub(crate) use super::machine_class::{Classes, Secrets};
    pub(crate) use super::machine_deployment::Deployments;
    pub(crate) use super::machine_set::Sets;
    pub(crate) use super::replacement::Replacements;
}

pub(crate) use machine::token as token_of;

/// How an Event names an object of the machine API.
fn reference(kind: &str, namespace: &str, name: &str, uid: &str) -> ObjectReference {
    ObjectReference {
        api_version: Some("machine.sapcloud.io/v1alpha1".to_owned()),
        kind: Some(kind.to_owned()),
        namespace: Some(namespace.to_owned()),
        name: Some(name.to_owned()),
        uid: Some(uid.to_owned()),
        ..ObjectReference::default()
    }
}

/// How often one key is looked at, at most. Keys that count many objects collect what happens to them first.
pub(crate) fn min_interval(key: &Key) -> Duration {
    match key {
        Key::Machine(_) | Key::Secret(_) => Duration::ZERO,
        Key::Class(_) | Key::Replacement(_) | Key::Set(_) | Key::Deployment(_) => Duration::from_millis(100),
    }
}

/// Every key there is: looked at once when the stores are complete.
pub(crate) fn all_keys(world: &World) -> Vec<Key> {
    let mut keys = Vec::new();
    keys.extend(world.machines.iter().map(|(key, _)| Key::Machine(key.clone())));
    keys.extend(world.machines.iter().map(|(_, entry)| world.replacement_key(&entry.facts)));
    keys.extend(world.classes.iter().map(|(key, _)| Key::Class(key.clone())));
    keys.extend(world.secrets.iter().map(|(key, _)| Key::Secret(key.clone())));
    keys.extend(world.sets.iter().map(|(key, _)| Key::Set(key.clone())));
    keys.extend(world.deployments.iter().map(|(key, _)| Key::Deployment(key.clone())));
    keys
}
