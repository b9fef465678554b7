//! The API: finds the handler of a request. Each file handles one sort of object.

mod actions;
mod balancer_actions;
mod balancer_services;
mod balancer_targets;
mod balancers;
mod body;
mod certificates;
mod fixed;
mod floating_ips;
mod list;
mod networks;
mod query;
mod routes;
mod server_actions;
mod server_create;
mod servers;
mod ssh_keys;

use http::{Method, StatusCode};
use jiff::Timestamp;
use machinist_cloud_sim::Cloud;
use serde_json::Value;

use crate::Fault;
use crate::books::{Books, NewAction};
use crate::error::ApiError;
use crate::model::{Effect, ResourceRef};
use body::RequestBody;
pub(crate) use query::Query;

/// One request, and everything that its handler needs.
pub(crate) struct Call<'a> {
    pub(crate) books: &'a mut Books,
    pub(crate) cloud: &'a Cloud,
    pub(crate) now: Timestamp,
    pub(crate) project: &'a str,
    /// The path without its query.
    pub(crate) path: &'a str,
    pub(crate) query: Query,
    pub(crate) body: &'a [u8],
    /// A fault that changes lists.
    pub(crate) fault: Option<&'a Fault>,
}

/// The reply of a handler.
#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) status: StatusCode,
    /// The JSON body; absent for a reply without content.
    pub(crate) body: Option<Value>,
    /// The `Link` header of a list.
    pub(crate) link: Option<String>,
}

impl Reply {
    fn ok(body: Value) -> Self {
        Self { status: StatusCode::OK, body: Some(body), link: None }
    }

    fn created(body: Value) -> Self {
        Self { status: StatusCode::CREATED, body: Some(body), link: None }
    }

    fn empty() -> Self {
        Self { status: StatusCode::NO_CONTENT, body: None, link: None }
    }
}

/// Why a request has no reply of a handler.
#[derive(Debug)]
pub(crate) enum Failure {
    /// An error of the API.
    Api(ApiError),
    /// The path does not exist: a page in HTML.
    NoSuchPath,
}

impl From<ApiError> for Failure {
    fn from(error: ApiError) -> Self {
        Self::Api(error)
    }
}

type Handled = Result<Reply, ApiError>;

/// Handles a request that is authorized.
pub(crate) fn handle(call: &mut Call<'_>, method: &Method, segments: &[&str]) -> Result<Reply, Failure> {
    if segments.first() == Some(&"datacenters") {
        return Err(ApiError::new(
            "deprecated_api_endpoint",
            "the datacenters endpoints were removed; use locations",
        )
        .into());
    }
    let Some(segments) = known(segments) else { return Err(Failure::NoSuchPath) };
    let handled = match (method.as_str(), segments.as_slice()) {
        (method, ["servers", rest @ ..]) => servers::handle(call, method, rest),
        (method, ["networks", rest @ ..]) => networks::handle(call, method, rest),
        (method, ["load_balancers", rest @ ..]) => balancers::handle(call, method, rest),
        (method, ["certificates", rest @ ..]) => certificates::handle(call, method, rest),
        (method, ["ssh_keys", rest @ ..]) => ssh_keys::handle(call, method, rest),
        (method, ["floating_ips", rest @ ..]) => floating_ips::handle(call, method, rest),
        (method, ["actions", rest @ ..]) => actions::handle(call, method, rest),
        (method, rest) => fixed::handle(call, method, rest),
    };
    handled.unwrap_or(Err(Failure::NoSuchPath))
}

/// The result of a file of handlers; absent if the file has no handler for the path.
type MaybeHandled = Option<Result<Reply, Failure>>;

fn found(handled: Handled) -> MaybeHandled {
    Some(handled.map_err(Failure::Api))
}

/// The path, if its first segment is a sort of object.
fn known<'a>(segments: &[&'a str]) -> Option<Vec<&'a str>> {
    let first = segments.first()?;
    let sorts = [
        "servers",
        "networks",
        "load_balancers",
        "certificates",
        "ssh_keys",
        "floating_ips",
        "actions",
        "locations",
        "server_types",
        "images",
        "load_balancer_types",
    ];
    sorts.contains(first).then(|| segments.to_vec())
}

/// The id in a path; no object has any other text as its id.
fn id_of(segment: &str, sort: &str) -> Result<i64, ApiError> {
    segment.parse().map_err(|_| ApiError::not_found(sort))
}

impl Call<'_> {
    fn body(&self) -> Result<RequestBody, ApiError> {
        RequestBody::parse(self.body)
    }

    /// Begins an action on one resource.
    fn begin(&mut self, command: &str, resources: Vec<ResourceRef>, effect: Effect) -> i64 {
        let takes = self.books.settings.action;
        let action = NewAction { command, resources, takes, effect };
        self.books.begin(self.project, action, self.now)
    }

    fn state(&self) -> &crate::State {
        self.books.store.state()
    }
}
