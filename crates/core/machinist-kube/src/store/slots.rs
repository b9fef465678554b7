//! An ordered map from object keys, which is compiled once for all kinds.
//!
//! A `BTreeMap<ObjectKey, T>` is compiled again for each `T`. With two maps for each of the
//! watched kinds, that was a third of the build of the controllers. Here the tree holds only places
//! in a `Vec`, so it has one type.

use std::collections::BTreeMap;

use super::ObjectKey;

/// An ordered map from object keys to values. Each place of a key has a value, and each free place
/// has none. The vector never shrinks.
pub(super) struct Slots<T> {
    places: Places,
    values: Vec<Option<T>>,
}

/// The place of each key among the values. The type is not generic, so that this crate contains its
/// code.
#[derive(Default)]
struct Places {
    of: BTreeMap<ObjectKey, usize>,
    /// The places without a value.
    free: Vec<usize>,
}

impl Places {
    fn get(&self, key: &ObjectKey) -> Option<usize> {
        self.of.get(key).copied()
    }

    fn get_key_value(&self, key: &ObjectKey) -> Option<(&ObjectKey, usize)> {
        self.of.get_key_value(key).map(|(key, place)| (key, *place))
    }

    /// Gives a new key a place: a free one, or the next one, which is `end`.
    fn add(&mut self, key: ObjectKey, end: usize) -> usize {
        let place = self.free.pop().unwrap_or(end);
        self.of.insert(key, place);
        place
    }

    fn remove(&mut self, key: &ObjectKey) -> Option<usize> {
        let place = self.of.remove(key)?;
        self.free.push(place);
        Some(place)
    }
}

impl<T> Slots<T> {
    pub(super) fn get(&self, key: &ObjectKey) -> Option<&T> {
        self.values[self.places.get(key)?].as_ref()
    }

    pub(super) fn get_mut(&mut self, key: &ObjectKey) -> Option<&mut T> {
        self.values[self.places.get(key)?].as_mut()
    }

    pub(super) fn get_key_value(&self, key: &ObjectKey) -> Option<(&ObjectKey, &T)> {
        let (key, place) = self.places.get_key_value(key)?;
        Some((key, self.values[place].as_ref()?))
    }

    pub(super) fn contains_key(&self, key: &ObjectKey) -> bool {
        self.places.get(key).is_some()
    }

    /// Sets the value of a key. Returns the former value.
    pub(super) fn insert(&mut self, key: ObjectKey, value: T) -> Option<T> {
        if let Some(place) = self.places.get(&key) {
            return self.values[place].replace(value);
        }
        let place = self.places.add(key, self.values.len());
        match self.values.get_mut(place) {
            Some(slot) => *slot = Some(value),
            None => self.values.push(Some(value)),
        }
        None
    }

    pub(super) fn remove(&mut self, key: &ObjectKey) -> Option<T> {
        self.values[self.places.remove(key)?].take()
    }

    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }

    pub(super) fn len(&self) -> usize {
        self.places.of.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.places.of.is_empty()
    }

    /// The keys, in their order.
    pub(super) fn keys(&self) -> impl Iterator<Item = &ObjectKey> {
        self.places.of.keys()
    }

    /// Keys and values, in the order of the keys.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&ObjectKey, &T)> {
        self.places.of.iter().filter_map(|(key, place)| Some((key, self.values[*place].as_ref()?)))
    }

    /// Calls `change` with each key and value, in the order of the keys.
    pub(super) fn for_each(&mut self, mut change: impl FnMut(&ObjectKey, &mut T)) {
        for (key, place) in &self.places.of {
            if let Some(value) = &mut self.values[*place] {
                change(key, value);
            }
        }
    }

    /// Removes all keys and values. Returns them in the order of the keys.
    pub(super) fn drain(&mut self) -> impl Iterator<Item = (ObjectKey, T)> {
        let Self { places, mut values } = std::mem::take(self);
        places.of.into_iter().filter_map(move |(key, place)| Some((key, values[place].take()?)))
    }
}

impl<T> Default for Slots<T> {
    fn default() -> Self {
        Self { places: Places::default(), values: Vec::new() }
    }
}

impl<T> FromIterator<(ObjectKey, T)> for Slots<T> {
    fn from_iter<I: IntoIterator<Item = (ObjectKey, T)>>(items: I) -> Self {
        let mut slots = Self::default();
        for (key, value) in items {
            slots.insert(key, value);
        }
        slots
    }
}
