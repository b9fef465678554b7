//! A parsed structural schema.

use std::collections::BTreeMap;
use std::sync::Arc;

use regex::Regex;
use serde_json::Value;

use crate::schema::crd::rules::{self, Rule};
use crate::schema::crd::text_format::TextFormat;
use crate::values::status::FieldErrors;

/// Maximum depth of schemas and objects. kube-apiserver's JSON decoder has a similar limit.
pub(crate) const MAX_DEPTH: usize = 128;

/// One node of a schema. The default allows every value.
#[derive(Debug, Clone, Default)]
pub(crate) struct Schema {
    /// Built-in kinds: name of the type in `types/*.txt`, if it has one.
    pub(crate) name: &'static str,
    /// Built-in kinds: number of the field in protobuf, 0 if unknown.
    pub(crate) number: u32,
    /// Built-in kinds: types with fields among `properties` that protobuf keeps in a message of
    /// this number.
    pub(crate) inlined: Vec<(u32, Arc<Schema>)>,
    pub(crate) of: Option<Type>,
    pub(crate) format: Option<Format>,
    pub(crate) text_format: Option<TextFormat>,
    pub(crate) properties: BTreeMap<String, Arc<Schema>>,
    pub(crate) additional: Option<Arc<Schema>>,
    pub(crate) items: Option<Arc<Schema>>,
    pub(crate) required: Vec<String>,
    pub(crate) nullable: bool,
    pub(crate) preserve_unknown: bool,
    /// The value is a whole Kubernetes object.
    pub(crate) embedded_resource: bool,
    pub(crate) int_or_string: bool,
    pub(crate) default: Option<Value>,
    /// Built-in kinds: treatment of the zero value by a typed encoder.
    pub(crate) zero: Zero,
    pub(crate) list: ListType,
    pub(crate) map: MapType,
    /// Built-in kinds: an empty object lacks this field, although it has a default.
    pub(crate) pointer: bool,
    /// Built-in kinds: this schema does not describe the fields inside, but they are named fields
    /// and not entries of a map.
    pub(crate) named_inside: bool,
    pub(crate) patch: PatchStrategy,
    /// A strategic merge patch of an item must list all fields that stay.
    pub(crate) retain_keys: bool,
    pub(crate) bounds: Bounds,
    pub(crate) all_of: Vec<Arc<Schema>>,
    pub(crate) any_of: Vec<Arc<Schema>>,
    pub(crate) one_of: Vec<Arc<Schema>>,
    pub(crate) not: Option<Arc<Schema>>,
    /// `x-kubernetes-validations`.
    pub(crate) rules: Arc<[Rule]>,
    /// This node or a node below it has rules.
    pub(crate) has_rules: bool,
    /// A node below this one has defaults.
    pub(crate) has_defaults: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Type {
    Object,
    Array,
    String,
    Integer,
    Number,
    Boolean,
}

impl Type {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Type::Object => "object",
            Type::Array => "array",
            Type::String => "string",
            Type::Integer => "integer",
            Type::Number => "number",
            Type::Boolean => "boolean",
        }
    }

    fn parse(text: &str) -> Option<Self> {
        [Type::Object, Type::Array, Type::String, Type::Integer, Type::Number, Type::Boolean]
            .into_iter()
            .find(|t| t.as_str() == text)
    }

    pub(crate) fn admits(self, value: &Value) -> bool {
        match self {
            Type::Object => value.is_object(),
            Type::Array => value.is_array(),
            Type::String => value.is_string(),
            Type::Integer => {
                value.is_i64() || value.is_u64() || value.as_f64().is_some_and(|f| f.fract() == 0.0)
            }
            Type::Number => value.is_number(),
            Type::Boolean => value.is_boolean(),
        }
    }
}

/// Formats of strings that are checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Format {
    /// RFC 3339, any precision on input.
    DateTime,
    /// RFC 3339 with exactly six fractional digits.
    MicroTime,
    Date,
    /// Go's format, such as `1h30m`.
    Duration,
    Bytes,
    Quantity,
    /// A 32-bit integer.
    Int32,
}

/// Treatment of an empty value in a built-in field (Go's `omitempty`).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Zero {
    /// Empty strings, lists and maps are left out; `false` and 0 are kept, as for pointers.
    #[default]
    OmitEmpty,
    /// `false` and 0 are left out as well.
    Omit,
    /// Written even when empty.
    Keep,
    /// Written even when absent, as `null`.
    Null,
}

