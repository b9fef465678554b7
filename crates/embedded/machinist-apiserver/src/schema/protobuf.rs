//! Decodes protobuf bodies, which typed clients send for built-in kinds, into the equivalent JSON.
//!
//! The field numbers are in `kinds/types/*.txt`. A field without a number there would be lost, so
//! the server rejects a body that contains it, and the client has to send JSON. The same holds for
//! every kind without field numbers. Answers are never protobuf, because every client that accepts
//! protobuf also accepts JSON.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use serde_json::{Map, Value, json};

use crate::schema::crd::format::Format;
use crate::schema::crd::schema::{Schema, Type};
use crate::schema::kinds::notation;
use crate::schema::resource::Served;
use crate::values::clock::rfc3339_seconds;

/// Media type of protobuf bodies.
pub(crate) const MEDIA_TYPE: &str = "application/vnd.kubernetes.protobuf";
/// First bytes of every body.
const MAGIC: &[u8] = b"k8s\0";

/// Reason why a body could not be decoded.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Undecodable {
    /// The body is not valid protobuf of the named type.
    #[error("{0}")]
    Malformed(String),
    /// The body contains something that this server supports only in JSON.
    #[error("{0}")]
    Unsupported(String),
}

fn malformed(why: &str) -> Undecodable {
    Undecodable::Malformed(why.to_owned())
}

/// Decodes the object in `body`, with its kind and version.
pub(crate) fn decode(body: &[u8], served: &Served) -> Result<Value, Undecodable> {
    let body = body.strip_prefix(MAGIC).ok_or_else(|| malformed("the body does not begin with k8s"))?;
    let (mut kind, mut api_version, mut raw) = (String::new(), String::new(), &[][..]);
    for field in Fields(body) {
        match field? {
            (1, Wire::Bytes(type_meta)) => {
                for field in Fields(type_meta) {
                    match field? {
                        (1, Wire::Bytes(text)) => api_version = string(text)?,
                        (2, Wire::Bytes(text)) => kind = string(text)?,
                        _ => {}
                    }
                }
            }
            (2, Wire::Bytes(bytes)) => raw = bytes,
            (3, Wire::Bytes(encoding)) if !encoding.is_empty() => {
                return Err(Undecodable::Unsupported("the body has a content encoding".into()));
            }
            _ => {}
        }
    }
    let schema = match kind.as_str() {
        "Binding" | "DeleteOptions" | "Eviction" | "Scale" | "TokenRequest" => Some(notation::schema(&kind)),
        _ if kind == served.resource.kind && !served.is_custom() => Some(served.version().schema.clone()),
        _ => None,
    };
    let schema =
        schema.ok_or_else(|| Undecodable::Unsupported(format!("a {kind} has to be sent as JSON")))?;
    let mut object = message(raw, &schema)?;
    object.insert("kind".into(), json!(kind));
    object.insert("apiVersion".into(), json!(api_version));
    Ok(Value::Object(object))
}

/// Decodes one message. The types in the tables are not recursive, so this recursion is bounded.
fn message(bytes: &[u8], schema: &Schema) -> Result<Map<String, Value>, Undecodable> {
    let mut object = Map::new();
    for field in Fields(bytes) {
        let (number, wire) = field?;
        if let Some((_, part)) = schema.inlined.iter().find(|(inlined, _)| *inlined == number) {
            let Wire::Bytes(bytes) = wire else { return Err(malformed(schema.name)) };
            object.extend(message(bytes, part)?);
            continue;
        }
        let known = schema.properties.iter().find(|(_, s)| s.number == number && number != 0);
        let Some((name, below)) = known else {
            return Err(Undecodable::Unsupported(format!(
                "field {number} of {} is supported in JSON only",
                schema.name
            )));
        };
        if let Some(items) = &below.items {
            let list = object.entry(name.clone()).or_insert_with(|| json!([]));
            let item = value(wire, items, name)?;
            list.as_array_mut().ok_or_else(|| malformed(name))?.push(item);
        } else if let Some(values) = &below.additional {
            let (key, entry) = map_entry(wire, values, name)?;
            let map = object.entry(name.clone()).or_insert_with(|| json!({}));
            map.as_object_mut().ok_or_else(|| malformed(name))?.insert(key, entry);
        } else {
            object.insert(name.clone(), value(wire, below, name)?);
        }
    }
    Ok(object)
}

