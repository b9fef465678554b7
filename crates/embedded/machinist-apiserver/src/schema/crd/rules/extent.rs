//! Upper bounds on the size of a value, level by level. [`super::cost`] calculates with extents
//! instead of values.

use std::cell::OnceCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use kube_cel::cel::Value as Cel;
use kube_cel::cel::objects::Key;

/// Memory that the library uses for a value, excluding the bytes of its text.
const BYTES_OF_A_VALUE: f64 = 100.0;

/// Bounds of one value, or of several possible values. The default is the bounds of no value.
#[derive(Debug, Clone, Default)]
pub(super) struct Extent {
    /// Items of a list, entries of a map, or bytes of a text.
    pub(super) length: f64,
    /// Number of values on all levels, including this one.
    pub(super) values: f64,
    /// Bytes of all texts on all levels, including keys.
    pub(super) bytes: f64,
    /// Bounds of every item of a list.
    item: Option<Rc<Extent>>,
    /// Bounds of a map's values.
    fields: BTreeMap<String, Rc<Extent>>,
    /// Length of the longest key of a map, in bytes.
    longest_key: f64,
    /// The content is unknown; only its total size is limited.
    vague: bool,
    /// Cached result of [`Extent::item`].
    any_item: OnceCell<Rc<Extent>>,
}

impl Extent {
    /// Returns the extent of a value.
    pub(super) fn of(value: &Cel) -> Self {
        let mut extent = Extent::default();
        extent.include(value);
        extent
    }

    /// Returns the extent of a value without parts, such as a number, a flag or a timestamp.
    pub(super) fn single() -> Self {
        Extent { values: 1.0, ..Extent::default() }
    }

    pub(super) fn text(bytes: f64) -> Self {
        Extent { length: bytes, values: 1.0, bytes, ..Extent::default() }
    }

    /// Returns the extent of a list of the pieces of a text with this many bytes. There may be
    /// empty pieces.
    pub(super) fn pieces_of(bytes: f64) -> Self {
        Extent {
            length: bytes + 1.0,
            values: bytes + 2.0,
            bytes,
            item: Some(Rc::new(Extent::text(bytes))),
            ..Extent::default()
        }
    }

    /// Returns the extent of a value with unknown content and this size.
    pub(super) fn anything(values: f64, bytes: f64) -> Self {
        Extent { length: values.max(bytes), values, bytes, vague: true, ..Extent::default() }
    }

    pub(super) fn list_of(items: &[Rc<Extent>]) -> Self {
        let item = items.iter().cloned().reduce(|all, item| Rc::new(all.or(&item)));
        #[expect(clippy::cast_precision_loss, reason = "an estimate")]
        let length = items.len() as f64;
        Extent {
            length,
            values: 1.0 + items.iter().map(|item| item.values).sum::<f64>(),
            bytes: items.iter().map(|item| item.bytes).sum(),
            item,
            ..Extent::default()
        }
    }

    /// Widens the bounds to include a value. Returns the number of values and bytes in that value.
    fn include(&mut self, value: &Cel) -> (f64, f64) {
        let (mut length, mut values, mut bytes) = (0, 1.0, 0.0);
        #[expect(clippy::cast_precision_loss, reason = "an estimate")]
        let as_bytes = |length: usize| length as f64;
        match value {
            Cel::String(text) => {
                length = text.len();
                bytes = as_bytes(length);
            }
            Cel::Bytes(content) => {
                length = content.len();
                bytes = as_bytes(length);
            }
            Cel::List(items) => {
                length = items.len();
                let below = Rc::make_mut(self.item.get_or_insert_default());
                for item in items.iter() {
                    let (more, longer) = below.include(item);
                    (values, bytes) = (values + more, bytes + longer);
                }
            }
            Cel::Map(map) => {
                length = map.map.len();
                #[expect(clippy::disallowed_methods, reason = "the bounds do not depend on the order")]
                for (key, item) in map.map.iter() {
                    let key = match key {
                        Key::String(name) => name.to_string(),
                        Key::Int(_) | Key::Uint(_) | Key::Bool(_) => String::new(),
                    };
                    let of_key = as_bytes(key.len());
                    self.longest_key = self.longest_key.max(of_key);
                    let below = Rc::make_mut(self.fields.entry(key).or_default());
                    let (more, longer) = below.include(item);
                    (values, bytes) = (values + 1.0 + more, bytes + of_key + longer);
                }
            }
            _ => {}
        }
        self.length = self.length.max(as_bytes(length));
        self.values = self.values.max(values);
        self.bytes = self.bytes.max(bytes);
        (values, bytes)
    }

