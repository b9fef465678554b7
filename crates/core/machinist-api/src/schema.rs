//! Schemas of our types. `schemars` derives them from the structs in [`crate::mcm`] and
//! [`crate::capi`]. This module has the parts that a struct cannot contain: the schemas of types of
//! Kubernetes, and the rules of the API server for schemas.
//!
//! - The first paragraph of a doc comment becomes the description that `kubectl explain` shows.
//!   Further paragraphs are for readers of the code.
//! - A field is required if it is not an `Option` and has no default. `extend("required" = [...])`
//!   on the struct requires a field that our programs can do without.
//! - `#[schemars(skip)]` is on the map of unknown fields. The API server keeps unknown fields only
//!   with `x-kubernetes-preserve-unknown-fields`.

use schemars::generate::SchemaSettings;
use schemars::transform::transform_subschemas;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde_json::{Value, json};

/// Pattern of a resource quantity: a signed decimal with a binary, decimal or exponent suffix.
const QUANTITY_PATTERN: &str = concat!(
    r"^(\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))",
    r"(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))))?$",
);

/// Returns the structural schema of a type.
pub(crate) fn of<T: JsonSchema>() -> Value {
    let mut settings = SchemaSettings::draft2020_12().with_transform(make_structural);
    settings.meta_schema = None;
    settings.inline_subschemas = true;
    settings.into_generator().into_root_schema_for::<T>().to_value()
}

/// Converts a schema to the form that the API server accepts.
fn make_structural(schema: &mut Schema) {
    // The API has no defaults: each reader decides what an absent value means.
    schema.remove("default");
    schema.remove("title");
    // An `Option` has the types X and null. Everywhere in Kubernetes, null means absent.
    if let Some(Value::Array(types)) = schema.get_mut("type") {
        let of_value = types.swap_remove(0);
        schema.insert("type".to_owned(), of_value);
    }
    // Kubernetes has no unsigned formats. The limits of the type stay.
    if schema.get("format") == Some(&json!("uint16")) {
        schema.insert("format".to_owned(), json!("int32"));
    }
    if let Some(Value::String(description)) = schema.get_mut("description") {
        let first = description.split("\n\n").next().unwrap_or_default();
        *description = first.replace('\n', " ").replace('`', "");
    }
    transform_subschemas(&mut make_structural, schema);
}

/// An object with any fields.
pub(crate) fn open_object(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "object", "x-kubernetes-preserve-unknown-fields": true})
}

/// A count or a percentage.
pub(crate) fn int_or_string(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"anyOf": [{"type": "integer"}, {"type": "string"}], "x-kubernetes-int-or-string": true})
}

/// A map from resource names to quantities.
pub(crate) fn resource_list(generator: &mut SchemaGenerator) -> Schema {
    let mut quantity = int_or_string(generator);
    quantity.insert("pattern".to_owned(), json!(QUANTITY_PATTERN));
    json_schema!({"type": "object", "additionalProperties": quantity})
}

pub(crate) fn secret_reference(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "object",
        "properties": {"name": {"type": "string"}, "namespace": {"type": "string"}},
        "x-kubernetes-map-type": "atomic",
    })
}

pub(crate) fn label_selector(_: &mut SchemaGenerator) -> Schema {
    let expression = json!({
        "type": "object",
        "properties": {
            "key": {"type": "string"},
            "operator": {"type": "string", "description": "In, NotIn, Exists or DoesNotExist."},
            "values": {"type": "array", "items": {"type": "string"}, "x-kubernetes-list-type": "atomic"},
        },
        "required": ["key", "operator"],
    });
    json_schema!({
        "type": "object",
        "properties": {
            "matchExpressions": {"type": "array", "items": expression, "x-kubernetes-list-type": "atomic"},
            "matchLabels": {"type": "object", "additionalProperties": {"type": "string"}},
        },
        "x-kubernetes-map-type": "atomic",
    })
}

pub(crate) fn node_addresses(_: &mut SchemaGenerator) -> Schema {
    let address = json!({
        "type": "object",
        "properties": {"address": {"type": "string"}, "type": {"type": "string"}},
        "required": ["address", "type"],
    });
    json_schema!({"type": "array", "items": address})
}

pub(crate) fn node_conditions(_: &mut SchemaGenerator) -> Schema {
    let condition = json!({
        "type": "object",
        "properties": {
            "lastHeartbeatTime": {"type": "string", "format": "date-time"},
            "lastTransitionTime": {"type": "string", "format": "date-time"},
            "message": {"type": "string"},
            "reason": {"type": "string"},
            "status": {"type": "string"},
            "type": {"type": "string"},
        },
        "required": ["status", "type"],
    });
    json_schema!({"type": "array", "items": condition})
}

/// The spec of a Node. Our type has only the taints.
pub(crate) fn node_spec(_: &mut SchemaGenerator) -> Schema {
    let text = json!({"type": "string"});
    let config_map = json!({
        "type": "object",
        "properties": {
            "kubeletConfigKey": text, "name": text, "namespace": text, "resourceVersion": text, "uid": text,
        },
        "required": ["kubeletConfigKey", "name", "namespace"],
    });
    let taint = json!({
        "type": "object",
        "properties": {
            "effect": text,
            "key": text,
            "timeAdded": {"type": "string", "format": "date-time"},
            "value": text,
        },
        "required": ["effect", "key"],
    });
    json_schema!({
        "type": "object",
        "properties": {
            "configSource": {"type": "object", "properties": {"configMap": config_map}},
            "externalID": text,
            "podCIDR": text,
            "podCIDRs": {"type": "array", "items": text, "x-kubernetes-list-type": "set"},
            "providerID": text,
            "taints": {
                "type": "array",
                "items": taint,
                "x-kubernetes-list-type": "atomic",
                "description": "Taints for the Node.",
            },
            "unschedulable": {"type": "boolean"},
        },
    })
}

/// A rule for a field of a `spec` that is written once.
pub(crate) fn write_once(field: &str) -> Value {
    let is_set = format!("has(self.{field}) && self.{field} == oldSelf.{field}");
    json!({
        "rule": format!("!has(oldSelf.{field}) || oldSelf.{field} == '' || ({is_set})"),
        "message": format!("spec.{field} cannot be changed once it is set"),
    })
}
