//! Parses method, path and query into the requested operation.

use std::fmt;

use http::Method;

use crate::values::query::{Query, percent_decode};
use crate::values::status::ApiResult;

/// The target of a request.
#[derive(Debug)]
pub(crate) enum Route {
    /// A resource or its objects.
    Resource(Box<ResourceRequest>),
    /// Discovery, version, health and other paths without objects.
    Other(String),
}

/// The path, the verb and the query of a request for a resource.
#[derive(Debug)]
pub(crate) struct ResourceRequest {
    pub(crate) path: ResourcePath,
    /// `None` if no resource takes the method on this path. The server answers this error, and
    /// the query's, after authorization.
    pub(crate) verb: Option<Verb>,
    pub(crate) query: ApiResult<Query>,
}

/// Operation that a request performs on a resource. Roles and the audit log use the same words.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Verb {
    /// Read one object.
    Get,
    /// Read a collection, or one page of it.
    List,
    /// Follow the changes of a collection.
    Watch,
    /// Create an object, or perform an action such as an eviction.
    Create,
    /// Replace an object.
    Update,
    /// Change some fields of an object. Server-side apply is also a patch.
    Patch,
    /// Delete one object.
    Delete,
    /// Delete all objects of a collection that match the selectors.
    DeleteCollection,
}

impl Verb {
    /// Every verb.
    const ALL: [Verb; 8] = [
        Verb::Get,
        Verb::List,
        Verb::Watch,
        Verb::Create,
        Verb::Update,
        Verb::Patch,
        Verb::Delete,
        Verb::DeleteCollection,
    ];

    /// Name of the verb in roles, in discovery and in the audit log.
    pub const fn as_str(self) -> &'static str {
        match self {
            Verb::Get => "get",
            Verb::List => "list",
            Verb::Watch => "watch",
            Verb::Create => "create",
            Verb::Update => "update",
            Verb::Patch => "patch",
            Verb::Delete => "delete",
            Verb::DeleteCollection => "deletecollection",
        }
    }

    /// Whether the verb changes nothing.
    pub const fn is_read(self) -> bool {
        match self {
            Verb::Get | Verb::List | Verb::Watch => true,
            Verb::Create | Verb::Update | Verb::Patch | Verb::Delete | Verb::DeleteCollection => false,
        }
    }

    /// Returns the verb with this name.
    pub(crate) fn parse(name: &str) -> Option<Self> {
        Verb::ALL.into_iter().find(|verb| verb.as_str() == name)
    }

    /// Returns the verb of a request on a resource.
    fn of(method: &Method, path: &ResourcePath, query: &Query) -> Option<Self> {
        let on_collection = path.name.is_empty();
        match (method, on_collection) {
            (&Method::GET | &Method::HEAD, true) if query.flag("watch") => Some(Verb::Watch),
            (&Method::GET | &Method::HEAD, true) => Some(Verb::List),
            (&Method::GET | &Method::HEAD, false) => Some(Verb::Get),
            (&Method::POST, _) => Some(Verb::Create),
            (&Method::PUT, false) => Some(Verb::Update),
            (&Method::PATCH, false) => Some(Verb::Patch),
            (&Method::DELETE, true) => Some(Verb::DeleteCollection),
            (&Method::DELETE, false) => Some(Verb::Delete),
            _ => None,
        }
    }
}

