//! Mutants that rewrite requests and answers in transit.

use async_trait::async_trait;
use bytes::Bytes;
use http::{Method, Response};
use http_body_util::BodyExt;
use serde_json::{Value, json};

use super::Tamper;
use crate::ask::WholeRequest;
use crate::faults::answer::{Answer, full};
use crate::faults::wire::refusal;
use crate::sight::MACHINES;

/// Removes the `test` of the uid from patches, and the preconditions from deletions.
pub(super) struct WithoutUids;

impl Tamper for WithoutUids {
    fn request(&self, ask: &mut WholeRequest) {
        let Some(mut body) = ask.json() else { return };
        match (&ask.parts.method, &mut body) {
            (&Method::PATCH, Value::Array(operations)) => {
                operations.retain(|operation| operation["path"] != "/metadata/uid");
            }
            (&Method::PATCH, patch) => {
                if let Some(metadata) = patch.get_mut("metadata").and_then(Value::as_object_mut) {
                    metadata.remove("uid");
                }
            }
            (&Method::DELETE, options) => {
                if let Some(options) = options.as_object_mut() {
                    options.remove("preconditions");
                }
            }
            _ => return,
        }
        ask.body = Bytes::from(body.to_string());
    }
}

/// Gives every answer to a write an old revision, so that the store takes the write as already
/// seen.
pub(super) struct OldRevisions;

#[async_trait]
impl Tamper for OldRevisions {
    async fn answer(&self, ask: &WholeRequest, answer: Answer) -> Answer {
        if !ask.is_write() {
            return answer;
        }
        let (parts, body) = answer?.into_parts();
        let bytes = body.collect().await?.to_bytes();
        let Ok(mut value) = serde_json::from_slice::<Value>(&bytes) else {
            return Ok(Response::from_parts(parts, full(bytes)));
        };
        if let Some(revision) = value.pointer_mut("/metadata/resourceVersion") {
            *revision = json!("1");
        }
        Ok(Response::from_parts(parts, full(Bytes::from(value.to_string()))))
    }
}

/// Repeats a POST of a Machine under a new name, like a client that retries `generateName`.
pub(super) struct FreshNames;

/// Maximum number of attempts.
const ATTEMPTS: usize = 3;
/// Suffix that each attempt adds to the name.
const FRESH: &str = "-x";

impl Tamper for FreshNames {
    fn again(&self, ask: &WholeRequest, answer: &Answer) -> Option<WholeRequest> {
        let is_unknown = match answer {
            Ok(response) => response.status().is_server_error(),
            Err(_) => true,
        };
        let is_birth = ask.parts.method == Method::POST && ask.about.table == MACHINES;
        if !is_unknown || !is_birth || ATTEMPTS <= ask.about.name.matches(FRESH).count() {
            return None;
        }
        let mut body = ask.json()?;
        let name = format!("{}{FRESH}", ask.about.name);
        body["metadata"]["name"] = json!(name);
        let mut about = ask.about.clone();
        about.name = name;
        let parts = ask.again().into_parts().0;
        Some(WholeRequest { parts, body: Bytes::from(body.to_string()), about })
    }
}

/// Hides the return of an API server: the requests that look for it fail forever.
pub(super) struct MissedReturn;

#[async_trait]
impl Tamper for MissedReturn {
    async fn answer(&self, ask: &WholeRequest, answer: Answer) -> Answer {
        if ask.parts.uri.path() == "/version" { Ok(refusal(503)) } else { answer }
    }
}

/// Hides the return of an API server, and that a write was never sent.
pub(super) struct UnsentAsUnknown;

#[async_trait]
impl Tamper for UnsentAsUnknown {
    async fn answer(&self, ask: &WholeRequest, answer: Answer) -> Answer {
        match MissedReturn.answer(ask, answer).await {
            Err(_) if ask.is_write() => Err("connection reset by peer".into()),
            answer => answer,
        }
    }
}
