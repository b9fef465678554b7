//! The operator's functions over HTTP. They need no signature.
//!
//! | Route | |
//! |---|---|
//! | `GET /_control` | the URL of the backend, the number of tokens, and the requests by action |
//! | `GET`, `POST`, `DELETE /_control/faults` | the rules: `{"action": "RunInstances", "times": 2, "fault": {...}}` |
//! | `PUT /_control/delay` | how long reads do not show new instances: `{"inListsSeconds": 300, "byIdSeconds": 5}` |
//! | `DELETE /_control/delay` | shows new and hidden instances at once |
//! | `POST /_control/advance` | moves the clock of delays: `{"seconds": 60}` |
//! | `PUT`, `DELETE /_control/keys/ID` | accepts an access key with `{"secretKey": "..."}`; refuses it |
//!
//! A fault is `{"kind": "refuse", "code": "RequestLimitExceeded", "status": 503,
//! "retryAfterSeconds": 5}`, of which status and wait may be absent; `{"kind": "effectThenError"}`,
//! `{"kind": "effectThenClose"}` or `{"kind": "closeThenEffect", "seconds": 60}`. A rule without
//! `times` applies until it is removed, and `skip` lets requests pass before.

use std::time::Duration;

use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{HeaderValue, Response, StatusCode};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::backend::Backend;
use crate::delays::{Delay, MAX_SPAN};
use crate::faults::{Fault, Rule};
use crate::proxy::Proxy;
use crate::signature::Secret;

/// The beginning of the paths.
pub(crate) const PATH: &str = "/_control";

/// Answers a request of the operator.
pub(crate) async fn respond<B: Backend>(
    proxy: &Proxy<B>,
    method: &str,
    path: &str,
    body: &[u8],
) -> Response<Bytes> {
    let (status, value) = match route(proxy, method, path, body).await {
        Ok(value) => (StatusCode::OK, value),
        Err(Wrong { status, message }) => (status, json!({"error": message})),
    };
    let mut answer = Response::new(Bytes::from(value.to_string()));
    *answer.status_mut() = status;
    answer.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    answer
}

/// A request that the operator must change.
struct Wrong {
    status: StatusCode,
    message: String,
}

fn wrong(message: impl Into<String>) -> Wrong {
    Wrong { status: StatusCode::BAD_REQUEST, message: message.into() }
}

async fn route<B: Backend>(proxy: &Proxy<B>, method: &str, path: &str, body: &[u8]) -> Result<Value, Wrong> {
    let segments: Vec<&str> = path.trim_start_matches(PATH).trim_matches('/').split('/').collect();
    match (method, segments.as_slice()) {
        ("GET", [""]) => Ok(proxy.described().await),
        ("GET", ["faults"]) => Ok(json!(proxy.lock().faults.rules())),
        ("POST", ["faults"]) => {
            let rule: Rule = parse(body)?;
            check(&rule.fault)?;
            proxy.lock().faults.add(rule).map_err(wrong)?;
            Ok(json!({}))
        }
        ("DELETE", ["faults"]) => {
            proxy.lock().faults.clear();
            Ok(json!({}))
        }
        ("PUT", ["delay"]) => {
            let NewDelay { in_lists_seconds, by_id_seconds } = parse(body)?;
            let in_lists = span("inListsSeconds", in_lists_seconds)?;
            let by_id = span("byIdSeconds", by_id_seconds)?;
            proxy.lock().delays.delay = Delay { in_lists, by_id };
            Ok(json!({}))
        }
        ("DELETE", ["delay"]) => {
            let mut state = proxy.lock();
            state.delays.delay = Delay::default();
            state.delays.show_all();
            Ok(json!({}))
        }
        ("POST", ["advance"]) => {
            let Advance { seconds } = parse(body)?;
            let by = span("seconds", seconds)?;
            if !proxy.lock().delays.advance(by) {
                return Err(wrong("seconds: the clock cannot be moved this far; restart the proxy"));
            }
            proxy.carry_out_late_ones().await;
            Ok(json!({}))
        }
        ("PUT", ["keys", access_key]) if !access_key.is_empty() => {
            let NewKey { secret_key } = parse(body)?;
            proxy.lock().keys.set(access_key, Secret { text: secret_key, session: None });
            Ok(json!({}))
        }
        ("DELETE", ["keys", access_key]) => {
            let is_known = proxy.lock().keys.remove(access_key);
            Ok(json!({"removed": is_known}))
        }
        _ => {
            let message = format!("{PATH} has no {method} {}", segments.join("/"));
            Err(Wrong { status: StatusCode::NOT_FOUND, message })
        }
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct NewDelay {
    #[serde(default)]
    in_lists_seconds: u64,
    #[serde(default)]
    by_id_seconds: u64,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Advance {
    seconds: u64,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct NewKey {
    secret_key: String,
}

/// Checks the fields of a fault that could not be played.
fn check(fault: &Fault) -> Result<(), Wrong> {
    match fault {
        Fault::Refuse { status: Some(status), .. } if !(400..600).contains(status) => {
            Err(wrong("fault.status: expected 400 to 599"))
        }
        Fault::CloseThenEffect { seconds } => span("fault.seconds", *seconds).map(drop),
        Fault::Refuse { .. } | Fault::EffectThenError | Fault::EffectThenClose => Ok(()),
    }
}

fn span(field: &str, seconds: u64) -> Result<Duration, Wrong> {
    let span = Duration::from_secs(seconds);
    if MAX_SPAN < span {
        return Err(wrong(format!("{field}: expected at most {}", MAX_SPAN.as_secs())));
    }
    Ok(span)
}

/// Parses a body. An error names no value, because it may be a secret key.
fn parse<T: DeserializeOwned>(body: &[u8]) -> Result<T, Wrong> {
    serde_json::from_slice(body).map_err(|error| {
        wrong(format!(
            "body: expected JSON as in the documentation of {PATH}; see line {}, column {}",
            error.line(),
            error.column()
        ))
    })
}
