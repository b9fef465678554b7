//! Removes fields that a schema does not define, and nulls and empty values that a typed decoder
//! would not keep.

use serde_json::Value;

use crate::schema::crd::format::Format;
use crate::schema::crd::schema::{MAX_DEPTH, Schema, Type, Zero};
use crate::values::path::{MAX_COMPLAINTS, Path};
use crate::values::quantity;

/// Removes every field that `schema` neither defines nor preserves. `metadata`, `apiVersion` and
/// `kind` of the root and of embedded resources stay, because other rules apply to them.
pub(crate) fn prune(value: &mut Value, schema: &Schema) {
    prune_at(value, schema, true, 0);
}

fn prune_at(value: &mut Value, schema: &Schema, resource: bool, depth: usize) {
    if schema.is_opaque() || MAX_DEPTH < depth {
        return;
    }
    match value {
        Value::Object(map) => {
            if !schema.preserve_unknown {
                map.retain(|key, _| {
                    (resource && matches!(key.as_str(), "apiVersion" | "kind" | "metadata"))
                        || schema.property(key).is_some()
                });
            }
            for (key, child) in map.iter_mut() {
                let is_own_metadata = resource && key == "metadata";
                match schema.property(key) {
                    Some(below) if !is_own_metadata => {
                        prune_at(child, below, below.embedded_resource, depth + 1)
                    }
                    Some(_) | None => {}
                }
            }
        }
        Value::Array(items) => {
            if let Some(below) = &schema.items {
                for item in items {
                    prune_at(item, below, below.embedded_resource, depth + 1);
                }
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// Paths of unknown fields, at most as many as are reported.
#[derive(Debug, Default)]
pub(crate) struct Unknown(pub(crate) Vec<String>);

impl Unknown {
    /// Collects the unknown fields of a value at `place`.
    pub(crate) fn look(&mut self, place: &str, value: &Value, schema: &Schema) {
        self.look_at(&Path::Root(place), value, schema, false, 0);
    }

    /// Collects the unknown fields of a custom resource, excluding its metadata.
    pub(crate) fn look_at_resource(&mut self, value: &Value, schema: &Schema) {
        self.look_at(&Path::Root(""), value, schema, true, 0);
    }

    fn look_at(&mut self, place: &Path<'_>, value: &Value, schema: &Schema, resource: bool, depth: usize) {
        if schema.is_opaque() || MAX_DEPTH < depth || MAX_COMPLAINTS <= self.0.len() {
            return;
        }
        match value {
            Value::Object(map) => {
                for (key, child) in map {
                    if resource && matches!(key.as_str(), "apiVersion" | "kind" | "metadata") {
                        continue;
                    }
                    let below = Path::Field(place, key);
                    match schema.property(key) {
                        Some(known) => {
                            self.look_at(&below, child, known, known.embedded_resource, depth + 1);
                        }
                        None if !schema.preserve_unknown && self.0.len() < MAX_COMPLAINTS => {
                            self.0.push(below.to_string());
                        }
                        None => {}
                    }
                }
            }
            Value::Array(items) => {
                let Some(known) = &schema.items else { return };
                for (index, item) in items.iter().enumerate() {
                    let below = Path::Item(place, index);
                    self.look_at(&below, item, known, known.embedded_resource, depth + 1);
                }
            }
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }
}

/// Removes every `null` that the schema does not allow, so that a default can replace it.
pub(crate) fn drop_nulls(value: &mut Value, schema: &Schema) {
    drop_nulls_at(value, schema, 0);
}

fn drop_nulls_at(value: &mut Value, schema: &Schema, depth: usize) {
    if schema.is_opaque() || MAX_DEPTH < depth {
        return;
    }
    match value {
        Value::Object(map) => {
            map.retain(|key, child| {
                !(child.is_null() && schema.property(key).is_some_and(|s| !s.allows_null()))
            });
            for (key, child) in map.iter_mut() {
                if let Some(below) = schema.property(key) {
                    drop_nulls_at(child, below, depth + 1);
                }
            }
        }
        Value::Array(items) => {
            if let Some(below) = &schema.items {
                items.iter_mut().for_each(|item| drop_nulls_at(item, below, depth + 1));
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// Normalises a built-in object as a typed decoder would. Removes unknown fields, nulls, and empty
/// maps, lists and strings that the schema does not keep. Writes quantities in their canonical
/// form.
pub(crate) fn normalise(value: &mut Value, schema: &Schema) {
    prune_at(value, schema, false, 0);
    drop_empty(value, schema, 0);
}

fn drop_empty(value: &mut Value, schema: &Schema, depth: usize) {
    if schema.is_opaque() || MAX_DEPTH < depth {
        return;
    }
    match value {
        Value::Object(map) => {
            for (key, child) in map.iter_mut() {
                if let Some(below) = schema.property(key) {
                    drop_empty(child, below, depth + 1);
                }
            }
            for (key, _) in schema.properties.iter().filter(|(_, s)| s.zero == Zero::Null) {
                map.entry(key.clone()).or_insert(Value::Null);
            }
            // Only named fields are omitted when empty; the entries of a map are data.
            map.retain(|key, child| match schema.properties.get(key) {
                Some(below) if below.zero == Zero::Null => true,
                Some(below) => !child.is_null() && !is_omitted(child, below),
                None => !child.is_null() || schema.preserve_unknown,
            });
        }
        Value::Array(items) => {
            if let Some(below) = &schema.items {
                items.iter_mut().for_each(|item| drop_empty(item, below, depth + 1));
            }
        }
        Value::Number(_) | Value::String(_) if schema.format == Some(Format::Quantity) => {
            let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
            if let Some(canonical) = quantity::canonical(&text) {
                *value = Value::String(canonical);
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

fn is_omitted(value: &Value, schema: &Schema) -> bool {
    if schema.zero == Zero::Keep {
        return false;
    }
    match value {
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(map) => {
            map.is_empty() && schema.of == Some(Type::Object) && schema.additional.is_some()
        }
        Value::Null => true,
        Value::Bool(flag) => schema.zero == Zero::Omit && !flag,
        Value::Number(number) => schema.zero == Zero::Omit && number.as_f64() == Some(0.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::values::status::FieldErrors;
    use serde_json::json;

    #[test]
    fn unknown_fields_are_removed_and_preserved_ones_stay() {
        let schema = Schema::parse(
            &json!({"type": "object", "properties": {
                "spec": {"type": "object", "properties": {
                    "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
                    "half": {"type": "object", "x-kubernetes-preserve-unknown-fields": true,
                             "properties": {"known": {"type": "object", "properties": {"a": {"type": "string"}}}}},
                    "map": {"type": "object", "additionalProperties": {"type": "object", "properties": {"a": {"type": "string"}}}},
                    "list": {"type": "array", "items": {"type": "object", "properties": {"a": {"type": "string"}}}}
                }}
            }}),
            "schema",
            &mut FieldErrors::default(),
        );
        let mut object = json!({"apiVersion": "v1", "kind": "K", "metadata": {"name": "a"}, "extra": 1, "spec": {
            "free": {"x": 1}, "half": {"x": 1, "known": {"a": "1", "b": 2}}, "map": {"k": {"a": "1", "b": 2}},
            "list": [{"a": "1", "b": 2}], "other": true
        }});
        prune(&mut object, &schema);
        assert_eq!(
            object,
            json!({"apiVersion": "v1", "kind": "K", "metadata": {"name": "a"}, "spec": {
                "free": {"x": 1}, "half": {"x": 1, "known": {"a": "1"}}, "map": {"k": {"a": "1"}}, "list": [{"a": "1"}]
            }})
        );
    }
}
