//! Where a node is, said by labels that its pods carry too (PodTopologyLabels).

use serde_json::{Map, Value};

use crate::store::key::Key;
use crate::store::mvcc::Store;
use crate::values::object::{labels, metadata_mut};

const PLACES: [&str; 2] = ["topology.kubernetes.io/zone", "topology.kubernetes.io/region"];

/// The labels that say where a node is; none of a node that is not known.
pub(crate) fn of_node(store: &Store, node: &str) -> Map<String, Value> {
    let Some(node) = store.get("nodes", &Key::new("", node)) else { return Map::new() };
    let held = labels(node.value()).into_iter().flatten();
    held.filter(|(key, _)| PLACES.contains(&key.as_str())).map(|(k, v)| (k.clone(), v.clone())).collect()
}

/// Gives a pod that comes with its node the node's place, whatever it says itself.
pub(crate) fn place(pod: &mut Value, store: &Store) {
    let Some(node) = pod.pointer("/spec/nodeName").and_then(Value::as_str).filter(|it| !it.is_empty()) else {
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
