//! The HTTP endpoints of a process: health, readiness, metrics, and the reasons for objects'
//! states.
//!
//! | path | answer |
//! |---|---|
//! | `/healthz`, `/livez` | 200 `OK` while the process runs |
//! | `/readyz` | 200 if all stores are complete and the contract has no objection, else 503; names the silent API servers |
//! | `/metrics` | counters and gauges, Prometheus text |
//! | `/why` | the last decision about every object, JSON |
//! | `/why/<kind>/<name>` | the last decision about one object, JSON |
//! | `/serves` | the component and the namespace that it serves, JSON |
//!
//! The answers contain no secrets, because planners never see a secret.
//!
//! A [`Door`] adds TLS and checks who asks; the program around the runtime implements it.
//!
//! Deliberately absent: requests that change state.

mod connections;
mod door;
mod exposition;

use std::convert::Infallible;
use std::net::SocketAddr;

use bytes::Bytes;
use futures::future::BoxFuture;
use http::{Response, StatusCode, header};
use http_body_util::Full;
use machinist_core::{ContractReason, Reason, Why};
use serde_json::{Value, json};
use tokio::net::{TcpListener, TcpStream};

use connections::answer_later_behind;
pub use connections::{answer_all, answer_behind};
pub use door::{Door, OpenDoor, Rejection};

use crate::contract::{Contract, QueueKey as _};
use crate::metrics::Sample;
use crate::passes::WhyRecord;
use crate::process::Inspector;

/// The reason of an object whose cloud does not answer.
const CLOUD_SILENT: &str = "CloudSilent";

/// Media type of the text format of Prometheus.
const METRICS_TYPE: &str = "text/plain; version=0.0.4";

/// Serves the endpoints until the future is dropped.
pub async fn serve<C: Contract>(listener: TcpListener, inspector: Inspector<C>) -> Infallible {
    serve_behind(listener, OpenDoor, inspector).await
}

/// Serves the endpoints behind a door until the future is dropped.
pub async fn serve_behind<C: Contract, D: Door<TcpStream>>(
    listener: TcpListener,
    door: D,
    inspector: Inspector<C>,
) -> Infallible {
    let answer = move |path: &str| -> BoxFuture<'static, Response<Full<Bytes>>> {
        let (inspector, path) = (inspector.clone(), path.to_owned());
        Box::pin(async move { answer(&inspector, &path).await })
    };
    answer_later_behind(&listener, door, answer).await
}

/// Serves only `/metrics`, until the future is dropped.
pub async fn serve_metrics<C: Contract>(listener: TcpListener, inspector: Inspector<C>) -> Infallible {
    let answer = move |path: &str| match path {
        "/metrics" => answer_with_metrics(inspector.metrics()),
        _ => respond(StatusCode::NOT_FOUND, "text/plain; charset=utf-8", "404 page not found".to_owned()),
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

async fn answer<C: Contract>(inspector: &Inspector<C>, path: &str) -> Response<Full<Bytes>> {
    let text = |status, text: &str| respond(status, "text/plain; charset=utf-8", text.to_owned());
    match path {
        "/healthz" | "/livez" => text(StatusCode::OK, "OK"),
        "/readyz" => match inspector.not_ready() {
            None => {
                let remark =
                    inspector.remark().map_or_else(|| "OK".to_owned(), |remark| format!("OK: {remark}"));
                text(StatusCode::OK, &below_silence(inspector, &remark))
            }
            Some(reason) => text(StatusCode::SERVICE_UNAVAILABLE, &below_silence(inspector, &reason)),
        },
        "/metrics" => answer_with_metrics(inspector.metrics()),
        "/why" => {
            let all = inspector.whys();
            let all: Vec<_> = all.iter().map(|(key, record)| render(inspector, key, record, None)).collect();
            respond(StatusCode::OK, "application/json", Value::from(all).to_string())
        }
        "/serves" => {
            let served = json!({"component": inspector.component(), "namespace": inspector.namespace()});
            respond(StatusCode::OK, "application/json", served.to_string())
        }
        path => {
            let found = match path.strip_prefix("/why/") {
                Some(rest) => why(inspector, rest).await,
                None => None,
            };
            match found {
                Some(found) => respond(StatusCode::OK, "application/json", found.to_string()),
                None => text(StatusCode::NOT_FOUND, "404 page not found"),
            }
        }
    }
}

/// Puts the silent API servers before a text, one a line.
fn below_silence<C: Contract>(inspector: &Inspector<C>, text: &str) -> String {
    let silent = inspector.silent_servers().into_iter().map(|server| format!("{server}\n"));
    silent.chain([text.to_owned()]).collect()
}

async fn why<C: Contract>(inspector: &Inspector<C>, rest: &str) -> Option<Value> {
    // Kinds of which there is one object have no name: `/why/routes`.
    let (kind, name) = rest.split_once('/').unwrap_or((rest, ""));
    let key = C::Key::named(kind, inspector.namespace(), name)?;
    // Without a decision, the cloud is not asked.
    inspector.why(&key)?;
    let silent_cloud = inspector.silent_cloud_of(&key).await;
    inspector.why(&key).map(|record| render(inspector, &key, &record, silent_cloud))
}

/// Renders a decision. What does not answer comes first: a decision from before may be wrong by
/// now.
fn render<C: Contract>(
    inspector: &Inspector<C>,
    key: &C::Key,
    record: &WhyRecord<C::Reason>,
    silent_cloud: Option<String>,
) -> Value {
    let mut rendered = render_why(&record.why);
    rendered["object"] = Value::from(key.to_string());
    rendered["decidedAt"] = Value::from(record.at.to_string());
    rendered["actions"] = Value::from(record.actions.clone());
    let servers = inspector.silent_servers_of(key);
    let silent: Vec<String> =
        silent_cloud.clone().into_iter().chain(servers.iter().map(ToString::to_string)).collect();
    if !silent.is_empty() {
        let told = silent.join("; ");
        rendered["waitsFor"] = Value::from(match (&silent_cloud, &record.why.reason) {
            // The object may have changed since that decision.
            (Some(_), Reason::Settled) => told,
            (Some(_) | None, reason) => format!("{told}; last known: {reason}"),
        });
        rendered["silent"] = Value::from(silent);
    }
    if silent_cloud.is_some() {
        rendered["reason"] = Value::from(CLOUD_SILENT);
    }
    rendered["from"] = Value::from(inspector.component());
    rendered
}

/// Renders a `Why` as JSON: the reason, its start, the next step and the deadline.
pub fn render_why<R: ContractReason>(why: &Why<R>) -> Value {
    json!({
        "reason": why.reason.code(),
        "waitsFor": why.reason.to_string(),
        "since": why.since.map(|since| since.to_string()),
        "next": why.next.to_string(),
        "deadline": why.deadline.as_ref().map(|deadline| json!({
            "at": deadline.at.to_string(),
            "then": deadline.then.to_string(),
        })),
    })
}

/// Answers a request for `/metrics` with these values.
pub fn answer_with_metrics(samples: Vec<Sample>) -> Response<Full<Bytes>> {
    respond(StatusCode::OK, METRICS_TYPE, exposition::render(samples))
}

fn respond(status: StatusCode, kind: &str, body: String) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::from(body)));
    *response.status_mut() = status;
    if let Ok(kind) = header::HeaderValue::from_str(kind) {
        response.headers_mut().insert(header::CONTENT_TYPE, kind);
    }
    response
}
