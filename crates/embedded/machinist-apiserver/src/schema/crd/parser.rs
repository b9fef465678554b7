//! Parses a structural schema, with its rules, from the `openAPIV3Schema` of a definition.

use std::sync::Arc;

use regex::Regex;
use serde_json::Value;

use crate::schema::crd::format::Format;
use crate::schema::crd::rules::compile;
use crate::schema::crd::schema::{Bounds, ListType, MAX_DEPTH, MapType, Pattern, Schema, Type};
use crate::schema::crd::text_format::TextFormat;
use crate::values::status::FieldErrors;

impl Schema {
    /// Parses `openAPIV3Schema` and reports violations of the rules for structural schemas.
    pub(crate) fn parse(source: &Value, field: &str, errors: &mut FieldErrors) -> Self {
        let mut root = Parser { errors, uncorrelatable: None, count: Some(1.0) };
        root.node(source, field, NodeRole::Structural, 0)
    }
}

/// Whether a node describes structure or only restricts values (inside allOf, anyOf, oneOf, not).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum NodeRole {
    Structural,
    ValueOnly,
}

struct Parser<'a> {
    errors: &'a mut FieldErrors,
    /// Path of the enclosing list whose items have no identity, if any. Nothing inside has an old
    /// version.
    uncorrelatable: Option<String>,
    /// Maximum number of values of the node in one object, if there is a limit.
    count: Option<f64>,
}

