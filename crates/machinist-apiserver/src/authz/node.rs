//! Nodes may read what concerns them: their own Node and Lease, the Pods bound to them, and what those Pods use.
//!
//! Where kube-apiserver keeps a graph of who uses what, this looks at the node's Pods in the namespace asked about.

use serde_json::Value;

use crate::authn::Identity;
use crate::authz::{Attributes, Decision, roles};
use crate::server::Core;

/// The namespace of the Leases by which nodes say that they live.
pub(super) const LEASE_NAMESPACE: &str = "kube-node-lease";

/// The name of the node that a user is.
pub(crate) fn name_of(user: &Identity) -> Option<&str> {
    let in_group = user.groups.iter().any(|group| group == "system:nodes");
    user.user.strip_prefix("system:node:").filter(|name| in_group && !name.is_empty())
}

pub(super) fn decide(core: &Core, user: &Identity, asked: &Attributes) -> Decision {
    let Some(node) = name_of(user).filter(|_| asked.path.is_none()) else { return Decision::default() };
    let verdict = match (asked.group.as_str(), asked.resource.as_str()) {
        ("", "secrets" | "configmaps") => readable(core, node, asked),
        ("", "persistentvolumeclaims" | "serviceaccounts") if asked.subresource.is_empty() => {
            related(core, node, asked)
        }
        ("", "serviceaccounts") if asked.combined() == "serviceaccounts/token" && asked.verb == "create" => {
            related(core, node, asked)
        }
        ("", "nodes") => own_node(node, asked),
        ("", "pods") => own_pods(core, node, asked),
        ("coordination.k8s.io", "leases") => own_lease(node, asked),
        _ => general(asked),
    };
    match verdict {
        Ok(()) => Decision { allowed: true, reason: String::new() },
        Err(reason) => Decision { allowed: false, reason },
    }
}

/// Why not; empty where there is nothing to say.
type Verdict = Result<(), String>;

fn refuse(why: &str) -> Verdict {
    Err(why.to_owned())
}

/// What any node may do.
fn general(asked: &Attributes) -> Verdict {
    let allows = roles::of_nodes().iter().any(|rule| rule.allows(asked));
    if allows { Ok(()) } else { Err(String::new()) }
}

fn readable(core: &Core, node: &str, asked: &Attributes) -> Verdict {
    if !matches!(asked.verb.as_str(), "get" | "list" | "watch") {
        return refuse("can only read resources of this type");
    }
    if !asked.subresource.is_empty() {
        return refuse("cannot read subresource");
    }
    if asked.namespace.is_empty() {
        return refuse("can only read namespaced object of this type");
    }
    related(core, node, asked)
}

fn related(core: &Core, node: &str, asked: &Attributes) -> Verdict {
    if asked.name.is_empty() {
        return refuse("No Object name found");
    }
    let slice = core.store.slice("pods", &format!("{}/", asked.namespace), None, None);
    let pods = slice.map(|s| s.items).unwrap_or_default();
    let uses = pods.iter().any(|(_, pod)| {
        let spec = &pod.value()["spec"];
        spec["nodeName"] == node && pod_uses(spec, &asked.resource, &asked.name)
    });
    if uses { Ok(()) } else { Err(format!("no relationship found between node '{node}' and this object")) }
}

fn pod_uses(spec: &Value, resource: &str, name: &str) -> bool {
    match resource {
        "serviceaccounts" => spec["serviceAccountName"] == name,
        "secrets" => {
            names(spec, &["secretName", "secret", "secretRef", "secretKeyRef"], name) || pulls(spec, name)
        }
        "configmaps" => names(spec, &["configMap", "configMapRef", "configMapKeyRef"], name),
        "persistentvolumeclaims" => names(spec, &["claimName"], name),
        _ => false,
    }
}

fn pulls(spec: &Value, name: &str) -> bool {
    spec["imagePullSecrets"].as_array().into_iter().flatten().any(|secret| secret["name"] == name)
}

/// Whether somewhere below, one of `fields` is `name` or has it as its `name`.
fn names(value: &Value, fields: &[&str], name: &str) -> bool {
    match value {
        Value::Object(map) => map.iter().any(|(key, child)| {
            (fields.contains(&key.as_str()) && (*child == name || child["name"] == name))
                || names(child, fields, name)
        }),
        Value::Array(items) => items.iter().any(|item| names(item, fields, name)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
    }
}

fn own_node(node: &str, asked: &Attributes) -> Verdict {
    let reads = matches!(asked.verb.as_str(), "get" | "list" | "watch");
    if !reads || !matches!(asked.subresource.as_str(), "" | "status") {
        return general(asked);
    }
    match asked.name.as_str() {
        "" => Err(format!("node '{node}' cannot read all nodes, only its own Node object")),
        name if name != node => Err(format!("node '{node}' cannot read '{name}', only its own Node object")),
        _ => Ok(()),
    }
}

fn own_pods(core: &Core, node: &str, asked: &Attributes) -> Verdict {
    match (asked.verb.as_str(), asked.subresource.as_str()) {
        ("list" | "watch", "") if asked.selected_node.as_deref() == Some(node) => Ok(()),
        ("list" | "watch", "") => refuse("can only list/watch pods with spec.nodeName field selector"),
        ("get", "") => {
            let key = crate::store::mvcc::Key::new(&asked.namespace, &asked.name);
            let pod = core.store.get("pods", &key);
            if pod.is_some_and(|pod| pod.value()["spec"]["nodeName"] == node) {
                return Ok(());
            }
            Err(format!("no relationship found between node '{node}' and this object"))
        }
        _ => general(asked),
    }
}

fn own_lease(node: &str, asked: &Attributes) -> Verdict {
    if !matches!(asked.verb.as_str(), "get" | "create" | "update" | "patch" | "delete") {
        return refuse("can only get, create, update, patch, or delete a node lease");
    }
    if asked.namespace != LEASE_NAMESPACE {
        return Err(format!("can only access leases in the \"{LEASE_NAMESPACE}\" system namespace"));
    }
    if asked.verb != "create" && asked.name != node {
        return refuse("can only access node lease with the same name as the requesting node");
    }
    Ok(())
}
