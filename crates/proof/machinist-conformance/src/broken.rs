//! Wrappers that give the embedded server one deliberate fault. The suite must detect each fault.
//!
//! The wrapper changes the requests and answers that pass through it, so a client sees the fault.

use std::collections::VecDeque;
use std::time::Duration;

use bytes::Bytes;
use futures::stream;
use http::{HeaderMap, Method, Request, Response};
use http_body_util::{BodyExt, Full, StreamBody};
use serde_json::{Value, json};
use tower::Service as _;

use crate::endpoint::ExchangeError;
use machinist_apiserver::Body;
use machinist_apiserver::Identity;
use machinist_apiserver::Server;

/// Media type of server-side apply.
const APPLY: &str = "application/apply-patch+yaml";

/// A deliberate fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DeliberateFault {
    /// A deletion does not wait for finalizers.
    Finalizers,
    /// If two events follow each other closely, the watch sends the second one first.
    WatchOrder,
    /// A write of an object also writes its status.
    Status,
    /// A watch with a selector does not report that an object no longer matches.
    SelectorTransition,
    /// An apply takes over fields of other managers without `force`.
    FieldOwnership,
}

impl DeliberateFault {
    /// All faults.
    pub const ALL: [DeliberateFault; 5] = [
        DeliberateFault::Finalizers,
        DeliberateFault::WatchOrder,
        DeliberateFault::Status,
        DeliberateFault::SelectorTransition,
        DeliberateFault::FieldOwnership,
    ];
}

/// Two events within this time follow each other closely.
const CLOSELY: Duration = Duration::from_millis(200);

/// Sends a request to `server` as if it had the fault.
pub(crate) async fn send(
    server: &Server,
    fault: DeliberateFault,
    identity: Option<Identity>,
    request: Request<Full<Bytes>>,
) -> Result<Response<Body>, ExchangeError> {
    let (mut parts, body) = request.into_parts();
    let body = body.collect().await.map_err(ExchangeError::connection)?.to_bytes();
    let query = parts.uri.query().unwrap_or_default().to_owned();
    let path = parts.uri.path().to_owned();
    let is_apply = content_type(&parts.headers).starts_with(APPLY);
    match fault {
        DeliberateFault::Finalizers if parts.method == Method::DELETE => {
            patch(server, &path, &json!({"metadata": {"finalizers": null}})).await?;
        }
        DeliberateFault::FieldOwnership if is_apply && !query.contains("force=") => {
            let forced = format!("{path}?{query}&force=true");
            parts.uri = forced.parse().map_err(ExchangeError::connection)?;
        }
        _ => {}
    }
    let writes = parts.method == Method::PUT || parts.method == Method::PATCH;
    let response = call(server, identity, Request::from_parts(parts, Full::new(body.clone()))).await?;
    let is_watch = query.contains("watch=true");
    match fault {
        DeliberateFault::Status if writes && response.status().is_success() => {
            let status =
                serde_json::from_slice(&body).ok().and_then(|body: Value| body.get("status").cloned());
            if let Some(status) = status {
                patch(server, &format!("{path}/status"), &json!({"status": status})).await?;
            }
            Ok(response)
        }
        DeliberateFault::WatchOrder if is_watch => Ok(response.map(out_of_order)),
        DeliberateFault::SelectorTransition if is_watch && query.contains("Selector=") => {
            let server = server.clone();
            Ok(response.map(|body| without_leaving(body, server, path)))
        }
        _ => Ok(response),
    }
}

async fn call(
    server: &Server,
    identity: Option<Identity>,
    request: Request<Full<Bytes>>,
) -> Result<Response<Body>, ExchangeError> {
    let mut service = match identity {
        Some(identity) => server.service_as(identity),
        None => server.service_anonymous(),
    };
    service.call(request).await.map_err(ExchangeError::connection)
}

fn content_type(headers: &HeaderMap) -> &str {
    headers.get(http::header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default()
}

/// Sends the extra write of the fault. A rejected write is ignored.
async fn patch(server: &Server, path: &str, change: &Value) -> Result<(), ExchangeError> {
    let request = Request::patch(path)
        .header(http::header::CONTENT_TYPE, "application/merge-patch+json")
        .body(Full::new(Bytes::from(change.to_string())))
        .map_err(ExchangeError::connection)?;
    call(server, Some(Identity::admin()), request).await.map(|_answer| ())
}

/// Reads one line of a watch with its line break. Returns `None` at the end.
async fn next_event(body: &mut Body) -> Option<Bytes> {
    loop {
        match body.frame().await?.ok()?.into_data() {
            Ok(data) => return Some(data),
            Err(_trailers) => {}
        }
    }
}

fn out_of_order(body: Body) -> Body {
    let events = stream::unfold((body, VecDeque::new()), |(mut body, mut waiting)| async move {
        if waiting.is_empty() {
            waiting.push_front(next_event(&mut body).await?);
            if let Ok(Some(second)) = tokio::time::timeout(CLOSELY, next_event(&mut body)).await {
                waiting.push_front(second);
            }
        }
        let event = waiting.pop_front()?;
        Some((Ok::<_, std::convert::Infallible>(http_body::Frame::data(event)), (body, waiting)))
    });
    StreamBody::new(events).map_err(|never| match never {}).boxed_unsync()
}

fn without_leaving(body: Body, server: Server, path: String) -> Body {
    let events = stream::unfold((body, server, path), |(mut body, server, path)| async move {
        loop {
            let line = next_event(&mut body).await?;
            let event: Value = serde_json::from_slice(&line).unwrap_or_default();
            if event["type"] == "DELETED" && was_there(&server, &path, &event).await {
                continue;
            }
            return Some((
                Ok::<_, std::convert::Infallible>(http_body::Frame::data(line)),
                (body, server, path),
            ));
        }
    });
    StreamBody::new(events).map_err(|never| match never {}).boxed_unsync()
}

/// Reports whether the object of an event still existed at the event's revision.
async fn was_there(server: &Server, collection: &str, event: &Value) -> bool {
    let text = |key: &str| event["object"]["metadata"][key].as_str().unwrap_or_default();
    let list = format!(
        "{collection}?resourceVersionMatch=Exact&resourceVersion={}&fieldSelector=metadata.name%3D{}",
        text("resourceVersion"),
        text("name"),
    );
    let Ok(request) = Request::get(list).body(Full::default()) else { return false };
    let Ok(answer) = call(server, Some(Identity::admin()), request).await else { return false };
    let Ok(body) = answer.into_body().collect().await else { return false };
    let list: Value = serde_json::from_slice(&body.to_bytes()).unwrap_or_default();
    list["items"].as_array().is_some_and(|items| !items.is_empty())
}
