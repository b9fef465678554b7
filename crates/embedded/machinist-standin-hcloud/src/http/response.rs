//! Responses, and bodies that break on request.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderValue, Response, StatusCode, header};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full};
use hyper::body::{Frame, SizeHint};
use serde::Serialize;
use tokio::time::Sleep;

/// The body of a response.
pub type ReplyBody = UnsyncBoxBody<Bytes, Broken>;

/// The connection broke because of a fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the stand-in broke the connection because of a fault")]
pub struct Broken;

pub(super) fn json<T: Serialize>(status: StatusCode, value: &T) -> Response<ReplyBody> {
    let bytes = serde_json::to_vec(value).expect("answers are plain data");
    with_type(status, "application/json", bytes)
}

/// A page of something that is not the API, such as a proxy.
pub(super) fn html(status: StatusCode) -> Response<ReplyBody> {
    let reason = status.canonical_reason().unwrap_or("Error");
    let page = format!("<html>\n<head><title>{0} {reason}</title></head>\n</html>\n", status.as_u16());
    with_type(status, "text/html", page.into_bytes())
}

pub(super) fn empty(status: StatusCode) -> Response<ReplyBody> {
    let mut response = Response::new(whole(Bytes::new()));
    *response.status_mut() = status;
    response
}

fn with_type(status: StatusCode, kind: &'static str, bytes: Vec<u8>) -> Response<ReplyBody> {
    let mut response = Response::new(whole(bytes.into()));
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    response
}

fn whole(bytes: Bytes) -> ReplyBody {
    Full::new(bytes).map_err(|never: Infallible| match never {}).boxed_unsync()
}

/// The event between the halves of a body.
pub(super) enum Between {
    /// The connection breaks.
    Break,
    /// Time passes.
    Wait(Duration),
}

/// Sends a response's body in two halves.
pub(super) async fn halve(response: Response<ReplyBody>, between: Between) -> Response<ReplyBody> {
    let (parts, body) = response.into_parts();
    // The body was built from bytes, so reading it cannot fail.
    let bytes = body.collect().await.map(http_body_util::Collected::to_bytes).unwrap_or_default();
    let pause = match between {
        Between::Break => None,
        Between::Wait(span) => Some(Box::pin(tokio::time::sleep(span))),
    };
    let length = bytes.len() as u64;
    let second = bytes.slice(bytes.len() / 2..);
    let first = Some(bytes.slice(..bytes.len() / 2));
    Response::from_parts(parts, Halves { first, second: Some(second), pause, length }.boxed_unsync())
}

struct Halves {
    first: Option<Bytes>,
    second: Option<Bytes>,
    /// The time before the second half; absent if the connection breaks instead.
    pause: Option<Pin<Box<Sleep>>>,
    length: u64,
}

impl hyper::body::Body for Halves {
    type Data = Bytes;
    type Error = Broken;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Broken>>> {
        if let Some(first) = self.first.take() {
            return Poll::Ready(Some(Ok(Frame::data(first))));
        }
        match &mut self.pause {
            None => return Poll::Ready(Some(Err(Broken))),
            Some(pause) => std::task::ready!(pause.as_mut().poll(context)),
        }
        Poll::Ready(self.second.take().map(|second| Ok(Frame::data(second))))
    }

    fn size_hint(&self) -> SizeHint {
        // The whole length, so that a client notices a missing half.
        SizeHint::with_exact(self.length)
    }
}
