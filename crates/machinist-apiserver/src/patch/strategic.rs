//! Strategic merge patch: a merge patch that knows which lists are keyed.
//!
//! The knowledge is the schema's [`PatchStrategy`]. Directives: `$patch: delete | replace | merge`, `$retainKeys`,
//! `$deleteFromPrimitiveList/x` and `$setElementOrder/x`.

use serde_json::{Map, Value};

use crate::crd::schema::{PatchStrategy, Schema};
use crate::go;
use crate::status::{ApiError, ApiResult};

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
        target.retain(|key, _| keep.iter().any(|k| k == key));
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
    // An order without a change of the list itself still sorts it.
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
        // What is not there yet is taken from the patch, whatever directive it has.
        Value::Object(change)
            if !target.contains_key(key)
                && directive(&Value::Object(change.clone()))
                    .is_some_and(|it| !matches!(it, "merge" | "delete" | "replace")) =>
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
            for item in change {
                if !target.contains(item) {
                    target.push(item.clone());
                }
            }
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
    for item in change {
        let Some(id) = item.get(merge_key) else {
            return Err(ApiError::unexpected(format!(
                "map: {} does not contain declared merge key: {merge_key}",
                go::plainly(item)
            )));
        };
        let found = target.iter().position(|held| held.get(merge_key) == Some(id));
        match (directive(item), found) {
            (Some("delete"), Some(at)) => {
                target.remove(at);
            }
            (Some("delete"), None) => {}
            (Some("replace"), Some(at)) => target[at] = plain(item),
            (Some("replace"), None) => target.push(plain(item)),
            (None | Some("merge"), Some(at)) => {
                if let (Some(held), Some(item)) = (target[at].as_object_mut(), item.as_object()) {
                    merge_map(held, item, below)?;
                }
            }
            (None | Some("merge"), None) => {
                let mut fresh = Map::new();
                if let Some(item) = item.as_object() {
                    merge_map(&mut fresh, item, below)?;
                }
                target.push(Value::Object(fresh));
            }
            (Some(other), _) => return Err(unknown_directive(other)),
        }
    }
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
        items.retain(|item| !unwanted.contains(item));
    }
}

/// Interleaves the items that `order` lists, in that order, with the others, which keep the order they had `before`. An
/// unlisted item goes before a listed one only where it did before; new listed items come first.
fn sort_by_order(items: &mut Vec<Value>, order: &[Value], before: &[Value], schema: &Schema) {
    let identity = |item: &Value| match &schema.patch {
        PatchStrategy::MergeByKey(key) => item.get(key).cloned().unwrap_or(Value::Null),
        PatchStrategy::MergeValues | PatchStrategy::Replace | PatchStrategy::ReplaceMap => item.clone(),
    };
    let place_in =
        |list: &[Value], item: &Value| list.iter().position(|other| identity(other) == identity(item));
    let (mut listed, mut others): (Vec<Value>, Vec<Value>) =
        std::mem::take(items).into_iter().partition(|item| place_in(order, item).is_some());
    listed.sort_by_key(|item| place_in(order, item));
    others.sort_by_key(|item| place_in(before, item));
    let mut listed = listed.into_iter().peekable();
    let mut others = others.into_iter().peekable();
    while let (Some(other), Some(next)) = (others.peek(), listed.peek()) {
        let other_was_first = match (place_in(before, other), place_in(before, next)) {
            (Some(other), Some(next)) => other < next,
            _ => false,
        };
        items.extend(if other_was_first { others.next() } else { listed.next() });
    }
    items.extend(listed);
    items.extend(others);
}

fn unknown_directive(directive: &str) -> ApiError {
    ApiError::unexpected(format!("Unknown value {directive:?} of a $patch directive"))
}
