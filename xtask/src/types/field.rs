//! Writes the line of one field.

use std::fmt::Write as _;

use anyhow::{Result, bail};
use serde_json::Value;

use super::go;
use super::openapi::Schema;
use super::proto;

/// A Go type: its package and its name.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct TypeId {
    pub(super) package: String,
    pub(super) name: String,
}

impl TypeId {
    pub(super) fn schema_name(&self) -> String {
        format!("{}{}", schema_prefix(&self.package), self.name)
    }

    pub(super) fn message_name(&self) -> String {
        format!("{}.{}", self.package.replace('/', ".").replace('-', "_"), self.name)
    }
}

/// Returns `io.k8s.api.core.v1.` for `k8s.io/api/core/v1`.
pub(super) fn schema_prefix(package: &str) -> String {
    let (domain, path) = package.split_once('/').unwrap_or((package, ""));
    let domain: Vec<&str> = domain.split('.').rev().collect();
    format!("{}.{}.", domain.join("."), path.replace('/', "."))
}

/// A type in the notation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Shape {
    /// A type such as `string`.
    Value(String),
    Named(TypeId),
    List(Box<Shape>),
    Map(Box<Shape>),
}

impl Shape {
    /// Reads a type in the notation that names no other type.
    pub(super) fn parse(text: &str) -> Self {
        let within = |open: char, close: char| text.strip_prefix(open)?.strip_suffix(close).map(Self::parse);
        if let Some(items) = within('[', ']') {
            return Shape::List(Box::new(items));
        }
        if let Some(values) = within('{', '}') {
            return Shape::Map(Box::new(values));
        }
        Shape::Value(text.to_owned())
    }

    /// Returns the type with a name of its own in this type.
    pub(super) fn named(&self) -> Option<&TypeId> {
        match self {
            Shape::Value(_) => None,
            Shape::Named(of) => Some(of),
            Shape::List(inner) | Shape::Map(inner) => inner.named(),
        }
    }

    fn is_value(&self, name: &str) -> bool {
        matches!(self, Shape::Value(value) if value == name)
    }

    fn text(&self, name_of: &dyn Fn(&TypeId) -> String) -> String {
        match self {
            Shape::Value(name) => name.clone(),
            Shape::Named(of) => name_of(of),
            Shape::List(items) => format!("[{}]", items.text(name_of)),
            Shape::Map(values) => format!("{{{}}}", values.text(name_of)),
        }
    }
}

/// A type that is one value in JSON.
struct Known {
    schema: &'static str,
    message: &'static str,
    /// Name in the notation.
    name: &'static str,
}

/// The last three are free-form JSON, which protobuf contains as text.
const KNOWN: [Known; 7] = [
    Known {
        schema: "io.k8s.apimachinery.pkg.apis.meta.v1.Time",
        message: "k8s.io.apimachinery.pkg.apis.meta.v1.Time",
        name: "time",
    },
    Known {
        schema: "io.k8s.apimachinery.pkg.apis.meta.v1.MicroTime",
        message: "k8s.io.apimachinery.pkg.apis.meta.v1.MicroTime",
        name: "micro",
    },
    Known {
        schema: "io.k8s.apimachinery.pkg.api.resource.Quantity",
        message: "k8s.io.apimachinery.pkg.api.resource.Quantity",
        name: "quantity",
    },
    Known {
        schema: "io.k8s.apimachinery.pkg.util.intstr.IntOrString",
        message: "k8s.io.apimachinery.pkg.util.intstr.IntOrString",
        name: "intstr",
    },
    Known {
        schema: "io.k8s.apimachinery.pkg.apis.meta.v1.FieldsV1",
        message: "k8s.io.apimachinery.pkg.apis.meta.v1.FieldsV1",
        name: "any",
    },
    Known {
        schema: "io.k8s.apimachinery.pkg.runtime.RawExtension",
        message: "k8s.io.apimachinery.pkg.runtime.RawExtension",
        name: "any",
    },
    Known {
        schema: "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSON",
        message: "k8s.io.apiextensions_apiserver.pkg.apis.apiextensions.v1.JSON",
        name: "any",
    },
];

/// Returns the name in the notation of a type that is one value in JSON.
pub(super) fn known_value(schema_name: &str) -> Option<&'static str> {
    KNOWN.iter().find(|known| known.schema == schema_name).map(|known| known.name)
}

/// All facts about a field.
pub(super) struct Facts<'a> {
    pub(super) field: &'a go::Field,
    pub(super) schema: &'a Schema,
    pub(super) in_message: Option<&'a proto::Field>,
    pub(super) shape: Shape,
    pub(super) is_required: bool,
    pub(super) default: Option<Value>,
}

