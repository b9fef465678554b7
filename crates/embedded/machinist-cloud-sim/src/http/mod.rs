//! The cloud as a separate process, over plain HTTP and JSON.
//!
//! | Route | |
//! |---|---|
//! | `POST /v1/OPERATION` | `ensure`, `find`, `list`, `delete`, `rekey`: the body is the params of a [`Request`](crate::Request). The answer is a [`Reply`](crate::Reply) or, with a status other than 200, a [`CloudRefusal`](crate::CloudRefusal) |
//! | `GET /admin/ledger` | every instance ever made |
//! | `GET /admin/commits` | every instance ever made as a commit, then every later commit as it happens, one per line |
//! | `GET /admin/calls` | counts by operation, and the remembered calls |
//! | `GET`, `PATCH /admin/settings` | the settings: projects, quota, stockouts, limit on calls, lag, times, revoked tokens |
//! | `GET`, `POST`, `DELETE /admin/faults`, `DELETE /admin/faults/ID` | the fault rules |
//! | `POST /admin/load` | add an instance that others made |
//! | `POST /admin/kill`, `/admin/power-off`, `/admin/power-on` | `{"id": "sim:///i-1"}` |
//! | `GET /healthz` | `ok` |
//!
//! The server binds to loopback only: user data holds bootstrap tokens, and there is no TLS. A lost
//! answer (a withheld answer, a reset) closes the connection, as a real network would.

mod routes;

use std::convert::Infallible;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::combinators::BoxBody;
use hyper::body::Incoming;
pub use machinist_serve::{ListenError, LoopbackServer, serve_connection};

use crate::{Cloud, NoAnswer};

/// The header with the region whose endpoint is called; empty for the default region.
pub const REGION: &str = "x-sim-region";

pub(crate) type Body = BoxBody<Bytes, Infallible>;

impl machinist_serve::LoopbackApi for Cloud {
    type Body = Body;
    type Broken = NoAnswer;

    async fn respond(self, request: Request<Incoming>) -> Result<Response<Body>, NoAnswer> {
        routes::answer(self, request).await
    }
}
