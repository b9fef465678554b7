//! What a node writes must be its own affair (NodeRestriction): the authorizer sees only names, this sees the objects.

use serde_json::Value;

use crate::authz::{Authorization, node};
use crate::kinds::{Context, Part};
use crate::object::{self, meta_str};
use crate::status::{ApiError, ApiResult, Target};
use crate::store::mvcc::Key;

/// Labels in the namespaces of Kubernetes that a kubelet may set on its Node.
const KUBELET_LABELS: [&str; 11] = [
    "beta.kubernetes.io/arch",
    "beta.kubernetes.io/instance-type",
    "beta.kubernetes.io/os",
    "failure-domain.beta.kubernetes.io/region",
    "failure-domain.beta.kubernetes.io/zone",
    "kubernetes.io/arch",
    "kubernetes.io/hostname",
    "kubernetes.io/os",
    "node.kubernetes.io/instance-type",
    "topology.kubernetes.io/region",
    "topology.kubernetes.io/zone",
];
/// Namespaces of labels that are a kubelet's own.
const KUBELET_NAMESPACES: [&str; 2] = ["kubelet.kubernetes.io", "node.kubernetes.io"];

const MIRROR: &str = "kubernetes.io/config.mirror";

/// The node that writes, if it is one and nodes are held to anything here.
fn writer<'a>(context: &Context<'a>) -> Option<&'a str> {
    if context.core.config.authorization == Authorization::AlwaysAllow {
        return None;
    }
    node::name_of(context.identity)
}

fn forbidden(resource: &'static str, group: &str, name: &str, why: &str) -> ApiResult<()> {
    Err(ApiError::forbidden(&Target { group, resource, name }, why))
}

/// A Node that is made, or changed from `old`.
pub(crate) fn admit_node(context: &Context<'_>, new: &Value, old: Option<&Value>) -> ApiResult<()> {
    let Some(node) = writer(context) else { return Ok(()) };
    let name = meta_str(new, "name");
    let refuse = |why: String| forbidden("nodes", "", name, &why);
    if name != node {
        return refuse(format!("node \"{node}\" is not allowed to modify node \"{name}\""));
    }
    let field = |object: Option<&Value>, pointer: &str| {
        object.and_then(|it| it.pointer(pointer)).filter(|it| !is_empty(it)).cloned()
    };
    let differs = |pointer: &str| field(Some(new), pointer) != field(old, pointer);
    if field(Some(new), "/spec/configSource").is_some() && differs("/spec/configSource") {
        let what = if old.is_some() {
            "update configSource to a new non-nil configSource"
        } else {
            "create pods with a non-nil configSource"
        };
        return refuse(format!("node \"{node}\" is not allowed to {what}"));
    }
    if old.is_some() && differs("/spec/taints") {
        return refuse(format!("node \"{node}\" is not allowed to modify taints"));
    }
    if old.is_some() && differs("/metadata/ownerReferences") {
        return refuse(format!("node \"{node}\" is not allowed to modify ownerReferences"));
    }
    let labels = forbidden_labels(new, old);
    match (labels.is_empty(), old) {
        (true, _) => Ok(()),
        (false, None) => refuse(format!(
            "node \"{node}\" is not allowed to set the following labels: {}",
            labels.join(", ")
        )),
        (false, Some(_)) => refuse(format!("is not allowed to modify labels: {}", labels.join(", "))),
    }
}

fn is_empty(value: &Value) -> bool {
    value.is_null() || value.as_array().is_some_and(Vec::is_empty)
}

/// Labels that differ and are not a kubelet's to set, sorted.
fn forbidden_labels(new: &Value, old: Option<&Value>) -> Vec<String> {
    let of = |object: Option<&Value>| {
        object
            .and_then(|it| it.pointer("/metadata/labels"))
            .and_then(Value::as_object)
            .cloned()
            .unwrap_or_default()
    };
    let (new, old) = (of(Some(new)), of(old));
    let mut keys: Vec<String> =
        new.keys().chain(old.keys()).filter(|key| new.get(*key) != old.get(*key)).cloned().collect();
    keys.retain(|key| is_forbidden(key));
    keys.sort();
    keys.dedup();
    keys
}

