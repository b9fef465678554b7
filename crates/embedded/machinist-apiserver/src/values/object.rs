//! A stored object, and typed access to the metadata of a JSON object.
//!
//! Field ownership (`metadata.managedFields`) is stored next to the object, as the JSON text that
//! responses contain. Most writes change values and not owners, so versions share that text. Code
//! that ignores ownership never clones or walks it. A value that is about to be stored has
//! ownership under the usual name: as a list (from clients), as a text (the stored form), or not at
//! all (the previous ownership stays).

use std::borrow::Cow;
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use serde::Deserialize as _;
use serde_json::{Map, Value};

/// One immutable version of one object. Its JSON text is created once and shared by all readers and
/// watchers. The parsed form and the text are created from each other on demand. A parsed object
/// takes ten times the memory, and most objects are only ever shown.
#[derive(Debug)]
pub struct Object {
    parts: OnceLock<Parts>,
    revision: u64,
    text: OnceLock<Text>,
}

/// Parsed form, for writes and validation.
#[derive(Debug)]
struct Parts {
    /// The object without `metadata.managedFields`.
    value: Value,
    managed_fields: Option<Arc<str>>,
}

/// The JSON text, which begins with `kind` and `apiVersion`, and the offset after them.
#[derive(Debug, Clone)]
struct Text {
    whole: Bytes,
    after_type: usize,
}

impl Object {
    pub(crate) fn new(mut value: Value, revision: u64) -> Arc<Self> {
        let managed_fields = take_managed_fields(&mut value).and_then(managed_fields_text);
        Self::of_parts(Parts { value, managed_fields }, revision)
    }

    fn of_parts(parts: Parts, revision: u64) -> Arc<Self> {
        Arc::new(Object { parts: parts.into(), revision, text: OnceLock::new() })
    }

    /// Creates an object from the result of [`Object::text`] and the offset after its type. Returns
    /// `None` for any other text.
    pub(crate) fn of_text(whole: Bytes, after_type: usize, revision: u64) -> Option<Arc<Self>> {
        let mut reader = serde_json::Deserializer::from_slice(&whole);
        // The depth was limited when the object was stored.
        reader.disable_recursion_limit();
        serde::de::IgnoredAny::deserialize(&mut reader).ok()?;
        reader.end().ok()?;
        let is_object = whole.first() == Some(&b'{') && after_type < whole.len();
        let text = Text { whole, after_type };
        is_object.then(|| Arc::new(Object { parts: OnceLock::new(), revision, text: text.into() }))
    }

    /// Returns the same object with only its text.
    pub(crate) fn cooled(&self) -> Arc<Self> {
        let text = self.typed_text().clone();
        Arc::new(Object { parts: OnceLock::new(), revision: self.revision, text: text.into() })
    }

    /// Returns the object for a reader. A text-only object is copied, so that holders of the
    /// original do not keep the reader's parsed form.
    pub(crate) fn opened(self: &Arc<Self>) -> Arc<Self> {
        if self.parts.get().is_some() { self.clone() } else { self.cooled() }
    }

    /// Creates the version after `previous`. Field ownership stays the same unless `value` contains
    /// it.
    pub(crate) fn following(previous: &Object, mut value: Value, revision: u64) -> Arc<Self> {
        let managed_fields = match take_managed_fields(&mut value) {
            Some(given) => managed_fields_text(given),
            None => previous.parts().managed_fields.clone(),
        };
        Self::of_parts(Parts { value, managed_fields }, revision)
    }

    /// Returns the object in its storage version, without `metadata.managedFields`: see
    /// [`Object::managed_fields`].
    pub fn value(&self) -> &Value {
        &self.parts().value
    }

    /// Returns `metadata.managedFields` as JSON text, or `None` if no field has an owner.
    pub fn managed_fields(&self) -> Option<&str> {
        self.parts().managed_fields.as_deref()
    }

