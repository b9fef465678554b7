//! Sets the defaults of a schema.

use serde_json::Value;

use crate::schema::crd::schema::{MAX_DEPTH, Schema};

/// Sets every absent field that has a default. A default is set before its own fields are visited,
/// so defaults nest.
pub(crate) fn fill(value: &mut Value, schema: &Schema) {
    fill_at(value, schema, 0);
}

/// Returns the value with its defaults, or `None` if it lacks none.
pub(crate) fn filled(value: &Value, schema: &Schema) -> Option<Value> {
    lacks(value, schema, 0).then(|| {
        let mut filled = value.clone();
        fill(&mut filled, schema);
        filled
    })
}

fn lacks(value: &Value, schema: &Schema, depth: usize) -> bool {
    if !schema.has_defaults || schema.is_opaque() || MAX_DEPTH < depth {
        return false;
    }
    match value {
        Value::Object(map) => {
            schema.properties.iter().any(|(key, below)| below.default.is_some() && !map.contains_key(key))
                || map.iter().any(|(key, child)| {
                    schema.property(key).is_some_and(|below| lacks(child, below, depth + 1))
                })
        }
        Value::Array(items) => {
            schema.items.as_ref().is_some_and(|below| items.iter().any(|item| lacks(item, below, depth + 1)))
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
    }
}

fn fill_at(value: &mut Value, schema: &Schema, depth: usize) {
    if schema.is_opaque() || MAX_DEPTH < depth {
        return;
    }
    match value {
        Value::Object(map) => {
            for (key, below) in &schema.properties {
                if let (false, Some(default)) = (map.contains_key(key), &below.default) {
                    map.insert(key.clone(), default.clone());
                }
            }
            for (key, child) in map.iter_mut() {
                if let Some(below) = schema.property(key) {
                    fill_at(child, below, depth + 1);
                }
            }
        }
        Value::Array(items) => {
            if let Some(below) = &schema.items {
                items.iter_mut().for_each(|item| fill_at(item, below, depth + 1));
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::values::status::FieldErrors;
    use serde_json::json;

    #[test]
    fn defaults_nest_and_never_overwrite() {
        let schema = Schema::parse(
            &json!({"type": "object", "properties": {
                "spec": {"type": "object", "default": {}, "properties": {
                    "replicas": {"type": "integer", "default": 1},
                    "mode": {"type": "string", "default": "auto"},
                    "items": {"type": "array", "items": {"type": "object", "properties": {"weight": {"type": "integer", "default": 5}}}}
                }}
            }}),
            "schema",
            &mut FieldErrors::default(),
        );
        let mut empty = json!({});
        fill(&mut empty, &schema);
        assert_eq!(empty, json!({"spec": {"replicas": 1, "mode": "auto"}}));
        let mut given = json!({"spec": {"replicas": 0, "items": [{}]}});
        fill(&mut given, &schema);
        assert_eq!(given, json!({"spec": {"replicas": 0, "mode": "auto", "items": [{"weight": 5}]}}));
    }
}