fn map_entry(wire: Wire<'_>, values: &Schema, name: &str) -> Result<(String, Value), Undecodable> {
    let Wire::Bytes(entry) = wire else { return Err(malformed(name)) };
    let (mut key, mut found) = (String::new(), None);
    for field in Fields(entry) {
        match field? {
            (1, Wire::Bytes(text)) => key = string(text)?,
            (2, wire) => found = Some(value(wire, values, name)?),
            _ => {}
        }
    }
    // A map entry with an empty value omits the value.
    let found = match found {
        Some(found) => found,
        None => value(Wire::Bytes(&[]), values, name)?,
    };
    Ok((key, found))
}

fn value(wire: Wire<'_>, schema: &Schema, name: &str) -> Result<Value, Undecodable> {
    match (wire, schema.of, schema.format) {
        (Wire::Bytes(bytes), _, Some(Format::DateTime | Format::MicroTime)) => time(bytes, schema.format),
        (Wire::Bytes(bytes), _, Some(Format::Quantity)) => match first(bytes, 1)? {
            Some(Wire::Bytes(text)) => Ok(json!(string(text)?)),
            _ => Ok(json!("0")),
        },
        (Wire::Bytes(bytes), _, _) if schema.int_or_string => int_or_string(bytes),
        (Wire::Bytes(bytes), Some(Type::String), Some(Format::Bytes)) => Ok(json!(STANDARD.encode(bytes))),
        (Wire::Bytes(bytes), Some(Type::String), _) => Ok(json!(string(bytes)?)),
        (Wire::Bytes(bytes), Some(Type::Object), _) if !schema.name.is_empty() => {
            Ok(Value::Object(message(bytes, schema)?))
        }
        // Free-form JSON is sent as text.
        (Wire::Bytes(bytes), None, _) if schema.number != 0 => match first(bytes, 1)? {
            Some(Wire::Bytes(text)) => serde_json::from_slice(text).map_err(|_| malformed(name)),
            _ => Ok(Value::Null),
        },
        (Wire::Number(number), Some(Type::Integer), _) => Ok(json!(number.cast_signed())),
        (Wire::Number(number), Some(Type::Boolean), _) => Ok(json!(number != 0)),
        (_, None, _) => Err(Undecodable::Unsupported(format!("{name} is supported in JSON only"))),
        _ => Err(Undecodable::Malformed(format!("{name} has the wrong type"))),
    }
}

/// Decodes a time. The zero time has no fields and becomes null.
fn time(bytes: &[u8], format: Option<Format>) -> Result<Value, Undecodable> {
    let number = |wire: Option<Wire<'_>>| match wire {
        Some(Wire::Number(number)) => Some(number.cast_signed()),
        _ => None,
    };
    let Some(seconds) = number(first(bytes, 1)?) else { return Ok(Value::Null) };
    let nanoseconds = number(first(bytes, 2)?).unwrap_or_default();
    let at = i32::try_from(nanoseconds).ok().and_then(|nanos| Timestamp::new(seconds, nanos).ok());
    let at = at.ok_or_else(|| malformed("a time is out of range"))?;
    Ok(match format {
        Some(Format::MicroTime) => json!(at.strftime("%Y-%m-%dT%H:%M:%S.%6fZ").to_string()),
        _ => json!(rfc3339_seconds(at)),
    })
}

fn int_or_string(bytes: &[u8]) -> Result<Value, Undecodable> {
    let is_string = matches!(first(bytes, 1)?, Some(Wire::Number(1)));
    match (is_string, first(bytes, 2)?, first(bytes, 3)?) {
        (true, _, Some(Wire::Bytes(text))) => Ok(json!(string(text)?)),
        (true, ..) => Ok(json!("")),
        (false, Some(Wire::Number(number)), _) => Ok(json!(number.cast_signed())),
        (false, ..) => Ok(json!(0)),
    }
}

fn string(bytes: &[u8]) -> Result<String, Undecodable> {
    String::from_utf8(bytes.to_vec()).map_err(|_| malformed("a text is not UTF-8"))
}