/// `x-kubernetes-list-type`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) enum ListType {
    #[default]
    Atomic,
    Set,
    Map(Vec<String>),
}

impl ListType {
    /// Returns the old items of a list with keys, for lookup by key. The result is empty for other
    /// lists.
    pub(crate) fn past_items<'a>(&'a self, old: Option<&'a Value>) -> PastItems<'a> {
        let (ListType::Map(keys), Some(Value::Array(old))) = (self, old) else { return PastItems::default() };
        let mut items = BTreeMap::new();
        for item in old {
            items.entry(identity(keys, item)).or_insert(item);
        }
        PastItems { keys, items }
    }
}

/// Returns the values that identify an item in a list with keys. Equal values have equal texts.
fn identity(keys: &[String], item: &Value) -> Vec<Option<String>> {
    keys.iter().map(|key| item.get(key).map(Value::to_string)).collect()
}

/// The old items of a list: see [`ListType::past_items`].
#[derive(Debug, Default)]
pub(crate) struct PastItems<'a> {
    keys: &'a [String],
    items: BTreeMap<Vec<Option<String>>, &'a Value>,
}

impl<'a> PastItems<'a> {
    /// Returns the old version of an item.
    pub(crate) fn of(&self, item: &Value) -> Option<&'a Value> {
        if self.items.is_empty() { None } else { self.items.get(&identity(self.keys, item)).copied() }
    }
}

/// `x-kubernetes-map-type`: whether several managers may own a map, each some of its fields.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum MapType {
    #[default]
    Granular,
    Atomic,
}

/// Treatment of a list by a strategic merge patch. Custom resources have none.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) enum PatchStrategy {
    /// Lists are replaced, maps are merged key by key.
    #[default]
    Replace,
    /// A map is replaced as well.
    ReplaceMap,
    /// Lists become the union of their plain values.
    MergeValues,
    /// Items are merged by this key.
    MergeByKey(String),
}

/// The value validations of one node.
#[derive(Debug, Clone, Default)]
pub(crate) struct Bounds {
    pub(crate) allowed: Option<Vec<Value>>,
    pub(crate) minimum: Option<f64>,
    pub(crate) maximum: Option<f64>,
    pub(crate) exclusive_minimum: bool,
    pub(crate) exclusive_maximum: bool,
    pub(crate) multiple_of: Option<f64>,
    pub(crate) min_length: Option<u64>,
    pub(crate) max_length: Option<u64>,
    pub(crate) pattern: Option<Pattern>,
    pub(crate) min_items: Option<u64>,
    pub(crate) max_items: Option<u64>,
    pub(crate) unique_items: bool,
    pub(crate) min_properties: Option<u64>,
    pub(crate) max_properties: Option<u64>,
}

/// A pattern with its source text, which errors quote.
#[derive(Debug, Clone)]
pub(crate) struct Pattern {
    pub(crate) text: String,
    pub(crate) regex: Regex,
}

impl Schema {
    /// Parses `openAPIV3Schema` and reports violations of the rules for structural schemas.
    pub(crate) fn parse(source: &Value, field: &str, errors: &mut FieldErrors) -> Self {
        let mut root = Parser { errors, uncorrelatable: None, count: Some(1.0) };
        root.node(source, field, NodeRole::Structural, 0)
    }

    /// Whether no walker needs to look below this node.
    pub(crate) fn is_opaque(&self) -> bool {
        self.preserve_unknown
            && self.properties.is_empty()
            && self.items.is_none()
            && self.additional.is_none()
    }

    /// Whether `null` is a value here. Otherwise it stands for an absent field.
    pub(crate) fn allows_null(&self) -> bool {
        self.nullable || (self.of.is_none() && self.preserve_unknown)
    }

    /// Returns the schema of the value under `key`.
    pub(crate) fn property(&self, key: &str) -> Option<&Arc<Schema>> {
        self.properties.get(key).or(self.additional.as_ref())
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
            format: text("format").and_then(parse_format),
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
        let place = rules::compile::NodePosition {
            field,
            resource: depth == 0 || schema.embedded_resource,
            uncorrelatable: self.uncorrelatable.as_deref(),
            count: self.count,
        };
        schema.rules = rules::compile::rules(declared, schema, place, self.errors).into();
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

fn parse_format(text: &str) -> Option<Format> {
    match text {
        "date-time" => Some(Format::DateTime),
        "date" => Some(Format::Date),
        "byte" => Some(Format::Bytes),
        "duration" => Some(Format::Duration),
        "int32" => Some(Format::Int32),
        _ => None,
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
