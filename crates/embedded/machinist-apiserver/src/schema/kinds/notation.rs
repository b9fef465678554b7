//! Reads the types of the built-in kinds (`types/*.txt`) into schemas.
//!
//! `cargo xtask types` generates the texts from the descriptions that Kubernetes publishes. They
//! are part of the program. A mistake in them is our own bug, so the first test that starts a
//! server panics with the line.
//!
//! A line that begins with `type` names a type, and each line below it is one field: name, number
//! in protobuf, type, and words. A protobuf body that has a field without a number is rejected.
//!
//! | Type | Meaning |
//! |---|---|
//! | `string`, `bytes`, `int`, `int32`, `number`, `bool` | as in OpenAPI |
//! | `count`, `count32`, `flag` | `int`, `int32` and `bool`, left out if 0 or false |
//! | `time`, `micro` | a time with a precision of seconds, or of microseconds |
//! | `quantity`, `intstr` | a quantity; a number or a string |
//! | `any` | any JSON, whose objects have named fields |
//! | `[T]`, `{T}`, another name | a list of T; a map from strings to T; a type of the texts |
//!
//! | Word | Meaning |
//! |---|---|
//! | `by KEY` | a strategic merge patch merges the items of the list by that key |
//! | `retain` | that merge uses `$retainKeys` |
//! | `merge` | a strategic merge patch takes the union of plain values |
//! | `replace` | a strategic merge patch replaces the map |
//! | `keyed KEY,KEY` | each item has its own owners, and these keys identify it (default: as in `by KEY`) |
//! | `set` | each value has its own owners, although a strategic merge patch replaces the list |
//! | `atomic` | the whole value has one set of owners, although a strategic merge patch merges it |
//! | `granular` | each field has its own owners, although the type is `atomic` elsewhere |
//! | `keep` | written even when empty |
//! | `null` | written even when absent, as null |
//! | `required` | OpenAPI lists the field as required; the rules of the kind check it |
//! | `pointer` | an empty object lacks this field, although it has a default |
//! | `= JSON` | the default |
//!
//! A list without one of these words has one set of owners. The line `atomic` is the word for the
//! whole type. The line `inline #1 T` adds the fields of T, which are a message of their own in
//! protobuf.

use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock};

use serde_json::Value;

use crate::schema::crd::format::Format;
use crate::schema::crd::schema::{ListType, MapType, PatchStrategy, Schema, Type, Zero};

/// The texts and the API group of their types. The group is `None` if several groups share the
/// types.
const FILES: &[(Option<&str>, &str)] = &[
    (None, include_str!("types/meta.txt")),
    (CORE, include_str!("types/namespace.txt")),
    (CORE, include_str!("types/node.txt")),
    (CORE, include_str!("types/volume.txt")),
    (CORE, include_str!("types/pod.txt")),
    (CORE, include_str!("types/config.txt")),
    (CORE, include_str!("types/service.txt")),
    (None, include_str!("types/event.txt")),
    (Some("coordination.k8s.io"), include_str!("types/lease.txt")),
    (Some("policy"), include_str!("types/policy.txt")),
    (Some("apps"), include_str!("types/apps.txt")),
    (Some("batch"), include_str!("types/batch.txt")),
    (Some("storage.k8s.io"), include_str!("types/storage.txt")),
    (Some("scheduling.k8s.io"), include_str!("types/scheduling.txt")),
    (Some("certificates.k8s.io"), include_str!("types/certificates.txt")),
    (Some("apiextensions.k8s.io"), include_str!("types/apiextensions.txt")),
    (Some("rbac.authorization.k8s.io"), include_str!("types/rbac.txt")),
    (Some("authorization.k8s.io"), include_str!("types/authorization.txt")),
    (Some("authentication.k8s.io"), include_str!("types/authentication.txt")),
];

const CORE: Option<&str> = Some("");

static TYPES: LazyLock<BTreeMap<&'static str, Arc<Schema>>> = LazyLock::new(|| read(FILES));

/// Returns the schema of a type in `types/*.txt`.
pub(crate) fn schema(name: &str) -> Arc<Schema> {
    TYPES.get(name).unwrap_or_else(|| panic!("types/*.txt have no type {name}")).clone()
}