impl fmt::Display for Verb {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// `/apis/{group}/{version}[/namespaces/{namespace}]/{plural}[/{name}[/{subresource}]]`
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct ResourcePath {
    pub(crate) group: String,
    pub(crate) version: String,
    pub(crate) namespace: String,
    pub(crate) plural: String,
    pub(crate) name: String,
    pub(crate) subresource: String,
}

impl Route {
    pub(crate) fn parse(method: &Method, path: &str, query: Option<&str>) -> Self {
        let Some(target) = ResourcePath::parse(path) else { return Route::Other(path.to_owned()) };
        let query = Query::parse(query);
        let verb = Verb::of(method, &target, query.as_ref().unwrap_or(&Query::default()));
        Route::Resource(Box::new(ResourceRequest { path: target, verb, query }))
    }
}

impl ResourcePath {
    /// Returns `None` if the path is not one of a resource.
    fn parse(path: &str) -> Option<Self> {
        let decoded: Option<Vec<String>> =
            path.split('/').filter(|s| !s.is_empty()).map(percent_decode).collect();
        let segments = decoded?;
        let segments: Vec<&str> = segments.iter().map(String::as_str).collect();
        let (group, version, rest) = match segments.as_slice() {
            ["api", version, rest @ ..] if !rest.is_empty() => ("", *version, rest),
            ["apis", group, version, rest @ ..] if !rest.is_empty() => (*group, *version, rest),
            _ => return None,
        };
        let (namespace, rest) = match rest {
            // A namespace's own subresources take precedence over resources inside the namespace.
            ["namespaces", _, "status" | "finalize"] => ("", rest),
            ["namespaces", namespace, rest @ ..] if !rest.is_empty() => (*namespace, rest),
            _ => ("", rest),
        };
        let (plural, name, subresource) = match rest {
            [plural] => (*plural, "", ""),
            [plural, name] => (*plural, *name, ""),
            [plural, name, subresource] => (*plural, *name, *subresource),
            _ => return None,
        };
        Some(ResourcePath {
            group: group.into(),
            version: version.into(),
            namespace: namespace.into(),
            plural: plural.into(),
            name: name.into(),
            subresource: subresource.into(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(path: &str) -> String {
        match Route::parse(&Method::GET, path, None) {
            Route::Other(path) => format!("other {path}"),
            Route::Resource(request) => {
                let p = request.path;
                [p.group, p.version, p.namespace, p.plural, p.name, p.subresource].join("|")
            }
        }
    }

    fn verb(method: &Method, path: &str, query: Option<&str>) -> Option<&'static str> {
        match Route::parse(method, path, query) {
            Route::Other(_) => None,
            Route::Resource(request) => request.verb.map(Verb::as_str),
        }
    }

    #[test]
    fn method_path_and_query_decide_the_verb() {
        let (all, one) = ("/api/v1/pods", "/api/v1/namespaces/a/pods/p");
        assert_eq!(verb(&Method::GET, all, None), Some("list"));
        assert_eq!(verb(&Method::HEAD, all, Some("watch=1")), Some("watch"));
        assert_eq!(verb(&Method::GET, all, Some("watch=1&a=%zz")), Some("list"), "the query is invalid");
        assert_eq!(verb(&Method::GET, one, Some("watch=1")), Some("get"));
        assert_eq!(verb(&Method::DELETE, all, None), Some("deletecollection"));
        assert_eq!(verb(&Method::DELETE, one, None), Some("delete"));
        assert_eq!(verb(&Method::PUT, all, None), None);
        assert_eq!(verb(&Method::OPTIONS, one, None), None);
    }

    #[test]
    fn the_name_of_every_verb_is_parsed() {
        assert!(Verb::ALL.into_iter().all(|verb| Verb::parse(verb.as_str()) == Some(verb)));
        assert_eq!(Verb::parse("escalate"), None);
    }

    #[test]
    fn the_first_value_of_a_repeated_parameter_counts() {
        let query = Query::parse(Some("a=1&a=2&on&off=False&n=x")).expect("a query");
        assert_eq!((query.text("a"), query.all("a").len()), ("1", 2));
        assert_eq!(["on", "off", "none"].map(|key| query.switch(key)), [Some(true), Some(false), None]);
        assert_eq!(query.number("a").expect("a number"), Some(1));
        assert_eq!(query.number("n").expect_err("not a number").code(), 400);
    }

    #[test]
    fn paths_are_parsed() {
        assert_eq!(check("/api/v1/pods"), "|v1||pods||");
        assert_eq!(check("/api/v1/namespaces"), "|v1||namespaces||");
        assert_eq!(check("/api/v1/namespaces/a"), "|v1||namespaces|a|");
        assert_eq!(check("/api/v1/namespaces/a/status"), "|v1||namespaces|a|status");
        assert_eq!(check("/api/v1/namespaces/a/pods/p/eviction"), "|v1|a|pods|p|eviction");
        assert_eq!(check("/apis/g.io/v1/namespaces/a/things/t%3Ax"), "g.io|v1|a|things|t:x|");
        assert_eq!(check("/apis/g.io"), "other /apis/g.io");
        assert_eq!(check("/version"), "other /version");
    }
}
