//! Prevents privilege escalation: roles and bindings may grant only permissions that their writer
//! already has, unless the writer may `escalate` (roles) or `bind` (bindings).

use serde_json::{Value, json};

use crate::access::authz::caller::Caller;
use crate::access::authz::rbac::{self, GROUP, PolicyRule, path_matches, quoted};
use crate::access::authz::{AskedVerb, Attributes};
use crate::values::object::meta_str;
use crate::values::status::{ApiError, ApiResult, Target};

/// Admits a role if its writer holds what the role grants, or may `escalate`.
pub(crate) fn admit_role(caller: &Caller<'_>, resource: &str, role: &Value) -> ApiResult<()> {
    let (namespace, name) = (meta_str(role, "namespace"), meta_str(role, "name"));
    if caller.is_unlimited() || may(caller, "escalate", resource, namespace, name) {
        return Ok(());
    }
    let grant = |rules: Vec<PolicyRule>| AttemptedGrant { resource, namespace, name, rules };
    confirm(caller, &grant(PolicyRule::of_role(role)))?;
    if role.get("aggregationRule").is_some() {
        // Any other role with the right label adds its rules to this one, so only a client that
        // holds every permission may write such a role.
        let every = json!({"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]});
        let every_path = json!({"verbs": ["*"], "nonResourceURLs": ["*"]});
        confirm(caller, &grant(vec![PolicyRule::parse(&every), PolicyRule::parse(&every_path)]))?;
    }
    Ok(())
}

/// Admits a binding if its writer holds what the role grants, or may `bind` that role.
pub(crate) fn admit_binding(caller: &Caller<'_>, resource: &str, binding: &Value) -> ApiResult<()> {
    if caller.is_unlimited() {
        return Ok(());
    }
    let (namespace, name) = (meta_str(binding, "namespace"), meta_str(binding, "name"));
    let text = |key: &str| binding["roleRef"].get(key).and_then(Value::as_str).unwrap_or_default();
    let roles = if text("kind") == "Role" { "roles" } else { "clusterroles" };
    if may(caller, "bind", roles, namespace, text("name")) {
        return Ok(());
    }
    let Some(rules) = rbac::role_of(caller.authorizer.store, binding, namespace) else {
        // kube-apiserver names the kind that is written, not the role's.
        return Err(ApiError::not_found(&Target { group: GROUP, resource, name: text("name") }));
    };
    confirm(caller, &AttemptedGrant { resource, namespace, name, rules })
}

/// Whether the caller has `verb` (`approve`, `sign`) on a signer, or on all signers of its domain.
pub(crate) fn may_use_signer(caller: &Caller<'_>, verb: &'static str, signer: &str) -> bool {
    let domain = signer.split('/').next().unwrap_or_default();
    [signer.to_owned(), format!("{domain}/*")].into_iter().any(|name| {
        caller.may(&Attributes {
            verb: AskedVerb::Other(verb.into()),
            group: "certificates.k8s.io".to_owned(),
            resource: "signers".to_owned(),
            name,
            ..Attributes::default()
        })
    })
}

/// A role or binding that a user writes.
struct AttemptedGrant<'a> {
    resource: &'a str,
    namespace: &'a str,
    name: &'a str,
    rules: Vec<PolicyRule>,
}

/// Whether the writer has `verb` (`escalate` or `bind`) on a role.
fn may(caller: &Caller<'_>, verb: &'static str, resource: &str, namespace: &str, name: &str) -> bool {
    let asked = Attributes {
        verb: AskedVerb::Other(verb.into()),
        group: GROUP.to_owned(),
        resource: resource.to_owned(),
        namespace: namespace.to_owned(),
        name: name.to_owned(),
        ..Attributes::default()
    };
    caller.may(&asked)
}

/// Rejects a grant of permissions that the writer does not have.
fn confirm(caller: &Caller<'_>, grant: &AttemptedGrant<'_>) -> ApiResult<()> {
    let (held, missing) = rbac::grants(caller.authorizer.store, caller.identity, grant.namespace);
    let held: Vec<PolicyRule> = held.into_iter().flat_map(|grant| grant.rules).collect();
    let uncovered = uncovered(&held, &grant.rules);
    if uncovered.is_empty() {
        return Ok(());
    }
    let lines: Vec<String> = uncovered.iter().map(|line| format!("\n{line}")).collect();
    let mut why = format!(
        "user \"{}\" (groups={}) is attempting to grant RBAC permissions not currently held:{}",
        caller.identity.user,
        quoted(&caller.identity.groups),
        lines.concat()
    );
    if !missing.is_empty() {
        // The error names the resource of the written object, as in kube-apiserver.
        let told: Vec<String> = missing
            .iter()
            .map(|role| format!("{}.{GROUP} \"{}\" not found", grant.resource, role.name))
            .collect();
        why.push_str(&format!("; resolution errors: [{}]", told.join(", ")));
    }
    let target = Target { group: GROUP, resource: grant.resource, name: grant.name };
    Err(ApiError::forbidden(&target, &why))
}

/// Whether the held rules grant everything that `wanted` grants.
pub(crate) fn grant_all(held: &[PolicyRule], wanted: &PolicyRule) -> bool {
    broken_down(wanted).iter().all(|part| held.iter().any(|rule| covers(rule, part)))
}

/// Returns the parts of `wanted` that no rule of `held` covers, as sorted lines.
fn uncovered(held: &[PolicyRule], wanted: &[PolicyRule]) -> Vec<String> {
    let mut open: Vec<PolicyRule> = Vec::new();
    let parts =
        wanted.iter().flat_map(broken_down).filter(|part| !held.iter().any(|rule| covers(rule, part)));
    for part in parts {
        let same = |other: &&mut PolicyRule| {
            part.paths.is_empty()
                && (&other.groups, &other.resources, &other.names, &other.paths)
                    == (&part.groups, &part.resources, &part.names, &part.paths)
        };
        match open.iter_mut().find(same) {
            Some(rule) => rule
                .verbs
                .extend(part.verbs.into_iter().filter(|verb| !rule.verbs.contains(verb)).collect::<Vec<_>>()),
            None => open.push(part),
        }
    }
    let mut lines: Vec<String> = open.iter().map(ToString::to_string).collect();
    lines.sort();
    lines.dedup();
    lines
}

/// Splits a rule into rules with one verb and one resource, object or path each.
fn broken_down(rule: &PolicyRule) -> Vec<PolicyRule> {
    let one = |text: &String| vec![text.clone()];
    let mut parts = Vec::new();
    for group in &rule.groups {
        for resource in &rule.resources {
            for verb in &rule.verbs {
                let part = PolicyRule {
                    verbs: one(verb),
                    groups: one(group),
                    resources: one(resource),
                    ..PolicyRule::default()
                };
                if rule.names.is_empty() {
                    parts.push(part);
                } else {
                    parts.extend(
                        rule.names.iter().map(|name| PolicyRule { names: one(name), ..part.clone() }),
                    );
                }
            }
        }
    }
    for path in &rule.paths {
        parts.extend(rule.verbs.iter().map(|verb| PolicyRule {
            verbs: one(verb),
            paths: one(path),
            ..PolicyRule::default()
        }));
    }
    parts
}

/// Whether a held rule grants all of `part`.
fn covers(held: &PolicyRule, part: &PolicyRule) -> bool {
    let has = |list: &[String], wanted: &[String]| {
        list.iter().any(|item| item == "*") || wanted.iter().all(|item| list.contains(item))
    };
    let has_resource = |wanted: &String| {
        let sub = wanted.split_once('/').map(|(_, sub)| format!("*/{sub}"));
        held.resources
            .iter()
            .any(|resource| resource == "*" || resource == wanted || Some(resource) == sub.as_ref())
    };
    let has_names = held.names.is_empty()
        || (!part.names.is_empty() && part.names.iter().all(|n| held.names.contains(n)));
    has(&held.verbs, &part.verbs)
        && has(&held.groups, &part.groups)
        && part.resources.iter().all(has_resource)
        && has_names
        && part.paths.iter().all(|path| held.paths.iter().any(|pattern| path_matches(pattern, path)))
        && (part.paths.is_empty() || part.resources.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(held: serde_json::Value, wanted: serde_json::Value) -> Vec<String> {
        uncovered(&[PolicyRule::parse(&held)], &[PolicyRule::parse(&wanted)])
    }

    #[test]
    fn missing_permissions_are_listed_by_resource() {
        let held = json!({"verbs": ["get"], "apiGroups": [""], "resources": ["pods"]});
        let wanted = json!({"verbs": ["get", "list", "delete"], "apiGroups": [""], "resources": ["pods"]});
        let told = r#"{APIGroups:[""], Resources:["pods"], Verbs:["list" "delete"]}"#;
        assert_eq!(check(held, wanted), [told]);
    }

    #[test]
    fn a_rule_for_named_objects_does_not_cover_all() {
        let held = json!({"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"], "resourceNames": ["a"]});
        let wanted = |names| json!({"verbs": ["get"], "apiGroups": [""], "resources": ["pods"], "resourceNames": names});
        assert!(check(held.clone(), wanted(json!(["a"]))).is_empty());
        assert_eq!(check(held, wanted(json!([]))).len(), 1);
    }
}
