//! The result of a request, as the process receives it: an answer of the API server, or an error of
//! the connection.

use bytes::Bytes;
use http::Response;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full};
use tower::BoxError;

/// An answer, as the product's client receives it.
pub type Answer = Result<Response<AnswerBody>, BoxError>;

/// The body of an answer.
pub type AnswerBody = UnsyncBoxBody<Bytes, BoxError>;

pub(crate) fn full(bytes: Bytes) -> AnswerBody {
    Full::new(bytes).map_err(|never| match never {}).boxed_unsync()
}
