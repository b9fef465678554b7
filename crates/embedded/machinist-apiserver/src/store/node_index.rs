//! The pods of each Node.
//!
//! Kubelets and drains list the pods of one Node. Without an index, each such list would read every
//! pod of the cluster.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde_json::Value;

use crate::values::key::Key;

/// The collection that has the index.
pub(crate) const INDEXED: &str = "pods";

/// The keys of the objects that have had each `spec.nodeName` in a kept version. The reader checks
/// the version that it reads. Objects without a Node are not in the index.
#[derive(Debug, Default)]
pub(crate) struct NodeIndex {
    keys: BTreeMap<Arc<str>, BTreeSet<Key>>,
    nodes: BTreeMap<Key, Vec<Arc<str>>>,
}

impl NodeIndex {
    pub(crate) fn add(&mut self, key: &Key, object: &Value) {
        let node = node_name(object);
        if node.is_empty() || self.nodes.get(key).is_some_and(|nodes| nodes.iter().any(|n| **n == *node)) {
            return;
        }
        let node: Arc<str> = node.into();
        self.nodes.entry(key.clone()).or_default().push(node.clone());
        self.keys.entry(node).or_default().insert(key.clone());
    }

    /// Removes an object of which no version is kept.
    pub(crate) fn remove(&mut self, key: &Key) {
        for node in self.nodes.remove(key).into_iter().flatten() {
            let Some(keys) = self.keys.get_mut(&node) else { continue };
            keys.remove(key);
            if keys.is_empty() {
                self.keys.remove(&node);
            }
        }
    }

    /// Returns the keys of the objects of a Node, in order.
    pub(crate) fn of_node(&self, node: &str) -> impl Iterator<Item = &Key> {
        self.keys.get(node).into_iter().flatten()
    }
}

pub(crate) fn node_name(object: &Value) -> &str {
    object.pointer("/spec/nodeName").and_then(Value::as_str).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_index_holds_the_objects_of_each_node() {
        let mut index = NodeIndex::default();
        let keys = ["ns/a", "ns/b", "ns/c"].map(Key::from_text);
        for (key, node) in [(1, "n-1"), (0, "n-1"), (0, "n-2"), (0, "n-1"), (2, "")] {
            index.add(&keys[key], &json!({"spec": {"nodeName": node}}));
        }
        let of = |index: &NodeIndex, node| index.of_node(node).map(Key::to_string).collect::<Vec<_>>();
        assert_eq!(of(&index, "n-1"), ["ns/a", "ns/b"]);
        assert_eq!(of(&index, "n-2"), ["ns/a"]);
        assert_eq!(of(&index, ""), [""; 0]);
        index.remove(&keys[0]);
        assert_eq!(of(&index, "n-1"), ["ns/b"]);
        assert_eq!(of(&index, "n-2"), [""; 0]);
        index.remove(&keys[1]);
        assert!(index.keys.is_empty() && index.nodes.is_empty(), "{index:?}");
    }
}
