//! The connection of one life of one process to one API server. It is a tower service below the
//! product's own request policy, where requests are counted, traced, refused, delayed and lost.
//!
//! Each request runs on its own task, so it takes effect even when its sender is dead or has timed
//! out. Otherwise the case "committed, but the sender does not know" could never happen here.

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response, StatusCode, header};
use http_body_util::BodyExt;
use kube::client::Body;
use machinist_apiserver::{ApiService, Server};
use serde::Deserialize;
use serde_json::json;
use tokio::sync::oneshot;
use tokio::time::Instant;
use tower::{BoxError, Service};

use super::answer::{Answer, AnswerBody, full};
use super::crash::{CallKind, Life};
use super::long::OutageMode;
use super::plan::{Fate, Loss};
use super::stream;
use crate::actor::Side;
use crate::ask::{WholeRequest, WriteInFlight};
use crate::invariants::leader;
use crate::lab::Lab;

/// The connection of one life of one process to one server. Clones are the same connection.
#[derive(Clone)]
pub struct FaultyWire {
    link: Arc<Link>,
    service: ApiService,
}

/// The state that a connection shares with its streams.
pub(super) struct Link {
    pub(super) side: Side,
    pub(super) life: Arc<Life>,
    pub(super) lab: Arc<Lab>,
    server: Server,
    /// Tables that may not be watched before that moment. At that moment the server compacts its
    /// history.
    closed: Mutex<BTreeMap<String, Instant>>,
}

impl FaultyWire {
    /// Connects a life to a server. The server sees the caller of `service`.
    pub fn new(side: Side, life: Arc<Life>, lab: Arc<Lab>, server: Server, service: ApiService) -> Self {
        Self { link: Arc::new(Link { side, life, lab, server, closed: Mutex::default() }), service }
    }

    async fn answer(self, mut ask: WholeRequest) -> Answer {
        let Some(tamper) = self.link.lab.tamper.clone() else { return self.exchange(&ask).await };
        tamper.request(&mut ask);
        let mut answer = self.exchange(&ask).await;
        while let Some(again) = tamper.again(&ask, &answer) {
            ask = again;
            answer = self.exchange(&ask).await;
        }
        tamper.answer(&ask, answer).await
    }

    async fn exchange(&self, ask: &WholeRequest) -> Answer {
        let Link { side, life, lab, .. } = &*self.link;
        let process = life.process;
        life.while_alive().await;
        if !lab.fuse.holds(format_args!("{process} {} {}", ask.verb(), ask.about)) {
            return std::future::pending().await;
        }
        lab.history.asked(process, *side, ask);
        let found = lab.history.look(|state| leader::judge(state, process, &life.identity(), ask));
        found.into_inner().into_iter().for_each(|(id, what)| lab.history.violate(id, what));
        let point = lab.points.before(CallKind::Request);
        lab.may_die(life).await;
        self.link.wait_until_open(ask).await;
        if let Some((absence, until)) = lab.plan.away(process, *side) {
            lab.history.undelivered(process, *side, ask, absence);
            return absence.answer(until).await;
        }
        lab.history.delivered(process, *side, ask);
        if let Some(code) = lab.plan.refuses_evictions().filter(|_| ask.is_eviction()) {
            tokio::time::sleep(lab.plan.latency(process)).await;
            return self.link.hear(ask, Ok(refusal(code)));
        }
        let latency = lab.plan.latency(process);
        let fate = lab.plan.fate(process, ask);
        if fate != Fate::Pass {
            lab.history.note(format!("fault {fate:?} for {process} {} {}", ask.verb(), ask.about));
        }
        let late = match fate {
            Fate::Reject(loss) => {
                tokio::time::sleep(latency).await;
                return self.link.hear(ask, loss.answer().await);
            }
            Fate::Late(by) => by,
            Fate::Pass | Fate::Unknown(_) => Duration::ZERO,
        };
        let answer = self.deliver(ask, latency + late).await;
        life.while_alive().await;
        lab.points.after(point);
        lab.may_die(life).await;
        if let Fate::Unknown(loss) = fate {
            return self.link.hear(ask, loss.answer().await);
        }
        let answer = self.link.hear(ask, answer)?;
        self.link.observe(ask, answer).await
    }

    /// Sends the request to its server on a separate task, so that a dying sender cannot cancel it.
    async fn deliver(&self, ask: &WholeRequest, after: Duration) -> Answer {
        let (link, mut service, request) = (self.link.clone(), self.service.clone(), ask.again());
        let process = link.life.process;
        let sent = ask.is_write().then(|| {
            let (about, method, side) = (ask.about.clone(), ask.parts.method.clone(), link.side);
            let observed = link.life.observed();
            link.lab.history.sent(|number, at| WriteInFlight {
                number,
                process,
                side,
                method,
                about,
                at,
                observed,
            })
        });
        let record =
            WholeRequest { parts: clone_parts(&ask.parts), body: Bytes::new(), about: ask.about.clone() };
        let (answer, answered) = oneshot::channel();
        tokio::spawn(async move {
            tokio::time::sleep(after).await;
            let history = &link.lab.history;
            if let Some(sent) = &sent {
                history.arrived(sent);
            }
            let result = service.call(request).await;
            if let Some(sent) = &sent {
                history.answered(sent);
            }
            if let Ok(response) = &result {
                let code = response.status().as_u16();
                link.lab.answered(process, link.side, &record, code);
                if record.is_write() {
                    history.wrote(process, &record, code);
                }
            }
            // The sender may have died or timed out.
            let _ = answer.send(result);
        });
        match answered.await {
            Ok(result) => Ok(result?.map(|body| body.map_err(Into::into).boxed_unsync())),
            Err(_) => Err("the server has stopped".into()),
        }
    }
}

