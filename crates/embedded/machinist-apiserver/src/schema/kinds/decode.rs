//! Imitates the typed decoder of built-in kinds: a value of the wrong type is a 400 before any
//! validation.

use serde_json::Value;

use crate::schema::crd::format::Format;
use crate::schema::crd::schema::{MAX_DEPTH, Schema, Type};
use crate::schema::crd::validate::type_name;
use crate::schema::kinds::notation;
use crate::values::status::{ApiError, ApiResult};

const INT32: std::ops::RangeInclusive<f64> = -2_147_483_648.0..=2_147_483_647.0;

/// Rejects an object if a value in it has another type than in its schema. Nulls count as absent.
pub(crate) fn check_types(object: &Value, schema: &Schema, kind: &str, version: &str) -> ApiResult<()> {
    refused(mismatch(object, schema, kind), kind, version)
}

/// Checks the types in the `metadata` of a custom resource. Only this part is decoded into a type.
pub(crate) fn check_metadata(metadata: &Value, kind: &str, version: &str) -> ApiResult<()> {
    refused(mismatch(metadata, &notation::object_meta(), "ObjectMeta"), kind, version)
}

fn refused(mismatch: Option<String>, kind: &str, version: &str) -> ApiResult<()> {
    match mismatch {
        None => Ok(()),
        Some(why) => Err(ApiError::bad_request(format!(
            "{kind} in version \"{version}\" cannot be handled as a {kind}: {why}"
        ))),
    }
}

/// Returns the decoder's message if a value does not match `schema`. `field` names the value in the
/// message.
pub(crate) fn mismatch(value: &Value, schema: &Schema, field: &str) -> Option<String> {
    mismatch_at(value, schema, field, 0)
}

fn mismatch_at(value: &Value, schema: &Schema, field: &str, depth: usize) -> Option<String> {
    if value.is_null() || schema.is_opaque() {
        return None;
    }
    if MAX_DEPTH < depth {
        return Some("exceeded max depth".into());
    }
    let admitted = if schema.int_or_string {
        value.is_string() || value.is_number()
    } else {
        schema.of.is_none_or(|of| of.admits(value)) && fits(value, schema.format)
    };
    if !admitted {
        let wanted = schema.of.map_or("intstr.IntOrString", |of| go_type(of, schema.format));
        let found = match value {
            Value::Number(number) if schema.of == Some(Type::Integer) => format!("number {number}"),
            Value::Bool(_) => "bool".to_owned(),
            Value::Number(_) => "number".to_owned(),
            other => type_name(other).to_owned(),
        };
        return Some(format!("json: cannot unmarshal {found} into Go struct field {field} of type {wanted}"));
    }
    if let (Some(format), Some(text)) = (schema.format, value.as_str())
        && let Some(why) = format_problem(format, text)
    {
        return Some(why);
    }
    match value {
        Value::Object(map) => map.iter().find_map(|(key, child)| match schema.properties.get(key) {
            Some(below) => mismatch_at(child, below, &format!("{field}.{key}"), depth + 1),
            None => mismatch_at(child, schema.additional.as_ref()?, field, depth + 1),
        }),
        Value::Array(items) => {
            let below = schema.items.as_ref()?;
            items.iter().find_map(|item| mismatch_at(item, below, field, depth + 1))
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => None,
    }
}

/// Returns the decoder's message for a body of an unregistered kind.
pub(crate) fn unregistered(kind: &str, version: &str) -> String {
    format!("no kind {kind:?} is registered for version {version:?} in scheme \"pkg/runtime/scheme.go:111\"")
}

/// Whether a number is not too large for its format.
fn fits(value: &Value, format: Option<Format>) -> bool {
    format != Some(Format::Int32) || value.as_f64().is_none_or(|number| INT32.contains(&number))
}

fn go_type(of: Type, format: Option<Format>) -> &'static str {
    match of {
        Type::Object => "map[string]string",
        Type::Array => "[]string",
        Type::String => "string",
        Type::Integer if format == Some(Format::Int32) => "int32",
        Type::Integer => "int64",
        Type::Number => "float64",
        Type::Boolean => "bool",
    }
}

fn format_problem(format: Format, text: &str) -> Option<String> {
    if format.admits(text) {
        return None;
    }
    Some(match format {
        Format::MicroTime => {
            let layout = "2006-01-02T15:04:05.000000Z07:00";
            let (rest, wanted) = match text.get(19..) {
                Some(rest) if !rest.is_empty() => (rest, ".000000"),
                _ => (text, "2006"),
            };
            format!("parsing time \"{text}\" as \"{layout}\": cannot parse \"{rest}\" as \"{wanted}\"")
        }
        Format::DateTime | Format::Date => {
            let layout = "2006-01-02T15:04:05Z07:00";
            format!("parsing time \"{text}\" as \"{layout}\": cannot parse \"{text}\" as \"2006\"")
        }
        Format::Bytes => "illegal base64 data at input byte 0".to_owned(),
        Format::Quantity => {
            "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
                .to_owned()
        }
        Format::Int32 | Format::Duration => return None,
    })
}
