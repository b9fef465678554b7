//! Columns of custom resources: `additionalPrinterColumns`.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::age;
use super::column::{definition, name_column};
use super::json_path::JsonPath;
use crate::values::object::meta_str;

/// One printer column of a definition.
#[derive(Debug, Clone)]
pub(crate) struct PrinterColumn {
    name: String,
    of: String,
    format: String,
    description: String,
    priority: i64,
    path: JsonPath,
}

/// Returns the columns of a version. A version without columns, or with an unreadable path, shows
/// only the age.
pub(crate) fn parse(version: &Value) -> Vec<PrinterColumn> {
    let declared = version.get("additionalPrinterColumns").and_then(Value::as_array);
    let columns: Option<Vec<PrinterColumn>> = declared.into_iter().flatten().map(column).collect();
    let age = json!({"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp", "description": "Time since the object was created"});
    columns.filter(|c| !c.is_empty()).unwrap_or_else(|| column(&age).into_iter().collect())
}

fn column(declared: &Value) -> Option<PrinterColumn> {
    let text = |key: &str| declared.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
    let path = text("jsonPath");
    let description = Some(text("description")).filter(|d| !d.is_empty());
    Some(PrinterColumn {
        name: text("name"),
        of: text("type"),
        format: text("format"),
        description: description
            .unwrap_or_else(|| format!("Custom resource definition column (in JSONPath format): {path}")),
        priority: declared.get("priority").and_then(Value::as_i64).unwrap_or_default(),
        path: JsonPath::parse(&path)?,
    })
}

pub(super) fn definitions(columns: &[PrinterColumn]) -> Vec<Value> {
    let own = columns.iter().map(|c| definition(&c.name, &c.of, &c.format, &c.description, c.priority));
    std::iter::once(name_column()).chain(own).collect()
}

pub(super) fn cells(object: &Value, columns: &[PrinterColumn], now: Timestamp) -> Vec<Value> {
    let mut cells = vec![json!(meta_str(object, "name"))];
    cells.extend(
        columns.iter().map(|column| {
            column.path.first(object).map_or(Value::Null, |value| cell(value, &column.of, now))
        }),
    );
    cells
}

/// Formats a value for a column of type `of`. A value of another type is not shown.
fn cell(value: &Value, of: &str, now: Timestamp) -> Value {
    match (of, value) {
        ("string", Value::String(_)) => value.clone(),
        ("string", Value::Null) => json!("<no value>"),
        ("string", other) => json!(other.to_string()),
        ("integer", Value::Number(number)) => {
            // Fractions are truncated, as in a conversion to an integer.
            #[expect(clippy::cast_possible_truncation, reason = "a float outside of i64 becomes its nearest")]
            let whole = number.as_i64().or_else(|| number.as_f64().map(|f| f as i64));
            json!(whole)
        }
        ("number", Value::Number(_)) | ("boolean", Value::Bool(_)) => value.clone(),
        ("date", Value::String(text)) => match text.parse::<Timestamp>() {
            Ok(_) => json!(age::since(Some(value), now)),
            Err(_) => json!("<invalid>"),
        },
        _ => Value::Null,
    }
}

#[test]
fn cells_follow_the_type_of_their_column() {
    let version = json!({"additionalPrinterColumns": [
        {"name": "Text", "type": "string", "jsonPath": ".spec.text"},
        {"name": "Number as text", "type": "string", "jsonPath": ".spec.count"},
        {"name": "Map as text", "type": "string", "jsonPath": ".spec.map"},
        {"name": "Count", "type": "integer", "jsonPath": ".spec.count"},
        {"name": "Ready", "type": "string", "jsonPath": ".status.conditions[?(@.type==\"Ready\")].status"},
        {"name": "Absent", "type": "string", "jsonPath": ".spec.none"},
        {"name": "Wrong", "type": "integer", "jsonPath": ".spec.text"},
        {"name": "Since", "type": "date", "jsonPath": ".spec.at"}
    ]});
    let object = json!({"metadata": {"name": "a"}, "spec": {"text": "x", "count": 3, "map": {"k": 1}, "at": "2026-01-01T00:00:00Z"},
        "status": {"conditions": [{"type": "Other", "status": "x"}, {"type": "Ready", "status": "True"}]}});
    let now = "2026-01-01T00:01:00Z".parse().expect("a time");
    assert_eq!(
        Value::Array(cells(&object, &parse(&version), now)),
        json!(["a", "x", "3", "{\"k\":1}", 3, "True", null, null, "60s"])
    );
    assert_eq!(parse(&json!({}))[0].name, "Age");
}
