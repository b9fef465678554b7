//! The fields of a JSON object, read as the strict decoder of Kubernetes reads them: names match
//! exactly, an unknown field and a value of another type are errors, and `null` is an absent field.
//!
//! Deliberately absent: duplicate fields, which a parsed document cannot contain. The API server
//! removes them before a class is stored.

use std::collections::BTreeMap;

use machinist_instance::{Error, ErrorKind};
use serde_json::{Map, Value};

/// The fields of one object, with the path of the object for messages.
#[derive(Debug, Clone)]
pub(super) struct Fields<'a> {
    path: String,
    fields: &'a Map<String, Value>,
}

impl<'a> Fields<'a> {
    /// Reads an object.
    pub(super) fn of(path: impl Into<String>, value: &'a Value) -> Result<Self, Error> {
        let path = path.into();
        let fields = value.as_object().ok_or_else(|| Error::wrong_field(&path, "an object", value))?;
        Ok(Self { path, fields })
    }

    /// Refuses fields with other names.
    pub(super) fn allow(&self, names: &[&str]) -> Result<(), Error> {
        match self.fields.keys().find(|name| !names.contains(&name.as_str())) {
            None => Ok(()),
            Some(unknown) => {
                let expected = format!("one of the fields {}", names.join(", "));
                let text = format!("{}: expected {expected}; got an unknown field", self.path_of(unknown));
                Err(Error::new(ErrorKind::InvalidSpec, text))
            }
        }
    }

    fn value(&self, name: &str) -> Option<&'a Value> {
        self.fields.get(name).filter(|value| !value.is_null())
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

    /// A text that counts as absent if it is empty.
    pub(super) fn text(&self, name: &str) -> Result<Option<String>, Error> {
        let text = self.parsed(name, "text", |value| value.as_str().map(str::to_owned))?;
        Ok(text.filter(|text| !text.is_empty()))
    }

    pub(super) fn required(&self, name: &str, expected: &str) -> Result<String, Error> {
        self.text(name)?.ok_or_else(|| self.wrong(name, expected))
    }

    /// A field that must have one value.
    pub(super) fn constant(&self, name: &str, expected: &str) -> Result<(), Error> {
        match self.text(name)? {
            Some(text) if text == expected => Ok(()),
            Some(_) | None => Err(self.wrong(name, expected)),
        }
    }

    /// A whole number from 0.
    pub(super) fn size(&self, name: &str) -> Result<u32, Error> {
        let parse = |value: &Value| value.as_u64().and_then(|number| u32::try_from(number).ok());
        Ok(self.parsed(name, "a whole number from 0", parse)?.unwrap_or_default())
    }

    pub(super) fn boolean(&self, name: &str) -> Result<Option<bool>, Error> {
        self.parsed(name, "true or false", Value::as_bool)
    }

    /// Another object, which must be set.
    pub(super) fn object(&self, name: &str) -> Result<Self, Error> {
        Self::of(self.path_of(name), self.value(name).unwrap_or(&Value::Null))
    }

    /// The objects of a list; empty if the list is absent.
    pub(super) fn objects(&self, name: &str) -> Result<Vec<Self>, Error> {
        let entries = self.list(name)?.iter().enumerate();
        entries.map(|(number, entry)| Self::of(format!("{}[{number}]", self.path_of(name)), entry)).collect()
    }

    /// The texts of a list, none of them empty; an empty list if the field is absent.
    pub(super) fn texts(&self, name: &str) -> Result<Vec<String>, Error> {
        let text = |(number, entry): (usize, &Value)| match entry {
            Value::String(text) if !text.is_empty() => Ok(text.clone()),
            other => Err(Error::wrong_field(&format!("{}[{number}]", self.path_of(name)), "text", other)),
        };
        self.list(name)?.iter().enumerate().map(text).collect()
    }

    /// A map from texts to texts.
    pub(super) fn map(&self, name: &str) -> Result<BTreeMap<String, String>, Error> {
        if self.value(name).is_none() {
            return Ok(BTreeMap::new());
        }
        let object = self.object(name)?;
        let entry = |(key, value): (&String, &Value)| match value {
            Value::String(text) => Ok((key.clone(), text.clone())),
            other => Err(Error::wrong_field(&object.path_of(key), "text", other)),
        };
        object.fields.iter().map(entry).collect()
    }

    fn list(&self, name: &str) -> Result<&'a [Value], Error> {
        Ok(self.parsed(name, "a list", Value::as_array)?.map(Vec::as_slice).unwrap_or_default())
    }
}
