//! Merges an applied configuration into the live object, and validates the configuration.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value};

use crate::schema::crd::schema::{MAX_DEPTH, Type};
use crate::schema::fields::element::Element;
use crate::schema::fields::place::{Granularity, Place, is_empty};
use crate::values::go;

/// Returns `live` with all fields of `wanted`. Removes nothing.
pub(crate) fn merge(live: &Value, wanted: &Value, place: Place<'_>) -> Value {
    merged(Some(live), Some(wanted), place).unwrap_or(Value::Null)
}

/// Returns `None` if the merged value is empty.
fn merged(live: Option<&Value>, wanted: Option<&Value>, place: Place<'_>) -> Option<Value> {
    let nothing_inside = live.is_none_or(is_empty) && wanted.is_none_or(is_empty);
    // The wanted value determines the shape. If it is null, the live value does.
    let telling = wanted.filter(|v| !v.is_null()).or(live.filter(|v| !v.is_null()));
    match telling.map(|value| place.shape(value)) {
        Some(Granularity::Map) if !nothing_inside => {
            let map = |value: Option<&Value>| value.and_then(Value::as_object).cloned().unwrap_or_default();
            let (live, wanted) = (map(live), map(wanted));
            let mut all = Map::new();
            let names: BTreeSet<&String> = live.keys().chain(wanted.keys()).collect();
            for name in names {
                let below = place.field_or_any(name).place;
                if let Some(value) = merged(live.get(name), wanted.get(name), below) {
                    all.insert(name.clone(), value);
                }
            }
            (!all.is_empty()).then_some(Value::Object(all))
        }
        Some(Granularity::List) if !nothing_inside => {
            let list = |value: Option<&Value>| value.and_then(Value::as_array).cloned().unwrap_or_default();
            let all = merged_list(&list(live), &list(wanted), place);
            (!all.is_empty()).then_some(Value::Array(all))
        }
        _ => wanted.or(live).cloned(),
    }
}

/// Returns the items of both lists. Items of `wanted` keep their order. An item that is only in
/// `live` stays before the item that it preceded.
fn merged_list(live: &[Value], wanted: &[Value], place: Place<'_>) -> Vec<Value> {
    let identified = |list: &[Value]| -> Vec<Option<Element>> {
        list.iter().map(|item| place.identify(item).ok()).collect()
    };
    let (live_ids, wanted_ids) = (identified(live), identified(wanted));
    let places = |ids: &[Option<Element>]| -> BTreeMap<Element, usize> {
        let named = ids.iter().enumerate().filter_map(|(at, id)| Some((id.clone()?, at)));
        named.rev().collect()
    };
    let (in_live, in_wanted) = (places(&live_ids), places(&wanted_ids));
    let mut count_in_live = BTreeMap::new();
    for id in live_ids.iter().flatten() {
        *count_in_live.entry(id).or_insert(0) += 1;
    }
    let repeated = |id: &Element| count_in_live.get(id) != Some(&1);
    let mut all = Vec::new();
    let take = |all: &mut Vec<Value>, id: &Element, item: &Value| {
        // Live items with the same identity are all replaced by the wanted item.
        let live = in_live.get(id).filter(|_| !repeated(id)).map(|at| &live[*at]);
        all.extend(merged(live, Some(item), place.items()));
    };
    // Items in both lists, in the wanted order. The live list does not advance past a shared item
    // before its turn.
    let mut shared = wanted_ids.iter().flatten().filter(|id| in_live.contains_key(*id)).peekable();
    let mut taken = BTreeSet::new();
    let (mut l, mut w) = (0, 0);
    while l < live.len() || w < wanted.len() {
        if let (Some(Some(have)), Some(Some(want))) = (live_ids.get(l), wanted_ids.get(w)) {
            if have == want {
                take(&mut all, want, &wanted[w]);
                taken.insert(want);
                (l, w) = (l + 1, w + 1);
                shared.next();
                continue;
            }
            if in_wanted.contains_key(have) && shared.peek().is_some_and(|next| *next != have) {
                // A shared item that comes later in the wanted order.
                l += 1;
                continue;
            }
        }
        if let Some(have) = live_ids.get(l) {
            match have {
                Some(have) if in_wanted.contains_key(have) => {
                    if taken.contains(have) {
                        l += 1;
                    }
                }
                Some(_) | None => {
                    all.push(live[l].clone());
                    l += 1;
                    continue;
                }
            }
        }
        match wanted_ids.get(w) {
            Some(Some(want)) => {
                take(&mut all, want, &wanted[w]);
                taken.insert(want);
                if shared.peek().is_some_and(|next| *next == want) {
                    shared.next();
                }
                w += 1;
            }
            // `problems` has already rejected such items.
            Some(None) => w += 1,
            None if l < live.len() => l += 1,
            None => {}
        }
    }
    all
}

