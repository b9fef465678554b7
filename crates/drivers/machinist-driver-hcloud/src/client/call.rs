//! One request to the cloud, as data.

use http::Method;
use machinist_driver_http::{ESCAPED, Nature};
use percent_encoding::utf8_percent_encode;
use serde_json::Value;

/// The place of an id in a path.
const PLACE: &str = "/-";

/// One request: the method, the path below the endpoint, and the body.
#[derive(Clone, PartialEq)]
pub(crate) struct Call {
    pub(crate) method: Method,
    /// The path with `-` instead of an id. Counters and messages use it.
    pub(crate) endpoint: &'static str,
    /// The path and the query.
    pub(crate) path: String,
    /// The body as JSON. The body may contain user data, so no message shows it.
    pub(crate) body: Option<Value>,
}

impl Call {
    fn new(method: Method, endpoint: &'static str, id: Option<i64>) -> Self {
        let path =
            id.map_or_else(|| endpoint.to_owned(), |id| endpoint.replacen(PLACE, &format!("/{id}"), 1));
        Self { method, endpoint, path, body: None }
    }

    /// Reads the object with that id.
    pub(crate) fn get(endpoint: &'static str, id: i64) -> Self {
        Self::new(Method::GET, endpoint, Some(id))
    }

    /// Lists objects. The client adds the page.
    pub(crate) fn list(endpoint: &'static str) -> Self {
        Self::new(Method::GET, endpoint, None)
    }

    /// Creates an object.
    pub(crate) fn create(endpoint: &'static str, body: Value) -> Self {
        Self { body: Some(body), ..Self::new(Method::POST, endpoint, None) }
    }

    /// Changes the object with that id.
    pub(crate) fn update(endpoint: &'static str, id: i64, body: Value) -> Self {
        Self { body: Some(body), ..Self::new(Method::PUT, endpoint, Some(id)) }
    }

    /// Starts an action on the object with that id.
    pub(crate) fn act(endpoint: &'static str, id: i64, body: Value) -> Self {
        Self { body: Some(body), ..Self::new(Method::POST, endpoint, Some(id)) }
    }

    /// Deletes the object with that id.
    pub(crate) fn delete(endpoint: &'static str, id: i64) -> Self {
        Self::new(Method::DELETE, endpoint, Some(id))
    }

    /// Adds a parameter to the query.
    #[must_use]
    pub(crate) fn with(mut self, name: &str, value: &str) -> Self {
        let separator = if self.path.contains('?') { '&' } else { '?' };
        self.path.push(separator);
        self.path.push_str(name);
        self.path.push('=');
        self.path.extend(utf8_percent_encode(value, ESCAPED));
        self
    }

    pub(crate) fn nature(&self) -> Nature {
        if self.method == Method::GET { Nature::Reads } else { Nature::Changes }
    }

    /// The request in a message, without ids and body.
    pub(crate) fn label(&self) -> String {
        format!("{} {}", self.method, self.endpoint)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_id_replaces_the_first_dash() {
        let call = Call::get("/load_balancers/-/actions/attach_to_network", 7);
        assert_eq!(call.path, "/load_balancers/7/actions/attach_to_network");
        assert_eq!(call.label(), "GET /load_balancers/-/actions/attach_to_network");
    }

    #[test]
    fn query_values_are_escaped() {
        let call = Call::list("/servers").with("label_selector", "a.b/key==x y").with("page", "2");
        assert_eq!(call.path, "/servers?label_selector=a.b%2Fkey%3D%3Dx%20y&page=2");
    }
}
