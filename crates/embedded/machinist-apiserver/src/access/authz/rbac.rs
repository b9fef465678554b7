//! Role-based access control: the permissions that bindings grant to a user.
//!
//! Each question reads roles and bindings from the store without a cache, because this server has
//! only dozens of them. Objects that are not yet saved grant nothing, because a crash would lose
//! them.

use std::fmt;
use std::sync::Arc;

use serde_json::Value;

use crate::access::authz::attributes::Attributes;
use crate::access::authz::decision::Decision;
use crate::store::mvcc::Store;
use crate::values::identity::Identity;
use crate::values::key::Key;
use crate::values::object::{Object, meta_str};

pub(crate) const GROUP: &str = "rbac.authorization.k8s.io";
const ALL: &str = "*";

/// One rule of a role.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct PolicyRule {
    pub(crate) verbs: Vec<String>,
    pub(crate) groups: Vec<String>,
    pub(crate) resources: Vec<String>,
    pub(crate) names: Vec<String>,
    pub(crate) paths: Vec<String>,
}

impl PolicyRule {
    pub(crate) fn parse(rule: &Value) -> Self {
        let list = |key: &str| {
            let items = rule.get(key).and_then(Value::as_array).into_iter().flatten();
            items.filter_map(|item| item.as_str().map(str::to_owned)).collect()
        };
        PolicyRule {
            verbs: list("verbs"),
            groups: list("apiGroups"),
            resources: list("resources"),
            names: list("resourceNames"),
            paths: list("nonResourceURLs"),
        }
    }

    /// Returns the rules of a role.
    pub(crate) fn of_role(role: &Value) -> Vec<PolicyRule> {
        role.get("rules").and_then(Value::as_array).into_iter().flatten().map(PolicyRule::parse).collect()
    }

    /// Whether the rule allows the request.
    pub(crate) fn allows(&self, asked: &Attributes) -> bool {
        let has = |list: &[String], wanted: &str| list.iter().any(|item| item == ALL || item == wanted);
        if !has(&self.verbs, asked.verb.as_str()) {
            return false;
        }
        if let Some(path) = &asked.path {
            return self.paths.iter().any(|pattern| path_matches(pattern, path));
        }
        let in_any_resource =
            |sub: &str| self.resources.iter().any(|resource| resource.strip_prefix("*/") == Some(sub));
        has(&self.groups, &asked.group)
            && (has(&self.resources, &asked.combined())
                || (!asked.subresource.is_empty() && in_any_resource(&asked.subresource)))
            && (self.names.is_empty() || self.names.contains(&asked.name))
    }
}

/// Whether a pattern matches a path. A pattern is `*`, a path, or the beginning of a path followed
/// by `*`.
pub(crate) fn path_matches(pattern: &str, path: &str) -> bool {
    pattern == path || pattern.strip_suffix(ALL).is_some_and(|beginning| path.starts_with(beginning))
}

impl fmt::Display for PolicyRule {
    /// Formats the rule as kube-apiserver's errors do.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lists = [
            ("APIGroups", &self.groups),
            ("Resources", &self.resources),
            ("NonResourceURLs", &self.paths),
            ("ResourceNames", &self.names),
            ("Verbs", &self.verbs),
        ];
        let shown: Vec<String> = lists
            .iter()
            .filter(|(_, list)| !list.is_empty())
            .map(|(name, list)| format!("{name}:{}", quoted(list)))
            .collect();
        write!(f, "{{{}}}", shown.join(", "))
    }
}

/// Formats a list as `["a" "b"]`.
pub(crate) fn quoted(list: &[String]) -> String {
    let quoted: Vec<String> = list.iter().map(|item| format!("\"{item}\"")).collect();
    format!("[{}]", quoted.join(" "))
}

/// Permissions that one binding grants to a user.
pub(crate) struct Grant {
    /// Text that names the binding, its role and the subject that matches the user.
    source: String,
    pub(crate) rules: Vec<PolicyRule>,
}

/// Returns the grants to `user` in the whole cluster and in `namespace` (unless it is empty), and
/// the missing roles of these bindings.
pub(crate) fn grants(store: &Store, user: &Identity, namespace: &str) -> (Vec<Grant>, Vec<MissingRole>) {
    let (mut found, mut missing) = (Vec::new(), Vec::new());
    let mut take = |binding: &Object, within: &str| {
        let binding = binding.value();
        let subjects = binding.get("subjects").and_then(Value::as_array).into_iter().flatten();
        let Some(subject) =
            subjects.map(|subject| Subject::parse(subject, within)).find(|subject| subject.is(user))
        else {
            return;
        };
        let (kind, role) = (text(binding, "/roleRef/kind"), text(binding, "/roleRef/name"));
        match role_of(store, binding, within) {
            Some(rules) => {
                let place = match within {
                    "" => format!("ClusterRoleBinding \"{}\"", meta_str(binding, "name")),
                    namespace => format!("RoleBinding \"{}/{namespace}\"", meta_str(binding, "name")),
                };
                found.push(Grant { source: format!("{place} of {kind} \"{role}\" to {subject}"), rules });
            }
            None => missing.push(MissingRole { kind: kind.to_owned(), name: role.to_owned() }),
        }
    };
    for binding in all(store, "clusterrolebindings", "") {
        take(&binding, "");
    }
    if !namespace.is_empty() {
        for binding in all(store, "rolebindings", namespace) {
            take(&binding, namespace);
        }
    }
    (found, missing)
}

