//! One call of the API: the request as its handler sees it, and the reply.

use http::StatusCode;
use jiff::Timestamp;
use machinist_cloud_sim::Cloud;
use serde_json::Value;

use super::body::RequestBody;
use super::query::Query;
use crate::books::{Books, NewAction};
use crate::error::ApiError;
use crate::model::{Effect, ResourceRef};
use crate::{Fault, State};

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

impl Call<'_> {
    pub(super) fn body(&self) -> Result<RequestBody, ApiError> {
        RequestBody::parse(self.body)
    }

    /// Begins an action on one resource.
    pub(super) fn begin(&mut self, command: &str, resources: Vec<ResourceRef>, effect: Effect) -> i64 {
        let takes = self.books.settings.action;
        let action = NewAction { command, resources, takes, effect };
        self.books.begin(self.project, action, self.now)
    }

    pub(super) fn state(&self) -> &State {
        self.books.store.state()
    }
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
    pub(super) fn ok(body: Value) -> Self {
        Self { status: StatusCode::OK, body: Some(body), link: None }
    }

    pub(super) fn created(body: Value) -> Self {
        Self { status: StatusCode::CREATED, body: Some(body), link: None }
    }

    pub(super) fn empty() -> Self {
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

/// The reply of a handler of an existing path.
pub(super) type Handled = Result<Reply, ApiError>;

/// The result of a file of handlers; absent if the file has no handler for the path.
pub(super) type MaybeHandled = Option<Result<Reply, Failure>>;

pub(super) fn found(handled: Handled) -> MaybeHandled {
    Some(handled.map_err(Failure::Api))
}

/// The id in a path; no object has any other text as its id.
pub(super) fn id_of(segment: &str, sort: &str) -> Result<i64, ApiError> {
    segment.parse().map_err(|_| ApiError::not_found(sort))
}
