//! JSON patches that carry their precondition.
//!
//! A patch first tests the object's UID and exactly the fields that the decision read, with the
//! values that were read. Then it changes fields. If a test fails, the API server answers 422
//! without causes: [`WriteOutcome::Stale`](crate::WriteOutcome::Stale).
//!
//! Absent and `""` differ: `None` tests that a field is absent. For a `test` for `null` on a
//! missing member, the API server answers "success" if the object around the member exists, and an
//! error if that object is missing too. A caller that tests or adds below a map that may be missing
//! therefore calls [`GuardedPatch::ensure_map`]. The helpers for labels, annotations and finalizers
//! need no such call.
//!
//! The path of a field is a list of plain tokens, so a caller does not have to know how JSON
//! pointers escape a `/`.

use std::collections::{BTreeMap, BTreeSet};

use json_patch::jsonptr::PointerBuf;
use json_patch::{AddOperation, Patch, PatchOperation, RemoveOperation, ReplaceOperation, TestOperation};
use machinist_labels::TextMap;
use serde_json::Value;

/// Changes of a map of strings: values to set, and keys to remove (`None`).
type MapChanges = BTreeMap<String, Option<String>>;

const LABELS: [&str; 2] = ["metadata", "labels"];
const ANNOTATIONS: [&str; 2] = ["metadata", "annotations"];
const FINALIZERS: [&str; 2] = ["metadata", "finalizers"];

/// A JSON patch under construction. The tests precede the changes, independent of the order of the
/// calls.
///
/// ```
/// use std::collections::BTreeMap;
/// use machinist_kube::GuardedPatch;
/// use serde_json::json;
///
/// let labels = BTreeMap::from([("pool".to_owned(), "a".to_owned())]);
/// let patch = GuardedPatch::new("uid-1").set_label(Some(&labels), "pool", "b");
/// assert_eq!(
///     serde_json::to_value(patch.build())?,
///     json!([
///         {"op": "test", "path": "/metadata/uid", "value": "uid-1"},
///         {"op": "test", "path": "/metadata/labels/pool", "value": "a"},
///         {"op": "add", "path": "/metadata/labels/pool", "value": "b"},
///     ])
/// );
///
/// // A finalizer that is there already needs no write.
/// let finalizers = ["example.com/a".to_owned()];
/// let patch = GuardedPatch::new("uid-1").add_finalizer(Some(&finalizers), "example.com/a");
/// assert!(patch.is_empty());
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct GuardedPatch {
    tests: Vec<PatchOperation>,
    changes: Vec<PatchOperation>,
    /// Maps that this patch creates.
    created: BTreeSet<String>,
}

impl GuardedPatch {
    /// A patch that applies only to the object with this UID.
    pub fn new(uid: &str) -> Self {
        let nothing = Self { tests: Vec::new(), changes: Vec::new(), created: BTreeSet::new() };
        nothing.test(&["metadata", "uid"], Some(&Value::from(uid)))
    }

    /// Makes the patch fail if the field no longer has the value that was read. `None` means
    /// absent.
    #[must_use]
    pub fn test(mut self, path: &[&str], read: Option<&Value>) -> Self {
        let value = read.cloned().unwrap_or(Value::Null);
        let test = PatchOperation::Test(TestOperation { path: pointer(path), value });
        if !self.tests.contains(&test) {
            self.tests.push(test);
        }
        self
    }

    /// Makes the patch fail if the generation, and thus the spec, has changed since it was read.
    #[must_use]
    pub fn test_generation(self, read: Option<i64>) -> Self {
        self.test(&["metadata", "generation"], read.map(Value::from).as_ref())
    }

    /// Sets a field, whether or not it exists. The object around the field must exist.
    #[must_use]
    pub fn add(mut self, path: &[&str], value: Value) -> Self {
        self.changes.push(PatchOperation::Add(AddOperation { path: pointer(path), value }));
        self
    }

    /// Replaces a field that exists.
    #[must_use]
    pub fn replace(mut self, path: &[&str], value: Value) -> Self {
        self.changes.push(PatchOperation::Replace(ReplaceOperation { path: pointer(path), value }));
        self
    }

    /// Removes a field that exists.
    #[must_use]
    pub fn remove(mut self, path: &[&str]) -> Self {
        self.changes.push(PatchOperation::Remove(RemoveOperation { path: pointer(path) }));
        self
    }

