//! The endpoints of a process: health, readiness, metrics, and the reasons for objects' states.
//!
//! | path | answer |
//! |---|---|
//! | `/healthz`, `/livez` | 200 `OK` while the process works, 500 if one of its loops does not turn |
//! | `/readyz` | 200 if the process is ready, else 503, with the text that the process gives |
//! | `/metrics` | counters and gauges, Prometheus text |
//! | `/configz` | the effective configuration, JSON |
//! | `/why` | the last decision about every object, JSON |
//! | `/why/<kind>/<name>` | the last decision about one object, JSON |
//! | `/serves` | the component and the namespace that it serves, JSON |
//! | `/debug/pprof/...` | see the profiler |
//!
//! A [`Door`] adds TLS and checks who asks; the program implements it.
//!
//! Deliberately absent: requests that change state.

use std::convert::Infallible;
use std::net::SocketAddr;

use bytes::Bytes;
use futures::future::BoxFuture;
use http::{Response, StatusCode, header};
use http_body_util::Full;
use prometheus::TEXT_FORMAT;
use serde_json::{Value, json};
use tokio::net::{TcpListener, TcpStream};

use crate::connections::{answer_all, answer_later_behind};
use crate::door::{Door, OpenDoor};
use crate::inspect::{Inspect, ProcessReadiness};
use crate::profiler::Profiler;

/// Serves the endpoints until the future is dropped.
pub async fn serve(listener: TcpListener, process: impl Inspect) -> Infallible {
    serve_behind(listener, OpenDoor, Profiler::Off, process).await
}

/// Serves the endpoints and the profiler behind a door until the future is dropped.
pub async fn serve_behind<D: Door<TcpStream>>(
    listener: TcpListener,
    door: D,
    profiler: Profiler,
    process: impl Inspect,
) -> Infallible {
    let answer = move |path: &str| -> BoxFuture<'static, Response<Full<Bytes>>> {
        let (process, path) = (process.clone(), path.to_owned());
        Box::pin(async move { answer(&process, &path).await })
    };
    answer_later_behind(&listener, door, profiler, answer).await
}

/// Serves only `/metrics`, until the future is dropped.
pub async fn serve_metrics(listener: TcpListener, process: impl Inspect) -> Infallible {
    let answer = move |path: &str| match path {
        "/metrics" => answer_with_metrics(process.metrics()),
        _ => not_found(),
    };
    answer_all(&listener, answer).await
}

/// Listens on an address. An error names the address.
///
/// # Errors
/// If the address is in use or does not belong to this host.
pub async fn listen(address: SocketAddr) -> std::io::Result<TcpListener> {
    TcpListener::bind(address)
        .await
        .map_err(|error| std::io::Error::new(error.kind(), format!("cannot listen on {address}: {error}")))
}

async fn answer(process: &impl Inspect, path: &str) -> Response<Full<Bytes>> {
    match path {
        "/healthz" | "/livez" => match process.stall() {
            None => text(StatusCode::OK, "OK".to_owned()),
            Some(stall) => text(StatusCode::INTERNAL_SERVER_ERROR, format!("the process is stuck: {stall}")),
        },
        "/configz" => process.config().map_or_else(not_found, |config| json_of(&config)),
        "/readyz" => match process.readiness() {
            ProcessReadiness::Ready(body) => text(StatusCode::OK, body),
            ProcessReadiness::NotReady(body) => text(StatusCode::SERVICE_UNAVAILABLE, body),
        },
        "/metrics" => answer_with_metrics(process.metrics()),
        "/why" => json_of(&Value::from(process.decisions())),
        "/serves" => json_of(&json!({"component": process.component(), "namespace": process.namespace()})),
        path => {
            let found = match path.strip_prefix("/why/") {
                Some(rest) => {
                    let (kind, name) = rest.split_once('/').unwrap_or((rest, ""));
                    process.decision(kind, name).await
                }
                None => None,
            };
            found.map_or_else(not_found, |found| json_of(&found))
        }
    }
}

/// Answers a request for `/metrics` with this text.
pub fn answer_with_metrics(metrics: String) -> Response<Full<Bytes>> {
    respond(StatusCode::OK, TEXT_FORMAT, metrics)
}

fn not_found() -> Response<Full<Bytes>> {
    text(StatusCode::NOT_FOUND, "404 page not found".to_owned())
}

pub(crate) fn text(status: StatusCode, body: String) -> Response<Full<Bytes>> {
    respond(status, "text/plain; charset=utf-8", body)
}

fn json_of(value: &Value) -> Response<Full<Bytes>> {
    respond(StatusCode::OK, "application/json", value.to_string())
}

pub(crate) fn respond(status: StatusCode, kind: &str, body: impl Into<Bytes>) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(body.into()));
    *response.status_mut() = status;
    if let Ok(kind) = header::HeaderValue::from_str(kind) {
        response.headers_mut().insert(header::CONTENT_TYPE, kind);
    }
    response
}
