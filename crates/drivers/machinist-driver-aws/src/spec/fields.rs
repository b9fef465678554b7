//! The fields of a JSON object, read as Go's `encoding/json` reads them into a struct.
//!
//! Names match in any letter case, and the exact spelling wins. `null` is an absent field, unknown
//! fields are ignored, and a value of another type is an error. Go takes the last one of several
//! spellings; a parsed document has no order, so the first one by name is taken.

use std::collections::BTreeMap;

use machinist_instance::Error;
use serde_json::{Map, Value};

/// The fields of one object, with the path of the object for messages.
#[derive(Debug, Clone)]
pub(super) struct Fields<'a> {
    path: String,
    fields: Option<&'a Map<String, Value>>,
}

impl<'a> Fields<'a> {
    /// Reads an object. `null` is an object without fields.
    pub(super) fn of(path: impl Into<String>, value: &'a Value) -> Result<Self, Error> {
        let path = path.into();
        match value {
            Value::Object(fields) => Ok(Self { path, fields: Some(fields) }),
            Value::Null => Ok(Self { path, fields: None }),
            other => Err(Error::wrong_field(&path, "an object", other)),
        }
    }

    fn value(&self, name: &str) -> Option<&'a Value> {
        let fields = self.fields?;
        let in_any_case = || fields.iter().find(|(spelled, _)| spelled.eq_ignore_ascii_case(name));
        let value = fields.get(name).or_else(|| in_any_case().map(|(_, value)| value));
        value.filter(|value| !value.is_null())
    }

    /// The names of all fields that are set.
    pub(super) fn names(&self) -> impl Iterator<Item = &'a str> {
        let fields = self.fields.into_iter().flatten();
        fields.filter(|(_, value)| !value.is_null()).map(|(name, _)| name.as_str())
    }

    /// The path of a field of this object.
    pub(super) fn path_of(&self, name: &str) -> String {
        format!("{}.{name}", self.path)
    }

    /// The error for a field whose value is wrong or missing.
    pub(super) fn wrong(&self, name: &str, expected: &str) -> Error {
        Error::wrong_field(&self.path_of(name), expected, self.value(name).unwrap_or(&Value::Null))
    }

    fn parsed<T>(
        &self,
        name: &str,
        expected: &str,
        parse: impl FnOnce(&'a Value) -> Option<T>,
    ) -> Result<Option<T>, Error> {
        let Some(value) = self.value(name) else { return Ok(None) };
        parse(value).map(Some).ok_or_else(|| self.wrong(name, expected))
    }

    pub(super) fn text(&self, name: &str) -> Result<Option<String>, Error> {
        self.parsed(name, "text", |value| value.as_str().map(str::to_owned))
    }

    /// A text that counts as absent if it is empty.
    pub(super) fn set_text(&self, name: &str) -> Result<Option<String>, Error> {
        Ok(self.text(name)?.filter(|text| !text.is_empty()))
    }

    pub(super) fn required(&self, name: &str, expected: &str) -> Result<String, Error> {
        self.set_text(name)?.ok_or_else(|| self.wrong(name, expected))
    }

    /// A text that is one of some words; absent if it is empty.
    pub(super) fn word(&self, name: &str, words: &[&str]) -> Result<Option<String>, Error> {
        let Some(text) = self.set_text(name)? else { return Ok(None) };
        if words.contains(&text.as_str()) {
            return Ok(Some(text));
        }
        Err(self.wrong(name, &one_of(words)))
    }

    /// A number in the range of Go's `int32`.
    pub(super) fn number(&self, name: &str) -> Result<Option<i32>, Error> {
        self.parsed(name, "a whole number", |value| value.as_i64().and_then(|number| number.try_into().ok()))
    }

    /// A number that must be in a range.
    pub(super) fn number_in(
        &self,
        name: &str,
        range: std::ops::RangeInclusive<i32>,
    ) -> Result<Option<i32>, Error> {
        let Some(number) = self.number(name)? else { return Ok(None) };
        if range.contains(&number) {
            return Ok(Some(number));
        }
        let expected = match (*range.start(), *range.end()) {
            (start, i32::MAX) => format!("a number from {start}"),
            (start, end) => format!("a number from {start} to {end}"),
        };
        Err(self.wrong(name, &expected))
    }

    pub(super) fn boolean(&self, name: &str) -> Result<Option<bool>, Error> {
        self.parsed(name, "true or false", Value::as_bool)
    }

    /// Another object; without fields if it is absent.
    pub(super) fn object(&self, name: &str) -> Result<Self, Error> {
        Self::of(self.path_of(name), self.value(name).unwrap_or(&Value::Null))
    }

    /// Another object, if it is set.
    pub(super) fn set_object(&self, name: &str) -> Result<Option<Self>, Error> {
        self.value(name).map(|value| Self::of(self.path_of(name), value)).transpose()
    }

    /// The objects of a list; empty if the list is absent.
    pub(super) fn objects(&self, name: &str) -> Result<Vec<Self>, Error> {
        let entries = self.list(name)?.iter().enumerate();
        entries.map(|(number, entry)| Self::of(format!("{}[{number}]", self.path_of(name)), entry)).collect()
    }

    /// The texts of a list; empty if the list is absent.
    pub(super) fn texts(&self, name: &str) -> Result<Vec<String>, Error> {
        let text = |(number, entry): (usize, &Value)| match entry {
            Value::String(text) => Ok(text.clone()),
            Value::Null => Ok(String::new()),
            other => Err(Error::wrong_field(&format!("{}[{number}]", self.path_of(name)), "text", other)),
        };
        self.list(name)?.iter().enumerate().map(text).collect()
    }

    /// A map from texts to texts.
    pub(super) fn map(&self, name: &str) -> Result<BTreeMap<String, String>, Error> {
        let object = self.object(name)?;
        let entry = |(key, value): (&String, &Value)| match value {
            Value::String(text) => Ok((key.clone(), text.clone())),
            Value::Null => Ok((key.clone(), String::new())),
            other => Err(Error::wrong_field(&object.path_of(key), "text", other)),
        };
        object.fields.into_iter().flatten().map(entry).collect()
    }

    fn list(&self, name: &str) -> Result<&'a [Value], Error> {
        Ok(self.parsed(name, "a list", Value::as_array)?.map(Vec::as_slice).unwrap_or_default())
    }
}

