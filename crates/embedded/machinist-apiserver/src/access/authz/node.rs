//! Node authorization: a node may access its own Node and Lease, the Pods bound to it, and the
//! objects that those Pods use.
//!
//! kube-apiserver keeps a graph of these references. This module instead looks at the node's Pods
//! in the requested namespace. A mirror Pod, which represents a Pod that the node runs from a file,
//! grants no access, because the node wrote it itself.
//!
//! Not included: volumes, attachments, resource claims and resource slices. The server does not
//! know which node uses them, so no node may get them.

use crate::access::authz::attributes::Attributes;
use crate::access::authz::decision::Decision;
use crate::access::authz::roles;
use crate::schema::kinds::pod_references as refers;
use crate::store::mvcc::Store;
use crate::store::watch::Interest;
use crate::values::identity::Identity;
use crate::values::key::Key;
use crate::values::object::Object;
use crate::values::route::Verb;

/// Namespace of the Leases that serve as node heartbeats.
pub(super) const LEASE_NAMESPACE: &str = "kube-node-lease";

/// Returns the name of the node if the user is a node.
pub(crate) fn name_of(user: &Identity) -> Option<&str> {
    let in_group = user.groups.iter().any(|group| group == "system:nodes");
    user.user.strip_prefix("system:node:").filter(|name| in_group && !name.is_empty())
}

pub(super) fn decide(store: &Store, user: &Identity, asked: &Attributes) -> Decision {
    let Some(node) = name_of(user).filter(|_| asked.path.is_none()) else { return Decision::default() };
    let verdict = match (asked.group.as_str(), asked.resource.as_str()) {
        ("", "secrets" | "configmaps") => readable(store, node, asked),
        ("", "persistentvolumeclaims") if asked.subresource == "status" => claim_status(store, node, asked),
        ("", "persistentvolumeclaims" | "persistentvolumes")
        | ("storage.k8s.io", "volumeattachments")
        | ("resource.k8s.io", "resourceclaims") => gettable(store, node, asked),
        ("", "serviceaccounts") => account(store, node, asked),
        ("", "nodes") => own_node(node, asked),
        ("", "pods") => own_pods(store, node, asked),
        ("coordination.k8s.io", "leases") => own_lease(node, asked),
        ("storage.k8s.io", "csinodes") => own_csi_node(node, asked),
        ("resource.k8s.io", "resourceslices") => own_slices(store, node, asked),
        ("certificates.k8s.io", "podcertificaterequests") => refuse(""),
        _ => general(asked),
    };
    match verdict {
        Ok(()) => Decision { allowed: true, reason: String::new() },
        Err(reason) => Decision { allowed: false, reason },
    }
}

/// The error is the reason, empty if there is nothing to say.
type Verdict = Result<(), String>;

fn refuse(why: &str) -> Verdict {
    Err(why.to_owned())
}

/// Checks the permissions that every node has.
fn general(asked: &Attributes) -> Verdict {
    let allows = roles::of_nodes().iter().any(|rule| rule.allows(asked));
    if allows { Ok(()) } else { Err(String::new()) }
}

fn readable(store: &Store, node: &str, asked: &Attributes) -> Verdict {
    if !asked.verb.of_request().is_some_and(Verb::is_read) {
        return refuse("can only read resources of this type");
    }
    if !asked.subresource.is_empty() {
        return refuse("cannot read subresource");
    }
    if asked.namespace.is_empty() {
        return refuse("can only read namespaced object of this type");
    }
    related(store, node, asked)
}

/// Allows only `get` of a single object.
fn gettable(store: &Store, node: &str, asked: &Attributes) -> Verdict {
    if asked.verb != Verb::Get.into() {
        return refuse("can only get individual resources of this type");
    }
    if !asked.subresource.is_empty() {
        return refuse("cannot get subresource");
    }
    related(store, node, asked)
}

fn claim_status(store: &Store, node: &str, asked: &Attributes) -> Verdict {
    match asked.verb.of_request() {
        Some(Verb::Update | Verb::Patch) => related(store, node, asked),
        Some(Verb::Get | Verb::List | Verb::Watch | Verb::Create | Verb::Delete | Verb::DeleteCollection)
        | None => refuse("can only get/update/patch this type"),
    }
}

/// Allows a node to get the ServiceAccount of its Pods and to request tokens for it. `restriction`
/// checks the Pod to which the token is bound.
fn account(store: &Store, node: &str, asked: &Attributes) -> Verdict {
    if asked.verb == Verb::Get.into() && asked.subresource.is_empty() {
        return readable(store, node, asked);
    }
    if asked.verb != Verb::Create.into() || asked.name.is_empty() {
        return refuse("can only create tokens for individual service accounts");
    }
    if asked.subresource != "token" {
        return refuse("can only create token subresource of serviceaccount");
    }
    related(store, node, asked)
}

fn related(store: &Store, node: &str, asked: &Attributes) -> Verdict {
    if asked.name.is_empty() {
        return refuse("No Object name found");
    }
    let of_node =
        Interest { prefix: format!("{}/", asked.namespace), name: None, node_name: Some(node.to_owned()) };
    let slice = store.slice_covered("pods", &of_node, None, None);
    let pods = slice.map(|s| s.items).unwrap_or_default();
    let uses = pods.iter().any(|(_, pod)| runs(node, pod) && pod_uses(pod, &asked.resource, &asked.name));
    if uses { Ok(()) } else { unrelated(node) }
}

