//! Decodes request bodies (JSON, YAML or protobuf) into objects and reports duplicate fields.
//!
//! `fieldValidation` selects the treatment of unknown and duplicate fields: ignore them, return a
//! `Warning` header for each, or reject the request. Duplicate fields are found in JSON bodies and
//! in apply bodies. In other YAML bodies a duplicate field is always an error.

use std::collections::HashSet;
use std::fmt;

use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value, json};
use serde_saphyr::{DuplicateKeyPolicy, Spanned, options};

use crate::schema::protobuf::{self, Undecodable};
use crate::schema::resource::Served;
use crate::values::path::{MAX_COMPLAINTS, Path};
use crate::values::query::Query;
use crate::values::status::{ApiError, ApiResult, FieldErrors};

/// How a write treats unknown and duplicate fields.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FieldValidation {
    Ignore,
    Warn,
    Strict,
}

impl FieldValidation {
    /// Reads the option from the query of a write. `options` is the kind of the write's options,
    /// for the error.
    pub(crate) fn asked(query: &Query, options: &str) -> ApiResult<Self> {
        match query.text("fieldValidation") {
            "Ignore" => Ok(FieldValidation::Ignore),
            "" | "Warn" => Ok(FieldValidation::Warn),
            "Strict" => Ok(FieldValidation::Strict),
            other => {
                let mut errors = FieldErrors::default();
                let supported = ["", "Ignore", "Strict", "Warn"].map(str::to_owned);
                errors.not_supported("fieldValidation", json!(other), &supported);
                Err(ApiError::invalid("meta.k8s.io", options, "", &errors))
            }
        }
    }
}

/// A decoded body and its duplicate fields.
pub(crate) struct Decoded {
    pub(crate) value: Value,
    pub(crate) repeated: Vec<String>,
}

/// Decodes a body according to the request's media type.
pub(crate) fn decode(content_type: &str, body: &[u8], served: &Served) -> ApiResult<Decoded> {
    let media_type = content_type.split(';').next().unwrap_or_default().trim();
    let decoded = match media_type {
        "" | "application/json" => json(body)?,
        "application/yaml" => Decoded { value: yaml(body)?, repeated: Vec::new() },
        protobuf::MEDIA_TYPE => {
            let value = protobuf::decode(body, served).map_err(|why| match why {
                Undecodable::Malformed(why) => unrecognised(why),
                Undecodable::Unsupported(why) => ApiError::new(
                    415,
                    "UnsupportedMediaType",
                    format!("the protobuf body cannot be decoded here, send application/json: {why}"),
                ),
            })?;
            Decoded { value, repeated: Vec::new() }
        }
        _ => {
            return Err(ApiError::unsupported_media_type(&[
                "application/json",
                "application/yaml",
                protobuf::MEDIA_TYPE,
            ]));
        }
    };
    if decoded.value.is_object() { Ok(decoded) } else { Err(unrecognised("the body is not an object")) }
}

pub(crate) fn unrecognised(why: impl fmt::Display) -> ApiError {
    ApiError::bad_request(format!("the object provided is unrecognized (must be of type Object): {why}"))
}

fn yaml(body: &[u8]) -> ApiResult<Value> {
    let text = std::str::from_utf8(body).map_err(unrecognised)?;
    serde_saphyr::from_str(text).map_err(unrecognised)
}

fn json(body: &[u8]) -> ApiResult<Decoded> {
    let mut repeated = Vec::new();
    let mut deserializer = serde_json::Deserializer::from_slice(body);
    let node = ValueSeed { path: Path::Root(""), repeated: &mut repeated };
    let value = node.deserialize(&mut deserializer).map_err(unrecognised)?;
    deserializer.end().map_err(unrecognised)?;
    Ok(Decoded { value, repeated })
}

/// Decodes an apply body. Apply bodies are YAML, even if they look like JSON. If a field occurs
/// twice, the last one counts, and each duplicate is reported with its line, as in kube-apiserver's
/// parser.
pub(crate) fn applied(text: &str) -> Result<Decoded, String> {
    let decoded = match json(text.as_bytes()) {
        Ok(decoded) => decoded,
        // A body that is not JSON must be YAML.
        Err(_) => match serde_saphyr::from_str(text) {
            Ok(value) => Decoded { value, repeated: Vec::new() },
            Err(error) => {
                let last_wins = options! { duplicate_keys: DuplicateKeyPolicy::LastWins };
                let value = serde_saphyr::from_str_with_options(text, last_wins);
                Decoded { value: value.map_err(|_| error.to_string())?, repeated: vec![error.to_string()] }
            }
        },
    };
    if decoded.repeated.is_empty() {
        return Ok(decoded);
    }
    let last_wins = options! { duplicate_keys: DuplicateKeyPolicy::LastWins };
    match serde_saphyr::from_str_with_options::<Lined>(text, last_wins) {
        Ok(Lined { repeated }) if !repeated.is_empty() => Ok(Decoded { repeated, ..decoded }),
        Ok(_) | Err(_) => Ok(decoded),
    }
}

