//! Connections to the stand-in.

use std::sync::Arc;

use machinist_driver_http::pipe::Pipes;
use machinist_driver_http::{Http, Transport};
use machinist_standin_hcloud::{Standin, http as standin_http};

/// HTTP to the stand-in.
pub(crate) fn http(standin: Standin) -> Arc<dyn Transport> {
    Arc::new(Http::over(Pipes(move |far| Ok(standin_http::serve_connection(standin.clone(), far)))))
}
