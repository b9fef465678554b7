//! SelfSubjectRulesReview: lists the user's own permissions as rules, for `kubectl auth can-i
//! --list`.

use serde_json::{Value, json};

use super::text;
use crate::access::authz::rbac::{PolicyRule, grants, told};
use crate::access::authz::{Authorization, node};
use crate::server::verbs::Call;
use crate::values::status::{ApiError, ApiResult};

pub(super) fn review(call: &Call, mut asked: Value) -> ApiResult<Value> {
    let namespace = text(&asked, "/spec/namespace");
    if namespace.is_empty() {
        return Err(ApiError::bad_request("no namespace on request"));
    }
    let (mut rules, mut trouble) = (Vec::new(), String::new());
    let mut incomplete = false;
    if call.core.config.authorization == Authorization::AlwaysAllow {
        let every = || vec!["*".to_owned()];
        rules.push(PolicyRule {
            verbs: every(),
            groups: every(),
            resources: every(),
            ..PolicyRule::default()
        });
        rules.push(PolicyRule { verbs: every(), paths: every(), ..PolicyRule::default() });
    } else {
        let (found, missing) = grants(&call.core.store, &call.identity, &namespace);
        rules.extend(found.into_iter().flat_map(|grant| grant.rules));
        if !missing.is_empty() {
            trouble = told(&missing);
        }
        if node::name_of(&call.identity).is_some() {
            incomplete = true;
            trouble = "node authorizer does not support user rule resolution".into();
        }
    }
    let of_resources: Vec<Value> =
        rules.iter().filter(|rule| rule.paths.is_empty()).map(resource_rule).collect();
    let of_paths: Vec<Value> = rules
        .iter()
        .filter(|rule| !rule.paths.is_empty())
        .map(|rule| json!({"verbs": rule.verbs, "nonResourceURLs": rule.paths}))
        .collect();
    asked["spec"] = json!({});
    asked["status"] =
        json!({"resourceRules": of_resources, "nonResourceRules": of_paths, "incomplete": incomplete});
    if !trouble.is_empty() {
        asked["status"]["evaluationError"] = json!(trouble);
    }
    Ok(asked)
}

fn resource_rule(rule: &PolicyRule) -> Value {
    let mut shown = json!({"verbs": rule.verbs, "apiGroups": rule.groups, "resources": rule.resources});
    if !rule.names.is_empty() {
        shown["resourceNames"] = json!(rule.names);
    }
    shown
}
