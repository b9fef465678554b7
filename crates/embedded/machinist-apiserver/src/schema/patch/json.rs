//! JSON Patch (RFC 6902), with the two deviations of kube-apiserver: `test` for `null` succeeds on
//! a missing path (kube-rs' finalizer helper depends on it), and `replace` of a missing map key
//! adds the key.

use serde_json::Value;

use crate::schema::crd::schema::MAX_DEPTH;
use crate::values::status::{ApiError, ApiResult, FieldErrors};

/// Maximum number of operations in one patch, as in kube-apiserver.
const MAX_OPERATIONS: usize = 10_000;

/// Maximum number of bytes that the `copy` operations of one patch may add: copies of copies grow
/// exponentially.
const MAX_COPIED: usize = 3 * 1024 * 1024;

/// Maximum number of values that the operations of one patch may move or visit: an insertion at the
/// front of a list moves all other items.
const MAX_WORK: usize = 100_000_000;

/// Maximum depth of an object after a patch: the depth that the decoder accepts in a body.
const DEEPEST: usize = MAX_DEPTH - 1;

/// One operation.
#[derive(Debug, Clone)]
pub(crate) enum PatchOperation {
    Add { path: Pointer, value: Value },
    Remove { path: Pointer },
    Replace { path: Pointer, value: Value },
    Move { from: Pointer, path: Pointer },
    Copy { from: Pointer, path: Pointer },
    Test { path: Pointer, value: Value },
}

/// A JSON pointer, split and unescaped.
#[derive(Debug, Clone)]
pub(crate) struct Pointer {
    text: String,
    steps: Vec<String>,
}

impl PatchOperation {
    pub(crate) fn parse_all(patch: &Value) -> ApiResult<Vec<Self>> {
        let Some(list) = patch.as_array() else {
            return Err(ApiError::bad_request(
                "json: cannot unmarshal object into Go value of type jsonpatch.Patch",
            ));
        };
        if MAX_OPERATIONS < list.len() {
            return Err(ApiError::too_large(MAX_OPERATIONS));
        }
        list.iter().map(Self::parse).collect()
    }

    fn parse(source: &Value) -> ApiResult<Self> {
        let pointer = |key: &str| -> ApiResult<Pointer> {
            match source.get(key).and_then(Value::as_str) {
                Some(text) => Pointer::parse(text),
                None => Err(ApiError::bad_request(format!(
                    "error decoding patch: operation without \"{key}\": {source}"
                ))),
            }
        };
        let value = || source.get("value").cloned().unwrap_or(Value::Null);
        match source.get("op").and_then(Value::as_str) {
            Some("add") => Ok(PatchOperation::Add { path: pointer("path")?, value: value() }),
            Some("remove") => Ok(PatchOperation::Remove { path: pointer("path")? }),
            Some("replace") => Ok(PatchOperation::Replace { path: pointer("path")?, value: value() }),
            Some("move") => Ok(PatchOperation::Move { from: pointer("from")?, path: pointer("path")? }),
            Some("copy") => Ok(PatchOperation::Copy { from: pointer("from")?, path: pointer("path")? }),
            Some("test") => Ok(PatchOperation::Test { path: pointer("path")?, value: value() }),
            _ => Err(ApiError::unprocessable_patch()),
        }
    }
}

impl PatchOperation {
    /// Paths at which the operation inserts or removes a value.
    fn places(&self) -> impl Iterator<Item = &Pointer> {
        let (from, path) = match self {
            PatchOperation::Add { path, .. } | PatchOperation::Remove { path } => (None, Some(path)),
            PatchOperation::Move { from, path } => (Some(from), Some(path)),
            PatchOperation::Copy { path, .. } => (None, Some(path)),
            PatchOperation::Replace { .. } | PatchOperation::Test { .. } => (None, None),
        };
        from.into_iter().chain(path)
    }
}

impl Pointer {
    /// Counts the list items that a change at this path moves.
    fn moves(&self, root: &Value) -> usize {
        let Some((last, above)) = self.steps.split_last() else { return 0 };
        let items = follow(root, above).and_then(Value::as_array).map_or(0, Vec::len);
        items.saturating_sub(last.parse().unwrap_or(items))
    }

    /// Pointer to the parent of the last step.
    fn above(&self) -> Option<Pointer> {
        let (_, steps) = self.steps.split_last()?;
        Some(Pointer { text: self.text.clone(), steps: steps.to_vec() })
    }

