//! One request to the cloud, as data.

use http::Method;
use machinist_driver_http::{ESCAPED, Nature};
use percent_encoding::utf8_percent_encode;
use serde_json::Value;
use tokio::time::Instant;

/// The place of an id in a path.
const PLACE: &str = "/-";

/// One request. The body may contain user data, so the type has no `Debug` and no message shows it.
#[derive(Clone, PartialEq)]
pub(crate) struct Call {
    pub(crate) service: Service,
    pub(crate) method: Method,
    /// The path with `-` instead of an id. Counters use it.
    endpoint: &'static str,
    /// The path below the endpoint of the service, with a query.
    pub(crate) path: String,
    pub(crate) body: Option<Value>,
    /// The revision that the object must have.
    pub(crate) revision: Option<u64>,
    /// The request is not sent after this moment.
    pub(crate) deadline: Option<Instant>,
}

/// A service of OpenStack.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Service {
    /// Nova: servers, flavors, and images through its proxy.
    Compute,
    /// Neutron: ports, networks, security groups.
    Network,
    /// Cinder: volumes.
    Volume,
}

impl Service {
    /// The types in a service catalogue, the preferred one first.
    pub(crate) fn types(self) -> &'static [&'static str] {
        match self {
            Self::Compute => &["compute"],
            Self::Network => &["network"],
            Self::Volume => &["volumev3", "block-storage", "block-store", "volume"],
        }
    }

    /// The name of the service, for messages.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Compute => "Nova",
            Self::Network => "Neutron",
            Self::Volume => "Cinder",
        }
    }

    /// The microversion of all requests: the oldest one, which every cloud has. Gardener's provider
    /// uses it as well. From 2.36 on, Nova no longer has a proxy for images.
    pub(crate) fn microversion(self) -> Option<&'static str> {
        match self {
            Self::Compute => Some("compute 2.1"),
            Self::Volume => Some("volume 3.0"),
            Self::Network => None,
        }
    }

    /// The version that is added to the URL of the catalogue if it has none. Neutron has one
    /// version, so the driver does not ask for it.
    pub(crate) fn version(self) -> Option<&'static str> {
        match self {
            Self::Network => Some("/v2.0"),
            Self::Compute | Self::Volume => None,
        }
    }
}

impl Call {
    fn new(service: Service, method: Method, endpoint: &'static str) -> Self {
        Self {
            service,
            method,
            endpoint,
            path: endpoint.to_owned(),
            body: None,
            revision: None,
            deadline: None,
        }
    }

    pub(crate) fn get(service: Service, endpoint: &'static str) -> Self {
        Self::new(service, Method::GET, endpoint)
    }

    pub(crate) fn post(service: Service, endpoint: &'static str, body: Value) -> Self {
        Self { body: Some(body), ..Self::new(service, Method::POST, endpoint) }
    }

    pub(crate) fn put(service: Service, endpoint: &'static str, body: Value) -> Self {
        Self { body: Some(body), ..Self::new(service, Method::PUT, endpoint) }
    }

    pub(crate) fn delete(service: Service, endpoint: &'static str) -> Self {
        Self::new(service, Method::DELETE, endpoint)
    }

    /// Replaces the `-` in the path by an id.
    #[must_use]
    pub(crate) fn of(self, id: &str) -> Self {
        Self { path: self.path.replacen(PLACE, &format!("/{id}"), 1), ..self }
    }

    /// Adds a parameter to the query.
    #[must_use]
    pub(crate) fn with(mut self, name: &str, value: &str) -> Self {
        self.path.push(if self.path.contains('?') { '&' } else { '?' });
        self.path.push_str(name);
        self.path.push('=');
        self.path.extend(utf8_percent_encode(value, ESCAPED));
        self
    }

    /// Makes the cloud refuse the call if the object has another revision.
    #[must_use]
    pub(crate) fn if_revision(self, revision: Option<u64>) -> Self {
        Self { revision, ..self }
    }

    /// Makes the call fail if it would be sent after this moment.
    #[must_use]
    pub(crate) fn until(&self, deadline: Instant) -> Self {
        Self { deadline: Some(deadline), ..self.clone() }
    }

    pub(crate) fn nature(&self) -> Nature {
        if self.method == Method::GET { Nature::Reads } else { Nature::Changes }
    }

    /// The call without its query, for messages and logs.
    pub(crate) fn action(&self) -> String {
        let path = self.path.split('?').next().unwrap_or_default();
        format!("{}: {} {path}", self.service.name(), self.method)
    }

    /// The service and the path without ids, for counters.
    pub(crate) fn label(&self) -> String {
        format!("{}{}", self.service.types()[0], self.endpoint)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_query_is_escaped() {
        let call = Call::get(Service::Compute, "/servers/detail").with("name", "^a b$").with("x", "1");
        assert_eq!(call.path, "/servers/detail?name=%5Ea%20b%24&x=1");
        assert_eq!(call.action(), "Nova: GET /servers/detail");
        assert_eq!(call.nature(), Nature::Reads);
    }

    #[test]
    fn counters_see_no_id() {
        let call = Call::delete(Service::Network, "/ports/-").of("4-1");
        assert_eq!(call.path, "/ports/4-1");
        assert_eq!((call.label().as_str(), call.nature()), ("network/ports/-", Nature::Changes));
        assert_eq!(Call::get(Service::Volume, "/volumes/detail").label(), "volumev3/volumes/detail");
    }
}
