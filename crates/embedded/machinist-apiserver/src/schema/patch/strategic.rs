//! Strategic merge patch: a merge patch that merges keyed lists by their keys.
//!
//! The schema's [`PatchStrategy`] has the keys. Supported directives: `$patch: delete | replace |
//! merge`, `$retainKeys`, `$deleteFromPrimitiveList/x` and `$setElementOrder/x`.

use std::collections::{HashMap, HashSet, VecDeque};

use serde_json::{Map, Value};

use crate::schema::crd::schema::{PatchStrategy, Schema};
use crate::values::go;
use crate::values::status::{ApiError, ApiResult};

const DIRECTIVE: &str = "$patch";
const RETAIN_KEYS: &str = "$retainKeys";
const DELETE_FROM: &str = "$deleteFromPrimitiveList/";
const ELEMENT_ORDER: &str = "$setElementOrder/";

pub(crate) fn apply(target: &mut Value, patch: &Value, schema: &Schema) -> ApiResult<()> {
    let Some(patch) = patch.as_object() else {
        return Err(ApiError::bad_request("error decoding patch: a strategic merge patch is an object"));
    };
    if !target.is_object() {
        *target = Value::Object(Map::new());
    }
    match target.as_object_mut() {
        Some(map) => merge_map(map, patch, schema),
        None => Ok(()),
    }
}

fn merge_map(target: &mut Map<String, Value>, patch: &Map<String, Value>, schema: &Schema) -> ApiResult<()> {
    match patch.get(DIRECTIVE).and_then(Value::as_str) {
        None | Some("merge") => {}
        Some("delete") => {
            target.clear();
            return Ok(());
        }
        Some("replace") => {
            *target = without_directives(patch);
            return Ok(());
        }
        Some(other) => return Err(unknown_directive(other)),
    }
    if let Some(keep) = patch.get(RETAIN_KEYS).and_then(Value::as_array) {
        let keep: HashSet<&str> = keep.iter().filter_map(Value::as_str).collect();
        target.retain(|key, _| keep.contains(key.as_str()));
    }
    for (key, change) in patch {
        if key == DIRECTIVE || key == RETAIN_KEYS || key.starts_with(ELEMENT_ORDER) {
            continue;
        }
        if let Some(list) = key.strip_prefix(DELETE_FROM) {
            delete_values(target.get_mut(list), change);
            continue;
        }
        if change.is_null() {
            target.remove(key);
            continue;
        }
        let any = Schema::default();
        let below = schema.property(key).map_or(&any, AsRef::as_ref);
        merge_child(target, key, change, below, patch.get(&format!("{ELEMENT_ORDER}{key}")))?;
    }
    // An order directive sorts the list even if the patch does not change it.
    for (key, order) in patch {
        if let (Some(list), Some(order)) = (key.strip_prefix(ELEMENT_ORDER), order.as_array())
            && let (None, Some(Value::Array(items)), Some(below)) =
                (patch.get(list), target.get_mut(list), schema.property(list))
        {
            let before = items.clone();
            sort_by_order(items, order, &before, below);
        }
    }
    Ok(())
}