/// A role that a binding names but that does not exist.
pub(crate) struct MissingRole {
    kind: String,
    pub(crate) name: String,
}

impl fmt::Display for MissingRole {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{GROUP} \"{}\" not found", self.kind.to_lowercase(), self.name)
    }
}

/// Returns the rules of a binding's role, or `None` if the role does not exist.
pub(crate) fn role_of(store: &Store, binding: &Value, namespace: &str) -> Option<Vec<PolicyRule>> {
    let (kind, name) = (text(binding, "/roleRef/kind"), text(binding, "/roleRef/name"));
    let role = match kind {
        "Role" => store.get_shown("roles", &Key::new(namespace, name)),
        _ => store.get_shown("clusterroles", &Key::new("", name)),
    };
    role.map(|role| PolicyRule::of_role(role.value()))
}

/// Formats several missing roles as one text.
pub(crate) fn told(missing: &[MissingRole]) -> String {
    let told: Vec<String> = missing.iter().map(ToString::to_string).collect();
    match told.as_slice() {
        [one] => one.clone(),
        many => format!("[{}]", many.join(", ")),
    }
}

pub(super) fn decide(store: &Store, user: &Identity, asked: &Attributes) -> Decision {
    let (grants, missing) = grants(store, user, &asked.namespace);
    let by = grants.iter().find(|grant| grant.rules.iter().any(|rule| rule.allows(asked)));
    match by {
        Some(grant) => Decision { allowed: true, reason: format!("RBAC: allowed by {}", grant.source) },
        None if missing.is_empty() => Decision::default(),
        None => Decision { allowed: false, reason: format!("RBAC: {}", told(&missing)) },
    }
}

/// Subject of a binding.
enum Subject {
    User(String),
    Group(String),
    ServiceAccount { namespace: String, name: String },
    Unknown,
}

impl Subject {
    fn parse(subject: &Value, binding_namespace: &str) -> Self {
        let name = text(subject, "/name").to_owned();
        match text(subject, "/kind") {
            "User" => Subject::User(name),
            "Group" => Subject::Group(name),
            "ServiceAccount" => {
                let own = text(subject, "/namespace");
                let namespace = if own.is_empty() { binding_namespace } else { own }.to_owned();
                Subject::ServiceAccount { namespace, name }
            }
            _ => Subject::Unknown,
        }
    }

    fn is(&self, user: &Identity) -> bool {
        match self {
            Subject::User(name) => *name == user.user,
            Subject::Group(name) => user.groups.contains(name),
            Subject::ServiceAccount { namespace, name } => {
                let rest = user.user.strip_prefix("system:serviceaccount:").and_then(|r| r.split_once(':'));
                !namespace.is_empty() && rest == Some((namespace.as_str(), name.as_str()))
            }
            Subject::Unknown => false,
        }
    }
}

impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Subject::User(name) => write!(f, "User \"{name}\""),
            Subject::Group(name) => write!(f, "Group \"{name}\""),
            Subject::ServiceAccount { namespace, name } => write!(f, "ServiceAccount \"{name}/{namespace}\""),
            Subject::Unknown => Ok(()),
        }
    }
}

fn all(store: &Store, collection: &str, namespace: &str) -> Vec<Arc<Object>> {
    let prefix = if namespace.is_empty() { String::new() } else { format!("{namespace}/") };
    let slice = store.slice_shown(collection, &prefix, None, None);
    slice.map(|s| s.items.into_iter().map(|(_, object)| object).collect()).unwrap_or_default()
}

fn text<'a>(value: &'a Value, pointer: &str) -> &'a str {
    value.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn check(rule: Value, verb: &str, resource: &str, name: &str) -> bool {
        let (resource, subresource) = resource.split_once('/').unwrap_or((resource, ""));
        PolicyRule::parse(&rule).allows(&Attributes {
            verb: verb.to_owned().into(),
            resource: resource.into(),
            subresource: subresource.into(),
            name: name.into(),
            ..Attributes::default()
        })
    }

    #[test]
    fn a_rule_applies_only_if_all_of_its_lists_match() {
        let rule =
            json!({"verbs": ["get"], "apiGroups": [""], "resources": ["pods"], "resourceNames": ["a"]});
        assert!(check(rule.clone(), "get", "pods", "a"));
        assert!(!check(rule.clone(), "get", "pods", "b"));
        assert!(!check(rule.clone(), "list", "pods", ""));
        assert!(!check(rule, "get", "pods/log", "a"));
    }

    #[test]
    fn a_star_matches_everything_or_any_resource() {
        let every = json!({"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]});
        assert!(check(every, "get", "pods/log", "a"));
        let scales = json!({"verbs": ["get"], "apiGroups": [""], "resources": ["*/scale"]});
        assert!(check(scales.clone(), "get", "sets/scale", "a"));
        assert!(!check(scales, "get", "sets", "a"));
        let other_group = json!({"verbs": ["*"], "apiGroups": ["apps"], "resources": ["*"]});
        assert!(!check(other_group, "get", "pods", "a"));
    }

    #[test]
    fn a_path_pattern_is_exact_or_a_prefix() {
        assert!(path_matches("/apis/*", "/apis/x") && path_matches("*", "/") && path_matches("/x", "/x"));
        assert!(!path_matches("/apis/*", "/apis") && !path_matches("/x", "/x/y"));
    }
}
