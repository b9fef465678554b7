//! Compares two versions of an object, field by field as fields are owned.
//!
//! Only differing values are visited: equal values cost one comparison.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value};

use crate::schema::fields::element::Element;
use crate::schema::fields::place::{Granularity, Place, is_empty};
use crate::schema::fields::set::FieldSet;

/// Fields in which two versions differ. A field is in at most one of the sets.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Comparison {
    pub(crate) added: FieldSet,
    pub(crate) changed: FieldSet,
    pub(crate) removed: FieldSet,
}

/// Change of one value, without the values inside it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Fate {
    Kept,
    Added,
    Changed,
    Removed,
}

impl Comparison {
    pub(crate) fn of(before: &Value, after: &Value, place: Place<'_>) -> Self {
        let mut comparison = Comparison::default();
        if let (Value::Object(before), Value::Object(after)) = (before, after) {
            comparison.map(Some(before), Some(after), place);
        }
        comparison
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.added.is_empty() && self.changed.is_empty() && self.removed.is_empty()
    }

    /// Removes the fields of `hidden` and everything below them.
    pub(crate) fn without(mut self, hidden: &FieldSet) -> Self {
        for set in [&mut self.added, &mut self.changed, &mut self.removed] {
            set.subtract_trees(hidden);
        }
        self
    }

    /// Returns the fields that are new or changed.
    pub(crate) fn set(&self) -> FieldSet {
        let mut set = self.added.clone();
        set.unite(&self.changed);
        set
    }

    fn push(&mut self, element: Element, fate: Fate, below: Comparison) {
        // An element's text is copied into each set that it is in, usually one.
        for (set, of, below) in [
            (&mut self.added, Fate::Added, below.added),
            (&mut self.changed, Fate::Changed, below.changed),
            (&mut self.removed, Fate::Removed, below.removed),
        ] {
            if fate == of || !below.is_empty() {
                set.push(element.clone(), fate == of, below);
            }
        }
    }

    fn map(
        &mut self,
        before: Option<&Map<String, Value>>,
        after: Option<&Map<String, Value>>,
        place: Place<'_>,
    ) {
        // Maps are sorted, and pushing in order is fastest for sets.
        let mut olds = before.into_iter().flatten().peekable();
        let mut news = after.into_iter().flatten().peekable();
        loop {
            let order = match (olds.peek(), news.peek()) {
                (None, None) => break,
                (Some(_), None) => Ordering::Less,
                (None, Some(_)) => Ordering::Greater,
                (Some((old, _)), Some((new, _))) => old.cmp(new),
            };
            let old = if order.is_le() { olds.next() } else { None };
            let new = if order.is_ge() { news.next() } else { None };
            if let Some((name, _)) = old.or(new) {
                let (old, new) = (old.map(|(_, value)| value), new.map(|(_, value)| value));
                self.child(place.field_or_any(name).place, old, new, || Element::field(name));
            }
        }
    }

    fn child(
        &mut self,
        place: Place<'_>,
        before: Option<&Value>,
        after: Option<&Value>,
        element: impl FnOnce() -> Element,
    ) {
        let mut below = Comparison::default();
        let fate = below.value(place, before, after);
        if fate != Fate::Kept || !below.is_empty() {
            self.push(element(), fate, below);
        }
    }

    /// Records the differences inside a value, and returns the change of the value itself.
    fn value(&mut self, place: Place<'_>, before: Option<&Value>, after: Option<&Value>) -> Fate {
        let presence = match (before, after) {
            (None, Some(_)) => Fate::Added,
            (Some(_), None) => Fate::Removed,
            (Some(_), Some(_)) | (None, None) => Fate::Kept,
        };
        let shape = |value: Option<&Value>| value.filter(|v| !v.is_null()).map(|v| place.shape(v));
        let nothing_inside = before.is_none_or(is_empty) && after.is_none_or(is_empty);
        let maps = |value: Option<&'_ Value>| value.is_some_and(Value::is_object);
        match (shape(before), shape(after)) {
            (Some(Granularity::Map), Some(Granularity::Map) | None) | (None, Some(Granularity::Map))
                if !nothing_inside =>
            {
                self.map(before.and_then(Value::as_object), after.and_then(Value::as_object), place);
                presence
            }
            (Some(Granularity::List), Some(Granularity::List) | None) | (None, Some(Granularity::List))
                if !nothing_inside =>
            {
                if before != after {
                    self.list(before, after, place);
                }
                presence
            }
            (Some(before_shape), Some(after_shape)) if before_shape != after_shape => {
                // One value is a map and the other is not, so its fields are added or removed with
                // it.
                let fields = |value: Option<&'_ Value>, shape: Granularity| {
                    value
                        .filter(|_| shape == Granularity::Map && maps(value))
                        .and_then(Value::as_object)
                        .cloned()
                };
                let (old, new) = (fields(before, before_shape), fields(after, after_shape));
                self.map(old.as_ref(), None, place);
                self.map(None, new.as_ref(), place);
                Fate::Changed
            }
            _ if presence != Fate::Kept => presence,
            _ if before != after => Fate::Changed,
            _ => Fate::Kept,
        }
    }

    fn list(&mut self, before: Option<&Value>, after: Option<&Value>, place: Place<'_>) {
        let (before, after) = (identified(before, place), identified(after, place));
        let none = Vec::new();
        // Pushing in order is fastest for sets.
        let elements: BTreeSet<&Element> = before.keys().chain(after.keys()).collect();
        for element in elements {
            let old = before.get(element).unwrap_or(&none);
            let new = after.get(element).unwrap_or(&none);
            let (first_old, first_new) = (old.first().copied(), new.first().copied());
            match (old.len(), new.len()) {
                (0 | 1, 0 | 1) => self.child(place.items(), first_old, first_new, || element.clone()),
                // Items with the same identity are owned together.
                (2.., 2..) if old == new => {}
                (2.., 2..) => self.changed.push(element.clone(), true, FieldSet::default()),
                (2.., _) => {
                    if first_new.is_some() {
                        self.child(place.items(), None, first_new, || element.clone());
                    }
                    self.removed.push(element.clone(), true, FieldSet::default());
                }
                (_, _) => {
                    if first_old.is_some() {
                        self.child(place.items(), first_old, None, || element.clone());
                    }
                    self.added.push(element.clone(), true, FieldSet::default());
                }
            }
        }
    }
}

/// Returns the items of a list by their identity, without items that have none.
fn identified<'a>(list: Option<&'a Value>, place: Place<'_>) -> BTreeMap<Element, Vec<&'a Value>> {
    let mut found: BTreeMap<Element, Vec<&Value>> = BTreeMap::new();
    for item in list.and_then(Value::as_array).into_iter().flatten() {
        if let Ok(element) = place.identify(item) {
            found.entry(element).or_default().push(item);
        }
    }
    found
}
