//! Converts an HTTP request to a call of the cloud, and the reply to a response.

use std::convert::Infallible;

use bytes::Bytes;
use futures::stream;
use http::request::Parts;
use http::{Method, Request as HttpRequest, Response, StatusCode, header};
use http_body_util::{BodyExt, Full, Limited, StreamBody};
use hyper::body::{Frame, Incoming};
use jiff::fmt::rfc2822::DateTimePrinter;
use machinist_instance::ProviderId;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::Body;
use super::REGION;
use crate::{
    Caller, Cloud, CloudRefusal, Code, FaultRule, Following, LedgerCommit, NoAnswer, Request, RuleId,
};

/// In every cloud, user data has at most a few tens of kilobytes.
const MAX_REQUEST_BYTES: usize = 4 * 1024 * 1024;

/// Answers one HTTP request. An error closes the connection without an answer, which is the meaning
/// of [`NoAnswer`].
pub(crate) async fn answer(cloud: Cloud, request: HttpRequest<Incoming>) -> Result<Response<Body>, NoAnswer> {
    if request.headers().contains_key(header::ORIGIN) {
        // Loopback keeps other machines out, but not web pages in a browser on this machine.
        return Ok(refused(&CloudRefusal::new(
            Code::Unauthorized,
            "the simulated cloud does not accept requests from browsers",
        )));
    }
    let (parts, body) = request.into_parts();
    let body = match Limited::new(body, MAX_REQUEST_BYTES).collect().await {
        Ok(body) => body.to_bytes(),
        Err(_) => return Ok(refused(&invalid(format!("body: expected at most {MAX_REQUEST_BYTES} bytes")))),
    };
    let mut response = respond(&cloud, &parts, &body).await?;
    // The cloud's own time, because callers compare their clock with it. By default hyper would
    // write the system's time.
    if let Ok(date) = DateTimePrinter::new().timestamp_to_rfc9110_string(&cloud.clock().now())
        && let Ok(date) = header::HeaderValue::from_str(&date)
    {
        response.headers_mut().insert(header::DATE, date);
    }
    Ok(response)
}

async fn respond(cloud: &Cloud, parts: &Parts, body: &[u8]) -> Result<Response<Body>, NoAnswer> {
    let path = parts.uri.path();
    if let (&Method::POST, Some(operation)) = (&parts.method, path.strip_prefix("/v1/")) {
        let token = parts
            .headers
            .get(header::AUTHORIZATION)
            .and_then(|value| value.to_str().ok())
            .and_then(|value| value.strip_prefix("Bearer "));
        let region = parts.headers.get(REGION).and_then(|value| value.to_str().ok());
        return call(cloud, Caller { token, region }, operation, body).await;
    }
    Ok(admin(cloud, &parts.method, path, body).unwrap_or_else(|refusal| refused(&refusal)))
}

async fn call(
    cloud: &Cloud,
    caller: Caller<'_>,
    operation: &str,
    body: &[u8],
) -> Result<Response<Body>, NoAnswer> {
    let request = parse::<Value>(body).and_then(|params| {
        let tagged = json!({"operation": operation, "params": params});
        serde_json::from_value::<Request>(tagged).map_err(|error| invalid(error.to_string()))
    });
    Ok(match request {
        Ok(request) => match cloud.call(caller, request).await? {
            Ok(reply) => answered(&reply),
            Err(refusal) => refused(&refusal),
        },
        Err(refusal) => refused(&refusal),
    })
}