    /// Returns the value for a single use. A text-only object is parsed, and the result is not
    /// kept. A scan over many objects therefore does not increase their memory.
    pub fn glance(&self) -> Cow<'_, Value> {
        match self.parts.get() {
            Some(parts) => Cow::Borrowed(&parts.value),
            None => Cow::Owned(self.read().value),
        }
    }

    fn parts(&self) -> &Parts {
        self.parts.get_or_init(|| self.read())
    }

    fn read(&self) -> Parts {
        let mut value = self.read_whole();
        let managed_fields = take_managed_fields(&mut value).and_then(managed_fields_text);
        Parts { value, managed_fields }
    }

    fn read_whole(&self) -> Value {
        let text = self.text.get().map(|text| &*text.whole).unwrap_or_default();
        let mut reader = serde_json::Deserializer::from_slice(text);
        reader.disable_recursion_limit();
        // This program wrote the text and has already parsed it completely.
        Value::deserialize(&mut reader).unwrap_or_default()
    }

    /// Returns the complete object in its storage version, as clients see it.
    pub fn whole(&self) -> Value {
        let Some(Parts { value, managed_fields }) = self.parts.get() else { return self.read_whole() };
        let mut value = value.clone();
        let list = managed_fields.as_deref().and_then(|text| serde_json::from_str(text).ok());
        if let Some(list) = list {
            set_meta(&mut value, MANAGED_FIELDS, Some(list));
        }
        value
    }

    /// Returns the revision of the write that created this version (`metadata.resourceVersion`).
    pub fn revision(&self) -> u64 {
        self.revision
    }

    /// Returns `metadata.name`.
    pub fn name(&self) -> &str {
        meta_str(self.value(), "name")
    }

    /// Returns `metadata.namespace`, empty for cluster-scoped objects.
    pub fn namespace(&self) -> &str {
        meta_str(self.value(), "namespace")
    }

    /// Returns `metadata.uid`.
    pub fn uid(&self) -> &str {
        meta_str(self.value(), "uid")
    }

    pub(crate) fn text(&self) -> Bytes {
        self.typed_text().whole.clone()
    }

    /// Returns the offset in the text after `kind` and `apiVersion`.
    pub(crate) fn after_type(&self) -> usize {
        self.typed_text().after_type
    }

    fn typed_text(&self) -> &Text {
        self.text.get_or_init(|| {
            let Parts { value, managed_fields } = self.parts();
            Text::of(value, managed_fields.as_deref())
        })
    }

    /// Returns the text without its opening brace, `kind` and `apiVersion`. A list of a built-in
    /// kind shows its items this way.
    pub(crate) fn text_after_type(&self) -> Bytes {
        let text = self.typed_text();
        text.whole.slice(text.after_type..)
    }
}

impl Text {
    fn of(value: &Value, managed_fields: Option<&str>) -> Self {
        let Some(map) = value.as_object() else {
            return Text { whole: to_bytes(value), after_type: 0 };
        };
        // Most objects are smaller. The kept copy has no spare capacity.
        let mut text = Vec::with_capacity(4096);
        text.push(b'{');
        let write = |text: &mut Vec<u8>, key: &str, value: &Value| {
            if text.len() != 1 {
                text.push(b',');
            }
            serde_json::to_writer(&mut *text, key).expect("writing to memory succeeds");
            text.push(b':');
            serde_json::to_writer(&mut *text, value).expect("writing to memory succeeds");
        };
        for key in TYPE_KEYS {
            if let Some(value) = map.get(key) {
                write(&mut text, key, value);
            }
        }
        // Skips the comma before the next field.
        let after_type = text.len() + usize::from(text.len() != 1);
        for (key, value) in map.iter().filter(|(key, _)| !TYPE_KEYS.contains(&key.as_str())) {
            write(&mut text, key, value);
            if let ("metadata", Value::Object(metadata), Some(owners)) = (key.as_str(), value, managed_fields)
            {
                // Replaces the closing brace of the metadata.
                text.pop();
                if !metadata.is_empty() {
                    text.push(b',');
                }
                text.extend_from_slice(b"\"managedFields\":");
                text.extend_from_slice(owners.as_bytes());
                text.push(b'}');
            }
        }
        text.push(b'}');
        let after_type = after_type.min(text.len() - 1);
        Text { whole: Bytes::copy_from_slice(&text), after_type }
    }
}

const TYPE_KEYS: [&str; 2] = ["kind", "apiVersion"];

/// Metadata field with the field ownership.
pub(crate) const MANAGED_FIELDS: &str = "managedFields";

/// Removes the field ownership from a value and returns it.
pub(crate) fn take_managed_fields(value: &mut Value) -> Option<Value> {
    value.get_mut("metadata")?.as_object_mut()?.remove(MANAGED_FIELDS)
}

fn managed_fields_text(given: Value) -> Option<Arc<str>> {
    let text = match given {
        Value::String(text) => text,
        Value::Array(entries) if !entries.is_empty() => Value::Array(entries).to_string(),
        _ => return None,
    };
    (!text.is_empty()).then(|| text.into())
}

/// Serialises a JSON value. This cannot fail, because all keys of its maps are strings.
pub(crate) fn to_bytes(value: &Value) -> Bytes {
    Bytes::from(serde_json::to_vec(value).expect("a JSON value serialises"))
}

pub(crate) fn metadata(object: &Value) -> Option<&Map<String, Value>> {
    object.get("metadata").and_then(Value::as_object)
}

