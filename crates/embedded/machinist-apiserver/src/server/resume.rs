//! Continues the work of an earlier server after its state is read.

use std::sync::Arc;

use crate::schema::crd::registration::is_established;
use crate::schema::kinds::custom_resource_definition;
use crate::server::core::Core;
use crate::server::verbs::Call;
use crate::server::verbs::write::commit::after_commit;
use crate::server::verbs::write::definitions::register;
use crate::values::object::{Object, is_deleting};

/// Serves the existing definitions, continues deletions of definitions, and restarts the time to
/// live of Events.
pub(crate) fn resume(core: &Arc<Core>) {
    for (key, event) in objects(core, "events") {
        core.expire_events(&key, event.revision());
    }
    let mut definitions = objects(core, custom_resource_definition::COLLECTION);
    // In the order in which names were assigned: established definitions first.
    definitions.sort_by_key(|(_, definition)| (!is_established(definition.value()), definition.revision()));
    for (_, definition) in &definitions {
        register(core, definition);
    }
    let registry = core.registry();
    let served = registry.find("apiextensions.k8s.io", "v1", "customresourcedefinitions");
    let Some(call) = served.map(|served| Call::of_server(core.clone(), served.clone())) else { return };
    for (_, definition) in definitions.iter().filter(|(_, definition)| is_deleting(definition.value())) {
        after_commit(&call, definition.value());
    }
}

fn objects(core: &Core, collection: &str) -> Vec<(crate::values::key::Key, Arc<Object>)> {
    core.store.slice(collection, "", None, None).map(|slice| slice.items).unwrap_or_default()
}
