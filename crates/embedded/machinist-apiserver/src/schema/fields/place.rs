//! Field ownership according to the schema: fields are owned one by one, or a map or list as a
//! whole.

use std::fmt;

use serde_json::{Map, Value};

use crate::schema::crd::schema::{ListType, MapType, Schema, Type};
use crate::schema::fields::element::Element;
use crate::schema::kinds::notation;

/// One place of an object, with its schema.
#[derive(Clone, Copy)]
pub(crate) struct Place<'a> {
    schema: &'a Schema,
    /// The place holds a whole custom resource. The common fields of all objects are not in its
    /// schema.
    resource: bool,
    /// Number of fields and items on the path to this place.
    depth: usize,
}

/// Maximum depth at which fields are owned separately. Deeper fields are owned as a whole. A set of
/// fields nests a few levels deeper than its object. A client that can parse an object must also be
/// able to parse its ownership.
const DEEPEST: usize = 100;

/// How the value at a place is owned.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Granularity {
    /// As a whole.
    Leaf,
    /// Field by field.
    Map,
    /// Item by item.
    List,
}

/// The schema of a field. `named` is false for entries of maps, because the schema does not name
/// them.
#[derive(Clone, Copy)]
pub(crate) struct Field<'a> {
    pub(crate) place: Place<'a>,
    pub(crate) named: bool,
}

/// Reason why a list item has no identity.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Unidentified(String);

impl fmt::Display for Unidentified {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl<'a> Place<'a> {
    /// Returns the place of a whole object of a built-in kind, whose schema includes the metadata.
    pub(crate) fn of_built_in(schema: &'a Schema) -> Self {
        Place { schema, resource: false, depth: 0 }
    }

    /// Returns the place of a whole custom resource.
    pub(crate) fn of_custom(schema: &'a Schema) -> Self {
        Place { schema, resource: true, depth: 0 }
    }

    pub(crate) fn schema(self) -> &'a Schema {
        self.schema
    }

    /// Returns how `value` is owned.
    pub(crate) fn shape(self, value: &Value) -> Granularity {
        if DEEPEST <= self.depth {
            return Granularity::Leaf;
        }
        match value {
            Value::Object(_) => match (self.schema.of, self.schema.map) {
                (Some(Type::Object) | None, MapType::Granular) if !self.schema.int_or_string => {
                    Granularity::Map
                }
                _ => Granularity::Leaf,
            },
            Value::Array(_) => match (self.schema.of, &self.schema.list) {
                (Some(Type::Array), ListType::Set | ListType::Map(_)) => Granularity::List,
                _ => Granularity::Leaf,
            },
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => Granularity::Leaf,
        }
    }

    /// Whether the schema gives a map or list at this place a single owner.
    pub(crate) fn is_owned_as_whole(self) -> bool {
        match self.schema.of {
            Some(Type::Object) => self.schema.map == MapType::Atomic,
            Some(Type::Array) => self.schema.list == ListType::Atomic,
            _ => false,
        }
    }

    /// Returns the field `name`, or `None` if the schema does not define it.
    pub(crate) fn field(self, name: &str) -> Option<Field<'a>> {
        if self.resource {
            let common = match name {
                "metadata" => Some("ObjectMeta"),
                "apiVersion" | "kind" => Some("string"),
                _ => None,
            };
            if let Some(of) = common {
                let place = self.below(notation::shared_schema(of), false);
                return Some(Field { place, named: true });
            }
        }
        let below = |schema: &'a Schema| self.below(schema, schema.embedded_resource);
        if let Some(schema) = self.schema.properties.get(name) {
            return Some(Field { place: below(schema), named: true });
        }
        if let Some(schema) = &self.schema.additional {
            return Some(Field { place: below(schema), named: false });
        }
        self.schema.preserve_unknown.then(|| {
            let free = if self.schema.named_inside { "any" } else { "free" };
            Field { place: self.below(notation::shared_schema(free), false), named: self.schema.named_inside }
        })
    }

    fn below<'b>(self, schema: &'b Schema, resource: bool) -> Place<'b> {
        Place { schema, resource, depth: self.depth + 1 }
    }

    /// Returns the field `name`. If the schema does not define it, the result allows anything.
    pub(crate) fn field_or_any(self, name: &str) -> Field<'a> {
        let unknown = || Field { place: self.below(notation::shared_schema("free"), false), named: false };
        self.field(name).unwrap_or_else(unknown)
    }

    /// Returns the place of the items of a list.
    pub(crate) fn items(self) -> Place<'a> {
        match &self.schema.items {
            Some(schema) => self.below(schema, schema.embedded_resource),
            None => self.below(notation::shared_schema("free"), false),
        }
    }

    /// Returns the identity of `item` in its list.
    pub(crate) fn identify(self, item: &Value) -> Result<Element, Unidentified> {
        match &self.schema.list {
            ListType::Map(keys) => self.identify_by(keys, item),
            ListType::Set | ListType::Atomic => {
                let wrong = match item {
                    Value::Object(_) => "associative list without keys has an element that's a map type",
                    Value::Array(_) => "not supported: associative list with lists as elements",
                    Value::Null => "associative list without keys has an element that's an explicit null",
                    Value::Bool(_) | Value::Number(_) | Value::String(_) => return Ok(Element::value(item)),
                };
                Err(Unidentified(wrong.to_owned()))
            }
        }
    }

    fn identify_by(self, keys: &[String], item: &Value) -> Result<Element, Unidentified> {
        let map = match item {
            Value::Object(map) => map,
            Value::Null => {
                let why = "associative list with keys may not have a null element";
                return Err(Unidentified(why.to_owned()));
            }
            _ => {
                let why = "associative list with keys may not have non-map elements";
                return Err(Unidentified(why.to_owned()));
            }
        };
        let mut held = Map::new();
        for key in keys {
            let default = || self.items().schema.properties.get(key).and_then(|s| s.default.as_ref());
            if let Some(value) = map.get(key).or_else(default) {
                held.insert(key.clone(), value.clone());
            }
        }
        if held.is_empty() && !keys.is_empty() {
            let names: Vec<String> = keys.iter().map(|key| format!("{key:?}")).collect();
            return Err(Unidentified(format!(
                "associative list with keys has an element that omits all key fields [{}] (and doesn't have default values for any key fields)",
                names.join(" ")
            )));
        }
        Ok(Element::key(held))
    }
}

/// Whether a map or list is empty.
pub(crate) fn is_empty(value: &Value) -> bool {
    match value {
        Value::Object(map) => map.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Null => true,
        Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
    }
}
