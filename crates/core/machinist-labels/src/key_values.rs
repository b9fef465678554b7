//! Labels and annotations of stored objects, in little memory.

use std::collections::BTreeMap;
use std::fmt;

use crate::SharedText;

/// A map of texts, as a slice that is sorted by key.
///
/// A `BTreeMap` takes more than 500 bytes for a single entry, and a process stores the labels and
/// annotations of thousands of objects, which it reads often and never changes. Most of their
/// texts are the same.
#[derive(Clone, Default, PartialEq, Eq, Hash)]
pub struct KeyValues(Box<[(SharedText, SharedText)]>);

/// The labels or annotations of an object, in any form.
pub trait TextMap {
    /// Returns the value of a key.
    fn value(&self, key: &str) -> Option<&str>;
}

impl KeyValues {
    /// Returns the value of a key.
    pub fn get(&self, key: &str) -> Option<&str> {
        let place = self.place(key).ok()?;
        self.0.get(place).map(|(_, value)| &**value)
    }

    /// Whether there is a value of that key.
    pub fn contains_key(&self, key: &str) -> bool {
        self.place(key).is_ok()
    }

    /// All keys and values, sorted by key.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(key, value)| (&**key, &**value))
    }

    /// Sets the value of a key. Copies the whole map.
    pub fn insert(&mut self, key: impl Into<SharedText>, value: impl Into<SharedText>) {
        let (key, value) = (key.into(), value.into());
        let place = self.place(&key);
        let mut all = std::mem::take(&mut self.0).into_vec();
        match place {
            Ok(place) => all[place].1 = value,
            Err(place) => all.insert(place, (key, value)),
        }
        self.0 = all.into();
    }

    /// Removes a key. Copies the whole map.
    pub fn remove(&mut self, key: &str) {
        if let Ok(place) = self.place(key) {
            let mut all = std::mem::take(&mut self.0).into_vec();
            all.remove(place);
            self.0 = all.into();
        }
    }

    /// The place of a key, or where it would be.
    fn place(&self, key: &str) -> Result<usize, usize> {
        self.0.binary_search_by(|(known, _)| (**known).cmp(key))
    }
}

impl TextMap for KeyValues {
    fn value(&self, key: &str) -> Option<&str> {
        self.get(key)
    }
}

impl TextMap for BTreeMap<String, String> {
    fn value(&self, key: &str) -> Option<&str> {
        self.get(key).map(String::as_str)
    }
}

impl From<&BTreeMap<String, String>> for KeyValues {
    fn from(map: &BTreeMap<String, String>) -> Self {
        map.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect()
    }
}

impl<'a> FromIterator<(&'a str, &'a str)> for KeyValues {
    /// Collects pairs with different keys, in any order.
    fn from_iter<I: IntoIterator<Item = (&'a str, &'a str)>>(pairs: I) -> Self {
        let mut all: Box<[_]> = pairs.into_iter().map(|(key, value)| (key.into(), value.into())).collect();
        all.sort();
        Self(all)
    }
}

impl fmt::Debug for KeyValues {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.iter()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pairs_are_found_whatever_their_order() {
        let slice: KeyValues = [("b", "1"), ("a", "2"), ("c", "3")].into_iter().collect();
        assert_eq!(["a", "b", "c"].map(|key| slice.get(key)), [Some("2"), Some("1"), Some("3")]);
    }

    #[test]
    fn a_slice_of_texts_is_a_map() {
        let map = BTreeMap::from(["b", "a", "c"].map(|key| (key.to_owned(), key.to_uppercase())));
        let mut slice = KeyValues::from(&map);
        assert_eq!(slice.iter().collect::<Vec<_>>(), [("a", "A"), ("b", "B"), ("c", "C")]);
        assert_eq!((slice.get("b"), slice.get("bb")), (Some("B"), None));
        slice.insert("bb", "new");
        slice.insert("b", "other");
        slice.remove("a");
        slice.remove("absent");
        let expected = [("b", "other"), ("bb", "new"), ("c", "C")];
        assert_eq!(slice.iter().collect::<Vec<_>>(), expected);
        assert!(slice.contains_key("bb") && !slice.contains_key("a"));
    }
}
