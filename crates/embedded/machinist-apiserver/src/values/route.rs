//! Parses method, path and query into the requested operation.

use crate::values::query::Query;
use crate::values::query::percent_decode;

use http::Method;

use crate::values::status::{ApiError, ApiResult};

/// The target of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Route {
    /// A resource or its objects.
    Resource(ResourcePath),
    /// Discovery, version, health and other paths without objects.
    Other(String),
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
    pub(crate) fn parse(path: &str) -> Self {
        let other = || Route::Other(path.to_owned());
        let decoded: Option<Vec<String>> =
            path.split('/').filter(|s| !s.is_empty()).map(percent_decode).collect();
        let Some(segments) = decoded else { return other() };
        let segments: Vec<&str> = segments.iter().map(String::as_str).collect();
        let (group, version, rest) = match segments.as_slice() {
            ["api", version, rest @ ..] if !rest.is_empty() => ("", *version, rest),
            ["apis", group, version, rest @ ..] if !rest.is_empty() => (*group, *version, rest),
            _ => return other(),
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
            _ => return other(),
        };
        Route::Resource(ResourcePath {
            group: group.into(),
            version: version.into(),
            namespace: namespace.into(),
            plural: plural.into(),
            name: name.into(),
            subresource: subresource.into(),
        })
    }
}

/// Returns the verb of a request on a resource, as audit and authorisation name it.
pub(crate) fn verb(method: &Method, path: &ResourcePath, query: &Query) -> ApiResult<&'static str> {
    let on_collection = path.name.is_empty();
    match (method, on_collection) {
        (&Method::GET | &Method::HEAD, true) if query.flag("watch") => Ok("watch"),
        (&Method::GET | &Method::HEAD, true) => Ok("list"),
        (&Method::GET | &Method::HEAD, false) => Ok("get"),
        (&Method::POST, _) => Ok("create"),
        (&Method::PUT, false) => Ok("update"),
        (&Method::PATCH, false) => Ok("patch"),
        (&Method::DELETE, true) => Ok("deletecollection"),
        (&Method::DELETE, false) => Ok("delete"),
        _ => Err(ApiError::method_not_allowed()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(path: &str) -> String {
        match Route::parse(path) {
            Route::Other(path) => format!("other {path}"),
            Route::Resource(p) => {
                [p.group, p.version, p.namespace, p.plural, p.name, p.subresource].join("|")
            }
        }
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