impl Link {
    /// Records that the process receives this answer.
    fn hear(&self, ask: &WholeRequest, answer: Answer) -> Answer {
        if let Ok(response) = &answer {
            self.lab.history.heard(ask, response.status().as_u16());
        }
        answer
    }

    /// P4: keeps the watch of that table closed for `by`.
    pub(super) fn close(&self, table: &str, by: Duration) {
        self.lock().insert(table.to_owned(), Instant::now() + by);
    }

    async fn wait_until_open(&self, ask: &WholeRequest) {
        if !ask.is_watch() && !ask.is_list() {
            return;
        }
        let Some(opens) = self.lock().remove(&ask.about.table) else { return };
        tokio::time::sleep_until(opens).await;
        self.lab.history.note(format!("fault P4: the {} server compacts its history", self.side));
        self.server.compact();
    }

    /// Records what the answer shows to its process, and adds faults to watch streams.
    async fn observe(self: &Arc<Self>, ask: &WholeRequest, answer: Response<AnswerBody>) -> Answer {
        if ask.is_watch() && answer.status() == StatusCode::OK {
            let table = ask.about.table.clone();
            return Ok(answer.map(|body| stream::disturbed(body, self.clone(), table)));
        }
        if ask.is_write() {
            return Ok(answer);
        }
        let (parts, body) = answer.into_parts();
        let bytes = body.collect().await?.to_bytes();
        if let Some(revision) = revision_of(&bytes) {
            self.life.saw(|observed| {
                if ask.is_list() {
                    observed.table(self.side, &ask.about.table, revision)
                } else {
                    observed.object(self.side, &ask.about, revision)
                }
            });
        }
        Ok(Response::from_parts(parts, full(bytes)))
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, BTreeMap<String, Instant>> {
        self.closed.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl OutageMode {
    /// The answer to a request that does not reach its server.
    async fn answer(self, until: Instant) -> Answer {
        // A refusal takes time, so that no loop runs forever in one instant.
        const ROUND_TRIP: Duration = Duration::from_millis(1);
        match self {
            Self::Refused => {
                tokio::time::sleep(ROUND_TRIP).await;
                let refused =
                    std::io::Error::new(std::io::ErrorKind::ConnectionRefused, "connection refused");
                Err(refused.into())
            }
            Self::Unavailable => {
                tokio::time::sleep(ROUND_TRIP).await;
                Ok(refusal(503))
            }
            Self::Hanging => {
                tokio::time::sleep_until(until).await;
                Err("connection reset by peer".into())
            }
        }
    }
}

impl Loss {
    async fn answer(self) -> Answer {
        match self {
            Self::Code(code) => Ok(refusal(code)),
            Self::Reset => Err("connection reset by peer".into()),
            Self::Silence => std::future::pending().await,
        }
    }
}

/// An error Status in the words of kube-apiserver.
pub(crate) fn refusal(code: u16) -> Response<AnswerBody> {
    let reason = match code {
        400 => "BadRequest",
        403 => "Forbidden",
        409 => "Conflict",
        422 => "Invalid",
        429 => "TooManyRequests",
        503 => "ServiceUnavailable",
        504 => "Timeout",
        _ => "InternalError",
    };
    let mut status = json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": "injected", "reason": reason, "code": code,
    });
    if code == 429 {
        status["details"] = json!({"retryAfterSeconds": 1});
    }
    let mut response = Response::new(full(Bytes::from(status.to_string())));
    *response.status_mut() = StatusCode::from_u16(code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    response.headers_mut().insert(header::CONTENT_TYPE, header::HeaderValue::from_static("application/json"));
    response
}

/// The revision of a list or an object.
fn revision_of(bytes: &[u8]) -> Option<u64> {
    #[derive(Deserialize)]
    struct AnswerRecord {
        metadata: Metadata,
    }
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Metadata {
        resource_version: String,
        #[serde(default)]
        r#continue: String,
    }
    let AnswerRecord { metadata } = serde_json::from_slice(bytes).ok()?;
    // A page of a list shows no more than its own objects.
    metadata.resource_version.parse().ok().filter(|_| metadata.r#continue.is_empty())
}

fn clone_parts(parts: &http::request::Parts) -> http::request::Parts {
    let mut clone = Request::new(()).into_parts().0;
    clone.method = parts.method.clone();
    clone.uri = parts.uri.clone();
    clone
}

impl Service<Request<Body>> for FaultyWire {
    type Response = Response<AnswerBody>;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Answer> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let wire = self.clone();
        Box::pin(async move {
            let ask = WholeRequest::read(request).await;
            wire.answer(ask).await
        })
    }
}