fn merge_child(
    target: &mut Map<String, Value>,
    key: &str,
    change: &Value,
    schema: &Schema,
    order: Option<&Value>,
) -> ApiResult<()> {
    match change {
        // A missing value is taken from the patch, regardless of its directive.
        Value::Object(change)
            if !target.contains_key(key)
                && directive(&Value::Object(change.clone()))
                    .is_some_and(|directive| !matches!(directive, "merge" | "delete" | "replace")) =>
        {
            target.insert(key.to_owned(), Value::Object(without_directives(change)));
            Ok(())
        }
        Value::Object(change) => {
            let child = target.entry(key).or_insert_with(|| Value::Object(Map::new()));
            if !child.is_object() || schema.patch == PatchStrategy::ReplaceMap {
                *child = Value::Object(Map::new());
            }
            match child.as_object_mut() {
                Some(child) => merge_map(child, change, schema),
                None => Ok(()),
            }
        }
        Value::Array(change) => {
            let child = target.entry(key).or_insert_with(|| Value::Array(Vec::new()));
            if !child.is_array() {
                *child = Value::Array(Vec::new());
            }
            match child.as_array_mut() {
                Some(child) => merge_list(child, change, schema, order.and_then(Value::as_array)),
                None => Ok(()),
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {
            target.insert(key.to_owned(), change.clone());
            Ok(())
        }
    }
}

fn merge_list(
    target: &mut Vec<Value>,
    change: &[Value],
    schema: &Schema,
    order: Option<&Vec<Value>>,
) -> ApiResult<()> {
    let before = target.clone();
    match &schema.patch {
        PatchStrategy::Replace | PatchStrategy::ReplaceMap => {
            *target = change.iter().filter(|item| directive(item).is_none()).cloned().collect();
            return Ok(());
        }
        PatchStrategy::MergeValues => {
            let mut held = texts(target);
            target.extend(change.iter().filter(|item| held.insert(item.to_string())).cloned());
        }
        PatchStrategy::MergeByKey(merge_key) => merge_by_key(target, change, merge_key, schema)?,
    }
    sort_by_order(target, order.map_or(change, Vec::as_slice), &before, schema);
    Ok(())
}

fn merge_by_key(
    target: &mut Vec<Value>,
    change: &[Value],
    merge_key: &str,
    schema: &Schema,
) -> ApiResult<()> {
    if change.iter().any(|item| directive(item) == Some("replace") && item.get(merge_key).is_none()) {
        *target = change.iter().filter(|item| directive(item).is_none()).cloned().collect();
        return Ok(());
    }
    let any = Schema::default();
    let below = schema.items.as_deref().unwrap_or(&any);
    // Lists may be as long as bodies. Items are therefore found by the text of their keys, and a
    // deleted item leaves a gap.
    let mut items: Vec<Option<Value>> = std::mem::take(target).into_iter().map(Some).collect();
    let mut places: HashMap<String, VecDeque<usize>> = HashMap::new();
    for (at, item) in items.iter().enumerate() {
        if let Some(id) = item.as_ref().and_then(|item| item.get(merge_key)) {
            places.entry(id.to_string()).or_default().push_back(at);
        }
    }
    for change in change {
        let Some(id) = change.get(merge_key) else {
            return Err(ApiError::unexpected(format!(
                "map: {} does not contain declared merge key: {merge_key}",
                go::plainly(change)
            )));
        };
        let held = places.entry(id.to_string()).or_default();
        let found = held.front().copied();
        match (directive(change), found) {
            (Some("delete"), Some(at)) => {
                items[at] = None;
                held.pop_front();
            }
            (Some("delete"), None) => {}
            (Some("replace"), Some(at)) => items[at] = Some(plain(change)),
            (Some("replace"), None) => {
                held.push_back(items.len());
                items.push(Some(plain(change)));
            }
            (None | Some("merge"), Some(at)) => {
                let item = items[at].as_mut().and_then(Value::as_object_mut);
                if let (Some(item), Some(change)) = (item, change.as_object()) {
                    merge_map(item, change, below)?;
                }
            }
            (None | Some("merge"), None) => {
                let mut fresh = Map::new();
                if let Some(change) = change.as_object() {
                    merge_map(&mut fresh, change, below)?;
                }
                held.push_back(items.len());
                items.push(Some(Value::Object(fresh)));
            }
            (Some(other), _) => return Err(unknown_directive(other)),
        }
    }
    target.extend(items.into_iter().flatten());
    Ok(())
}

fn directive(item: &Value) -> Option<&str> {
    item.get(DIRECTIVE).and_then(Value::as_str)
}

fn plain(item: &Value) -> Value {
    item.as_object().map_or_else(|| item.clone(), |map| Value::Object(without_directives(map)))
}

fn without_directives(map: &Map<String, Value>) -> Map<String, Value> {
    map.iter().filter(|(key, _)| !key.starts_with('$')).map(|(k, v)| (k.clone(), v.clone())).collect()
}

fn delete_values(target: Option<&mut Value>, unwanted: &Value) {
    if let (Some(Value::Array(items)), Some(unwanted)) = (target, unwanted.as_array()) {
        let unwanted = texts(unwanted);
        items.retain(|item| !unwanted.contains(&item.to_string()));
    }
}

/// Renders items as texts: equal values have equal texts.
fn texts(list: &[Value]) -> HashSet<String> {
    list.iter().map(Value::to_string).collect()
}

/// Sorts the items in `order` into that order, and keeps the other items in their order from
/// `before`. An item outside `order` precedes a listed one only if it did so before; new listed
/// items come first.
fn sort_by_order(items: &mut Vec<Value>, order: &[Value], before: &[Value], schema: &Schema) {
    let identity = |item: &Value| match &schema.patch {
        PatchStrategy::MergeByKey(key) => item.get(key).unwrap_or(&Value::Null).to_string(),
        PatchStrategy::MergeValues | PatchStrategy::Replace | PatchStrategy::ReplaceMap => item.to_string(),
    };
    let first_places = |list: &[Value]| -> HashMap<String, usize> {
        list.iter().enumerate().rev().map(|(at, item)| (identity(item), at)).collect()
    };
    let (ordered, earlier) = (first_places(order), first_places(before));
    let (mut listed, mut others) = (Vec::new(), Vec::new());
    for item in std::mem::take(items) {
        let id = identity(&item);
        let was = earlier.get(&id).copied();
        match ordered.get(&id) {
            Some(place) => listed.push((*place, was, item)),
            None => others.push((was, item)),
        }
    }
    listed.sort_by_key(|(place, ..)| *place);
    others.sort_by_key(|(was, _)| *was);
    let mut listed = listed.into_iter().map(|(_, was, item)| (was, item)).peekable();
    let mut others = others.into_iter().peekable();
    while let (Some((other, _)), Some((next, _))) = (others.peek(), listed.peek()) {
        let other_was_first = other.zip(*next).is_some_and(|(other, next)| other < next);
        let first = if other_was_first { others.next() } else { listed.next() };
        items.extend(first.map(|(_, item)| item));
    }
    items.extend(listed.chain(others).map(|(_, item)| item));
}

fn unknown_directive(directive: &str) -> ApiError {
    ApiError::unexpected(format!("Unknown value {directive:?} of a $patch directive"))
}