/// Returns the problems of an applied value, with their paths.
pub(crate) fn problems(value: &Value, place: Place<'_>) -> Vec<String> {
    let mut found = Vec::new();
    look(value, place, "", 0, &mut found);
    found
}

/// Formats problems as one text, as Go formats a list of errors.
pub(crate) fn joined(problems: &[String]) -> String {
    match problems {
        [only] => only.clone(),
        many => format!("errors:\n  {}", many.join("\n  ")),
    }
}

fn look(value: &Value, place: Place<'_>, path: &str, depth: usize, found: &mut Vec<String>) {
    let mut complain = |why: String| {
        found.push(if path.is_empty() { why } else { format!("{path}: {why}") });
    };
    if MAX_DEPTH < depth {
        return complain("nested too deeply".to_owned());
    }
    let schema = place.schema();
    // Times and quantities accept any scalar here. Their content is checked later.
    let any_scalar = schema.int_or_string || (schema.of == Some(Type::String) && schema.format.is_some());
    let fits = match (schema.of, value) {
        (_, Value::Null) => return,
        (None, _) if !schema.int_or_string => true,
        (_, Value::Object(_) | Value::Array(_)) if any_scalar => false,
        _ if any_scalar => true,
        (Some(Type::Object), value) => value.is_object(),
        (Some(Type::Array), value) => value.is_array(),
        (Some(Type::String), value) => value.is_string(),
        (Some(Type::Integer | Type::Number), value) => value.is_number(),
        (Some(Type::Boolean), value) => value.is_boolean(),
        (None, _) => true,
    };
    if !fits {
        return complain(match schema.of {
            Some(Type::Object) => format!("expected map, got {}", shown_plainly(value)),
            Some(Type::Array) => format!("expected list, got {}", shown_plainly(value)),
            Some(Type::String) => format!("expected string, got {}", shown(value)),
            Some(Type::Integer | Type::Number) => {
                format!("expected numeric (int or float), got {}", go::type_name(value))
            }
            Some(Type::Boolean) => format!("expected boolean, got {}", shown_plainly(value)),
            None => format!("expected any scalar, got {}", shown_plainly(value)),
        });
    }
    match value {
        Value::Object(map) => {
            for (name, child) in map {
                let below = format!("{path}.{name}");
                match place.field(name) {
                    Some(field) => look(child, field.place, &below, depth + 1, found),
                    None => {
                        found.push(format!("{below}: field not declared in schema"));
                        return;
                    }
                }
            }
        }
        Value::Array(items) => {
            let mut seen = BTreeSet::new();
            for (index, item) in items.iter().enumerate() {
                let below = match place.shape(value) {
                    Granularity::List => match place.identify(item) {
                        Err(why) => {
                            let why = format!("element {index}: {why}");
                            found.push(if path.is_empty() { why } else { format!("{path}: {why}") });
                            return;
                        }
                        Ok(element) => {
                            if !seen.insert(element.clone()) {
                                found.push(format!("{path}: duplicate entries for key {element}"));
                            }
                            format!("{path}{element}")
                        }
                    },
                    Granularity::Leaf | Granularity::Map => format!("{path}[{index}]"),
                };
                look(item, place.items(), &below, depth + 1, found);
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// Formats a value like Go's `%#v`, as far as the type is known.
fn shown(value: &Value) -> String {
    format!("&value.valueUnstructured{{Value:{value}}}")
}

/// Formats a value like Go's `%v`.
fn shown_plainly(value: &Value) -> String {
    format!("&{{{}}}", go::plainly(value))
}
