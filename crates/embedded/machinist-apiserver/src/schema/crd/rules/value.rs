//! Converts a JSON value for a rule: typed by the schema, with field names that are valid in CEL.

use std::collections::HashMap;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use chrono::DateTime;
use kube_cel::cel::Value as Cel;
use kube_cel::cel::objects::{Key, Map as CelMap};
use serde_json::{Map, Value, json};

use crate::schema::crd::format::{Format, duration};
use crate::schema::crd::schema::{MAX_DEPTH, Schema, Type};

/// Reserved words of CEL. As a field name they are written `__word__`.
const RESERVED: [&str; 21] = [
    "true",
    "false",
    "null",
    "in",
    "as",
    "break",
    "const",
    "continue",
    "else",
    "for",
    "function",
    "if",
    "import",
    "let",
    "loop",
    "package",
    "namespace",
    "return",
    "var",
    "void",
    "while",
];

/// Returns the name of a field in rules, or `None` if the name cannot be written in CEL.
pub(super) fn escaped(name: &str) -> Option<String> {
    if RESERVED.contains(&name) {
        return Some(format!("__{name}__"));
    }
    if name.starts_with(|c: char| c.is_ascii_digit()) || name.is_empty() {
        return None;
    }
    let mut out = String::with_capacity(name.len());
    let mut rest = name;
    while let Some(c) = rest.chars().next() {
        if let Some(after) = rest.strip_prefix("__") {
            out.push_str("__underscores__");
            rest = after;
            continue;
        }
        match c {
            '.' => out.push_str("__dot__"),
            '-' => out.push_str("__dash__"),
            '/' => out.push_str("__slash__"),
            c if c.is_ascii_alphanumeric() || c == '_' => out.push(c),
            _ => return None,
        }
        rest = &rest[c.len_utf8()..];
    }
    Some(out)
}

/// Converts a value. If `resource` is set, the value is a whole object, and rules see only the
/// names in its metadata.
pub(super) fn shown(value: &Value, schema: &Schema, resource: bool) -> Cel {
    show(value, schema, resource, 0)
}

fn show(value: &Value, schema: &Schema, resource: bool, depth: usize) -> Cel {
    if MAX_DEPTH < depth {
        return Cel::Null;
    }
    match value {
        Value::Null => Cel::Null,
        Value::Bool(flag) => Cel::Bool(*flag),
        Value::Number(number) => match (schema.of, number.as_i64()) {
            (Some(Type::Number), _) => Cel::Float(number.as_f64().unwrap_or(f64::NAN)),
            (_, Some(whole)) => Cel::Int(whole),
            (Some(Type::Integer), None) => whole(number.as_f64().unwrap_or(f64::NAN)),
            (_, None) => Cel::Float(number.as_f64().unwrap_or(f64::NAN)),
        },
        Value::String(text) => string(text, schema.format),
        Value::Array(items) => {
            let anything = Arc::new(Schema::default());
            let below = schema.items.as_ref().unwrap_or(&anything);
            Cel::List(Arc::new(
                items.iter().map(|item| show(item, below, below.embedded_resource, depth + 1)).collect(),
            ))
        }
        Value::Object(map) => object(map, schema, resource, depth),
    }
}

fn object(map: &Map<String, Value>, schema: &Schema, resource: bool, depth: usize) -> Cel {
    // Keys of a map are data and stay as they are; names of fields are escaped.
    let is_map = schema.additional.is_some();
    let mut shown = HashMap::with_capacity(map.len());
    for (key, value) in map {
        let is_header = resource && matches!(key.as_str(), "apiVersion" | "kind" | "metadata");
        let cel = match schema.property(key) {
            _ if is_header && key == "metadata" => names_of(value),
            _ if is_header => show(value, &Schema::default(), false, depth + 1),
            Some(below) => show(value, below, below.embedded_resource, depth + 1),
            // A rule cannot see fields that its schema does not define.
            None => continue,
        };
        let name = if is_map { Some(key.clone()) } else { escaped(key) };
        if let Some(name) = name {
            shown.insert(Key::String(Arc::new(name)), cel);
        }
    }
    Cel::Map(CelMap { map: Arc::new(shown) })
}

fn names_of(metadata: &Value) -> Cel {
    let mut names = Map::new();
    for key in ["name", "generateName"] {
        if let Some(name) = metadata.get(key) {
            names.insert(key.to_owned(), name.clone());
        }
    }
    let text = || Arc::new(Schema { of: Some(Type::String), ..Schema::default() });
    let schema = Schema {
        properties: [("name".to_owned(), text()), ("generateName".to_owned(), text())].into(),
        ..Schema::default()
    };
    show(&json!(names), &schema, false, 0)
}

/// Converts an integer that JSON wrote with a fraction (`1.0`) or that is too large for an integer.
#[expect(clippy::cast_possible_truncation, reason = "checked to be whole and small enough")]
fn whole(number: f64) -> Cel {
    const EXACT: f64 = 9_007_199_254_740_992.0;
    if number.fract() == 0.0 && number.abs() <= EXACT { Cel::Int(number as i64) } else { Cel::Float(number) }
}

fn string(text: &str, format: Option<Format>) -> Cel {
    let typed = match format {
        Some(Format::DateTime) => DateTime::parse_from_rfc3339(text).ok().map(Cel::Timestamp),
        Some(Format::Date) => {
            DateTime::parse_from_rfc3339(&format!("{text}T00:00:00Z")).ok().map(Cel::Timestamp)
        }
        Some(Format::Duration) => duration(text).map(Cel::Duration),
        Some(Format::Bytes) => BASE64.decode(text).ok().map(|bytes| Cel::Bytes(Arc::new(bytes))),
        _ => None,
    };
    typed.unwrap_or_else(|| Cel::String(Arc::new(text.to_owned())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn field_names_are_escaped_as_documented() {
        for (name, written) in [
            ("plain", Some("plain")),
            ("one_under", Some("one_under")),
            ("two__under", Some("two__underscores__under")),
            ("dash-dot.slash/", Some("dash__dash__dot__dot__slash__slash__")),
            ("namespace", Some("__namespace__")),
            ("1st", None),
            ("ü", None),
        ] {
            assert_eq!(escaped(name).as_deref(), written, "{name}");
        }
    }
}