fn is_forbidden(label: &str) -> bool {
    let namespace = label.split_once('/').map_or("", |(namespace, _)| namespace);
    let within = |of: &str| namespace == of || namespace.strip_suffix(of).is_some_and(|it| it.ends_with('.'));
    let reserved = within("kubernetes.io") || within("k8s.io");
    let allowed = KUBELET_LABELS.contains(&label) || KUBELET_NAMESPACES.iter().any(|of| within(of));
    within("node-restriction.kubernetes.io") || (reserved && !allowed)
}

/// A Pod that is made: nodes make only mirrors of what they run from files.
pub(crate) fn admit_new_pod(context: &Context<'_>, pod: &Value) -> ApiResult<()> {
    let Some(node) = writer(context) else { return Ok(()) };
    let refuse = |why: String| forbidden("pods", "", meta_str(pod, "name"), &why);
    let annotations = object::metadata(pod).and_then(|it| it.get("annotations"));
    if annotations.and_then(|it| it.get(MIRROR)).is_none() {
        return refuse(format!(
            "pod does not have \"{MIRROR}\" annotation, node \"{node}\" can only create mirror pods"
        ));
    }
    if pod.pointer("/spec/nodeName").is_none_or(|it| it != node) {
        return refuse(format!("node \"{node}\" can only create pods with spec.nodeName set to itself"));
    }
    Ok(())
}

/// A Pod whose status is written.
pub(crate) fn admit_pod_update(context: &Context<'_>, new: &Value, old: &Value, part: Part) -> ApiResult<()> {
    let Some(node) = writer(context).filter(|_| part == Part::Status) else { return Ok(()) };
    let refuse = |why: String| forbidden("pods", "", meta_str(old, "name"), &why);
    if old.pointer("/spec/nodeName").is_none_or(|it| it != node) {
        let what = "can only update pod status for pods with spec.nodeName set to itself";
        return refuse(format!("node \"{node}\" {what}"));
    }
    let labels = |object: &Value| object.pointer("/metadata/labels").filter(|it| !is_empty(it)).cloned();
    if labels(new) != labels(old) {
        return refuse(format!("node \"{node}\" cannot update labels through pod status"));
    }
    Ok(())
}

/// A Pod that is deleted.
pub(crate) fn admit_pod_delete(context: &Context<'_>, key: &Key, pod: &Target<'_>) -> ApiResult<()> {
    match writer(context) {
        Some(node) if is_elsewhere(context, key, node) => {
            let why = format!("node \"{node}\" can only delete pods with spec.nodeName set to itself");
            forbidden("pods", "", pod.name, &why)
        }
        Some(_) | None => Ok(()),
    }
}

/// A Pod that is evicted.
pub(crate) fn admit_eviction(context: &Context<'_>, key: &Key, name: &str) -> ApiResult<()> {
    match writer(context) {
        Some(node) if is_elsewhere(context, key, node) => {
            let why = format!("node {node} can only evict pods with spec.nodeName set to itself");
            forbidden("pods", "", name, &why)
        }
        Some(_) | None => Ok(()),
    }
}

/// Whether the Pod exists and is not on this node.
fn is_elsewhere(context: &Context<'_>, key: &Key, node: &str) -> bool {
    let pod = context.core.store.get("pods", key);
    pod.is_some_and(|pod| pod.value().pointer("/spec/nodeName").is_none_or(|it| it != node))
}

/// A Lease that is made or changed.
pub(crate) fn admit_lease(context: &Context<'_>, lease: &Value) -> ApiResult<()> {
    let Some(node) = writer(context) else { return Ok(()) };
    let name = meta_str(lease, "name");
    if meta_str(lease, "namespace") == node::LEASE_NAMESPACE && name == node {
        return Ok(());
    }
    let why = "can only access node lease with the same name as the requesting node";
    forbidden("leases", "coordination.k8s.io", name, why)
}

#[test]
fn a_kubelet_sets_its_own_labels_and_no_other_of_kubernetes() {
    for label in
        ["a", "example.org/a", "kubernetes.io/os", "node.kubernetes.io/x", "x.kubelet.kubernetes.io/y"]
    {
        assert!(!is_forbidden(label), "{label}");
    }
    for label in
        ["kubernetes.io/x", "node-role.kubernetes.io/x", "node-restriction.kubernetes.io/x", "a.k8s.io/x"]
    {
        assert!(is_forbidden(label), "{label}");
    }
    assert!(!is_forbidden("notkubernetes.io/x"));
}
