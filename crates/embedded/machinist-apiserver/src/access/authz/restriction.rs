//! NodeRestriction: limits the writes of a node to its own objects. The authorizer sees only names;
//! this module sees the objects.
//!
//! Not included: checks for kinds that are not served here (status of volume claims, CSINodes,
//! resource slices, certificate requests of Pods), and the audiences for which CSI drivers request
//! tokens. Pods have no projected token here, so a node may request a token for this server for
//! each of its Pods.

use serde_json::Value;

use crate::access::authz::attributes::{AskedVerb, Attributes};
use crate::access::authz::caller::Caller;
use crate::access::authz::{Authorization, node};
use crate::schema::kinds::Part;
use crate::schema::kinds::pod_references::{self as refers, MIRROR};
use crate::values::key::Key;
use crate::values::object::{Object, meta_str, metadata};
use crate::values::status::{ApiError, ApiResult, Target};
use crate::values::tls;

/// Labels in Kubernetes' own namespaces that a kubelet may set on its Node.
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
/// Label namespaces that belong to the kubelet.
const KUBELET_NAMESPACES: [&str; 2] = ["kubelet.kubernetes.io", "node.kubernetes.io"];

/// Signers of kubelet certificates.
const KUBELET_SIGNERS: [&str; 2] =
    ["kubernetes.io/kubelet-serving", "kubernetes.io/kube-apiserver-client-kubelet"];

/// Returns the node that sends the request, if the caller is a node and authorization is on.
fn writer<'a>(caller: &Caller<'a>) -> Option<&'a str> {
    if caller.authorizer.mode == Authorization::AlwaysAllow {
        return None;
    }
    node::name_of(caller.identity)
}

fn forbidden(resource: &'static str, group: &str, name: &str, why: &str) -> ApiResult<()> {
    Err(ApiError::forbidden(&Target { group, resource, name }, why))
}