    /// Returns the bounds of the value under a field name or key.
    pub(super) fn field(&self, name: &str) -> Rc<Extent> {
        self.fields.get(name).cloned().unwrap_or_else(|| self.item())
    }

    /// Returns the bounds of every direct child.
    pub(super) fn item(&self) -> Rc<Extent> {
        let join = || {
            if self.vague {
                return Rc::new(Extent::anything(self.values, self.bytes));
            }
            let all = self.item.iter().chain(self.fields.values());
            all.cloned().reduce(|all, item| Rc::new(all.or(&item))).unwrap_or_default()
        };
        self.any_item.get_or_init(join).clone()
    }

    /// Returns the bounds of a loop variable: items of a list, keys of a map.
    pub(super) fn walked(&self) -> Rc<Extent> {
        if self.fields.is_empty() || self.vague {
            return self.item();
        }
        let key = Extent::text(self.longest_key);
        Rc::new(self.item.as_ref().map_or_else(|| key.clone(), |item| item.or(&key)))
    }

    /// Returns the bounds of a value that is either `self` or `other`.
    pub(super) fn or(&self, other: &Extent) -> Self {
        self.with(other, f64::max)
    }

    /// Returns the bounds of the sum of two texts or lists.
    pub(super) fn and(&self, other: &Extent) -> Self {
        let is_number = |extent: &Extent| extent.length == 0.0 && extent.values <= 1.0;
        if is_number(self) && is_number(other) { self.or(other) } else { self.with(other, |a, b| a + b) }
    }

    fn with(&self, other: &Extent, combined: fn(f64, f64) -> f64) -> Self {
        let item = match (&self.item, &other.item) {
            (Some(a), Some(b)) if !Rc::ptr_eq(a, b) => Some(Rc::new(a.or(b))),
            (one, another) => one.clone().or_else(|| another.clone()),
        };
        let mut fields = self.fields.clone();
        for (name, theirs) in &other.fields {
            let ours = fields.entry(name.clone()).or_insert_with(|| theirs.clone());
            if !Rc::ptr_eq(ours, theirs) {
                *ours = Rc::new(ours.or(theirs));
            }
        }
        Extent {
            length: combined(self.length, other.length),
            values: combined(self.values, other.values),
            bytes: combined(self.bytes, other.bytes),
            item,
            fields,
            longest_key: self.longest_key.max(other.longest_key),
            vague: self.vague || other.vague,
            any_item: OnceCell::new(),
        }
    }

    /// Returns the bounds of `count` such values together.
    pub(super) fn times(&self, count: f64) -> Self {
        if self.length == 0.0 {
            return self.clone();
        }
        Extent {
            length: self.length * count,
            values: self.values * count,
            bytes: self.bytes * count,
            ..self.clone()
        }
    }

    /// Returns the cost of visiting the whole value, from the cost of one value and of one byte of
    /// text.
    pub(super) fn weight(&self, (of_value, of_byte): (f64, f64)) -> f64 {
        self.values * of_value + self.bytes * of_byte
    }

    /// Returns the bytes that the value needs in memory.
    pub(super) fn memory(&self) -> f64 {
        self.values * BYTES_OF_A_VALUE + self.bytes
    }
}
