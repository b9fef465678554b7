//! The Node of a container: what the provider writes instead of a cloud controller manager.

use k8s_openapi::api::core::v1::{Node, NodeAddress};
use machinist_api::capi::constants::CLOUD_TAINT;
use machinist_instance::ProviderId;
use serde_json::{Value, json};

/// The changes that a Node needs.
#[derive(Debug, Clone, PartialEq)]
pub enum NodeChange {
    /// None.
    None,
    /// The Node has another provider id, which cannot be changed.
    OtherId(String),
    /// JSON patches: of the status first, then of the spec. The taint is removed last, because it
    /// keeps pods away until the addresses are there.
    Patch {
        /// JSON patch of the subresource `status`; absent if nothing changes there.
        status: Option<Value>,
        /// JSON patch of the Node.
        spec: Value,
    },
}

/// Returns the changes that the Node of a container needs.
pub fn change(node: &Node, id: &ProviderId, addresses: &[String]) -> NodeChange {
    let spec = node.spec.clone().unwrap_or_default();
    let uid = node.metadata.uid.clone().unwrap_or_default();
    let guard = json!({"op": "test", "path": "/metadata/uid", "value": uid});
    let mut patch = vec![guard.clone()];
    match spec.provider_id.as_deref().filter(|recorded| !recorded.is_empty()) {
        Some(recorded) if recorded != id.as_str() => return NodeChange::OtherId(recorded.to_owned()),
        Some(_) => {}
        None => patch.push(json!({"op": "add", "path": "/spec/providerID", "value": id.as_str()})),
    }
    let taints = spec.taints.unwrap_or_default();
    let is_uninitialized = taints.iter().any(|taint| taint.key == CLOUD_TAINT);
    if is_uninitialized {
        let kept: Vec<_> = taints.iter().filter(|taint| taint.key != CLOUD_TAINT).collect();
        patch.push(json!({"op": "test", "path": "/spec/taints", "value": taints}));
        patch.push(json!({"op": "replace", "path": "/spec/taints", "value": kept}));
    }
    if patch.len() == 1 {
        return NodeChange::None;
    }
    let status = is_uninitialized.then(|| address_patch(node, guard, addresses)).flatten();
    NodeChange::Patch { status, spec: Value::Array(patch) }
}

/// Adds the missing internal addresses after those that the kubelet reported.
fn address_patch(node: &Node, guard: Value, addresses: &[String]) -> Option<Value> {
    let read = node.status.as_ref().and_then(|status| status.addresses.clone());
    let mut all: Vec<NodeAddress> = read.clone().unwrap_or_default();
    let before = all.len();
    for address in addresses {
        let is_known = all.iter().any(|known| known.type_ == "InternalIP" && known.address == *address);
        if !is_known {
            all.push(NodeAddress { type_: "InternalIP".to_owned(), address: address.clone() });
        }
    }
    (before < all.len()).then(|| {
        // The kubelet writes the addresses, too.
        let test = json!({"op": "test", "path": "/status/addresses", "value": read});
        json!([guard, test, {"op": "add", "path": "/status/addresses", "value": all}])
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(value: Value) -> Node {
        serde_json::from_value(value).expect("a Node")
    }

    fn id() -> ProviderId {
        ProviderId::parse("docker:////c-m").expect("not empty")
    }

    #[test]
    fn an_uninitialized_node_gets_addresses_id_and_no_taint() {
        let node = node(json!({
            "metadata": {"uid": "u"},
            "spec": {"taints": [
                {"key": CLOUD_TAINT, "effect": "NoSchedule"},
                {"key": "node-role.kubernetes.io/control-plane", "effect": "NoSchedule"},
            ]},
            "status": {"addresses": [{"type": "Hostname", "address": "c-m"}]},
        }));
        let NodeChange::Patch { status, spec } = change(&node, &id(), &["10.0.0.3".to_owned()]) else {
            panic!("a patch")
        };
        assert_eq!(spec[1], json!({"op": "add", "path": "/spec/providerID", "value": "docker:////c-m"}));
        assert_eq!(spec[3]["value"].as_array().map(Vec::len), Some(1));
        let status = status.expect("addresses");
        let read = json!([{"type": "Hostname", "address": "c-m"}]);
        assert_eq!(status[1], json!({"op": "test", "path": "/status/addresses", "value": read}));
        assert_eq!(status[2]["value"][1]["address"], "10.0.0.3");
    }

    #[test]
    fn a_node_with_the_id_needs_nothing() {
        let done = node(json!({"metadata": {"uid": "u"}, "spec": {"providerID": "docker:////c-m"}}));
        assert_eq!(change(&done, &id(), &[]), NodeChange::None);
        let other = node(json!({"metadata": {"uid": "u"}, "spec": {"providerID": "docker:////other"}}));
        assert_eq!(change(&other, &id(), &[]), NodeChange::OtherId("docker:////other".to_owned()));
    }
}