/// The duplicate fields of a YAML text, with their lines.
struct Lined {
    repeated: Vec<String>,
}

impl<'de> Deserialize<'de> for Lined {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct LineVisitor;

        impl<'de> Visitor<'de> for LineVisitor {
            type Value = Vec<String>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a YAML value")
            }

            fn visit_unit<E: Error>(self) -> Result<Self::Value, E> {
                Ok(Vec::new())
            }

            fn visit_bool<E: Error>(self, _: bool) -> Result<Self::Value, E> {
                Ok(Vec::new())
            }

            fn visit_i64<E: Error>(self, _: i64) -> Result<Self::Value, E> {
                Ok(Vec::new())
            }

            fn visit_u64<E: Error>(self, _: u64) -> Result<Self::Value, E> {
                Ok(Vec::new())
            }

            fn visit_f64<E: Error>(self, _: f64) -> Result<Self::Value, E> {
                Ok(Vec::new())
            }

            fn visit_str<E: Error>(self, _: &str) -> Result<Self::Value, E> {
                Ok(Vec::new())
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Self::Value, A::Error> {
                let mut repeated = Vec::new();
                while let Some(item) = items.next_element::<Lined>()? {
                    repeated.extend(item.repeated);
                }
                repeated.truncate(MAX_COMPLAINTS);
                Ok(repeated)
            }

            fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Self::Value, A::Error> {
                let (mut repeated, mut known) = (Vec::new(), HashSet::new());
                while let Some(key) = entries.next_key::<Spanned<String>>()? {
                    repeated.extend(entries.next_value::<Lined>()?.repeated);
                    let Spanned { value: name, referenced, .. } = key;
                    let line = referenced.line();
                    if !known.insert(name.clone()) {
                        repeated.push(format!("line {line}: key {name:?} already set in map"));
                    }
                }
                repeated.truncate(MAX_COMPLAINTS);
                Ok(repeated)
            }
        }

        deserializer.deserialize_any(LineVisitor).map(|repeated| Lined { repeated })
    }
}

/// One value during decoding. The parser limits the nesting depth.
struct ValueSeed<'a> {
    path: Path<'a>,
    repeated: &'a mut Vec<String>,
}

impl<'de> DeserializeSeed<'de> for ValueSeed<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for ValueSeed<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E: Error>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E: Error>(self, flag: bool) -> Result<Value, E> {
        Ok(Value::Bool(flag))
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<Value, E> {
        Ok(Value::from(number))
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<Value, E> {
        Ok(Value::from(number))
    }

    fn visit_f64<E: Error>(self, number: f64) -> Result<Value, E> {
        Ok(Number::from_f64(number).map_or(Value::Null, Value::Number))
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Value, E> {
        Ok(Value::from(text))
    }

    fn visit_string<E: Error>(self, text: String) -> Result<Value, E> {
        Ok(Value::String(text))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut list = Vec::new();
        while let Some(item) = items.next_element_seed(ValueSeed {
            path: Path::Item(&self.path, list.len()),
            repeated: self.repeated,
        })? {
            list.push(item);
        }
        Ok(Value::Array(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Value, A::Error> {
        let mut map = Map::new();
        let mut told = HashSet::new();
        while let Some(key) = entries.next_key::<String>()? {
            let path = Path::Field(&self.path, &key);
            if map.contains_key(&key) && self.repeated.len() < MAX_COMPLAINTS && told.insert(key.clone()) {
                self.repeated.push(format!("duplicate field \"{path}\""));
            }
            let value = entries.next_value_seed(ValueSeed { path, repeated: self.repeated })?;
            map.insert(key, value);
        }
        Ok(Value::Object(map))
    }
}

#[test]
fn duplicate_fields_are_reported_with_their_path() {
    let decoded =
        json(br#"{"a": 1, "a": 2, "b": [{"c": 1.5, "c": null, "c": "x"}], "d": -1}"#).expect("JSON");
    assert_eq!(decoded.value, json!({"a": 2, "b": [{"c": "x"}], "d": -1}));
    assert_eq!(decoded.repeated, ["duplicate field \"a\"", "duplicate field \"b[0].c\""]);
    assert!(json(b"{} {}").is_err());
}

#[test]
fn apply_reports_duplicate_fields_by_line() {
    let decoded = applied("a: 1\nb:\n- c: {d: 2}\n  c: 3\na: 4\n").expect("YAML");
    assert_eq!(decoded.value, json!({"a": 4, "b": [{"c": 3}]}));
    assert_eq!(
        decoded.repeated,
        ["line 4: key \"c\" already set in map", "line 5: key \"a\" already set in map"]
    );
    let decoded = applied("{\"a\": 1,\n\"a\": \"x\\u00e9\"}").expect("JSON");
    assert_eq!(decoded.value, json!({"a": "xé"}));
    assert_eq!(decoded.repeated, ["line 2: key \"a\" already set in map"]);
    assert!(applied("a: 1\nb: 2\n").expect("YAML").repeated.is_empty());
    assert!(applied("a: [").is_err());
}