/// Returns the same schema as a static reference. Accepts also `string`, `any` (fields that are
/// described elsewhere) and `free` (fields that are not described).
pub(crate) fn shared_schema(name: &str) -> &'static Schema {
    TYPES.get(name).unwrap_or_else(|| panic!("types/*.txt have no type {name}"))
}

/// Returns the API group of a type, if only one group has it.
pub(crate) fn group_of(name: &str) -> Option<&'static str> {
    static GROUPS: LazyLock<BTreeMap<&str, &str>> = LazyLock::new(|| {
        let of_text = |(group, text): &(Option<&'static str>, &'static str)| {
            let group = (*group)?;
            let names = text.lines().filter_map(|line| line.strip_prefix("type "));
            Some(names.map(|name| (name.trim(), group)).collect::<Vec<_>>())
        };
        FILES.iter().filter_map(of_text).flatten().collect()
    });
    GROUPS.get(name).copied()
}

/// Returns the schema of `metadata`, also for custom resources.
pub(crate) fn object_meta() -> Arc<Schema> {
    schema("ObjectMeta")
}

type Lines<'a> = BTreeMap<&'a str, Vec<&'a str>>;

fn read(texts: &[(Option<&str>, &'static str)]) -> BTreeMap<&'static str, Arc<Schema>> {
    let mut lines: Lines<'static> = BTreeMap::new();
    let mut current = "";
    for line in texts.iter().flat_map(|(_, text)| text.lines()) {
        if line.trim().is_empty() || line.starts_with('#') {
            continue;
        }
        match line.strip_prefix("type ") {
            Some(name) => {
                current = name.trim();
                lines.entry(current).or_default();
            }
            None => lines.entry(current).or_default().push(line.trim()),
        }
    }
    let mut done = BTreeMap::new();
    for name in lines.keys() {
        build(name, &lines, &mut done);
    }
    for name in ["string", "any"] {
        let schema = type_schema(name, &lines, &mut done);
        done.insert(name, Arc::new(schema));
    }
    done.insert("free", Arc::new(Schema { preserve_unknown: true, ..Schema::default() }));
    done
}

fn build(
    name: &'static str,
    lines: &Lines<'static>,
    done: &mut BTreeMap<&'static str, Arc<Schema>>,
) -> Arc<Schema> {
    if let Some(schema) = done.get(name) {
        return schema.clone();
    }
    let mut schema = Schema { name, of: Some(Type::Object), ..Schema::default() };
    for line in lines.get(name).unwrap_or_else(|| panic!("types/*.txt have no type {name}")) {
        if *line == "atomic" {
            schema.map = MapType::Atomic;
            continue;
        }
        if let Some(part) = line.strip_prefix("inline #") {
            let (number, name) =
                part.split_once(' ').unwrap_or_else(|| panic!("types/*.txt: expected a type in {line:?}"));
            let number =
                number.parse().unwrap_or_else(|_| panic!("types/*.txt: expected a number in {line:?}"));
            inline(&mut schema, number, build(name, lines, done));
            continue;
        }
        let (field, rest) =
            line.split_once(' ').unwrap_or_else(|| panic!("types/*.txt: expected a type in {line:?}"));
        let (settings, _default) = rest.split_once(" = ").unwrap_or((rest, ""));
        if settings.split_whitespace().any(|word| word == "required") {
            schema.required.push(field.to_owned());
        }
        schema.properties.insert(field.to_owned(), Arc::new(field_schema(rest, lines, done)));
    }
    let schema = Arc::new(schema);
    done.insert(name, schema.clone());
    schema
}

/// Adds the fields of `part` to `schema`. In protobuf they are in a message of their own, so here
/// they have no numbers.
fn inline(schema: &mut Schema, number: u32, part: Arc<Schema>) {
    for (field, below) in &part.properties {
        let below = Schema { number: 0, ..below.as_ref().clone() };
        schema.properties.insert(field.clone(), Arc::new(below));
    }
    schema.required.extend(part.required.iter().cloned());
    schema.inlined.push((number, part));
}

fn field_schema(
    text: &'static str,
    lines: &Lines<'static>,
    done: &mut BTreeMap<&'static str, Arc<Schema>>,
) -> Schema {
    let (text, default) = match text.split_once(" = ") {
        Some((text, json)) => {
            let value: Value =
                serde_json::from_str(json).unwrap_or_else(|e| panic!("types/*.txt: default {json:?}: {e}"));
            (text, Some(value))
        }
        None => (text, None),
    };
    let (number, text) = match text.strip_prefix('#').and_then(|t| t.split_once(' ')) {
        Some((number, text)) => {
            (number.parse().unwrap_or_else(|_| panic!("types/*.txt: expected a number in {text:?}")), text)
        }
        None => (0, text),
    };
    let mut words = text.split_whitespace();
    let name = words.next().unwrap_or_else(|| panic!("types/*.txt: expected a type in {text:?}"));
    let mut schema = type_schema(name, lines, done);
    schema.default = default;
    schema.number = number;
    while let Some(word) = words.next() {
        match word {
            "by" => {
                let key = words.next().unwrap_or_else(|| panic!("types/*.txt: expected a key in {text:?}"));
                schema.patch = PatchStrategy::MergeByKey(key.to_owned());
                schema.list = ListType::Map(vec![key.to_owned()]);
            }
            "merge" => {
                schema.patch = PatchStrategy::MergeValues;
                schema.list = ListType::Set;
            }
            "replace" => schema.patch = PatchStrategy::ReplaceMap,
            "keyed" => {
                let keys = words.next().unwrap_or_else(|| panic!("types/*.txt: expected keys in {text:?}"));
                schema.list = ListType::Map(keys.split(',').map(str::to_owned).collect());
            }
            "set" => schema.list = ListType::Set,
            "atomic" if schema.of == Some(Type::Array) => schema.list = ListType::Atomic,
            "atomic" => schema.map = MapType::Atomic,
            "granular" => schema.map = MapType::Granular,
            "pointer" => schema.pointer = true,
            // Handled by the parent type.
            "required" => {}
            "retain" => schema.retain_keys = true,
            "keep" => schema.zero = Zero::Keep,
            "null" => schema.zero = Zero::Null,
            other => panic!("types/*.txt: unknown word {other:?} in {text:?}"),
        }
    }
    schema
}

fn type_schema(
    name: &'static str,
    lines: &Lines<'static>,
    done: &mut BTreeMap<&'static str, Arc<Schema>>,
) -> Schema {
    let of = |of: Type| Schema { of: Some(of), ..Schema::default() };
    let text = |format: Format| Schema { format: Some(format), ..of(Type::String) };
    if let Some(inner) = name.strip_prefix('[').and_then(|n| n.strip_suffix(']')) {
        return Schema { items: Some(Arc::new(type_schema(inner, lines, done))), ..of(Type::Array) };
    }
    if let Some(inner) = name.strip_prefix('{').and_then(|n| n.strip_suffix('}')) {
        return Schema { additional: Some(Arc::new(type_schema(inner, lines, done))), ..of(Type::Object) };
    }
    match name {
        "string" => of(Type::String),
        "int" => of(Type::Integer),
        "int32" => Schema { format: Some(Format::Int32), ..of(Type::Integer) },
        "count" => Schema { zero: Zero::Omit, ..of(Type::Integer) },
        "count32" => Schema { format: Some(Format::Int32), zero: Zero::Omit, ..of(Type::Integer) },
        "number" => of(Type::Number),
        "bool" => of(Type::Boolean),
        "flag" => Schema { zero: Zero::Omit, ..of(Type::Boolean) },
        "time" => text(Format::DateTime),
        "micro" => text(Format::MicroTime),
        "bytes" => text(Format::Bytes),
        "quantity" => Schema { format: Some(Format::Quantity), int_or_string: true, ..Schema::default() },
        "intstr" => Schema { int_or_string: true, ..Schema::default() },
        "any" => Schema { preserve_unknown: true, named_inside: true, ..Schema::default() },
        other => build(other, lines, done).as_ref().clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tables_are_generated_from_the_reference() {
        let version = include_str!("../../../REFERENCE").trim();
        let header = format!("# Generated by `cargo xtask types` from Kubernetes {version}. ");
        for (_, text) in FILES {
            assert!(text.starts_with(&header), "{:?}", text.lines().next());
        }
    }

    #[test]
    fn the_type_table_parses() {
        let node = schema("Node");
        let taints = node.properties["spec"].properties["taints"].as_ref();
        assert_eq!(taints.patch, PatchStrategy::Replace);
        let conditions = node.properties["status"].properties["conditions"].as_ref();
        assert_eq!(conditions.patch, PatchStrategy::MergeByKey("type".into()));
    }
}
