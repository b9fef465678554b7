//! An object in the versions in which it is served.

use serde_json::{Value, json};

use crate::schema::crd::{default, prune};
use crate::schema::resource::Served;

/// Reports whether the version shows all objects in their stored form.
pub(crate) fn is_shown_as_stored(served: &Served) -> bool {
    let is_own_version = || served.version().name == served.resource.storage_version;
    let lacks_nothing = || !served.version().schema.has_defaults;
    !served.is_converted() && (!served.is_custom() || (is_own_version() && lacks_nothing()))
}

/// The metadata of an object, as `PartialObjectMetadata`.
pub(crate) fn metadata_only(object: &Value) -> Value {
    json!({
        "apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadata",
        "metadata": object.get("metadata").cloned().unwrap_or_else(|| json!({})),
    })
}

/// The object as `served` shows it, if that differs from its stored form.
pub(crate) fn converted(object: &Value, served: &Served) -> Option<Value> {
    if served.is_custom() {
        let schema = &served.version().schema;
        if served.version().name == served.resource.storage_version {
            // An object that was stored before its definition got a default is shown with the
            // default.
            return default::filled(object, schema);
        }
        let mut converted = object.clone();
        converted["apiVersion"] = json!(served.api_version());
        // Fields outside the schema of the other version are not shown.
        prune::prune(&mut converted, schema);
        default::fill(&mut converted, schema);
        return Some(converted);
    }
    served.is_converted().then(|| {
        let mut converted = object.clone();
        served.rules().show_stored(&mut converted);
        converted
    })
}

/// Converts the object to the version `served`, for reading or as the base of a change.
pub(crate) fn in_version(object: &Value, served: &Served) -> Value {
    converted(object, served).unwrap_or_else(|| object.clone())
}
