//! The stand-in over HTTP.
//!
//! `/v1` is the API, and `/_control` has the operator's functions (see [`control`]). The server
//! binds to loopback only: user data holds bootstrap tokens, and there is no TLS. `/_control` needs
//! no token.

pub mod control;
mod request;
mod response;

use http::{Request, Response};
use hyper::body::Incoming;
pub use machinist_serve::{ListenError, LoopbackServer, serve_connection};

use crate::Standin;
pub use response::{Broken, ReplyBody};

impl machinist_serve::LoopbackApi for Standin {
    const PATH: &'static str = "/v1";

    type Body = ReplyBody;
    type Broken = Broken;

    async fn respond(self, request: Request<Incoming>) -> Result<Response<ReplyBody>, Broken> {
        request::answer(&self, request).await
    }
}

/// Answers one request without a connection, for clients in the same process.
///
/// # Errors
/// [`Broken`] when a fault breaks the connection instead of an answer.
pub async fn answer<B>(standin: &Standin, request: Request<B>) -> Result<Response<ReplyBody>, Broken>
where
    B: http_body::Body,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    request::answer(standin, request).await
}