/// Returns the line of a field.
pub(super) fn line(facts: &Facts<'_>, name_of: &dyn Fn(&TypeId) -> String) -> Result<String> {
    let mut line = facts.field.name.clone();
    if let Some(found) = facts.in_message.filter(|found| is_decodable(&found.of, &facts.shape)) {
        write!(line, " #{}", found.number)?;
    }
    write!(line, " {}", omittable(facts).unwrap_or_else(|| facts.shape.text(name_of)))?;
    for word in ownership(facts.schema, &facts.shape)? {
        write!(line, " {word}")?;
    }
    if let Some(word) = without_content(facts) {
        write!(line, " {word}")?;
    }
    if facts.is_required {
        line.push_str(" required");
    }
    if let Some(default) = &facts.default {
        let is_struct = matches!(facts.shape, Shape::Named(_));
        if facts.field.is_pointer() && (is_struct || is_zero(default)) {
            line.push_str(" pointer");
        }
        write!(line, " = {default}")?;
    }
    Ok(line)
}

/// Whether the embedded server can decode the field. It cannot decode, for example, a list that is
/// a message of its own.
fn is_decodable(of: &proto::Type, shape: &Shape) -> bool {
    let (message, shape) = match (of, shape) {
        (proto::Type::Repeated(message), Shape::List(shape)) => (message, shape.as_ref()),
        (proto::Type::Map(message), Shape::Map(shape)) => (message, shape.as_ref()),
        (proto::Type::One(message), shape) => (message, shape),
        (proto::Type::Repeated(_) | proto::Type::Map(_), _) => return false,
    };
    match shape {
        Shape::Named(of) => of.message_name() == *message,
        Shape::Value(name) => match (name.as_str(), message.as_str()) {
            ("int" | "int32", "int32" | "int64") => true,
            (value @ ("string" | "bytes" | "bool"), message) => value == message,
            (value, message) => KNOWN.iter().any(|known| known.message == message && known.name == value),
        },
        Shape::List(_) | Shape::Map(_) => false,
    }
}

/// Returns the type of a number or flag whose zero value Go's encoder leaves out.
fn omittable(facts: &Facts<'_>) -> Option<String> {
    let Shape::Value(name) = &facts.shape else { return None };
    if facts.field.is_pointer() || !facts.field.omit_empty {
        return None;
    }
    match name.as_str() {
        "bool" => Some("flag".to_owned()),
        "int" => Some("count".to_owned()),
        "int32" => Some("count32".to_owned()),
        _ => None,
    }
}

/// Returns the words for strategic merge patches and for the ownership of a list or map.
fn ownership(schema: &Schema, shape: &Shape) -> Result<Vec<String>> {
    let strategies: Vec<&str> = schema.patch_strategy.iter().flat_map(|text| text.split(',')).collect();
    let merges = strategies.contains(&"merge");
    let key = schema.patch_key.as_deref().filter(|_| merges);
    let mut words: Vec<String> = key.map(|key| format!("by {key}")).into_iter().collect();
    for strategy in strategies {
        match strategy {
            "merge" if key.is_none() => words.push("merge".to_owned()),
            "merge" => {}
            "retainKeys" => words.push("retain".to_owned()),
            "replace" => words.push("replace".to_owned()),
            other => bail!("the notation has no word for the patch strategy {other}"),
        }
    }
    if let Shape::List(_) = shape {
        match schema.list_type.as_deref() {
            Some("map") if key.is_some_and(|key| schema.list_keys == [key]) => {}
            Some("map") => words.push(format!("keyed {}", schema.list_keys.join(","))),
            Some("set") if merges && key.is_none() => {}
            Some("set") => words.push("set".to_owned()),
            Some("atomic") | None if merges => words.push("atomic".to_owned()),
            Some("atomic") | None => {}
            Some(other) => bail!("the notation has no word for the list type {other}"),
        }
    }
    match (schema.map_type.as_deref(), shape) {
        (None, _) => {}
        (Some("atomic"), _) => words.push("atomic".to_owned()),
        // A map is granular anyway, but a named type may be atomic elsewhere.
        (Some("granular"), Shape::Map(_)) => {}
        (Some("granular"), _) => words.push("granular".to_owned()),
        (Some(other), _) => bail!("the notation has no word for the map type {other}"),
    }
    Ok(words)
}