    /// Creates an empty map at `path` if the map was absent when read. The patch fails if the map
    /// exists by then.
    #[must_use]
    pub fn ensure_map<T>(self, path: &[&str], read: Option<&T>) -> Self {
        let key = pointer(path).to_string();
        if read.is_some() || self.created.contains(&key) {
            return self;
        }
        let mut patch = self.test(path, None).add(path, Value::Object(serde_json::Map::new()));
        patch.created.insert(key);
        patch
    }

    /// Sets a label if the label has not changed since it was read. `read` is the whole map of
    /// labels that was read.
    #[must_use]
    pub fn set_label(self, read: Option<&impl TextMap>, key: &str, value: &str) -> Self {
        self.set_map_entry(&LABELS, read, key, value)
    }

    /// Removes a label if the label has not changed since it was read.
    #[must_use]
    pub fn remove_label(self, read: Option<&impl TextMap>, key: &str) -> Self {
        self.remove_map_entry(&LABELS, read, key)
    }

    /// Sets an annotation if the annotation has not changed since it was read.
    #[must_use]
    pub fn set_annotation(self, read: Option<&impl TextMap>, key: &str, value: &str) -> Self {
        self.set_map_entry(&ANNOTATIONS, read, key, value)
    }

    /// Removes an annotation if the annotation has not changed since it was read.
    #[must_use]
    pub fn remove_annotation(self, read: Option<&impl TextMap>, key: &str) -> Self {
        self.remove_map_entry(&ANNOTATIONS, read, key)
    }

    /// Sets and removes labels (`None`) if they have not changed since they were read.
    #[must_use]
    pub fn change_labels(self, read: Option<&impl TextMap>, changes: &MapChanges) -> Self {
        self.change_map(&LABELS, read, changes)
    }

    /// Sets and removes annotations (`None`) if they have not changed since they were read.
    #[must_use]
    pub fn change_annotations(self, read: Option<&impl TextMap>, changes: &MapChanges) -> Self {
        self.change_map(&ANNOTATIONS, read, changes)
    }

    fn change_map(self, map: &[&str], read: Option<&impl TextMap>, changes: &MapChanges) -> Self {
        changes.iter().fold(self, |patch, (key, value)| match value {
            Some(value) => patch.set_map_entry(map, read, key, value),
            None => patch.remove_map_entry(map, read, key),
        })
    }

    /// Sets one entry of a map of strings if the entry has not changed since it was read.
    #[must_use]
    pub fn set_map_entry(self, map: &[&str], read: Option<&impl TextMap>, key: &str, value: &str) -> Self {
        let entry = [map, &[key]].concat();
        let patch = match read {
            Some(read) => self.test(&entry, read.value(key).map(Value::from).as_ref()),
            None => self.ensure_map(map, read),
        };
        patch.add(&entry, Value::from(value))
    }

    /// Removes one entry of a map of strings if the entry has not changed since it was read.
    /// Without that entry in `read`, adds nothing to the patch.
    #[must_use]
    pub fn remove_map_entry(self, map: &[&str], read: Option<&impl TextMap>, key: &str) -> Self {
        let Some(old) = read.and_then(|read| read.value(key)) else { return self };
        let entry = [map, &[key]].concat();
        self.test(&entry, Some(&Value::from(old))).remove(&entry)
    }

    /// Adds a finalizer if the list has not changed since it was read. If `read` contains the
    /// finalizer, adds nothing to the patch.
    #[must_use]
    pub fn add_finalizer(self, read: Option<&[String]>, name: &str) -> Self {
        let old = read.unwrap_or_default();
        if old.iter().any(|finalizer| finalizer == name) {
            return self;
        }
        let new: Vec<&str> = old.iter().map(String::as_str).chain([name]).collect();
        self.test(&FINALIZERS, read.map(Value::from).as_ref()).add(&FINALIZERS, Value::from(new))
    }

    /// Removes a finalizer if the list has not changed since it was read. If `read` lacks the
    /// finalizer, adds nothing to the patch.
    #[must_use]
    pub fn remove_finalizer(self, read: Option<&[String]>, name: &str) -> Self {
        let old = read.unwrap_or_default();
        if old.iter().all(|finalizer| finalizer != name) {
            return self;
        }
        let new: Vec<&str> = old.iter().map(String::as_str).filter(|finalizer| *finalizer != name).collect();
        self.test(&FINALIZERS, read.map(Value::from).as_ref()).add(&FINALIZERS, Value::from(new))
    }