/// Returns the first field with this number.
fn first(bytes: &[u8], number: u32) -> Result<Option<Wire<'_>>, Undecodable> {
    for field in Fields(bytes) {
        let (found, wire) = field?;
        if found == number {
            return Ok(Some(wire));
        }
    }
    Ok(None)
}

/// Content of a field on the wire.
#[derive(Debug, Clone, Copy)]
enum Wire<'a> {
    Number(u64),
    Bytes(&'a [u8]),
}

/// Iterates over the fields of a message. Ends after the first error.
struct Fields<'a>(&'a [u8]);

impl<'a> Iterator for Fields<'a> {
    type Item = Result<(u32, Wire<'a>), Undecodable>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.0.is_empty() {
            return None;
        }
        let field = self.field();
        if field.is_none() {
            self.0 = &[];
        }
        Some(
            field.ok_or_else(|| {
                malformed("the body ends within a field, or has one of a form that is not known")
            }),
        )
    }
}

impl<'a> Fields<'a> {
    fn field(&mut self) -> Option<(u32, Wire<'a>)> {
        let key = self.varint()?;
        let number = u32::try_from(key >> 3).ok()?;
        match key & 7 {
            0 => Some((number, Wire::Number(self.varint()?))),
            2 => {
                let length = usize::try_from(self.varint()?).ok()?;
                let (bytes, rest) = self.0.split_at_checked(length)?;
                self.0 = rest;
                Some((number, Wire::Bytes(bytes)))
            }
            // Fixed-width numbers and groups do not occur in any kind.
            _ => None,
        }
    }

    fn varint(&mut self) -> Option<u64> {
        let mut number = 0_u64;
        for shift in (0..64).step_by(7) {
            let (byte, rest) = self.0.split_first()?;
            self.0 = rest;
            number |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Some(number);
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::kinds::rows::BUILT_INS;
    use crate::schema::resource::Registry;
    use proptest::prelude::*;

    fn field(number: u8, bytes: &[u8]) -> Vec<u8> {
        let length = u8::try_from(bytes.len()).expect("a short field");
        [&[number << 3 | 2, length], bytes].concat()
    }

    fn envelope(kind: &str, raw: &[u8]) -> Vec<u8> {
        let type_meta = [field(1, b"v1"), field(2, kind.as_bytes())].concat();
        [MAGIC, &field(1, &type_meta), &field(2, raw)].concat()
    }

    fn check(plural: &str, body: &[u8]) -> Result<Value, Undecodable> {
        let registry = Registry::of(BUILT_INS);
        decode(body, registry.find("", "v1", plural).expect("a built-in kind"))
    }

    #[test]
    fn a_secret_becomes_json() {
        let metadata = [field(1, b"s"), field(8, &[]), field(11, &[field(1, b"k"), field(2, b"v")].concat())];
        let data = [field(1, b"a"), field(2, b"hello")].concat();
        let raw =
            [field(1, &metadata.concat()), field(2, &data), field(3, b"Opaque"), vec![5 << 3, 1]].concat();
        assert_eq!(
            check("secrets", &envelope("Secret", &raw)),
            Ok(json!({"kind": "Secret", "apiVersion": "v1", "type": "Opaque", "immutable": true,
                "metadata": {"name": "s", "creationTimestamp": null, "labels": {"k": "v"}}, "data": {"a": "aGVsbG8="}}))
        );
    }

    #[test]
    fn unsupported_fields_are_rejected() {
        let unsupported = |result| matches!(result, Err(Undecodable::Unsupported(_)));
        assert!(unsupported(check("secrets", &envelope("Secret", &field(14, b"x")))));
        assert!(unsupported(check("secrets", &envelope("ConfigMap", &[]))));
        assert!(unsupported(check("nodes", &envelope("Node", &field(9, &[])))));
        assert!(matches!(check("secrets", b"{}"), Err(Undecodable::Malformed(_))));
    }

    proptest! {
        #[test]
        fn random_bytes_never_panic(raw in proptest::collection::vec(any::<u8>(), 0..100)) {
            for (plural, kind) in [("secrets", "Secret"), ("events", "Event"), ("namespaces", "Namespace")] {
                let _decoded = check(plural, &envelope(kind, &raw));
            }
            let _decoded = check("secrets", &raw);
        }
    }
}
