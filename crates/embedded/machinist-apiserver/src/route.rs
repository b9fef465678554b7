//! From method, path and query to what is asked.

use std::collections::BTreeMap;
use std::num::{IntErrorKind, ParseIntError};

use http::Method;

use crate::go::quoted;
use crate::status::{ApiError, ApiResult};

/// What a request is about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Route {
    /// Objects of a resource.
    Resource(ResourcePath),
    /// Discovery, version, health and whatever else has no objects.
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
            // A namespace's own subresources come before resources inside it.
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

/// The verb of a request on a resource, as audit and authorisation name it.
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

/// Decoded query parameters. Of a name that is given more than once the first counts, except where all are asked for.
#[derive(Debug, Default)]
pub(crate) struct Query(BTreeMap<String, Vec<String>>);

impl Query {
    pub(crate) fn parse(query: Option<&str>) -> ApiResult<Self> {
        let mut parameters: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for pair in query.unwrap_or_default().split('&').filter(|p| !p.is_empty()) {
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            let decode = |text: &str| percent_decode(&text.replace('+', " "));
            let (Some(key), Some(value)) = (decode(key), decode(value)) else {
                return Err(ApiError::bad_request(format!("invalid query parameter: {pair}")));
            };
            parameters.entry(key).or_default().push(value);
        }
        Ok(Query(parameters))
    }

    /// Everything that is given under a name.
    pub(crate) fn all(&self, key: &str) -> &[String] {
        self.0.get(key).map(Vec::as_slice).unwrap_or_default()
    }

    /// The parameter's text, if it is named at all.
    pub(crate) fn named(&self, key: &str) -> Option<&str> {
        self.all(key).first().map(String::as_str)
    }

    /// The parameter's text, empty when absent.
    pub(crate) fn text(&self, key: &str) -> &str {
        self.named(key).unwrap_or_default()
    }

    pub(crate) fn has(&self, key: &str) -> bool {
        !self.text(key).is_empty()
    }

    /// A switch, if it is named: to name it is to turn it on, unless it says that it is off.
    pub(crate) fn switch(&self, key: &str) -> Option<bool> {
        self.named(key).map(|text| text != "0" && !text.eq_ignore_ascii_case("false"))
    }

    pub(crate) fn flag(&self, key: &str) -> bool {
        self.switch(key).unwrap_or_default()
    }

    /// A whole number, if it is named.
    pub(crate) fn number(&self, key: &str) -> ApiResult<Option<i64>> {
        let Some(text) = self.named(key) else { return Ok(None) };
        text.parse().map(Some).map_err(|error: ParseIntError| {
            let why = match error.kind() {
                IntErrorKind::PosOverflow | IntErrorKind::NegOverflow => "value out of range",
                _ => "invalid syntax",
            };
            ApiError::bad_request(format!("strconv.ParseInt: parsing {}: {why}", quoted(text)))
        })
    }
}

/// `%41` to `A`; `None` when the escapes are broken or do not make UTF-8.
pub(crate) fn percent_decode(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        if byte == b'%' {
            let digit = |b: u8| char::from(b).to_digit(16).and_then(|d| u8::try_from(d).ok());
            let (high, low) = (digit(rest.next()?)?, digit(rest.next()?)?);
            bytes.push(high << 4 | low);
        } else {
            bytes.push(byte);
        }
    }
    String::from_utf8(bytes).ok()
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
    fn of_a_parameter_that_is_given_twice_the_first_counts() {
        let query = Query::parse(Some("a=1&a=2&on&off=False&n=x")).expect("a query");
        assert_eq!((query.text("a"), query.all("a").len()), ("1", 2));
        assert_eq!(["on", "off", "none"].map(|key| query.switch(key)), [Some(true), Some(false), None]);
        assert_eq!(query.number("a").expect("a number"), Some(1));
        assert_eq!(query.number("n").expect_err("no number").code(), 400);
    }

    #[test]
    fn paths_are_taken_apart() {
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
