//! Collects the fields of a value, and removes fields from a value.

use std::collections::BTreeSet;

use serde_json::{Map, Value};

use crate::schema::fields::element::Element;
use crate::schema::fields::place::{Granularity, Place};
use crate::schema::fields::set::FieldSet;

/// Returns the fields that a manager owns after writing this whole value: every leaf, every list
/// item, every map entry, and each named field that is empty.
pub(crate) fn fields_of(value: &Value, place: Place<'_>) -> FieldSet {
    let mut set = FieldSet::default();
    if let Value::Object(map) = value {
        of_map(map, place, &mut set);
    }
    set
}

/// Returns the fields inside `value`, and whether the value itself is a field.
fn of_value(value: &Value, place: Place<'_>) -> (bool, FieldSet) {
    let mut below = FieldSet::default();
    match (place.shape(value), value) {
        (Granularity::Map, Value::Object(map)) => of_map(map, place, &mut below),
        (Granularity::List, Value::Array(items)) => of_list(items, place, &mut below),
        _ => return (true, below),
    }
    (false, below)
}

fn of_map(map: &Map<String, Value>, place: Place<'_>, set: &mut FieldSet) {
    for (name, value) in map {
        let field = place.field_or_any(name);
        let (own, below) = of_value(value, field.place);
        let is_empty = value.is_null() || value.as_object().is_some_and(Map::is_empty);
        set.push(Element::field(name), own || is_empty || !field.named, below);
    }
}

fn of_list(items: &[Value], place: Place<'_>, set: &mut FieldSet) {
    let mut identified: Vec<(Element, &Value)> =
        items.iter().filter_map(|item| Some((place.identify(item).ok()?, item))).collect();
    identified.sort_by(|(a, _), (b, _)| a.cmp(b));
    let (mut seen, mut repeated) = (BTreeSet::new(), BTreeSet::new());
    for (element, _) in &identified {
        if !seen.insert(element) {
            repeated.insert(element);
        }
    }
    for (element, item) in &identified {
        // Items with the same identity are owned as one.
        let below =
            if repeated.contains(element) { FieldSet::default() } else { of_value(item, place.items()).1 };
        set.push(element.clone(), true, below);
    }
}

/// Returns `value` without the fields of `unwanted`. A value that becomes empty is null.
pub(crate) fn without(value: &Value, unwanted: &FieldSet, place: Place<'_>) -> Value {
    match (place.shape(value), value) {
        (Granularity::Map, Value::Object(map)) if !map.is_empty() => {
            let mut kept = Map::new();
            for (name, child) in map {
                let element = Element::field(name);
                if unwanted.has(&element) {
                    continue;
                }
                let child = match unwanted.below(&element) {
                    Some(below) => without(child, below, place.field_or_any(name).place),
                    None => child.clone(),
                };
                kept.insert(name.clone(), child);
            }
            if kept.is_empty() { Value::Null } else { Value::Object(kept) }
        }
        (Granularity::List, Value::Array(items)) if !items.is_empty() => {
            let mut kept = Vec::new();
            for item in items {
                match place.identify(item) {
                    Ok(element) if unwanted.has(&element) => {}
                    Ok(element) => kept.push(match unwanted.below(&element) {
                        Some(below) => without(item, below, place.items()),
                        None => item.clone(),
                    }),
                    Err(_) => kept.push(item.clone()),
                }
            }
            if kept.is_empty() { Value::Null } else { Value::Array(kept) }
        }
        _ => match value {
            Value::Object(_) | Value::Array(_) => Value::Null,
            leaf => leaf.clone(),
        },
    }
}

/// Returns `set` and the named fields on the path to each of its fields. The owner of a field needs
/// the named fields around it as well.
pub(crate) fn with_named(set: &FieldSet, place: Place<'_>) -> FieldSet {
    let mut all = FieldSet::default();
    for (element, member, below) in set.nodes() {
        let (named, place) = match element.field_name() {
            Some(name) => {
                let field = place.field_or_any(name);
                (field.named, field.place)
            }
            None => (false, place.items()),
        };
        all.push(element.clone(), member || (named && !below.is_empty()), with_named(below, place));
    }
    all
}

/// Adapts a set to a schema in which some maps and lists are now owned as a whole. Returns `None`
/// if nothing changes.
pub(crate) fn coarsened(set: &FieldSet, place: Place<'_>) -> Option<FieldSet> {
    let mut changed = false;
    let mut coarse = FieldSet::default();
    for (element, member, below) in set.nodes() {
        let place = match element.field_name() {
            Some(name) => place.field(name).map(|field| field.place),
            None => Some(place.items()),
        };
        match place {
            Some(place) if !below.is_empty() && place.is_owned_as_whole() => {
                changed = true;
                coarse.push(element.clone(), true, FieldSet::default());
            }
            Some(place) => match coarsened(below, place) {
                Some(below) => {
                    changed = true;
                    coarse.push(element.clone(), member, below);
                }
                None => coarse.push(element.clone(), member, below.clone()),
            },
            None => coarse.push(element.clone(), member, below.clone()),
        }
    }
    changed.then_some(coarse)
}