fn unrelated(node: &str) -> Verdict {
    Err(format!("no relationship found between node '{node}' and this object"))
}

fn runs(node: &str, pod: &Object) -> bool {
    pod.glance()["spec"]["nodeName"] == node
}

fn pod_uses(pod: &Object, resource: &str, name: &str) -> bool {
    let pod = pod.glance();
    if refers::is_mirror(&pod) {
        return false;
    }
    match resource {
        "serviceaccounts" => refers::account(&pod) == name,
        "secrets" => refers::secrets(&pod).contains(&name),
        "configmaps" => refers::config_maps(&pod).contains(&name),
        "persistentvolumeclaims" => refers::claims(&pod).iter().any(|claim| claim == name),
        _ => false,
    }
}

fn own_node(node: &str, asked: &Attributes) -> Verdict {
    let Some(verb) = asked.verb.of_request() else { return refuse("") };
    let subresource = asked.subresource.as_str();
    let may = match verb {
        // `restriction` checks that a node writes only its own Node.
        Verb::Create => subresource.is_empty(),
        Verb::Update | Verb::Patch => matches!(subresource, "" | "status"),
        Verb::Get | Verb::List | Verb::Watch if subresource.is_empty() => {
            return own_node_read(node, &asked.name);
        }
        Verb::Get | Verb::List | Verb::Watch | Verb::Delete | Verb::DeleteCollection => false,
    };
    if may { Ok(()) } else { refuse("") }
}

/// Allows a node to read its own Node. The name is empty if the request reads all Nodes.
fn own_node_read(node: &str, name: &str) -> Verdict {
    if name == node {
        Ok(())
    } else if name.is_empty() {
        Err(format!("node '{node}' cannot read all nodes, only its own Node object"))
    } else {
        Err(format!("node '{node}' cannot read '{name}', only its own Node object"))
    }
}

fn own_pods(store: &Store, node: &str, asked: &Attributes) -> Verdict {
    let Some(verb) = asked.verb.of_request() else { return refuse("") };
    let subresource = asked.subresource.as_str();
    let may = match verb {
        Verb::Get | Verb::List | Verb::Watch if subresource.is_empty() => {
            return own_pods_read(store, node, verb, asked);
        }
        // `restriction` checks that a node writes only its own Pods.
        Verb::Create => matches!(subresource, "" | "eviction"),
        Verb::Update | Verb::Patch => subresource == "status",
        Verb::Delete => subresource.is_empty(),
        Verb::Get | Verb::List | Verb::Watch | Verb::DeleteCollection => false,
    };
    if may { Ok(()) } else { refuse("") }
}

/// Allows a node to read a Pod that it runs, and to list and watch the Pods that it runs.
fn own_pods_read(store: &Store, node: &str, verb: Verb, asked: &Attributes) -> Verdict {
    if verb != Verb::Get {
        if asked.selected_node.as_deref() == Some(node) {
            return Ok(());
        }
        if asked.name.is_empty() {
            return refuse("can only list/watch pods with spec.nodeName field selector");
        }
    }
    let pod = store.get_shown("pods", &Key::new(&asked.namespace, &asked.name));
    if pod.is_some_and(|pod| runs(node, &pod)) { Ok(()) } else { unrelated(node) }
}

/// Whether a request with this verb names at most one object.
fn is_on_one_object(verb: Verb) -> bool {
    match verb {
        Verb::Get | Verb::Create | Verb::Update | Verb::Patch | Verb::Delete => true,
        Verb::List | Verb::Watch | Verb::DeleteCollection => false,
    }
}

fn own_lease(node: &str, asked: &Attributes) -> Verdict {
    if !asked.verb.of_request().is_some_and(is_on_one_object) {
        return refuse("can only get, create, update, patch, or delete a node lease");
    }
    if asked.namespace != LEASE_NAMESPACE {
        return Err(format!("can only access leases in the \"{LEASE_NAMESPACE}\" system namespace"));
    }
    if asked.verb != Verb::Create.into() && asked.name != node {
        return refuse("can only access node lease with the same name as the requesting node");
    }
    Ok(())
}

fn own_csi_node(node: &str, asked: &Attributes) -> Verdict {
    if !asked.verb.of_request().is_some_and(is_on_one_object) {
        return refuse("can only get, create, update, patch, or delete a CSINode");
    }
    if !asked.subresource.is_empty() {
        return refuse("cannot authorize CSINode subresources");
    }
    if asked.verb != Verb::Create.into() && asked.name != node {
        return refuse("can only access CSINode with the same name as the requesting node");
    }
    Ok(())
}

fn own_slices(store: &Store, node: &str, asked: &Attributes) -> Verdict {
    if !asked.subresource.is_empty() {
        return refuse("cannot authorize ResourceSlice subresources");
    }
    match asked.verb.of_request() {
        Some(Verb::Create) => Ok(()),
        Some(Verb::Get | Verb::Update | Verb::Patch | Verb::Delete) => related(store, node, asked),
        Some(Verb::Watch | Verb::List | Verb::DeleteCollection) => {
            if asked.selected_node.as_deref() == Some(node) {
                return Ok(());
            }
            refuse("can only list/watch/deletecollection resourceslices with nodeName field selector")
        }
        None => refuse(
            "only the following verbs are allowed for a ResourceSlice: get, watch, list, create, update, patch, delete, deletecollection",
        ),
    }
}
