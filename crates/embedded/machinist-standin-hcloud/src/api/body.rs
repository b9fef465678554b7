//! The body of a request. Reading collects a problem per field, and [`RequestBody::finish`] reports
//! all of them as one `invalid_input`.

use machinist_labels::{is_key, is_value};
use serde_json::{Map, Value};

use crate::error::ApiError;
use crate::model::LabelMap;

/// A JSON object, and the problems with its fields so far. Unknown fields are ignored.
#[derive(Debug)]
pub(crate) struct RequestBody {
    fields: Map<String, Value>,
    /// Prefix of the names of nested fields in problems.
    prefix: String,
    problems: Vec<(String, String)>,
}

/// A reference to an object by id or by name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum IdOrName {
    Id(i64),
    Name(String),
}

impl RequestBody {
    /// Parses a body. An empty body is an object without fields.
    pub(crate) fn parse(bytes: &[u8]) -> Result<Self, ApiError> {
        if bytes.is_empty() {
            return Ok(Self::of(Map::new()));
        }
        match serde_json::from_slice(bytes) {
            Ok(Value::Object(fields)) => Ok(Self::of(fields)),
            // The parser's message is not repeated, because it may quote user data.
            Ok(_) | Err(_) => Err(ApiError::new("json_error", "the body is not a JSON object")),
        }
    }

    fn of(fields: Map<String, Value>) -> Self {
        Self { fields, prefix: String::new(), problems: Vec::new() }
    }

    /// The fields as they are, for changes of only some of them.
    pub(crate) fn fields(&self) -> &Map<String, Value> {
        &self.fields
    }

    /// A value that is present and not null.
    fn value(&self, name: &str) -> Option<Value> {
        self.fields.get(name).filter(|value| !value.is_null()).cloned()
    }

    pub(crate) fn problem(&mut self, name: &str, message: impl Into<String>) {
        self.problems.push((format!("{}{name}", self.prefix), message.into()));
    }

    pub(crate) fn text(&mut self, name: &str) -> Option<String> {
        match self.value(name)? {
            Value::String(text) => Some(text),
            _ => {
                self.problem(name, "expected a text");
                None
            }
        }
    }

    /// A text that must be present; empty after a problem.
    pub(crate) fn required_text(&mut self, name: &str) -> String {
        let is_missing = self.value(name).is_none_or(|value| value == "");
        if is_missing {
            self.problem(name, "missing data for a required field");
            return String::new();
        }
        self.text(name).unwrap_or_default()
    }

    pub(crate) fn integer(&mut self, name: &str) -> Option<i64> {
        let value = self.value(name)?;
        let number = value.as_i64();
        if number.is_none() {
            self.problem(name, "expected a whole number");
        }
        number
    }

    /// A number that must be present; 0 after a problem.
    pub(crate) fn required_integer(&mut self, name: &str) -> i64 {
        if self.value(name).is_none() {
            self.problem(name, "missing data for a required field");
            return 0;
        }
        self.integer(name).unwrap_or_default()
    }

    pub(crate) fn flag(&mut self, name: &str) -> Option<bool> {
        let value = self.value(name)?;
        let flag = value.as_bool();
        if flag.is_none() {
            self.problem(name, "expected true or false");
        }
        flag
    }

    pub(crate) fn id_or_name(&mut self, name: &str) -> Option<IdOrName> {
        match self.value(name)? {
            Value::String(text) => {
                Some(text.parse().map_or_else(|_| IdOrName::Name(text.clone()), IdOrName::Id))
            }
            Value::Number(number) if number.is_i64() => number.as_i64().map(IdOrName::Id),
            _ => {
                self.problem(name, "expected an id or a name");
                None
            }
        }
    }

    /// A list; empty if absent.
    pub(crate) fn list(&mut self, name: &str) -> Vec<Value> {
        match self.value(name) {
            None => Vec::new(),
            Some(Value::Array(items)) => items,
            Some(_) => {
                self.problem(name, "expected a list");
                Vec::new()
            }
        }
    }

    /// A list of ids; empty if absent.
    pub(crate) fn ids(&mut self, name: &str) -> Vec<i64> {
        let items = self.list(name);
        let ids: Vec<i64> = items.iter().filter_map(Value::as_i64).collect();
        if ids.len() != items.len() {
            self.problem(name, "expected a list of ids");
        }
        ids
    }

    /// A list of texts; absent if the field is.
    pub(crate) fn texts(&mut self, name: &str) -> Option<Vec<String>> {
        self.value(name)?;
        let items = self.list(name);
        let texts: Vec<String> = items.iter().filter_map(|item| item.as_str().map(str::to_owned)).collect();
        if texts.len() != items.len() {
            self.problem(name, "expected a list of texts");
        }
        Some(texts)
    }

    pub(crate) fn labels(&mut self, name: &str) -> Option<LabelMap> {
        let Value::Object(fields) = self.value(name)? else {
            self.problem(name, "expected an object with texts");
            return None;
        };
        let mut labels = LabelMap::new();
        for (key, value) in fields {
            match value {
                Value::String(value) if is_key(&key) && is_value(&value) => {
                    labels.insert(key, value);
                }
                _ => self.problem(name, format!("label {key}: expected a valid key and value")),
            }
        }
        Some(labels)
    }

    /// A nested object. Return it with [`Self::take_problems`] after reading.
    pub(crate) fn object(&mut self, name: &str) -> Option<Self> {
        match self.value(name)? {
            Value::Object(fields) => {
                Some(Self { prefix: format!("{}{name}.", self.prefix), ..Self::of(fields) })
            }
            _ => {
                self.problem(name, "expected an object");
                None
            }
        }
    }

    /// The objects of a list. Return each with [`Self::take_problems`] after reading.
    pub(crate) fn objects(&mut self, name: &str) -> Vec<Self> {
        let items = self.list(name);
        let mut objects = Vec::new();
        for (index, item) in items.into_iter().enumerate() {
            match item {
                Value::Object(fields) => {
                    let prefix = format!("{}{name}.{index}.", self.prefix);
                    objects.push(Self { prefix, ..Self::of(fields) });
                }
                _ => self.problem(name, "expected a list of objects"),
            }
        }
        objects
    }

    /// Adds the problems of a nested object.
    pub(crate) fn take_problems(&mut self, nested: Self) {
        self.problems.extend(nested.problems);
    }

    /// Fails if a field had a problem.
    pub(crate) fn finish(self) -> Result<(), ApiError> {
        if self.problems.is_empty() { Ok(()) } else { Err(ApiError::invalid_fields(&self.problems)) }
    }
}
