//! The fields that a value has, and a value without some of them.

use std::collections::BTreeSet;

use serde_json::{Map, Value};

use crate::schema::fields::element::Element;
use crate::schema::fields::set::FieldSet;
use crate::schema::fields::view::{Shape, View};

/// What someone who gives this value as a whole comes to own: every leaf, every item of a list, every entry of a map, and of the
/// named fields those that are empty.
pub(crate) fn fields_of(value: &Value, view: View<'_>) -> FieldSet {
    let mut set = FieldSet::default();
    if let Value::Object(map) = value {
        of_map(map, view, &mut set);
    }
    set
}

/// The fields in `value`, and whether the value is a field of its own accord.
fn of_value(value: &Value, view: View<'_>) -> (bool, FieldSet) {
    let mut below = FieldSet::default();
    match (view.shape(value), value) {
        (Shape::Map, Value::Object(map)) => of_map(map, view, &mut below),
        (Shape::List, Value::Array(items)) => of_list(items, view, &mut below),
        _ => return (true, below),
    }
    (false, below)
}

fn of_map(map: &Map<String, Value>, view: View<'_>, set: &mut FieldSet) {
    for (name, value) in map {
        let field = view.field_or_any(name);
        let (own, below) = of_value(value, field.view);
        let is_empty = value.is_null() || value.as_object().is_some_and(Map::is_empty);
        set.push(Element::field(name), own || is_empty || !field.named, below);
    }
}

fn of_list(items: &[Value], view: View<'_>, set: &mut FieldSet) {
    let mut identified: Vec<(Element, &Value)> =
        items.iter().filter_map(|item| Some((view.identify(item).ok()?, item))).collect();
    identified.sort_by(|(a, _), (b, _)| a.cmp(b));
    let (mut seen, mut repeated) = (BTreeSet::new(), BTreeSet::new());
    for (element, _) in &identified {
        if !seen.insert(element) {
            repeated.insert(element);
        }
    }
    for (element, item) in &identified {
        // Items that cannot be told apart are owned as one.
        let below = match repeated.contains(element) {
            true => FieldSet::default(),
            false => of_value(item, view.items()).1,
        };
        set.push(element.clone(), true, below);
    }
}

/// `value` without the fields of `unwanted`. What is left empty by that is null.
pub(crate) fn without(value: &Value, unwanted: &FieldSet, view: View<'_>) -> Value {
    match (view.shape(value), value) {
        (Shape::Map, Value::Object(map)) if !map.is_empty() => {
            let mut kept = Map::new();
            for (name, child) in map {
                let element = Element::field(name);
                if unwanted.has(&element) {
                    continue;
                }
                let child = match unwanted.below(&element) {
                    Some(below) => without(child, below, view.field_or_any(name).view),
                    None => child.clone(),
                };
                kept.insert(name.clone(), child);
            }
            if kept.is_empty() { Value::Null } else { Value::Object(kept) }
        }
        (Shape::List, Value::Array(items)) if !items.is_empty() => {
            let mut kept = Vec::new();
            for item in items {
                match view.identify(item) {
                    Ok(element) if unwanted.has(&element) => {}
                    Ok(element) => kept.push(match unwanted.below(&element) {
                        Some(below) => without(item, below, view.items()),
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

/// `set`, and the named fields on the way to what is in it: whoever owns a field wants the named fields around it to be there.
pub(crate) fn with_named(set: &FieldSet, view: View<'_>) -> FieldSet {
    let mut all = FieldSet::default();
    for (element, member, below) in set.nodes() {
        let (named, view) = match element.field_name() {
            Some(name) => {
                let field = view.field_or_any(name);
                (field.named, field.view)
            }
            None => (false, view.items()),
        };
        all.push(element.clone(), member || (named && !below.is_empty()), with_named(below, view));
    }
    all
}

/// Brings a set into line with a schema that has come to own some maps and lists as a whole since. `None` when it is.
pub(crate) fn coarsened(set: &FieldSet, view: View<'_>) -> Option<FieldSet> {
    let mut changed = false;
    let mut coarse = FieldSet::default();
    for (element, member, below) in set.nodes() {
        let view = match element.field_name() {
            Some(name) => view.field(name).map(|field| field.view),
            None => Some(view.items()),
        };
        match view {
            Some(view) if !below.is_empty() && view.is_owned_as_whole() => {
                changed = true;
                coarse.push(element.clone(), true, FieldSet::default());
            }
            Some(view) => match coarsened(below, view) {
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