/// Checks a Node that is created, or updated from `old`.
pub(crate) fn admit_node(caller: &Caller<'_>, new: &Value, old: Option<&Value>) -> ApiResult<()> {
    let Some(node) = writer(caller) else { return Ok(()) };
    let name = meta_str(new, "name");
    let refuse = |why: String| forbidden("nodes", "", name, &why);
    if name != node {
        return refuse(format!("node \"{node}\" is not allowed to modify node \"{name}\""));
    }
    let field = |object: Option<&Value>, pointer: &str| {
        object.and_then(|object| object.pointer(pointer)).filter(|value| !is_empty(value)).cloned()
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

/// Returns the changed labels that a kubelet may not set, sorted.
fn forbidden_labels(new: &Value, old: Option<&Value>) -> Vec<String> {
    let of = |object: Option<&Value>| {
        object
            .and_then(|object| object.pointer("/metadata/labels"))
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
    let within =
        |of: &str| namespace == of || namespace.strip_suffix(of).is_some_and(|parent| parent.ends_with('.'));
    let reserved = within("kubernetes.io") || within("k8s.io");
    let allowed = KUBELET_LABELS.contains(&label) || KUBELET_NAMESPACES.iter().any(|of| within(of));
    within("node-restriction.kubernetes.io") || (reserved && !allowed)
}

/// Checks the deletion of a Node.
pub(crate) fn admit_node_delete(caller: &Caller<'_>, name: &str) -> ApiResult<()> {
    match writer(caller) {
        Some(node) if node != name => {
            forbidden("nodes", "", name, &format!("node \"{node}\" is not allowed to modify node \"{name}\""))
        }
        Some(_) | None => Ok(()),
    }
}

/// Checks a new Pod. A node creates only mirrors of Pods that it runs from files. A mirror Pod must
/// not refer to objects that the node could then read.
pub(crate) fn admit_new_pod(caller: &Caller<'_>, pod: &Value) -> ApiResult<()> {
    let Some(node) = writer(caller) else { return Ok(()) };
    let refuse = |why: String| forbidden("pods", "", meta_str(pod, "name"), &why);
    if !refers::is_mirror(pod) {
        return refuse(format!(
            "pod does not have \"{MIRROR}\" annotation, node \"{node}\" can only create mirror pods"
        ));
    }
    if pod.pointer("/spec/nodeName").is_none_or(|named| named != node) {
        return refuse(format!("node \"{node}\" can only create pods with spec.nodeName set to itself"));
    }
    let owners = metadata(pod).and_then(|metadata| metadata.get("ownerReferences")).and_then(Value::as_array);
    let only = |what: &str| Err(format!("node \"{node}\" can only create pods with {what} set to itself"));
    let owned = match owners.map(Vec::as_slice).unwrap_or_default() {
        [] => only("an owner reference"),
        [owner] if owner["apiVersion"] != "v1" || owner["kind"] != "Node" || owner["name"] != node => {
            only("an owner reference")
        }
        [owner] if owner["controller"] != true => only("a controller owner reference"),
        [owner] if owner["blockOwnerDeletion"] == true => {
            Err(format!("node \"{node}\" must not set blockOwnerDeletion on an owner reference"))
        }
        [owner] => {
            let held = caller.authorizer.store.get("nodes", &Key::new("", node));
            let target = Target { group: "", resource: "nodes", name: node };
            let held = held.ok_or_else(|| ApiError::not_found(&target))?;
            let claimed = owner["uid"].as_str().unwrap_or_default();
            if claimed == held.uid() {
                Ok(())
            } else {
                Err(format!("node {node} UID mismatch: expected {claimed} got {}", held.uid()))
            }
        }
        [_, _, ..] => only("a single owner reference"),
    };
    if let Err(why) = owned {
        return refuse(why);
    }
    match refers::of_the_api(pod) {
        Some(what) => refuse(format!("node \"{node}\" can not create pods that reference {what}")),
        None => Ok(()),
    }
}

/// Checks a Pod update. A node writes only the status, and of the status only the fields that
/// belong to the kubelet.
pub(crate) fn admit_pod_update(caller: &Caller<'_>, new: &Value, old: &Value, part: Part) -> ApiResult<()> {
    let Some(node) = writer(caller) else { return Ok(()) };
    let refuse = |why: String| forbidden("pods", "", meta_str(old, "name"), &why);
    if part != Part::Status {
        let what = "can only create and delete mirror pods";
        return refuse(format!("unexpected operation \"UPDATE\", node \"{node}\" {what}"));
    }
    if old.pointer("/spec/nodeName").is_none_or(|named| named != node) {
        let what = "can only update pod status for pods with spec.nodeName set to itself";
        return refuse(format!("node \"{node}\" {what}"));
    }
    let differs = |place: &str| {
        let held = |object: &Value| object.pointer(place).filter(|value| !is_empty(value)).cloned();
        held(new) != held(old)
    };
    if differs("/metadata/labels") {
        return refuse(format!("node \"{node}\" cannot update labels through pod status"));
    }
    if differs("/status/resourceClaimStatuses") {
        return refuse(format!("node \"{node}\" cannot update resource claim statues"));
    }
    if differs("/status/extendedResourceClaimStatus") {
        return refuse(format!("node \"{node}\" cannot update extended resource claim status"));
    }
    Ok(())
}

/// Checks the deletion of a Pod.
pub(crate) fn admit_pod_delete(caller: &Caller<'_>, key: &Key, name: &str) -> ApiResult<()> {
    let Some(node) = writer(caller) else { return Ok(()) };
    let missing = Target { group: "", resource: "pods", name };
    if is_elsewhere(caller, key, &missing, node)? {
        let why = format!("node \"{node}\" can only delete pods with spec.nodeName set to itself");
        return forbidden("pods", "", name, &why);
    }
    Ok(())
}

/// Checks the binding of a Pod.
pub(crate) fn admit_binding(caller: &Caller<'_>, name: &str) -> ApiResult<()> {
    match writer(caller) {
        Some(_) => {
            let why = "unexpected pod subresource \"binding\", only 'status' and 'eviction' are allowed";
            forbidden("pods", "", name, why)
        }
        None => Ok(()),
    }
}

/// Checks the eviction of a Pod.
pub(crate) fn admit_eviction(caller: &Caller<'_>, key: &Key, name: &str) -> ApiResult<()> {
    let Some(node) = writer(caller) else { return Ok(()) };
    let missing = Target { group: "", resource: "pod", name };
    if is_elsewhere(caller, key, &missing, node)? {
        let why = format!("node {node} can only evict pods with spec.nodeName set to itself");
        return forbidden("pods", "", name, &why);
    }
    Ok(())
}

/// Whether the Pod is not on this node. Returns a 404 for `missing` if the Pod does not exist.
fn is_elsewhere(caller: &Caller<'_>, key: &Key, missing: &Target<'_>, node: &str) -> ApiResult<bool> {
    let pod = caller.authorizer.store.get("pods", key).ok_or_else(|| ApiError::not_found(missing))?;
    Ok(!is_on(&pod, node))
}

fn is_on(pod: &Object, node: &str) -> bool {
    pod.value().pointer("/spec/nodeName").is_some_and(|named| named == node)
}

/// Checks a token request for a ServiceAccount. A node's token must be bound to a Pod on that node.
pub(crate) fn admit_token(
    caller: &Caller<'_>,
    namespace: &str,
    account: &str,
    asked: &Value,
) -> ApiResult<()> {
    let Some(node) = writer(caller) else { return Ok(()) };
    let refuse = |why: &str| forbidden("serviceaccounts", "", account, why);
    let bound = |field: &str| {
        let value = asked.pointer("/spec/boundObjectRef").and_then(|reference| reference.get(field));
        value.and_then(Value::as_str).unwrap_or_default()
    };
    let (name, uid) = (bound("name"), bound("uid"));
    if bound("apiVersion") != "v1" || bound("kind") != "Pod" || name.is_empty() {
        return refuse("node requested token not bound to a pod");
    }
    if uid.is_empty() {
        return refuse("node requested token with a pod binding without a uid");
    }
    let pod = caller.authorizer.store.get_shown("pods", &Key::new(namespace, name));
    let pod = pod.ok_or_else(|| ApiError::not_found(&Target { group: "", resource: "pod", name }))?;
    if uid != pod.uid() {
        return refuse(&format!(
            "the UID in the bound object reference ({uid}) does not match the UID in record. The object might have been deleted and then recreated"
        ));
    }
    if !is_on(&pod, node) {
        return refuse("node requested token bound to a pod scheduled on a different node");
    }
    let audiences = asked.pointer("/spec/audiences").and_then(Value::as_array);
    let audience = match audiences.map(Vec::as_slice).unwrap_or_default() {
        [] => return Ok(()),
        [one] => one.as_str().unwrap_or_default(),
        [_, _, ..] => return refuse("node may only request 0 or 1 audiences"),
    };
    let may_ask = Attributes {
        verb: AskedVerb::Other("request-serviceaccounts-token-audience".into()),
        resource: audience.to_owned(),
        namespace: namespace.to_owned(),
        name: account.to_owned(),
        ..Attributes::default()
    };
    if refers::audiences(pod.value()).contains(&audience) || caller.may(&may_ask) {
        return Ok(());
    }
    let user = &caller.identity.user;
    refuse(&format!(
        "audience \"{audience}\" not found in pod spec volume, {user} is not authorized to request tokens for this audience"
    ))
}

/// Checks a certificate request. A node may request a certificate only for its own name.
pub(crate) fn admit_certificate_request(caller: &Caller<'_>, object: &Value) -> ApiResult<()> {
    let Some(node) = writer(caller) else { return Ok(()) };
    let spec = |field: &str| object["spec"][field].as_str().unwrap_or_default();
    if !KUBELET_SIGNERS.contains(&spec("signerName")) {
        return Ok(());
    }
    let refuse = |why: String| {
        forbidden("certificatesigningrequests", "certificates.k8s.io", meta_str(object, "name"), &why)
    };
    match tls::Requested::parse(spec("request")) {
        Err(why) => refuse(format!("unable to parse csr: {why}")),
        Ok(requested) if requested.common_name == format!("system:node:{node}") => Ok(()),
        Ok(_) => refuse(format!("can only create a node CSR with CN=system:node:{node}")),
    }
}

/// Checks a Lease that is created, updated or deleted.
pub(crate) fn admit_lease(caller: &Caller<'_>, namespace: &str, name: &str) -> ApiResult<()> {
    let Some(node) = writer(caller) else { return Ok(()) };
    let refuse = |why: &str| forbidden("leases", "coordination.k8s.io", name, why);
    if namespace != node::LEASE_NAMESPACE {
        return refuse(&format!(
            "can only access leases in the \"{}\" system namespace",
            node::LEASE_NAMESPACE
        ));
    }
    if name != node {
        return refuse("can only access node lease with the same name as the requesting node");
    }
    Ok(())
}

#[test]
fn a_kubelet_may_set_only_its_own_reserved_labels() {
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
