//! The HTTP port of a process that does not work yet: alive, and not ready.

use std::convert::Infallible;

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::net::TcpListener;

/// Answers until it is dropped; ends only with an error of the port.
pub(super) async fn answer(listener: &TcpListener) -> std::io::Error {
    let mut connections = tokio::task::JoinSet::new();
    loop {
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            Err(error) => return error,
        };
        while connections.try_join_next().is_some() {}
        connections.spawn(async move {
            let service = service_fn(|request: Request<Incoming>| async move {
                Ok::<_, Infallible>(respond(request.uri().path()))
            });
            // A connection that breaks is the caller's affair.
            let _ = http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
        });
    }
}

fn respond(path: &str) -> Response<Full<Bytes>> {
    let (status, text) = match path {
        "/healthz" | "/livez" => (StatusCode::OK, "OK"),
        "/readyz" | "/metrics" | "/why" => {
            (StatusCode::SERVICE_UNAVAILABLE, "this process waits for its lease")
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