    fn parse(text: &str) -> ApiResult<Self> {
        let steps = match text.strip_prefix('/') {
            Some(rest) => rest.split('/').map(|s| s.replace("~1", "/").replace("~0", "~")).collect(),
            None if text.is_empty() => Vec::new(),
            None => return Err(ApiError::unprocessable_patch()),
        };
        if DEEPEST < steps.len() {
            return Err(ApiError::unprocessable_patch());
        }
        Ok(Pointer { text: text.to_owned(), steps })
    }

    fn get<'a>(&self, root: &'a Value) -> Option<&'a Value> {
        follow(root, &self.steps)
    }

    fn parent<'a>(&self, root: &'a mut Value) -> Option<(&'a mut Value, &str)> {
        let (last, above) = self.steps.split_last()?;
        let parent = above.iter().try_fold(root, |at, step| match at {
            Value::Object(map) => map.get_mut(step),
            Value::Array(items) => {
                let at = index(step, items.len())?;
                items.get_mut(at)
            }
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => None,
        })?;
        Some((parent, last))
    }
}

/// Returns the value at the end of the steps.
fn follow<'a>(root: &'a Value, steps: &[String]) -> Option<&'a Value> {
    steps.iter().try_fold(root, |at, step| match at {
        Value::Object(map) => map.get(step),
        Value::Array(items) => items.get(index(step, items.len())?),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => None,
    })
}

/// Parses an array index. Negative ones are not allowed.
fn index(step: &str, length: usize) -> Option<usize> {
    let plain = step == "0" || !step.starts_with('0');
    step.parse().ok().filter(|i| plain && *i < length)
}

/// Applies `operations` in order to an object. The result is an object and never deeper than
/// [`DEEPEST`], because walking and dropping a value needs stack for each level.
pub(crate) fn apply(document: &mut Value, operations: &[PatchOperation]) -> ApiResult<()> {
    let mut copied = 0;
    // An upper bound of the document's depth. Recomputed only when an operation brings it above the
    // limit.
    let mut deepest = depth(document);
    let mut work = 0_usize;
    for operation in operations {
        work = work.saturating_add(operation.places().map(|path| path.moves(document)).sum());
        if MAX_WORK < work {
            return Err(ApiError::too_large(MAX_WORK));
        }
        let done = match operation {
            PatchOperation::Add { path, value } => add(document, path, value.clone()),
            PatchOperation::Remove { path } => remove(document, path).map(drop),
            PatchOperation::Replace { path, value } => replace(document, path, value.clone()),
            PatchOperation::Move { from, path } => {
                remove(document, from).and_then(|value| add(document, path, value))
            }
            PatchOperation::Copy { from, path } => {
                // A missing map key is copied as null.
                let missing =
                    || from.above().and_then(|above| above.get(document)).filter(|parent| parent.is_object());
                let value = from.get(document).cloned().or_else(|| missing().map(|_| Value::Null));
                copied += value.as_ref().map_or(0, |v| v.to_string().len());
                if MAX_COPIED < copied {
                    return Err(ApiError::too_large(MAX_COPIED));
                }
                value.and_then(|value| add(document, path, value))
            }
            PatchOperation::Test { path, value } => {
                let holds = path.get(document).map_or(value.is_null(), |found| same(found, value));
                holds.then_some(())
            }
        };
        if done.is_none() {
            tracing::debug!(operation = ?operation_path(operation), "JSON patch does not apply");
            return Err(ApiError::unprocessable_patch());
        }
        deepest = deepest.max(match operation {
            PatchOperation::Add { path, value } | PatchOperation::Replace { path, value } => {
                path.steps.len() + depth(value)
            }
            PatchOperation::Move { from, path } | PatchOperation::Copy { from, path } => {
                path.steps.len() + deepest.saturating_sub(from.steps.len())
            }
            PatchOperation::Remove { .. } | PatchOperation::Test { .. } => 0,
        });
        if DEEPEST < deepest {
            deepest = depth(document);
            work = work.saturating_add(size(document));
        }
        if DEEPEST < deepest {
            return Err(ApiError::unprocessable_patch());
        }
    }
    if document.is_object() { Ok(()) } else { Err(no_object(document)) }
}

