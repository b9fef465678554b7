//! One step of a path into an object, in the notation of FieldsV1.
//!
//! | Text | Meaning |
//! |---|---|
//! | `f:replicas` | a field of a map |
//! | `k:{"type":"Ready"}` | the list item with these values in its keys |
//! | `v:"a"` | an item of a set |
//! | `i:0` | an index in a list; this server creates none, but clients may send one |

use std::cmp::Ordering;
use std::fmt;

use serde_json::{Map, Value};

/// A step, stored as its text. Equal steps have equal texts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Element(Box<str>);

/// Kind of a step, given by the first letter of its text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Class {
    Field,
    Key,
    Value,
    Index,
}

/// Reason why a text is not a step.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Unreadable {
    /// An unknown kind of step, perhaps of a later version. An unknown step is left out.
    UnknownClass,
    Malformed,
}

impl Element {
    pub(crate) fn field(name: &str) -> Self {
        Element(format!("f:{name}").into())
    }

    /// Returns the step to the item with these values in the keys of its list.
    pub(crate) fn key(keys: Map<String, Value>) -> Self {
        Element(format!("k:{}", escaped(&Value::Object(keys))).into())
    }

    /// Returns the step to an item of a set.
    pub(crate) fn value(item: &Value) -> Self {
        Element(format!("v:{}", escaped(item)).into())
    }

    /// Parses a step and normalises its text.
    pub(crate) fn parse(text: &str) -> Result<Self, Unreadable> {
        let Some((class, rest)) = text.split_at_checked(2) else { return Err(Unreadable::Malformed) };
        let json = || serde_json::from_str::<Value>(rest).map_err(|_| Unreadable::Malformed);
        match class {
            "f:" => Ok(Element(text.into())),
            "v:" => Ok(Element::value(&json()?)),
            "k:" => match json()? {
                Value::Object(keys) => Ok(Element::key(keys)),
                _ => Err(Unreadable::Malformed),
            },
            "i:" => rest
                .parse::<i64>()
                .map(|at| Element(format!("i:{at}").into()))
                .map_err(|_| Unreadable::Malformed),
            other if other.ends_with(':') => Err(Unreadable::UnknownClass),
            _ => Err(Unreadable::Malformed),
        }
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns the name if the step is a field.
    pub(crate) fn field_name(&self) -> Option<&str> {
        self.0.strip_prefix("f:")
    }

    fn class(&self) -> Class {
        match self.0.as_bytes().first() {
            Some(b'f') => Class::Field,
            Some(b'k') => Class::Key,
            Some(b'v') => Class::Value,
            _ => Class::Index,
        }
    }

    /// Returns the text after the class, `f:` for example.
    fn rest(&self) -> &str {
        self.0.split_once(':').map_or("", |(_, rest)| rest)
    }

    /// Compares steps in the order of conflict errors: as in a set, but numbers by their value.
    pub(crate) fn compare_shown(&self, other: &Self) -> Ordering {
        let json = |element: &Self| serde_json::from_str::<Value>(element.rest()).unwrap_or(Value::Null);
        match (self.class(), other.class()) {
            (Class::Key, Class::Key) => match (json(self), json(other)) {
                (Value::Object(a), Value::Object(b)) => compare_keys(&a, &b),
                _ => self.cmp(other),
            },
            (Class::Value, Class::Value) => compare_values(&json(self), &json(other)),
            _ => self.cmp(other),
        }
    }
}

impl Ord for Element {
    fn cmp(&self, other: &Self) -> Ordering {
        self.class().cmp(&other.class()).then_with(|| self.0.cmp(&other.0))
    }
}

impl PartialOrd for Element {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// Formats a step as errors do: `.replicas`, `[type="Ready"]`, `[="a"]`.
impl fmt::Display for Element {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rest = self.rest();
        let json = || serde_json::from_str::<Value>(rest).unwrap_or(Value::Null);
        match self.class() {
            Class::Field => write!(f, ".{rest}"),
            Class::Value => write!(f, "[={}]", json()),
            Class::Index => write!(f, "[{rest}]"),
            Class::Key => {
                let keys = json();
                let pairs = keys.as_object().into_iter().flatten().map(|(k, v)| format!("{k}={v}"));
                write!(f, "[{}]", pairs.collect::<Vec<_>>().join(","))
            }
        }
    }
}

/// A path from the root of an object.
pub(crate) struct ElementPath<'a>(pub(crate) &'a [&'a Element]);

impl fmt::Display for ElementPath<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|element| element.fmt(f))
    }
}

/// Returns JSON text and escapes the three characters that Go's encoder escapes, so that a step has
/// the same text everywhere.
fn escaped(value: &Value) -> String {
    let text = value.to_string();
    if !text.contains(['<', '>', '&']) {
        return text;
    }
    text.replace('<', "\\u003c").replace('>', "\\u003e").replace('&', "\\u0026")
}

fn compare_keys(a: &Map<String, Value>, b: &Map<String, Value>) -> Ordering {
    let pairs = a.iter().zip(b);
    let differing = pairs.map(|((k, v), (l, w))| k.cmp(l).then_with(|| compare_values(v, w)));
    differing.into_iter().find(|order| order.is_ne()).unwrap_or_else(|| a.len().cmp(&b.len()))
}

fn compare_values(a: &Value, b: &Value) -> Ordering {
    match (a.as_f64(), b.as_f64()) {
        (Some(a), Some(b)) => a.total_cmp(&b),
        // Numbers come before all other values.
        (Some(_), None) => Ordering::Less,
        (None, Some(_)) => Ordering::Greater,
        (None, None) => a.to_string().cmp(&b.to_string()),
    }
}