/// Returns `metadata` as a mutable map. Creates the map if the field is missing or not a map.
pub(crate) fn metadata_mut(object: &mut Value) -> &mut Map<String, Value> {
    child_map(object, "metadata")
}

/// Returns the map under `key`. Creates the map if the field is missing or not a map.
pub(crate) fn child_map<'a>(object: &'a mut Value, key: &str) -> &'a mut Map<String, Value> {
    let parent = as_map(object);
    let child = parent.entry(key).or_insert_with(|| Value::Object(Map::new()));
    as_map(child)
}

fn as_map(value: &mut Value) -> &mut Map<String, Value> {
    if !value.is_object() {
        *value = Value::Object(Map::new());
    }
    value.as_object_mut().expect("the value was just replaced by a map")
}

/// Returns a string of the metadata, empty if absent.
pub(crate) fn meta_str<'a>(object: &'a Value, key: &str) -> &'a str {
    metadata(object).and_then(|m| m.get(key)).and_then(Value::as_str).unwrap_or_default()
}

/// Whether deletion was requested.
pub(crate) fn is_deleting(object: &Value) -> bool {
    metadata(object).is_some_and(|m| m.get("deletionTimestamp").is_some_and(|t| !t.is_null()))
}

/// Returns `metadata.finalizers`.
pub(crate) fn finalizers(object: &Value) -> Vec<&str> {
    metadata(object)
        .and_then(|m| m.get("finalizers"))
        .and_then(Value::as_array)
        .map(|list| list.iter().filter_map(Value::as_str).collect())
        .unwrap_or_default()
}

pub(crate) fn labels(object: &Value) -> Option<&Map<String, Value>> {
    metadata(object).and_then(|m| m.get("labels")).and_then(Value::as_object)
}

/// Returns `metadata.generation`, 0 if absent.
pub(crate) fn generation(object: &Value) -> i64 {
    metadata(object).and_then(|m| m.get("generation")).and_then(Value::as_i64).unwrap_or_default()
}

/// Sets or removes a metadata field.
pub(crate) fn set_meta(object: &mut Value, key: &str, value: Option<Value>) {
    let metadata = metadata_mut(object);
    match value {
        Some(value) => {
            metadata.insert(key.to_owned(), value);
        }
        None => {
            metadata.remove(key);
        }
    }
}

/// Copies one metadata field from `from` to `to`. Removes it from `to` if `from` lacks it.
pub(crate) fn copy_meta(to: &mut Value, from: &Value, key: &str) {
    set_meta(to, key, metadata(from).and_then(|m| m.get(key)).cloned());
}

/// Copies a top-level field from `from` to `to`. Removes it from `to` if `from` lacks it.
pub(crate) fn copy_field(to: &mut Value, from: &Value, key: &str) {
    if let Some(map) = to.as_object_mut() {
        match from.get(key) {
            Some(value) => {
                map.insert(key.to_owned(), value.clone());
            }
            None => {
                map.remove(key);
            }
        }
    }
}

/// Removes a top-level field.
pub(crate) fn drop_field(object: &mut Value, key: &str) {
    if let Some(map) = object.as_object_mut() {
        map.remove(key);
    }
}

/// Returns the value under `key`. Replaces it with an empty map if it is missing or not a map.
pub(crate) fn child_value<'a>(object: &'a mut Value, key: &str) -> &'a mut Value {
    let child = as_map(object).entry(key).or_insert_with(|| Value::Object(Map::new()));
    as_map(child);
    child
}

#[cfg(test)]
impl Object {
    /// Whether only the text is kept.
    pub(crate) fn is_cold(&self) -> bool {
        self.parts.get().is_none()
    }
}

#[test]
fn reading_an_object_does_not_keep_its_parsed_form() {
    use serde_json::json;

    let owners = json!([{ "manager": "m", "operation": "Update" }]);
    let value =
        json!({ "kind": "K", "metadata": { "name": "a", "labels": { "l": "1" }, "managedFields": owners } });
    let warm = Object::new(value, 7);
    let whole = warm.whole();
    assert_eq!(whole["metadata"]["managedFields"], owners);
    assert_eq!(warm.text().len(), whole.to_string().len());

    let cold = warm.cooled();
    assert_eq!(*cold.glance(), *warm.value());
    assert_eq!(cold.whole(), whole);
    assert_eq!(*cold.opened().value(), *warm.value());
    assert!(cold.is_cold());
    assert_eq!((cold.value(), cold.managed_fields()), (warm.value(), warm.managed_fields()));
    assert!(!cold.is_cold(), "a write uses the parsed form more than once");
}
