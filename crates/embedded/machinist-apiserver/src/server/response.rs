//! The body of every answer: whole, or a stream of watch events.

use bytes::Bytes;
use http_body_util::combinators::UnsyncBoxBody;

/// Body of every response.
pub type Body = UnsyncBoxBody<Bytes, BoxError>;

/// Why a body ends early.
pub(crate) type BoxError = Box<dyn std::error::Error + Send + Sync>;