impl Parser<'_> {
    fn node(&mut self, source: &Value, field: &str, place: NodeRole, depth: usize) -> Schema {
        let Some(source) = source.as_object() else {
            self.errors.invalid(field, source.clone(), "must be a schema object");
            return Schema::default();
        };
        if MAX_DEPTH < depth {
            self.errors.invalid(field, Value::Null, "schema is nested too deeply");
            return Schema::default();
        }
        let flag = |key: &str| source.get(key) == Some(&Value::Bool(true));
        let text = |key: &str| source.get(key).and_then(Value::as_str);
        let is_text = text("type").is_none_or(|of| of == "string");
        let mut schema = Schema {
            of: text("type").and_then(Type::parse),
            format: text("format").and_then(Format::parse),
            text_format: text("format").filter(|_| is_text).and_then(TextFormat::parse),
            nullable: flag("nullable"),
            preserve_unknown: flag("x-kubernetes-preserve-unknown-fields"),
            embedded_resource: flag("x-kubernetes-embedded-resource"),
            int_or_string: flag("x-kubernetes-int-or-string") || text("format") == Some("int-or-string"),
            default: source.get("default").cloned(),
            required: strings(source.get("required")),
            list: list_type(source),
            map: map_type(source),
            ..Schema::default()
        };
        if place == NodeRole::Structural
            && schema.of.is_none()
            && !schema.int_or_string
            && !schema.preserve_unknown
        {
            match text("type") {
                None => self
                    .errors
                    .required(format!("{field}.type"), "must not be empty for specified object fields"),
                Some(other) => self.errors.not_supported(
                    format!("{field}.type"),
                    other.into(),
                    &["array", "boolean", "integer", "number", "object", "string"].map(str::to_owned),
                ),
            }
        }
        for (name, property) in source.get("properties").and_then(Value::as_object).into_iter().flatten() {
            let node = self.node(property, &format!("{field}.properties[{name}]"), place, depth + 1);
            schema.properties.insert(name.clone(), Arc::new(node));
        }
        match source.get("items") {
            Some(items) if items.is_object() => {
                let uncorrelatable = match schema.list {
                    ListType::Map(_) => None,
                    ListType::Set | ListType::Atomic => Some(field),
                };
                let most = source.get("maxItems").and_then(Value::as_u64);
                let node = self.within(most, uncorrelatable, |parser| {
                    parser.node(items, &format!("{field}.items"), place, depth + 1)
                });
                schema.items = Some(Arc::new(node));
            }
            Some(other) => {
                self.errors.invalid(format!("{field}.items"), other.clone(), "must be a schema object")
            }
            None => {
                if place == NodeRole::Structural && schema.of == Some(Type::Array) {
                    self.errors.required(format!("{field}.items"), "must be specified");
                }
            }
        }
        match source.get("additionalProperties") {
            Some(Value::Bool(true)) => {
                schema.additional = Some(Arc::new(Schema { preserve_unknown: true, ..Schema::default() }))
            }
            Some(Value::Object(_)) => {
                let (values, at) = (&source["additionalProperties"], format!("{field}.additionalProperties"));
                let most = source.get("maxProperties").and_then(Value::as_u64);
                let node = self.within(most, None, |parser| parser.node(values, &at, place, depth + 1));
                schema.additional = Some(Arc::new(node));
            }
            _ => {}
        }
        schema.bounds = self.bounds(source, field);
        for (key, list) in
            [("allOf", &mut schema.all_of), ("anyOf", &mut schema.any_of), ("oneOf", &mut schema.one_of)]
        {
            for (index, part) in source.get(key).and_then(Value::as_array).into_iter().flatten().enumerate() {
                let node =
                    self.node(part, &format!("{field}.{key}[{index}]"), NodeRole::ValueOnly, depth + 1);
                list.push(Arc::new(node));
            }
        }
        if let Some(part) = source.get("not") {
            schema.not =
                Some(Arc::new(self.node(part, &format!("{field}.not"), NodeRole::ValueOnly, depth + 1)));
        }
        if let Some(declared) = source.get("x-kubernetes-validations") {
            self.rules(declared, &mut schema, field, place, depth);
        }
        let below =
            || schema.properties.values().chain(&schema.items).chain(&schema.additional).map(|node| &**node);
        let has_rules = !schema.rules.is_empty() || below().any(|node| node.has_rules);
        let has_defaults = below().any(|node| node.default.is_some() || node.has_defaults);
        Schema { has_rules, has_defaults, ..schema }
    }

    /// Parses the schema of the values in a collection, of which there are at most `most`.
    fn within(
        &mut self,
        most: Option<u64>,
        uncorrelatable: Option<&str>,
        parse: impl FnOnce(&mut Self) -> Schema,
    ) -> Schema {
        let (held_count, held_place) = (self.count, self.uncorrelatable.clone());
        #[expect(clippy::cast_precision_loss, reason = "an estimate")]
        let count = held_count.zip(most).map(|(around, most)| around * most as f64);
        self.count = count;
        if held_place.is_none() {
            self.uncorrelatable = uncorrelatable.map(str::to_owned);
        }
        let node = parse(self);
        (self.count, self.uncorrelatable) = (held_count, held_place);
        node
    }

    fn rules(&mut self, declared: &Value, schema: &mut Schema, field: &str, place: NodeRole, depth: usize) {
        if place == NodeRole::ValueOnly {
            let at = format!("{field}.x-kubernetes-validations");
            self.errors.forbidden(at, "must be empty to be structural");
            return;
        }
        let place = compile::NodePosition {
            field,
            resource: depth == 0 || schema.embedded_resource,
            uncorrelatable: self.uncorrelatable.as_deref(),
            count: self.count,
        };
        schema.rules = compile::rules(declared, schema, place, self.errors).into();
    }

    fn bounds(&mut self, source: &serde_json::Map<String, Value>, field: &str) -> Bounds {
        let number = |key: &str| source.get(key).and_then(Value::as_f64);
        let count = |key: &str| source.get(key).and_then(Value::as_u64);
        let flag = |key: &str| source.get(key) == Some(&Value::Bool(true));
        let pattern = source.get("pattern").and_then(Value::as_str).and_then(|text| match Regex::new(text) {
            Ok(regex) => Some(Pattern { text: text.to_owned(), regex }),
            Err(e) => {
                self.errors.invalid(
                    format!("{field}.pattern"),
                    text.into(),
                    format!("must be a valid regular expression, but isn't: {e}"),
                );
                None
            }
        });
        Bounds {
            allowed: source.get("enum").and_then(Value::as_array).cloned(),
            minimum: number("minimum"),
            maximum: number("maximum"),
            exclusive_minimum: flag("exclusiveMinimum"),
            exclusive_maximum: flag("exclusiveMaximum"),
            multiple_of: number("multipleOf"),
            min_length: count("minLength"),
            max_length: count("maxLength"),
            pattern,
            min_items: count("minItems"),
            max_items: count("maxItems"),
            unique_items: flag("uniqueItems"),
            min_properties: count("minProperties"),
            max_properties: count("maxProperties"),
        }
    }
}

fn list_type(source: &serde_json::Map<String, Value>) -> ListType {
    match source.get("x-kubernetes-list-type").and_then(Value::as_str) {
        Some("set") => ListType::Set,
        Some("map") => ListType::Map(strings(source.get("x-kubernetes-list-map-keys"))),
        _ => ListType::Atomic,
    }
}

fn map_type(source: &serde_json::Map<String, Value>) -> MapType {
    match source.get("x-kubernetes-map-type").and_then(Value::as_str) {
        Some("atomic") => MapType::Atomic,
        _ => MapType::Granular,
    }
}

fn strings(list: Option<&Value>) -> Vec<String> {
    list.and_then(Value::as_array)
        .map(|items| items.iter().filter_map(|i| i.as_str().map(str::to_owned)).collect())
        .unwrap_or_default()
}
