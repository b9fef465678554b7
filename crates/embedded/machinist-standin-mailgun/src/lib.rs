//! A stand-in for Mailgun's HTTP API, for tests and demonstrations without an account.
//!
//! ```text
//! POST /v3/{domain}/messages   accepts a mail (a form)
//! GET  /v3/{domain}/events     shows the accepted mails, by message-id
//! GET  /_control               accepted mails, and how many were accepted more than once
//! PUT  /_control/fault/{mode}  the answer to the next mails: see [`Fault`]
//! ```
//!
//! A mail is a duplicate if a mail of the same object and purpose was accepted before. No process
//! of this project may ever cause one.
//!
//! The server binds to loopback only, and `/_control` needs no key. Deliberately absent: delivery,
//! attachments and multipart forms.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::{Method, Request, Response, StatusCode, header};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::Incoming;
pub use machinist_serve::LoopbackServer;
use percent_encoding::percent_decode_str;
use serde_json::{Value, json};
use tokio::time::Instant;

/// The largest mail.
const MAX_BODY_BYTES: usize = 1024 * 1024;

/// The mails of one domain. Clones share them.
#[derive(Debug, Clone)]
pub struct Standin {
    key: Arc<str>,
    visible_after: Duration,
    state: Arc<Mutex<State>>,
}

#[derive(Debug, Default)]
struct State {
    mails: Vec<Mail>,
    fault: Fault,
}

/// An accepted mail.
#[derive(Debug, Clone)]
struct Mail {
    fields: BTreeMap<String, String>,
    accepted_at: Instant,
}

/// The identity of an accepted mail.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Accepted {
    /// UID of the object that requested the mail.
    pub uid: String,
    /// Purpose of the mail.
    pub purpose: String,
    /// The Message-Id, in angle brackets.
    pub message_id: String,
    /// The last recipient.
    pub recipient: String,
}

/// The answer to mails.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Fault {
    /// Accepts each mail (`none`).
    #[default]
    None,
    /// Answers 400 (`reject`).
    Reject,
    /// Answers 429 (`throttle`).
    Throttle,
    /// Answers 503 without accepting the mail (`fail`).
    Fail,
    /// Accepts the mail and answers 503 (`fail-after`).
    FailAfter,
    /// Denies look-ups, as for a key that may only send (`no-look-up`).
    NoLookUp,
}

impl Fault {
    fn parse(text: &str) -> Option<Self> {
        match text {
            "none" => Some(Self::None),
            "reject" => Some(Self::Reject),
            "throttle" => Some(Self::Throttle),
            "fail" => Some(Self::Fail),
            "fail-after" => Some(Self::FailAfter),
            "no-look-up" => Some(Self::NoLookUp),
            _ => None,
        }
    }
}

impl Standin {
    /// Creates a stand-in for clients with this key. An accepted mail appears in events after a
    /// time.
    pub fn new(key: &str, visible_after: Duration) -> Self {
        Self { key: key.into(), visible_after, state: Arc::default() }
    }

    /// Sets the answer to the next mails.
    pub fn set_fault(&self, fault: Fault) {
        self.lock().fault = fault;
    }

    /// The number of accepted mails.
    pub fn accepted(&self) -> usize {
        self.lock().mails.len()
    }

    /// The accepted mails, in the order of their arrival.
    pub fn mails(&self) -> Vec<Accepted> {
        let identity = |mail: &Mail| {
            let field = |name: &str| mail.fields.get(name).cloned().unwrap_or_default();
            Accepted {
                uid: field("v:machinist-uid"),
                purpose: field("v:machinist-purpose"),
                message_id: field("h:Message-Id"),
                recipient: field("to"),
            }
        };
        self.lock().mails.iter().map(identity).collect()
    }