    /// True if the patch changes nothing, so that no request is necessary.
    pub fn is_empty(&self) -> bool {
        self.changes.is_empty()
    }

    /// The finished patch: all tests, then all changes.
    pub fn build(self) -> Patch {
        Patch(self.tests.into_iter().chain(self.changes).collect())
    }

    /// The finished patch in the type that `kube::Api::patch` takes.
    pub fn into_kube(self) -> kube::api::Patch<serde_json::Value> {
        kube::api::Patch::Json(self.build())
    }
}

fn pointer(path: &[&str]) -> PointerBuf {
    PointerBuf::from_tokens(path.iter().copied())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn wire(patch: GuardedPatch) -> Value {
        serde_json::to_value(patch.build()).expect("a patch is JSON")
    }

    /// No map of labels or annotations.
    const ABSENT: Option<&BTreeMap<String, String>> = None;

    fn map(entries: &[(&str, &str)]) -> BTreeMap<String, String> {
        entries.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect()
    }

    #[test]
    fn absent_and_empty_need_different_tests() {
        let patch = GuardedPatch::new("u1")
            .test(&["spec", "a"], None)
            .test(&["spec", "b"], Some(&json!("")))
            .replace(&["spec", "b"], json!("x"));
        assert_eq!(
            wire(patch),
            json!([
                { "op": "test", "path": "/metadata/uid", "value": "u1" },
                { "op": "test", "path": "/spec/a", "value": null },
                { "op": "test", "path": "/spec/b", "value": "" },
                { "op": "replace", "path": "/spec/b", "value": "x" },
            ])
        );
    }

    #[test]
    fn keys_with_slashes_and_tildes_are_escaped() {
        let read = map(&[("a.io/x~y", "1")]);
        let patch = GuardedPatch::new("u1").set_label(Some(&read), "a.io/x~y", "2");
        assert_eq!(
            wire(patch)[1],
            json!({ "op": "test", "path": "/metadata/labels/a.io~1x~0y", "value": "1" })
        );
    }

    #[test]
    fn a_missing_map_is_created_once_and_only_while_it_is_missing() {
        let patch = GuardedPatch::new("u1").set_annotation(ABSENT, "a", "1").set_annotation(ABSENT, "b", "2");
        assert_eq!(
            wire(patch),
            json!([
                { "op": "test", "path": "/metadata/uid", "value": "u1" },
                { "op": "test", "path": "/metadata/annotations", "value": null },
                { "op": "add", "path": "/metadata/annotations", "value": {} },
                { "op": "add", "path": "/metadata/annotations/a", "value": "1" },
                { "op": "add", "path": "/metadata/annotations/b", "value": "2" },
            ])
        );
    }

    #[test]
    fn an_empty_map_is_not_a_missing_one() {
        let patch = GuardedPatch::new("u1").set_annotation(Some(&map(&[])), "a", "1");
        let expected = json!([
            { "op": "test", "path": "/metadata/uid", "value": "u1" },
            { "op": "test", "path": "/metadata/annotations/a", "value": null },
            { "op": "add", "path": "/metadata/annotations/a", "value": "1" },
        ]);
        assert_eq!(wire(patch), expected);
    }

    #[test]
    fn finalizers_are_guarded_by_the_whole_list() {
        let read = ["x".to_owned(), "ours".to_owned()];
        let patch = GuardedPatch::new("u1").remove_finalizer(Some(&read), "ours");
        assert_eq!(
            wire(patch),
            json!([
                { "op": "test", "path": "/metadata/uid", "value": "u1" },
                { "op": "test", "path": "/metadata/finalizers", "value": ["x", "ours"] },
                { "op": "add", "path": "/metadata/finalizers", "value": ["x"] },
            ])
        );
        assert!(GuardedPatch::new("u1").add_finalizer(Some(&read), "ours").is_empty());
        assert!(GuardedPatch::new("u1").remove_finalizer(None, "ours").is_empty());
    }

    #[test]
    fn removing_a_missing_label_changes_nothing() {
        assert!(GuardedPatch::new("u1").remove_label(ABSENT, "a").is_empty());
        assert!(GuardedPatch::new("u1").remove_label(Some(&map(&[("b", "1")])), "a").is_empty());
    }
}
