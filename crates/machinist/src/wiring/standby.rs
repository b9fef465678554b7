//! HTTP server of a process that waits for its Lease: alive, but not ready.

use std::convert::Infallible;

use bytes::Bytes;
use http::{Response, StatusCode};
use http_body_util::Full;
use machinist_controllers::answer_all;
use tokio::net::TcpListener;

/// Serves requests until the future is dropped.
pub(super) async fn answer(listener: &TcpListener) -> Infallible {
    answer_all(listener, respond).await
}

fn respond(path: &str) -> Response<Full<Bytes>> {
    let (status, text) = match path {
        "/healthz" | "/livez" => (StatusCode::OK, "OK"),
        "/readyz" | "/metrics" | "/why" => {
            (StatusCode::SERVICE_UNAVAILABLE, "this process is waiting for its lease")
        }
        _ => (StatusCode::NOT_FOUND, "404 page not found"),
    };
    let mut response = Response::new(Full::new(Bytes::from_static(text.as_bytes())));
    *response.status_mut() = status;
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_waiting_process_is_alive_and_not_ready() {
        assert_eq!(respond("/healthz").status(), StatusCode::OK);
        assert_eq!(respond("/readyz").status(), StatusCode::SERVICE_UNAVAILABLE);
        assert_eq!(respond("/other").status(), StatusCode::NOT_FOUND);
    }
}