/// Returns the word for the form in which Go's encoder writes a field without content, if it does
/// not leave out the field.
fn without_content(facts: &Facts<'_>) -> Option<&'static str> {
    let Facts { field, shape, .. } = facts;
    let can_be_nil =
        field.is_pointer() || matches!(shape, Shape::List(_) | Shape::Map(_)) || shape.is_value("bytes");
    if can_be_nil && !field.omit_empty && facts.default.is_none() {
        return Some("null");
    }
    if shape.is_value("string") {
        return (field.is_pointer() || !field.omit_empty).then_some("keep");
    }
    // A time is a struct, which `omitempty` does not leave out. The zero time is null.
    let is_time = shape.is_value("time") || shape.is_value("micro");
    (is_time && !field.is_pointer() && !field.omit_zero).then_some("null")
}

/// Whether a default is the zero value of its type.
fn is_zero(default: &Value) -> bool {
    match default {
        Value::Null => true,
        Value::Bool(flag) => !flag,
        Value::Number(number) => number.as_f64() == Some(0.0),
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => fields.is_empty(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    struct Given {
        go: &'static str,
        /// Options of the JSON tag.
        options: &'static [&'static str],
        message: proto::Type,
        schema: Value,
        shape: Shape,
    }

    impl Default for Given {
        fn default() -> Self {
            Given {
                go: "string",
                options: &["omitempty"],
                message: proto::Type::One("string".to_owned()),
                schema: json!({}),
                shape: Shape::parse("string"),
            }
        }
    }

    impl Given {
        fn line(self) -> String {
            let field = go::Field {
                name: "x".to_owned(),
                message_name: Some("x".to_owned()),
                of: self.go.to_owned(),
                omit_empty: self.options.contains(&"omitempty"),
                omit_zero: self.options.contains(&"omitzero"),
            };
            let schema: Schema = serde_json::from_value(self.schema).expect("a schema");
            let facts = Facts {
                field: &field,
                default: schema.default.clone(),
                schema: &schema,
                in_message: Some(&proto::Field { number: 7, of: self.message }),
                shape: self.shape,
                is_required: false,
            };
            line(&facts, &|of| of.name.clone()).expect("a known form")
        }
    }

    fn one(go: &'static str, message: &str, value: &str, options: &'static [&'static str]) -> String {
        let (message, shape) = (proto::Type::One(message.to_owned()), Shape::parse(value));
        Given { go, options, message, shape, ..Given::default() }.line()
    }

    #[test]
    fn zero_values_follow_gos_encoder() {
        assert_eq!(one("string", "string", "string", &["omitempty"]), "x #7 string");
        assert_eq!(one("Phase", "string", "string", &[]), "x #7 string keep");
        assert_eq!(one("*string", "string", "string", &["omitempty"]), "x #7 string keep");
        assert_eq!(one("*string", "string", "string", &[]), "x #7 string null");
        assert_eq!(one("int32", "int32", "int32", &["omitempty"]), "x #7 count32");
        assert_eq!(one("*int64", "int64", "int", &["omitempty"]), "x #7 int");
        assert_eq!(one("bool", "bool", "bool", &["omitempty"]), "x #7 flag");
        assert_eq!(one("[]byte", "bytes", "bytes", &[]), "x #7 bytes null");
        let time = KNOWN[0].message;
        assert_eq!(one("metav1.Time", time, "time", &["omitempty"]), "x #7 time null");
        assert_eq!(one("metav1.Time", time, "time", &["omitempty", "omitzero"]), "x #7 time");
        assert_eq!(one("*metav1.Time", time, "time", &["omitempty"]), "x #7 time");
    }

    #[test]
    fn a_pointer_with_a_zero_default_is_marked() {
        let with =
            |go, default: &str| Given { go, schema: json!({"default": default}), ..Given::default() }.line();
        assert_eq!(with("*string", ""), r#"x #7 string keep pointer = """#);
        assert_eq!(with("*string", "a"), r#"x #7 string keep = "a""#);
        assert_eq!(with("string", ""), r#"x #7 string = """#);
    }

    #[test]
    fn lists_have_their_owners_and_merge_keys() {
        let list = |patch: Option<(&str, Option<&str>)>, list: Option<(&str, &[&str])>| {
            let schema = json!({
                "x-kubernetes-patch-strategy": patch.map(|patch| patch.0),
                "x-kubernetes-patch-merge-key": patch.and_then(|patch| patch.1),
                "x-kubernetes-list-type": list.map(|list| list.0),
                "x-kubernetes-list-map-keys": list.map_or(&[][..], |list| list.1),
            });
            let message = proto::Type::Repeated("string".to_owned());
            Given { go: "[]T", message, schema, shape: Shape::parse("[string]"), ..Given::default() }.line()
        };
        let by = |strategy| Some((strategy, Some("a")));
        assert_eq!(list(None, None), "x #7 [string]");
        assert_eq!(list(None, Some(("atomic", &[]))), "x #7 [string]");
        assert_eq!(list(None, Some(("set", &[]))), "x #7 [string] set");
        assert_eq!(list(None, Some(("map", &["a", "b"]))), "x #7 [string] keyed a,b");
        assert_eq!(list(Some(("merge", None)), Some(("set", &[]))), "x #7 [string] merge");
        assert_eq!(list(by("merge"), Some(("map", &["a"]))), "x #7 [string] by a");
        assert_eq!(list(by("merge"), Some(("map", &["a", "b"]))), "x #7 [string] by a keyed a,b");
        assert_eq!(list(by("merge"), None), "x #7 [string] by a atomic");
        assert_eq!(list(by("merge,retainKeys"), Some(("map", &["a"]))), "x #7 [string] by a retain");
    }

    #[test]
    fn a_list_that_is_a_message_has_no_number() {
        let message = || proto::Type::Map("k8s.io.api.example.v1.Texts".to_owned());
        let shape = Shape::parse("{[string]}");
        assert_eq!(Given { message: message(), shape, ..Given::default() }.line(), "x {[string]}");
        let named = TypeId { package: "k8s.io/api/example/v1".to_owned(), name: "Texts".to_owned() };
        let shape = Shape::Map(Box::new(Shape::Named(named)));
        assert_eq!(Given { message: message(), shape, ..Given::default() }.line(), "x #7 {Texts}");
    }
}