/// Counts the values in a value, including itself.
fn size(value: &Value) -> usize {
    match value {
        Value::Array(items) => 1 + items.iter().map(size).sum::<usize>(),
        Value::Object(map) => 1 + map.values().map(size).sum::<usize>(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => 1,
    }
}

/// Depth of nested maps and lists; 0 for a scalar.
fn depth(value: &Value) -> usize {
    match value {
        Value::Array(items) => 1 + items.iter().map(depth).max().unwrap_or_default(),
        Value::Object(map) => 1 + map.values().map(depth).max().unwrap_or_default(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => 0,
    }
}

/// Error for a list in place of the object, in kube-apiserver's words.
fn no_object(patched: &Value) -> ApiError {
    let mut errors = FieldErrors::default();
    errors.invalid(
        "patch",
        Value::String(patched.to_string()),
        "couldn't get version/kind; json parse error: json: cannot unmarshal array into Go value of type struct { APIVersion string \"json:\\\"apiVersion,omitempty\\\"\"; Kind string \"json:\\\"kind,omitempty\\\"\" }",
    );
    ApiError::invalid("", "", "", &errors)
}

fn operation_path(operation: &PatchOperation) -> &str {
    match operation {
        PatchOperation::Add { path, .. }
        | PatchOperation::Remove { path }
        | PatchOperation::Replace { path, .. }
        | PatchOperation::Move { path, .. }
        | PatchOperation::Copy { path, .. }
        | PatchOperation::Test { path, .. } => &path.text,
    }
}

/// JSON equality. Numbers are compared by value, so `1` equals `1.0`.
fn same(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Number(a), Value::Number(b)) => a == b || a.as_f64() == b.as_f64(),
        (Value::Array(a), Value::Array(b)) => a.len() == b.len() && a.iter().zip(b).all(|(a, b)| same(a, b)),
        (Value::Object(a), Value::Object(b)) => {
            a.len() == b.len() && a.iter().all(|(key, a)| b.get(key).is_some_and(|b| same(a, b)))
        }
        _ => a == b,
    }
}

/// Adds a value. Adding the root fails, as in kube-apiserver.
fn add(document: &mut Value, path: &Pointer, value: Value) -> Option<()> {
    match path.parent(document)? {
        (Value::Object(map), key) => {
            map.insert(key.to_owned(), value);
            Some(())
        }
        (Value::Array(items), "-") => {
            items.push(value);
            Some(())
        }
        (Value::Array(items), key) => {
            let at = index(key, items.len() + 1)?;
            items.insert(at, value);
            Some(())
        }
        _ => None,
    }
}

fn remove(document: &mut Value, path: &Pointer) -> Option<Value> {
    match path.parent(document)? {
        (Value::Object(map), key) => map.remove(key),
        (Value::Array(items), key) => {
            let at = index(key, items.len())?;
            Some(items.remove(at))
        }
        _ => None,
    }
}

