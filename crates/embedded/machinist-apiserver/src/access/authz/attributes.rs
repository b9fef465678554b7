//! The question that authorizers decide: which verb on which object or path.

use std::borrow::Cow;
use std::fmt;

use http::Method;

use crate::values::route::{ResourcePath, Route, Verb};

/// The facts about a request that authorizers see.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Attributes {
    pub(crate) verb: AskedVerb,
    pub(crate) group: String,
    pub(crate) resource: String,
    pub(crate) subresource: String,
    pub(crate) namespace: String,
    pub(crate) name: String,
    /// Path of a request that is not for a resource. All other fields except `verb` are then empty.
    pub(crate) path: Option<String>,
    /// Name of the node that a field selector requires.
    pub(crate) selected_node: Option<String>,
}

/// The verb that an authorizer decides about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum AskedVerb {
    /// Verb of a request on a resource.
    Request(Verb),
    /// Method of a request on another path, a verb that only admission asks about (`escalate`), or
    /// any text in a review.
    Other(Cow<'static, str>),
}

impl AskedVerb {
    /// Returns the text that rules of roles contain.
    pub(crate) fn as_str(&self) -> &str {
        match self {
            AskedVerb::Request(verb) => verb.as_str(),
            AskedVerb::Other(text) => text,
        }
    }

    /// Returns the verb, if requests on resources have it.
    pub(crate) fn of_request(&self) -> Option<Verb> {
        match self {
            AskedVerb::Request(verb) => Some(*verb),
            AskedVerb::Other(_) => None,
        }
    }
}

impl Default for AskedVerb {
    fn default() -> Self {
        AskedVerb::Other("".into())
    }
}

impl From<Verb> for AskedVerb {
    fn from(verb: Verb) -> Self {
        AskedVerb::Request(verb)
    }
}

impl From<String> for AskedVerb {
    fn from(text: String) -> Self {
        Verb::parse(&text).map_or(AskedVerb::Other(Cow::Owned(text)), AskedVerb::Request)
    }
}

impl fmt::Display for AskedVerb {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl Attributes {
    /// Returns the attributes of a request.
    pub(crate) fn of(method: &Method, route: &Route) -> Self {
        let request = match route {
            Route::Other(path) => {
                let verb = method.as_str().to_ascii_lowercase().into();
                return Attributes { verb, path: Some(path.clone()), ..Attributes::default() };
            }
            Route::Resource(request) => request,
        };
        let Some(verb) = request.verb else {
            return Attributes::on(AskedVerb::Other("unknown".into()), &request.path);
        };
        let selector = request.query.as_ref().map(|query| query.text("fieldSelector")).unwrap_or_default();
        let asked = Attributes::on(verb.into(), &request.path);
        match verb {
            // A list or watch that selects one name counts as access to that object. A delete with
            // this selector still deletes a collection.
            Verb::List | Verb::Watch => Attributes {
                name: field_selected(selector, "metadata.name").unwrap_or_default(),
                selected_node: field_selected(selector, "spec.nodeName"),
                ..asked
            },
            Verb::DeleteCollection => {
                Attributes { selected_node: field_selected(selector, "spec.nodeName"), ..asked }
            }
            Verb::Get | Verb::Create | Verb::Update | Verb::Patch | Verb::Delete => asked,
        }
    }

    /// Returns the attributes of `verb` on the resource of a path.
    pub(crate) fn on(verb: AskedVerb, path: &ResourcePath) -> Self {
        Attributes {
            verb,
            group: path.group.clone(),
            resource: path.plural.clone(),
            subresource: path.subresource.clone(),
            namespace: namespace_of(path),
            name: path.name.clone(),
            path: None,
            selected_node: None,
        }
    }

    /// Returns `resource` or `resource/subresource`.
    pub(crate) fn combined(&self) -> String {
        match self.subresource.as_str() {
            "" => self.resource.clone(),
            sub => format!("{}/{sub}", self.resource),
        }
    }
}

/// Returns the namespace of a request. For authorization, a Namespace object belongs to itself.
fn namespace_of(path: &ResourcePath) -> String {
    let is_namespace = path.group.is_empty() && path.plural == "namespaces";
    if is_namespace { path.name.clone() } else { path.namespace.clone() }
}

/// Returns the value that a selector requires for a field.
pub(crate) fn field_selected(selector: &str, field: &str) -> Option<String> {
    selector.split(',').find_map(|term| {
        let (key, value) = term.split_once('=')?;
        (key == field).then(|| value.trim_start_matches('=').to_owned())
    })
}
