//! The location labels of a node, which its Pods carry too (PodTopologyLabels).

use serde_json::{Map, Value};

use crate::store::mvcc::Store;
use crate::values::key::Key;
use crate::values::object::{labels, metadata_mut};

const PLACES: [&str; 2] = ["topology.kubernetes.io/zone", "topology.kubernetes.io/region"];

/// Returns the location labels of a node; none if the node does not exist.
pub(crate) fn of_node(store: &Store, node: &str) -> Map<String, Value> {
    let Some(node) = store.get("nodes", &Key::new("", node)) else { return Map::new() };
    let held = labels(node.value()).into_iter().flatten();
    held.filter(|(key, _)| PLACES.contains(&key.as_str())).map(|(k, v)| (k.clone(), v.clone())).collect()
}

/// Copies the location labels of its node to a Pod that has a node name. Replaces the Pod's own
/// values.
pub(crate) fn place(pod: &mut Value, store: &Store) {
    let Some(node) = pod.pointer("/spec/nodeName").and_then(Value::as_str).filter(|name| !name.is_empty())
    else {
        return;
    };
    let places = of_node(store, node);
    if places.is_empty() {
        return;
    }
    let metadata = metadata_mut(pod);
    let held = metadata.entry("labels").or_insert_with(|| Value::Object(Map::new()));
    if let Some(held) = held.as_object_mut() {
        held.extend(places);
    }
}
