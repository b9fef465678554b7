//! Prevents privilege escalation: roles and bindings may grant only permissions that their writer
//! already has, unless the writer may `escalate` (roles) or `bind` (bindings).

use serde_json::{Value, json};

use crate::access::authz::attributes::{AskedVerb, Attributes};
use crate::access::authz::caller::Caller;
use crate::access::authz::coverage::uncovered;
use crate::access::authz::rbac::{self, GROUP, PolicyRule, quoted};
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
        // holds every permission may write a role with that label.
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