fn admin(cloud: &Cloud, method: &Method, path: &str, body: &[u8]) -> Result<Response<Body>, CloudRefusal> {
    match (method, path) {
        (&Method::GET, "/healthz") => Ok(text(StatusCode::OK, "text/plain", "ok".into())),
        (&Method::GET, "/admin/ledger") => Ok(answered(&cloud.ledger())),
        (&Method::GET, "/admin/commits") => Ok(commits(cloud.follow())),
        (&Method::GET, "/admin/calls") => {
            Ok(answered(&json!({"counts": cloud.call_counts(), "calls": cloud.calls()})))
        }
        (&Method::GET, "/admin/settings") => Ok(answered(&cloud.settings())),
        (&Method::PATCH, "/admin/settings") => change_settings(cloud, body),
        (&Method::GET, "/admin/faults") => {
            let rules: Vec<Value> =
                cloud.faults().rules().iter().map(|(id, rule)| json!({"id": id, "rule": rule})).collect();
            Ok(answered(&rules))
        }
        (&Method::POST, "/admin/faults") => {
            Ok(answered(&json!({"id": cloud.faults().add(parse::<FaultRule>(body)?)})))
        }
        (&Method::DELETE, "/admin/faults") => {
            cloud.faults().clear();
            Ok(answered(&json!({})))
        }
        (&Method::POST, "/admin/load") => cloud.load(&parse(body)?).map(|entry| answered(&entry)),
        (&Method::POST, "/admin/kill") => done(cloud.kill(&parse::<Which>(body)?.id)),
        (&Method::POST, "/admin/power-off") => done(cloud.power_off(&parse::<Which>(body)?.id)),
        (&Method::POST, "/admin/power-on") => done(cloud.power_on(&parse::<Which>(body)?.id)),
        (&Method::DELETE, path) if path.starts_with("/admin/faults/") => {
            let id = path.trim_start_matches("/admin/faults/");
            let id =
                id.parse().map_err(|_| invalid(format!("fault {id:?}: expected the number of a rule")))?;
            cloud.faults().remove(RuleId(id));
            Ok(answered(&json!({})))
        }
        _ => Err(CloudRefusal::new(Code::NotFound, format!("route {method} {path} not found"))),
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Which {
    id: ProviderId,
}

fn done(result: Result<(), CloudRefusal>) -> Result<Response<Body>, CloudRefusal> {
    result.map(|()| answered(&json!({})))
}

/// Changes the fields that the body names; other fields keep their values.
fn change_settings(cloud: &Cloud, body: &[u8]) -> Result<Response<Body>, CloudRefusal> {
    let changes: serde_json::Map<String, Value> = parse(body)?;
    let current = serde_json::to_value(cloud.settings()).map_err(|error| invalid(error.to_string()))?;
    let Value::Object(mut fields) = current else { return Err(invalid("settings: expected an object")) };
    fields.extend(changes);
    let settings: crate::Settings = serde_json::from_value(Value::Object(fields))
        .map_err(|error| invalid(format!("settings: {error}")))?;
    cloud.configure(|current| *current = settings);
    Ok(answered(&cloud.settings()))
}

/// Streams the past as commits, then each later commit as it happens.
fn commits(following: Following) -> Response<Body> {
    let made = |entry| LedgerCommit::Made { entry: Box::new(entry) };
    let past = following.entries.into_iter().map(made).map(|commit| line(&commit)).collect::<Vec<_>>();
    let future = stream::unfold(following.commits, |mut commits| async move {
        let commit = commits.recv().await?;
        Some((line(&commit), commits))
    });
    let lines = futures::StreamExt::chain(stream::iter(past), future);
    let frames = futures::StreamExt::map(lines, |line| Ok::<_, Infallible>(Frame::data(line)));
    with_body(StatusCode::OK, "application/jsonlines", BodyExt::boxed(StreamBody::new(frames)))
}

fn line(commit: &LedgerCommit) -> Bytes {
    let mut bytes = serde_json::to_vec(commit).expect("a commit is plain data");
    bytes.push(b'\n');
    bytes.into()
}

fn parse<T: DeserializeOwned>(body: &[u8]) -> Result<T, CloudRefusal> {
    serde_json::from_slice(body).map_err(|error| invalid(format!("body: {error}")))
}

fn invalid(message: impl Into<String>) -> CloudRefusal {
    CloudRefusal::new(Code::InvalidParameter, message)
}

fn answered<T: Serialize>(value: &T) -> Response<Body> {
    text(StatusCode::OK, "application/json", serde_json::to_vec(value).expect("answers are plain data"))
}

fn refused(refusal: &CloudRefusal) -> Response<Body> {
    let status = match refusal.code {
        Code::InvalidParameter => StatusCode::BAD_REQUEST,
        Code::Unauthorized => StatusCode::UNAUTHORIZED,
        Code::Foreign => StatusCode::FORBIDDEN,
        Code::NotFound => StatusCode::NOT_FOUND,
        Code::KeySpent | Code::WrongState | Code::QuotaExceeded | Code::OutOfStock => StatusCode::CONFLICT,
        Code::RateLimited => StatusCode::TOO_MANY_REQUESTS,
        Code::ServiceUnavailable => StatusCode::SERVICE_UNAVAILABLE,
        Code::InternalError => StatusCode::INTERNAL_SERVER_ERROR,
    };
    let body = serde_json::to_vec(refusal).expect("refusals are plain data");
    let mut response = text(status, "application/json", body);
    if let Some(seconds) = refusal.retry_after_seconds {
        response.headers_mut().insert(header::RETRY_AFTER, seconds.into());
    }
    response
}

fn text(status: StatusCode, kind: &'static str, body: Vec<u8>) -> Response<Body> {
    with_body(status, kind, Full::from(body).boxed())
}

fn with_body(status: StatusCode, kind: &'static str, body: Body) -> Response<Body> {
    let mut response = Response::new(body);
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, header::HeaderValue::from_static(kind));
    response
}
