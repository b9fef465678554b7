//! A parsed structural schema.

use std::collections::BTreeMap;
use std::sync::Arc;

use regex::Regex;
use serde_json::Value;

use crate::schema::crd::format::Format;
use crate::schema::crd::rules::Rule;
use crate::schema::crd::text_format::TextFormat;

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

    pub(super) fn parse(text: &str) -> Option<Self> {
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
