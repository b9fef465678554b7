//! [`Proxy`]: one request from its arrival to its answer.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http::header::{ACCEPT_ENCODING, CONNECTION, CONTENT_LENGTH, CONTENT_TYPE, TRANSFER_ENCODING};
use http::request::Parts;
use http::{HeaderName, Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::Incoming;
use jiff::Timestamp;
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::backend::Backend;
use crate::control;
use crate::creations::{Area, Creation, Creations, compared};
use crate::delays::Delays;
use crate::faults::{Fault, Faults};
use crate::form::{self, Parameters};
use crate::refusal::{EC2, Refusal};
use crate::signature::{Claim, Keys, Secret, Session, Signed};
use crate::xml::{self, Document};

/// The largest request. EC2 accepts 16 KB of user data.
const MAX_BODY_BYTES: usize = 1024 * 1024;

/// Number of requests that can wait for their late effect.
const MAX_LATE: usize = 1000;

/// Number of different actions that are counted.
const MAX_ACTIONS: usize = 1000;

/// Filters of one request.
const MAX_FILTERS: usize = 200;

/// Headers of a request that belong to its connection, or that would let the backend compress.
const NOT_FORWARDED: [HeaderName; 4] = [CONNECTION, CONTENT_LENGTH, TRANSFER_ENCODING, ACCEPT_ENCODING];

/// The state of an instance that no longer exists.
const TERMINATED: &str = "terminated";

/// The action by which a workload gets keys. It has no signature.
const EXCHANGE: &str = "AssumeRoleWithWebIdentity";

/// A proxy in front of a backend. Clones share the state.
pub struct Proxy<B>(Arc<Inner<B>>);

impl<B> Clone for Proxy<B> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

struct Inner<B> {
    backend: B,
    /// The clock of signatures.
    now: Box<dyn Fn() -> Timestamp + Send + Sync>,
    state: Mutex<State>,
    /// The lock is held during a creation, so that requests with one token at the same time create
    /// one instance.
    creations: tokio::sync::Mutex<Creations>,
}

/// The state that changes without a request to the backend.
#[derive(Default)]
pub(crate) struct State {
    pub(crate) keys: Keys,
    pub(crate) faults: Faults,
    pub(crate) delays: Delays,
    late: Vec<(Instant, Call)>,
    /// Number of requests with a valid signature by action.
    requests: BTreeMap<String, u64>,
}

/// The connection breaks instead of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a fault breaks the connection")]
pub struct AnswerLost;

type Answer = Result<Response<Bytes>, AnswerLost>;

/// A request that was read. It may contain user data, so the type has no `Debug`.
struct Call {
    head: Parts,
    body: Bytes,
    parameters: Parameters,
    /// The service of the signature; `sts` if there is none.
    service: String,
    region: String,
}

impl Call {
    fn action(&self) -> &str {
        self.parameters.get("Action").map(String::as_str).unwrap_or_default()
    }

    /// The request for the backend, with its body as it arrived.
    fn request(&self) -> Request<Bytes> {
        self.with_body(self.body.clone())
    }

    fn with_body(&self, body: Bytes) -> Request<Bytes> {
        let mut request = Request::new(body);
        *request.method_mut() = self.head.method.clone();
        *request.uri_mut() = self.head.uri.clone();
        *request.headers_mut() = self.head.headers.clone();
        for name in &NOT_FORWARDED {
            request.headers_mut().remove(name);
        }
        request
    }

    /// A request of the same client that reads instances.
    fn describing(&self, ids: &[String]) -> Request<Bytes> {
        self.reading("DescribeInstances", "InstanceId", ids)
    }

    /// A request of the same client that reads objects by their ids.
    fn reading(&self, action: &str, list: &str, ids: &[String]) -> Request<Bytes> {
        let version = self.parameters.get("Version").cloned().unwrap_or_default();
        let mut parameters =
            Parameters::from([("Action".into(), action.into()), ("Version".into(), version)]);
        form::set_list(&mut parameters, list, ids);
        self.with_body(form::render(&parameters).into())
    }

    /// The text of the first of these parameters that the request has.
    fn first_of(&self, names: &[&str]) -> Option<&str> {
        names.iter().find_map(|name| self.parameters.get(*name)).map(String::as_str)
    }
}

impl<B: Backend> Proxy<B> {
    /// Creates a proxy that accepts no key yet. Nothing is sent.
    #[expect(clippy::disallowed_methods, reason = "this is where the clock is injected from")]
    pub fn new(backend: B) -> Self {
        Self::with_clock(backend, Timestamp::now)
    }

    /// Creates a proxy with another clock for signatures.
    pub fn with_clock(backend: B, now: impl Fn() -> Timestamp + Send + Sync + 'static) -> Self {
        Self(Arc::new(Inner {
            backend,
            now: Box::new(now),
            state: Mutex::default(),
            creations: tokio::sync::Mutex::default(),
        }))
    }

    /// Accepts requests with an access key that are signed with its secret key.
    pub fn accept(&self, access_key: &str, secret_key: &str) {
        self.lock().keys.set(access_key, Secret { text: secret_key.to_owned(), session: None });
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The state of the proxy for the operator: the backend, and numbers of tokens and requests.
    pub(crate) async fn described(&self) -> Value {
        let tokens = self.0.creations.lock().await.len();
        json!({"backend": self.0.backend.url(), "tokens": tokens, "requests": self.lock().requests})
    }

    /// Answers one request, as the port does.
    ///
    /// # Errors
    /// [`AnswerLost`] if a fault breaks the connection instead of an answer.
    pub async fn answer(&self, request: Request<Bytes>) -> Answer {
        let (head, body) = request.into_parts();
        if head.uri.path().starts_with(control::PATH) {
            return Ok(control::respond(self, head.method.as_str(), head.uri.path(), &body).await);
        }
        self.carry_out_late_ones().await;
        let call = match self.read(head, body) {
            Ok(call) => call,
            Err((refusal, service)) => return Ok(refusal.answer(&service)),
        };
        let fault = {
            let mut state = self.lock();
            let is_counted = state.requests.len() < MAX_ACTIONS || state.requests.contains_key(call.action());
            if is_counted {
                *state.requests.entry(call.action().to_owned()).or_default() += 1;
            }
            state.faults.take(call.action())
        };
        match fault {
            None => Ok(self.carry_out(&call).await),
            Some(Fault::Refuse { code, status, retry_after_seconds }) => {
                let mut refusal = Refusal::new(&code, "a fault that a test asked for");
                refusal.retry_after = retry_after_seconds;
                if let Some(status) = status.and_then(|status| StatusCode::from_u16(status).ok()) {
                    refusal.status = status;
                }
                Ok(refusal.answer(&call.service))
            }
            Some(Fault::EffectThenError) => {
                self.carry_out(&call).await;
                Ok(Refusal::new("InternalError", "a fault that a test asked for").answer(&call.service))
            }
            Some(Fault::EffectThenClose) => {
                self.carry_out(&call).await;
                Err(AnswerLost)
            }
            Some(Fault::CloseThenEffect { seconds }) => {
                let mut state = self.lock();
                // With too many, the request is lost before its effect, as requests may be.
                if state.late.len() < MAX_LATE {
                    let due = state.delays.now() + Duration::from_secs(seconds);
                    state.late.push((due, call));
                }
                Err(AnswerLost)
            }
        }
    }

    /// Reads a request, and checks its signature.
    fn read(&self, head: Parts, body: Bytes) -> Result<Call, (Refusal, String)> {
        let claim = Claim::of(&head.headers).map_err(|refusal| (refusal, EC2.to_owned()))?;
        let service = claim.as_ref().map_or("sts", |claim| claim.service.as_str()).to_owned();
        let parameters = form::parse(&body).ok_or_else(|| {
            let text = "the body: expected a form in UTF-8";
            (Refusal::new("InvalidParameterValue", text), service.clone())
        })?;
        let is_exchange = parameters.get("Action").is_some_and(|action| action == EXCHANGE);
        let region = match &claim {
            Some(claim) => {
                let signed = Signed {
                    method: &head.method,
                    path: head.uri.path(),
                    query: head.uri.query().unwrap_or_default(),
                    headers: &head.headers,
                    body: &body,
                };
                let now = (self.0.now)();
                self.lock().keys.check(claim, &signed, now).map_err(|refusal| (refusal, service.clone()))?;
                claim.region.clone()
            }
            None if is_exchange => String::new(),
            None => {
                let text = "expected a signature in the header Authorization";
                return Err((Refusal::new("MissingAuthenticationToken", text), EC2.to_owned()));
            }
        };
        Ok(Call { head, body, parameters, service, region })
    }

    /// Carries out the requests whose late effect is due.
    pub(crate) async fn carry_out_late_ones(&self) {
        let due = {
            let mut state = self.lock();
            let now = state.delays.now();
            let (due, late): (Vec<_>, Vec<_>) =
                std::mem::take(&mut state.late).into_iter().partition(|(at, _)| *at <= now);
            state.late = late;
            due
        };
        for (_, call) in due {
            // Its client has got no answer, and gets none.
            self.carry_out(&call).await;
        }
    }

    /// Carries out a request.
    async fn carry_out(&self, call: &Call) -> Response<Bytes> {
        let answer = match (call.service.as_str(), call.action()) {
            (EC2, "RunInstances") => self.create(call).await,
            (EC2, "DescribeInstances") => self.describe(call).await,
            (_, EXCHANGE) => self.exchange(call).await,
            _ => self.forward(call.request()).await,
        };
        answer.unwrap_or_else(|refusal| refusal.answer(&call.service))
    }

    /// Sends a request to the backend.
    async fn forward(&self, request: Request<Bytes>) -> Result<Response<Bytes>, Refusal> {
        let answer = self.0.backend.send(request).await;
        let answer = answer.map_err(|error| Refusal::new("InternalError", error.to_string()))?;
        let mut forwarded = Response::new(answer.body().clone());
        *forwarded.status_mut() = answer.status();
        if let Some(of_type) = answer.headers().get(CONTENT_TYPE) {
            forwarded.headers_mut().insert(CONTENT_TYPE, of_type.clone());
        }
        Ok(forwarded)
    }

    /// Creates instances, or shows those that an earlier request with the token created.
    async fn create(&self, call: &Call) -> Result<Response<Bytes>, Refusal> {
        // Without a token, only the delay of the new instances is the proxy's.
        let Some(token) = call.parameters.get("ClientToken") else {
            let answer = self.forward(call.request()).await?;
            self.hide_new(&answer)?;
            return Ok(answer);
        };
        let mut creations = self.0.creations.lock().await;
        let area = Area { region: call.region.clone(), zone: self.zone(call, &mut creations).await? };
        if let Some(creation) = creations.find(&area, token)? {
            return self.repeat(call, token, creation).await;
        }
        let answer = self.forward(call.request()).await?;
        let instances = self.hide_new(&answer)?;
        if instances.is_empty() {
            // A refused request leaves its token free.
            return Ok(answer);
        }
        let creation = Creation { parameters: compared(&call.parameters), instances };
        creations.record(&area, token, creation);
        rewritten(answer, |document| document.render(|_| false, |id| creations.token_of(id)))
    }

    /// The zone that a creation names; empty if it names none. The backend knows the zone of a
    /// subnet, and refuses a creation in an unknown one.
    async fn zone(&self, call: &Call, creations: &mut Creations) -> Result<String, Refusal> {
        let Some(subnet) = call.first_of(&["NetworkInterface.1.SubnetId", "SubnetId"]) else {
            return Ok(call.first_of(&["Placement.AvailabilityZone"]).unwrap_or_default().to_owned());
        };
        if let Some(zone) = creations.zone_of(&call.region, subnet) {
            return Ok(zone.to_owned());
        }
        let asked = call.reading("DescribeSubnets", "SubnetId", &[subnet.to_owned()]);
        let answer = self.forward(asked).await?;
        if !answer.status().is_success() {
            return Ok(String::new());
        }
        let zone = xml::first(text_of(&answer)?, "availabilityZone").ok_or_else(unreadable)?;
        creations.know_zone(&call.region, subnet, &zone);
        Ok(zone)
    }

    /// Answers a creation whose token was used before.
    async fn repeat(
        &self,
        call: &Call,
        token: &str,
        creation: &Creation,
    ) -> Result<Response<Bytes>, Refusal> {
        let shown = self.forward(call.describing(&creation.instances)).await?;
        let is_terminated = if shown.status().is_success() {
            read(&shown)?.instances.iter().all(|instance| instance.state == TERMINATED)
        } else {
            // The backend has forgotten the instances.
            xml::first(text_of(&shown)?, "Code").as_deref() == Some("InvalidInstanceID.NotFound")
        };
        if is_terminated {
            let text = "The client token you have provided is associated with a terminated instance. Please \
                        use a different client token.";
            return Err(Refusal::new("IdempotentInstanceTerminated", text));
        }
        if creation.parameters != compared(&call.parameters) {
            let text = "Arguments on this idempotent request are inconsistent with arguments used in previous \
                        request(s).";
            return Err(Refusal::new("IdempotentParameterMismatch", text));
        }
        let shown = rewritten(shown, |document| document.render(|_| false, |_| Some(token)))?;
        let creation = read(&shown)?.as_creation().ok_or_else(unreadable)?;
        Ok(shown.map(|_| creation.into()))
    }

    /// Hides the instances of an answer to a creation. Returns their ids.
    fn hide_new(&self, answer: &Response<Bytes>) -> Result<Vec<String>, Refusal> {
        if !answer.status().is_success() {
            return Ok(Vec::new());
        }
        let ids: Vec<String> = read(answer)?.instances.into_iter().map(|instance| instance.id).collect();
        let mut state = self.lock();
        ids.iter().for_each(|id| state.delays.hide(id));
        Ok(ids)
    }

    /// Reads instances, without those that are still hidden.
    async fn describe(&self, call: &Call) -> Result<Response<Bytes>, Refusal> {
        let asked = form::list(&call.parameters, "InstanceId");
        if let Some(hidden) = asked.iter().find(|id| self.lock().delays.is_hidden_by_id(id)) {
            let text = format!("The instance ID '{hidden}' does not exist");
            return Err(Refusal::new("InvalidInstanceID.NotFound", text));
        }
        let creations = self.0.creations.lock().await;
        let request = match by_token(call, &creations) {
            Search::OfBackend => call.request(),
            Search::Of(parameters) => call.with_body(form::render(&parameters).into()),
            Search::Nothing => return Ok(Response::new(xml::NO_INSTANCES.into())),
        };
        drop(creations);
        let answer = self.forward(request).await?;
        if !answer.status().is_success() {
            return Ok(answer);
        }
        let creations = self.0.creations.lock().await;
        let state = self.lock();
        let is_hidden = |id: &str| asked.is_empty() && state.delays.is_hidden_in_lists(id);
        rewritten(answer, |document| document.render(is_hidden, |id| creations.token_of(id)))
    }

    /// Exchanges the token of a workload, and accepts the keys that the backend gives out.
    async fn exchange(&self, call: &Call) -> Result<Response<Bytes>, Refusal> {
        let answer = self.forward(call.request()).await?;
        if !answer.status().is_success() {
            return Ok(answer);
        }
        let text = text_of(&answer)?;
        let value = |name: &str| xml::first(text, name).ok_or_else(unreadable);
        let expires = value("Expiration")?.parse().map_err(|_| unreadable())?;
        let session = Some(Session { token: value("SessionToken")?, expires });
        let secret = Secret { text: value("SecretAccessKey")?, session };
        self.lock().keys.set(&value("AccessKeyId")?, secret);
        Ok(answer)
    }
}

/// How the backend can answer a search.
enum Search {
    /// As the client sent it.
    OfBackend,
    /// With the ids of instances instead of their client tokens, which the backend does not know.
    Of(Parameters),
    /// No instance has one of the client tokens.
    Nothing,
}

/// Replaces the filter `client-token`.
fn by_token(call: &Call, creations: &Creations) -> Search {
    let name = |number: usize| format!("Filter.{number}.Name");
    let filter = (1..=MAX_FILTERS)
        .find(|number| call.parameters.get(&name(*number)).is_some_and(|filter| filter == "client-token"));
    let Some(number) = filter else { return Search::OfBackend };
    let values = format!("Filter.{number}.Value");
    let ids = creations.instances(&call.region, &form::list(&call.parameters, &values));
    if ids.is_empty() {
        return Search::Nothing;
    }
    let mut parameters = call.parameters.clone();
    parameters.insert(name(number), "instance-id".to_owned());
    form::set_list(&mut parameters, &values, &ids);
    Search::Of(parameters)
}

fn text_of(answer: &Response<Bytes>) -> Result<&str, Refusal> {
    std::str::from_utf8(answer.body()).map_err(|_| unreadable())
}

fn read(answer: &Response<Bytes>) -> Result<Document<'_>, Refusal> {
    Document::parse(text_of(answer)?).ok_or_else(unreadable)
}

fn rewritten(
    answer: Response<Bytes>,
    render: impl FnOnce(&Document<'_>) -> String,
) -> Result<Response<Bytes>, Refusal> {
    let rendered = render(&read(&answer)?);
    Ok(answer.map(|_| rendered.into()))
}

fn unreadable() -> Refusal {
    Refusal::new("InternalError", "the server behind the proxy answered no XML that the proxy can read")
}

impl<B: Backend> machinist_serve::LoopbackApi for Proxy<B> {
    type Body = Full<Bytes>;
    type Broken = AnswerLost;

    async fn respond(self, request: Request<Incoming>) -> Result<Response<Full<Bytes>>, AnswerLost> {
        let (head, body) = request.into_parts();
        let Ok(body) = Limited::new(body, MAX_BODY_BYTES).collect().await else {
            let text = format!("the body: expected at most {MAX_BODY_BYTES} bytes");
            return Ok(Refusal::new("InvalidParameterValue", text).answer(EC2).map(Full::from));
        };
        let request = Request::from_parts(head, body.to_bytes());
        // A client may end before its answer, for example by a SIGKILL. EC2 then completes the
        // request. So does a task of its own: otherwise an instance could exist whose token is
        // unknown here, and a repeated request would create a second one.
        let answered = tokio::spawn(async move { self.answer(request).await });
        answered.await.unwrap_or(Err(AnswerLost)).map(|answer| answer.map(Full::from))
    }
}
