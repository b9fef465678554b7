//! Compares rules of roles: which permissions of some rules do other rules grant?

use crate::access::authz::rbac::{PolicyRule, path_matches};

/// Whether the held rules grant everything that `wanted` grants.
pub(super) fn grant_all(held: &[PolicyRule], wanted: &PolicyRule) -> bool {
    broken_down(wanted).iter().all(|part| held.iter().any(|rule| covers(rule, part)))
}

/// Returns the parts of `wanted` that no rule of `held` covers, as sorted lines.
pub(super) fn uncovered(held: &[PolicyRule], wanted: &[PolicyRule]) -> Vec<String> {
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
    use serde_json::json;

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