    /// The number of mails that were accepted although one of the same object and purpose was
    /// accepted before.
    pub fn duplicates(&self) -> usize {
        let state = self.lock();
        let mut seen: BTreeMap<(String, String), usize> = BTreeMap::new();
        for mail in &state.mails {
            let field = |name: &str| mail.fields.get(name).cloned().unwrap_or_default();
            *seen.entry((field("v:machinist-uid"), field("v:machinist-purpose"))).or_default() += 1;
        }
        seen.values().map(|times| times - 1).sum()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Answers one request, as the port does. A simulation calls it without a
    /// connection.
    pub fn answer(&self, request: &Request<Bytes>) -> Response<Full<Bytes>> {
        let path: Vec<&str> = request.uri().path().trim_matches('/').split('/').collect();
        match (request.method(), path.as_slice()) {
            (&Method::GET, ["_control"]) => json_answer(
                StatusCode::OK,
                &json!({"accepted": self.accepted(), "duplicates": self.duplicates(), "mails": self.shown()}),
            ),
            (&Method::PUT, ["_control", "fault", mode]) => match Fault::parse(mode) {
                Some(fault) => {
                    self.set_fault(fault);
                    json_answer(StatusCode::OK, &json!({}))
                }
                None => message(
                    StatusCode::BAD_REQUEST,
                    "expected none, reject, throttle, fail, fail-after or no-look-up",
                ),
            },
            _ if !self.is_authorized(request) => message(StatusCode::UNAUTHORIZED, "Forbidden"),
            (&Method::POST, ["v3", _, "messages"]) => self.accept(request),
            (&Method::GET, ["v3", _, "events"]) => self.events(request),
            _ => message(StatusCode::NOT_FOUND, "no such path"),
        }
    }

    fn is_authorized(&self, request: &Request<Bytes>) -> bool {
        let expected = format!("Basic {}", STANDARD.encode(format!("api:{}", self.key)));
        request
            .headers()
            .get(header::AUTHORIZATION)
            .is_some_and(|given| given.as_bytes() == expected.as_bytes())
    }

    fn accept(&self, request: &Request<Bytes>) -> Response<Full<Bytes>> {
        let fields = form(&String::from_utf8_lossy(request.body()));
        for field in ["from", "to", "subject", "text"] {
            if fields.get(field).is_none_or(String::is_empty) {
                return message(StatusCode::BAD_REQUEST, &format!("{field} parameter is missing"));
            }
        }
        let id = fields.get("h:Message-Id").cloned().unwrap_or_default();
        let mut state = self.lock();
        match state.fault {
            Fault::Reject => return message(StatusCode::BAD_REQUEST, "to parameter is not a valid address"),
            Fault::Throttle => return message(StatusCode::TOO_MANY_REQUESTS, "too many requests"),
            Fault::Fail => return message(StatusCode::SERVICE_UNAVAILABLE, "unavailable"),
            Fault::None | Fault::FailAfter | Fault::NoLookUp => {}
        }
        state.mails.push(Mail { fields, accepted_at: Instant::now() });
        match state.fault {
            Fault::FailAfter => message(StatusCode::SERVICE_UNAVAILABLE, "unavailable"),
            _ => json_answer(StatusCode::OK, &json!({"id": id, "message": "Queued. Thank you."})),
        }
    }

    fn events(&self, request: &Request<Bytes>) -> Response<Full<Bytes>> {
        let wanted = form(request.uri().query().unwrap_or_default());
        let wanted = format!("<{}>", wanted.get("message-id").cloned().unwrap_or_default());
        let state = self.lock();
        if state.fault == Fault::NoLookUp {
            return message(StatusCode::FORBIDDEN, "this key cannot read events");
        }
        let is_visible = |mail: &&Mail| self.visible_after <= mail.accepted_at.elapsed();
        let is_wanted = |mail: &&Mail| mail.fields.get("h:Message-Id") == Some(&wanted);
        let found = state.mails.iter().filter(is_visible).filter(is_wanted);
        let items: Vec<Value> = found.map(|_| json!({"event": "accepted"})).collect();
        json_answer(StatusCode::OK, &json!({"items": items}))
    }

    fn shown(&self) -> Vec<Value> {
        let shown = |mail: &Mail| json!({"to": mail.fields.get("to"), "subject": mail.fields.get("subject")});
        self.lock().mails.iter().map(shown).collect()
    }
}

/// Parses a form; of a repeated field, the last value counts.
fn form(text: &str) -> BTreeMap<String, String> {
    let decode = |text: &str| percent_decode_str(&text.replace('+', " ")).decode_utf8_lossy().into_owned();
    let pairs = text.split('&').filter_map(|pair| pair.split_once('='));
    pairs.map(|(name, value)| (decode(name), decode(value))).collect()
}

fn message(status: StatusCode, text: &str) -> Response<Full<Bytes>> {
    json_answer(status, &json!({"message": text}))
}

fn json_answer(status: StatusCode, body: &Value) -> Response<Full<Bytes>> {
    let mut answer = Response::new(Full::from(body.to_string()));
    *answer.status_mut() = status;
    answer
}

impl machinist_serve::LoopbackApi for Standin {
    type Body = Full<Bytes>;
    type Broken = Infallible;

    async fn respond(self, request: Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
        let (parts, body) = request.into_parts();
        let Ok(body) = Limited::new(body, MAX_BODY_BYTES).collect().await else {
            return Ok(message(StatusCode::PAYLOAD_TOO_LARGE, "the mail is too large"));
        };
        Ok(self.answer(&Request::from_parts(parts, body.to_bytes())))
    }
}
