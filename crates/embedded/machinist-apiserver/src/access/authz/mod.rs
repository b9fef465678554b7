//! Who may do what.
//!
//! ```text
//! system:masters -> everything
//! a node         -> what concerns it alone (node), and what it writes is looked at once more on its way in (restriction)
//! anybody        -> what bindings to roles grant (rbac)
//! ```
//!
//! Every request is asked about before its body is read: whoever may not act learns nothing of what there is. A review asks the same
//! question on somebody's behalf (`reviews`). With [`Authorization::AlwaysAllow`] nothing here has a say.
//!
//! Deliberately absent: webhooks, the aggregation of ClusterRoles after the start, and constrained impersonation.

pub(crate) mod caller;
pub(crate) mod escalation;
pub(crate) mod impersonation;
pub(crate) mod node;
pub(crate) mod rbac;
pub(crate) mod restriction;
pub(crate) mod roles;

use http::request;

use crate::store::mvcc::Store;
use crate::values::identity::Identity;
use crate::values::query::Query;
use crate::values::route::{ResourcePath, Route, verb};
use crate::values::status::{ApiError, ApiResult, Target};

/// The group that may do everything.
const MASTERS: &str = "system:masters";

/// Whether callers are asked what they may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Authorization {
    /// Whoever is known may do everything: for callers in the same process, and for simulations.
    #[default]
    AlwaysAllow,
    /// As a cluster does it: nodes by what concerns them, everybody by roles, which exist from the start.
    Rbac,
}

/// What is asked, as authorizers see it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Attributes {
    pub(crate) verb: String,
    pub(crate) group: String,
    pub(crate) resource: String,
    pub(crate) subresource: String,
    pub(crate) namespace: String,
    pub(crate) name: String,
    /// Set when it is about a path that is no resource; the other fields but the verb are empty then.
    pub(crate) path: Option<String>,
    /// The node that a field selector names.
    pub(crate) selected_node: Option<String>,
}

impl Attributes {
    /// What a request asks for.
    pub(crate) fn of(parts: &request::Parts, route: &Route) -> Self {
        let path = match route {
            Route::Other(path) => {
                let verb = parts.method.as_str().to_ascii_lowercase();
                return Attributes { verb, path: Some(path.clone()), ..Attributes::default() };
            }
            Route::Resource(path) => path,
        };
        let query = Query::parse(parts.uri.query()).unwrap_or_default();
        let verb = verb(&parts.method, path, &query).unwrap_or("unknown");
        let selected = |field: &str| field_selected(query.text("fieldSelector"), field);
        let asked = Attributes::on(verb, path);
        match verb {
            // Who looks at the one of this name looks at that one. Who deletes by it has asked for a collection.
            "list" | "watch" => Attributes {
                name: selected("metadata.name").unwrap_or_default(),
                selected_node: selected("spec.nodeName"),
                ..asked
            },
            "deletecollection" => Attributes { selected_node: selected("spec.nodeName"), ..asked },
            _ => asked,
        }
    }

    /// To do `verb` with what a path names.
    pub(crate) fn on(verb: &str, path: &ResourcePath) -> Self {
        Attributes {
            verb: verb.to_owned(),
            group: path.group.clone(),
            resource: path.plural.clone(),
            subresource: path.subresource.clone(),
            namespace: namespace_of(path),
            name: path.name.clone(),
            path: None,
            selected_node: None,
        }
    }

    /// `resource` or `resource/subresource`.
    pub(crate) fn combined(&self) -> String {
        match self.subresource.as_str() {
            "" => self.resource.clone(),
            sub => format!("{}/{sub}", self.resource),
        }
    }
}

/// A namespace is asked about as lying within itself.
fn namespace_of(path: &ResourcePath) -> String {
    let is_namespace = path.group.is_empty() && path.plural == "namespaces";
    if is_namespace { path.name.clone() } else { path.namespace.clone() }
}

/// The value that a selector demands of a field.
pub(crate) fn field_selected(selector: &str, field: &str) -> Option<String> {
    selector.split(',').find_map(|term| {
        let (key, value) = term.split_once('=')?;
        (key == field).then(|| value.trim_start_matches('=').to_owned())
    })
}

/// An answer, and why.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Decision {
    pub(crate) allowed: bool,
    pub(crate) reason: String,
}

/// Decides what users may do: the mode, and the store that holds roles and bindings.
#[derive(Clone, Copy)]
pub(crate) struct Authorizer<'a> {
    pub(crate) mode: Authorization,
    pub(crate) store: &'a Store,
}

impl Authorizer<'_> {
    /// Whether `user` may do what is asked.
    pub(crate) fn decide(self, user: &Identity, asked: &Attributes) -> Decision {
        if self.mode == Authorization::AlwaysAllow || is_master(user) {
            return Decision { allowed: true, reason: String::new() };
        }
        let by_node = node::decide(self.store, user, asked);
        if by_node.allowed {
            return by_node;
        }
        let by_roles = rbac::decide(self.store, user, asked);
        if by_roles.allowed {
            return by_roles;
        }
        let reasons: Vec<String> =
            [by_node.reason, by_roles.reason].into_iter().filter(|reason| !reason.is_empty()).collect();
        Decision { allowed: false, reason: reasons.join("\n") }
    }

    /// Refuses what `user` may not do.
    pub(crate) fn authorize(self, user: &Identity, asked: &Attributes) -> ApiResult<()> {
        let decision = self.decide(user, asked);
        if decision.allowed { Ok(()) } else { Err(refusal(user, asked, &decision.reason)) }
    }
}

pub(crate) fn is_master(user: &Identity) -> bool {
    user.groups.iter().any(|group| group == MASTERS)
}

/// 403, in the words of kube-apiserver.
fn refusal(user: &Identity, asked: &Attributes, reason: &str) -> ApiError {
    let Attributes { verb, group, namespace, .. } = asked;
    if let Some(path) = &asked.path {
        let why =
            with_reason(format!("forbidden: User \"{}\" cannot {verb} path \"{path}\"", user.user), reason);
        return ApiError::new(403, "Forbidden", why).with_empty_details();
    }
    let place = match namespace.as_str() {
        "" => "at the cluster scope".to_owned(),
        namespace => format!("in the namespace \"{namespace}\""),
    };
    let why = format!(
        "User \"{}\" cannot {verb} resource \"{}\" in API group \"{group}\" {place}",
        user.user,
        asked.combined()
    );
    let target = Target { group, resource: &asked.resource, name: &asked.name };
    ApiError::forbidden(&target, &with_reason(why, reason))
}

fn with_reason(text: String, reason: &str) -> String {
    if reason.is_empty() { text } else { format!("{text}: {reason}") }
}
