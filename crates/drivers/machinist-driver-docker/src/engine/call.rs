//! One request to the engine, as data.

use http::Method;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::Value;

/// The characters that stay as they are: those that RFC 3986 calls unreserved.
const UNRESERVED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// The place of a name in a path.
const PLACE: &str = "/-";

/// One request: the method, the path below the API version, and the body.
#[derive(Clone)]
pub(crate) struct Call {
    pub(crate) method: Method,
    /// The path with `-` instead of a name. Messages use it.
    pub(crate) endpoint: &'static str,
    /// The path and the query.
    pub(crate) path: String,
    pub(crate) body: Body,
    pub(crate) nature: Nature,
    /// Whether the call creates a container or a network.
    pub(crate) creates: bool,
    /// Whether the connection becomes a stream of its own after the answer.
    pub(crate) is_upgraded: bool,
}

/// The body of a request. The body may contain secrets, so no message shows it.
#[derive(Clone, Default)]
pub(crate) enum Body {
    #[default]
    None,
    Json(Value),
    Tar(Vec<u8>),
}

/// Whether a call changes the engine. This decides how a missing answer is classified.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Nature {
    Reads,
    Changes,
}

impl Call {
    fn new(method: Method, endpoint: &'static str, name: Option<&str>) -> Self {
        let path = match name {
            None => endpoint.to_owned(),
            Some(name) => {
                let name = utf8_percent_encode(name, UNRESERVED).to_string();
                endpoint.replacen(PLACE, &format!("/{name}"), 1)
            }
        };
        let nature = if method == Method::GET { Nature::Reads } else { Nature::Changes };
        Self { method, endpoint, path, body: Body::None, nature, creates: false, is_upgraded: false }
    }

    /// Reads a collection or a property of the engine.
    pub(crate) fn list(endpoint: &'static str) -> Self {
        Self::new(Method::GET, endpoint, None)
    }

    /// Asks whether the engine answers.
    pub(crate) fn ping() -> Self {
        Self::list("/_ping")
    }

    /// Reads the object with that name or id.
    pub(crate) fn get(endpoint: &'static str, name: &str) -> Self {
        Self::new(Method::GET, endpoint, Some(name))
    }

    /// Creates a container or a network.
    pub(crate) fn create(endpoint: &'static str, body: Value) -> Self {
        Self { body: Body::Json(body), creates: true, ..Self::new(Method::POST, endpoint, None) }
    }

    /// Does something with the object of that name or id.
    pub(crate) fn act(endpoint: &'static str, name: &str) -> Self {
        Self::new(Method::POST, endpoint, Some(name))
    }

    /// Writes an archive into the object of that id.
    pub(crate) fn put(endpoint: &'static str, name: &str, tar: Vec<u8>) -> Self {
        Self { body: Body::Tar(tar), ..Self::new(Method::PUT, endpoint, Some(name)) }
    }

    /// Deletes the object of that id.
    pub(crate) fn delete(endpoint: &'static str, name: &str) -> Self {
        Self::new(Method::DELETE, endpoint, Some(name))
    }

    /// Sets the body.
    #[must_use]
    pub(crate) fn json(self, body: Value) -> Self {
        Self { body: Body::Json(body), ..self }
    }

    /// Sets whether the call changes the engine, for a request whose method does not say it.
    #[must_use]
    pub(crate) fn nature(self, nature: Nature) -> Self {
        Self { nature, ..self }
    }

    /// Asks the engine to use the connection as a stream after the answer.
    #[must_use]
    pub(crate) fn upgraded(self) -> Self {
        Self { is_upgraded: true, ..self }
    }

    /// Adds a parameter to the query.
    #[must_use]
    pub(crate) fn with(mut self, name: &str, value: &str) -> Self {
        let separator = if self.path.contains('?') { '&' } else { '?' };
        self.path.push(separator);
        self.path.push_str(name);
        self.path.push('=');
        self.path.extend(utf8_percent_encode(value, UNRESERVED));
        self
    }

    /// The request in a message, without names and body.
    pub(crate) fn label(&self) -> String {
        format!("{} {}", self.method, self.endpoint)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_values_are_escaped() {
        let call = Call::act("/containers/-/kill", "a/b").with("signal", "HUP").with("x", "{a b}");
        assert_eq!(call.path, "/containers/a%2Fb/kill?signal=HUP&x=%7Ba%20b%7D");
        assert_eq!((call.label().as_str(), call.nature), ("POST /containers/-/kill", Nature::Changes));
        assert_eq!(Call::get("/containers/-/json", "w-1").nature, Nature::Reads);
    }
}