fn replace(document: &mut Value, path: &Pointer, value: Value) -> Option<()> {
    if path.steps.is_empty() {
        if !value.is_object() && !value.is_array() {
            return None;
        }
        *document = value;
        return Some(());
    }
    match path.parent(document)? {
        // RFC 6902 requires the key to exist; kube-apiserver adds it.
        (Value::Object(map), key) => {
            map.insert(key.to_owned(), value);
        }
        (Value::Array(items), key) => {
            let at = index(key, items.len())?;
            *items.get_mut(at)? = value;
        }
        _ => return None,
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn check(document: Value, patch: Value) -> Result<Value, u16> {
        let mut document = document;
        let operations = PatchOperation::parse_all(&patch).map_err(|e| e.code())?;
        apply(&mut document, &operations).map_err(|e| e.code())?;
        Ok(document)
    }

    #[test]
    fn operations_change_maps_and_lists() {
        let patch = json!([
            {"op": "add", "path": "/a/b~1c", "value": 1},
            {"op": "add", "path": "/l/0", "value": "first"},
            {"op": "add", "path": "/l/-", "value": "last"},
            {"op": "replace", "path": "/x", "value": 2},
            {"op": "copy", "from": "/x", "path": "/y"},
            {"op": "move", "from": "/y", "path": "/z"},
            {"op": "remove", "path": "/l/1"}
        ]);
        let got = check(json!({"a": {}, "l": ["mid"], "x": 1}), patch);
        assert_eq!(got, Ok(json!({"a": {"b/c": 1}, "l": ["first", "last"], "x": 2, "z": 2})));
    }

    #[test]
    fn copies_of_copies_are_limited() {
        let doubling = (0..40).map(|n| json!({"op": "copy", "from": "", "path": format!("/k{n}")}));
        assert_eq!(check(json!({"x": "0123456789"}), doubling.collect()), Err(413));
    }

    #[test]
    fn only_an_object_can_replace_the_root() {
        let root = |op: &str, value: Value| json!([{"op": op, "path": "", "value": value}]);
        assert_eq!(check(json!({"a": 1}), root("replace", json!({"b": 2}))), Ok(json!({"b": 2})));
        for value in [json!("x"), json!([]), json!(null), json!(3)] {
            assert_eq!(check(json!({"a": 1}), root("replace", value.clone())), Err(422), "{value}");
            assert_eq!(check(json!({"a": 1}), root("add", value.clone())), Err(422), "{value}");
        }
        assert_eq!(check(json!({"a": 1}), json!([{"op": "remove", "path": ""}])), Err(422));
        assert_eq!(check(json!({"a": {}}), json!([{"op": "move", "from": "/a", "path": ""}])), Err(422));
    }

    #[test]
    fn no_patch_nests_beyond_the_limit() {
        let nested = |levels: usize| (0..levels).fold(json!(1), |below, _| json!({"k": below}));
        let path = |levels: usize| "/k".repeat(levels);
        // The document itself has one level.
        let add = |levels| json!([{"op": "add", "path": "/a", "value": nested(levels)}]);
        assert!(check(json!({}), add(DEEPEST - 1)).is_ok());
        assert_eq!(check(json!({}), add(DEEPEST)), Err(422));
        // Values are nested step by step. Each value and each pointer is within the limit.
        let deepening: Vec<Value> = (0..1500)
            .flat_map(|_| {
                [
                    json!({"op": "add", "path": "/b", "value": nested(110)}),
                    json!({"op": "move", "from": "/a", "path": format!("/b{}", path(110))}),
                    json!({"op": "move", "from": "/b", "path": "/a"}),
                ]
            })
            .collect();
        assert_eq!(check(json!({"a": {}}), json!(deepening)), Err(422));
        let copying = json!([{"op": "copy", "from": "/a", "path": format!("/a{}", path(70))}]);
        assert_eq!(check(json!({"a": nested(70)}), copying), Err(422));
        assert_eq!(check(json!({}), json!([{"op": "test", "path": path(10_000), "value": null}])), Err(422));
        // Moving down and up repeatedly does not increase the depth.
        let moving: Vec<Value> = (0..200)
            .flat_map(|_| {
                [
                    json!({"op": "move", "from": "/a", "path": "/b/k/k/a"}),
                    json!({"op": "move", "from": "/b/k/k/a", "path": "/a"}),
                ]
            })
            .collect();
        assert!(check(json!({"a": {}, "b": nested(3)}), json!(moving)).is_ok());
    }

    #[test]
    fn the_work_of_a_patch_is_limited() {
        let list = json!({"l": vec![0; 100_000]});
        let fronts = |count: usize| Value::from(vec![json!({"op": "remove", "path": "/l/0"}); count]);
        assert!(check(list.clone(), fronts(100)).is_ok());
        assert_eq!(check(list.clone(), fronts(5000)), Err(413));
        // An insertion at the end moves nothing.
        let ends = Value::from(vec![json!({"op": "add", "path": "/l/-", "value": 0}); 5000]);
        assert!(check(list, ends).is_ok());
    }

    #[test]
    fn a_null_test_succeeds_on_a_missing_path() {
        let null_test = json!([{"op": "test", "path": "/metadata/finalizers", "value": null}]);
        assert!(check(json!({"metadata": {}}), null_test.clone()).is_ok());
        assert_eq!(check(json!({"metadata": {"finalizers": []}}), null_test), Err(422));
    }

    #[test]
    fn an_inapplicable_patch_is_unprocessable() {
        for patch in [
            json!([{"op": "test", "path": "/a", "value": 2}]),
            json!([{"op": "remove", "path": "/b"}]),
            json!([{"op": "replace", "path": "/l/0", "value": 1}]),
            json!([{"op": "add", "path": "/b/c", "value": 1}]),
            json!([{"op": "add", "path": "/l/7", "value": 1}]),
            json!([{"op": "move", "from": "/b", "path": "/a"}]),
        ] {
            assert_eq!(check(json!({"a": 1, "l": []}), patch.clone()), Err(422), "{patch}");
        }
    }
}
