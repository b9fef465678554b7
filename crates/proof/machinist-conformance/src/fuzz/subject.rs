//! The server that inputs are played against, and the checks on each answer.

use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use http::{HeaderMap, Method, Request, Uri, header};
use http_body_util::{BodyExt as _, Full};
use serde::Deserialize as _;
use serde_json::{Value, json};
use tower::Service as _;

use machinist_apiserver::Authorization;
use machinist_apiserver::Config;
use machinist_apiserver::History;
use machinist_apiserver::Identity;
use machinist_apiserver::PANICKED;
use machinist_apiserver::Server;
use machinist_apiserver::{SeededIds, TokioClock};

/// Maximum size of an answer. Inputs and stored objects are small, so answers must be small too.
const MAX_ANSWER: usize = 64 << 20;

/// Maximum number of pieces that are read of one answer. A watch with bookmarks may last a year.
const MAX_PIECES: usize = 2000;

/// Runs a future to its end under a clock that jumps to the next timer.
pub(super) fn in_runtime<F: Future>(story: F) -> F::Output {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    runtime.expect("a runtime starts without external resources").block_on(story)
}

pub(super) struct Subject {
    pub(super) server: Server,
}

/// A request. Parts that no client could send are left out.
#[derive(Debug, Default)]
pub(super) struct Asked {
    pub(super) method: Method,
    pub(super) uri: String,
    pub(super) headers: HeaderMap,
    pub(super) body: Vec<u8>,
}

/// An answer that was read to its end, or far enough.
#[derive(Debug)]
pub(super) struct Answered {
    pub(super) code: u16,
    pub(super) body: Bytes,
}

impl Answered {
    /// Returns the body as JSON, or null if it is not JSON.
    pub(super) fn value(&self) -> Value {
        parsed(&self.body).unwrap_or_default()
    }

    pub(super) fn is_success(&self) -> bool {
        (200..300).contains(&self.code)
    }
}

impl Asked {
    pub(super) fn new(method: Method, uri: impl Into<String>) -> Self {
        Asked { method, uri: uri.into(), ..Asked::default() }
    }

    pub(super) fn header(mut self, name: header::HeaderName, value: &str) -> Self {
        if let Ok(value) = value.parse() {
            self.headers.append(name, value);
        }
        self
    }

    pub(super) fn body(self, media_type: &str, body: impl Into<Vec<u8>>) -> Self {
        Asked { body: body.into(), ..self.header(header::CONTENT_TYPE, media_type) }
    }

    pub(super) fn json(self, body: &Value) -> Self {
        self.body("application/json", body.to_string())
    }

    /// Requests a table as the answer.
    pub(super) fn shown_as_table(self) -> Self {
        self.header(header::ACCEPT, "application/json;as=Table;v=v1;g=meta.k8s.io")
    }
}

impl Subject {
    pub(super) fn new(authorization: Authorization) -> Self {
        let epoch = "2026-01-01T00:00:00Z".parse().expect("a time");
        let config = Config {
            clock: Arc::new(TokioClock::starting_at(epoch)),
            ids: Arc::new(SeededIds::new(1)),
            history: History::Manual,
            authorization,
            ..Config::default()
        };
        Subject { server: Server::new(config) }
    }

    /// Sends a request, reads the answer, and checks it.
    pub(super) async fn ask(&self, asked: Asked) -> Option<Answered> {
        let response = self.send(asked).await?;
        Some(self.read(response).await)
    }

    /// Sends a request. Returns `None` if the input is not a valid request.
    pub(super) async fn send(&self, asked: Asked) -> Option<http::Response<machinist_apiserver::Body>> {
        let uri: Uri = asked.uri.parse().ok()?;
        let mut request = Request::new(Full::new(Bytes::from(asked.body)));
        (*request.method_mut(), *request.uri_mut(), *request.headers_mut()) =
            (asked.method, uri, asked.headers);
        let mut service = if request.headers().contains_key(header::AUTHORIZATION) {
            self.server.service_anonymous()
        } else {
            self.server.service_as(Identity::admin())
        };
        let answered = service.call(request).await;
        Some(answered.unwrap_or_else(|error| panic!("no answer: {error}")))
    }

