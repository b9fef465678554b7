//! The description of a column, in every table.

use serde_json::{Value, json};

/// Defines a column of a table.
pub(super) fn definition(name: &str, of: &str, format: &str, description: &str, priority: i64) -> Value {
    json!({"name": name, "type": of, "format": format, "description": description, "priority": priority})
}

/// First column of every table except Events.
pub(super) fn name_column() -> Value {
    definition("Name", "string", "name", "Name of the object", 0)
}