/// Words as a message lists them.
pub(super) fn one_of(words: &[&str]) -> String {
    match words {
        [] => "nothing".to_owned(),
        [only] => (*only).to_owned(),
        [first @ .., last] => format!("{} or {last}", first.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn names_match_in_any_letter_case() {
        let value = json!({"MACHINETYPE": "a", "Ami": "b", "AMI": "c", "ami": "d", "region": null});
        let fields = Fields::of("providerSpec", &value).expect("an object");
        assert_eq!(fields.text("machineType").expect("text").as_deref(), Some("a"));
        assert_eq!(fields.text("ami").expect("text").as_deref(), Some("d"), "the exact spelling wins");
        assert_eq!(fields.text("region"), Ok(None), "null is absent");
    }

    #[test]
    fn a_value_of_another_type_is_named() {
        let value =
            json!({"size": "20", "name": 1, "on": "yes", "list": {}, "float": 1.5, "big": 1u64 << 40});
        let fields = Fields::of("spec", &value).expect("an object");
        let messages = [
            fields.number("size").map(drop).expect_err("text"),
            fields.text("name").map(drop).expect_err("a number"),
            fields.boolean("on").map(drop).expect_err("text"),
            fields.objects("list").map(drop).expect_err("an object"),
            fields.number("float").map(drop).expect_err("a fraction"),
            fields.number("big").map(drop).expect_err("more than 32 bits"),
            fields.object("name").map(drop).expect_err("a number"),
        ];
        let expected = [
            "spec.size: expected a whole number, got \"20\"",
            "spec.name: expected text, got 1",
            "spec.on: expected true or false, got \"yes\"",
            "spec.list: expected a list, got an object",
            "spec.float: expected a whole number, got 1.5",
            "spec.big: expected a whole number, got 1099511627776",
            "spec.name: expected an object, got 1",
        ];
        assert_eq!(messages.map(|error| error.message), expected);
    }

    #[test]
    fn null_is_the_zero_value_everywhere() {
        let value = json!({"a": null, "list": [null, "x"], "map": {"k": null}, "objects": [null]});
        let fields = Fields::of("spec", &value).expect("an object");
        assert_eq!(fields.number("a"), Ok(None));
        assert_eq!(fields.texts("list"), Ok(vec![String::new(), "x".to_owned()]));
        assert_eq!(fields.map("map"), Ok(BTreeMap::from([("k".to_owned(), String::new())])));
        assert_eq!(fields.objects("objects").map(|all| all.len()), Ok(1));
        assert_eq!(Fields::of("spec", &Value::Null).map(|fields| fields.names().count()), Ok(0));
    }
}