    pub(super) async fn read(&self, response: http::Response<machinist_apiserver::Body>) -> Answered {
        let code = response.status().as_u16();
        let is_json = response
            .headers()
            .get(header::CONTENT_TYPE)
            .is_some_and(|value| value.as_bytes() == b"application/json");
        let mut frames = response.into_body();
        let (mut body, mut pieces, mut ended) = (BytesMut::new(), 0, false);
        while pieces < MAX_PIECES {
            match frames.frame().await {
                None => {
                    ended = true;
                    break;
                }
                Some(frame) => {
                    let frame = frame.unwrap_or_else(|error| panic!("the answer ended early: {error}"));
                    body.extend_from_slice(frame.data_ref().map_or(&[][..], |data| data));
                    pieces += 1;
                }
            }
            assert!(body.len() <= MAX_ANSWER, "the answer is larger than {MAX_ANSWER} bytes");
        }
        // Other internal errors may be valid answers of kube-apiserver.
        let panicked = code == 500 && String::from_utf8_lossy(&body).contains(PANICKED);
        assert!(!panicked, "{}", String::from_utf8_lossy(&body));
        if is_json && !body.is_empty() {
            let mut values = serde_json::Deserializer::from_slice(&body);
            values.disable_recursion_limit();
            for value in values.into_iter::<Value>() {
                assert!(
                    value.is_ok() || !ended,
                    "the answer is not JSON: {}",
                    String::from_utf8_lossy(&body)
                );
            }
        }
        Answered { code, body: body.freeze() }
    }

    /// Checks that the server still answers and has no open watches.
    pub(super) async fn is_well(&self) {
        let ready = self.ask(Asked::new(Method::GET, "/readyz")).await;
        assert_eq!(ready.map(|answered| answered.code), Some(200), "the server stopped answering");
        assert_eq!(self.server.open_watches(), 0, "watches are still open");
    }

    /// Creates an object for the inputs.
    pub(super) async fn hold(&self, collection: &str, object: &Value) {
        let made = self.ask(Asked::new(Method::POST, collection).json(object)).await;
        let made = made.expect("a request");
        assert_eq!(made.code, 201, "{}", String::from_utf8_lossy(&made.body));
    }

    /// Serves `things.t.dev` in one version. Returns whether the server accepted the definition.
    pub(super) async fn define(&self, version: Value) -> bool {
        let mut version = version;
        for (key, value) in [("name", json!("v1")), ("served", json!(true)), ("storage", json!(true))] {
            version[key] = value;
        }
        let definition = json!({
            "metadata": {"name": "things.t.dev"},
            "spec": {"group": "t.dev", "scope": "Namespaced", "versions": [version],
                "names": {"plural": "things", "kind": "Thing", "singular": "thing", "listKind": "ThingList"}}
        });
        let made = self.ask(Asked::new(Method::POST, DEFINITIONS).json(&definition)).await;
        made.is_some_and(|made| made.is_success())
    }
}

pub(super) const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";

/// Path of the objects of [`Subject::define`].
pub(super) const THINGS: &str = "/apis/t.dev/v1/namespaces/default/things";

/// Parses JSON of any depth. The depth that a client can read is not tested here.
pub(super) fn parsed(text: &[u8]) -> Option<Value> {
    let mut deserializer = serde_json::Deserializer::from_slice(text);
    deserializer.disable_recursion_limit();
    Value::deserialize(&mut deserializer).ok()
}

/// Escapes `text` for a query.
pub(super) fn escaped(text: &[u8]) -> String {
    text.iter().map(|byte| format!("%{byte:02X}")).collect()
}
