//! The server as a tower service: one handle per caller.
//!
//! A request runs on a task of the server. As over a network, its commit happens even if the caller
//! stops waiting. Only this lets a simulation reach states in which a writer does not know whether
//! its write succeeded.

use crate::server::replica::ReplicaView;
use crate::server::response::Body;
use crate::server::response::BoxError;
use crate::server::verbs;
use std::any::Any;
use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use futures::FutureExt as _;
use http::{Request, Response, StatusCode, header, request};
use http_body_util::{BodyExt, Full, LengthLimitError, Limited};
use serde_json::Value;
use tower::Service;

use crate::access::authn::{Authenticator, Credentials};
use crate::access::authz::attributes::Attributes;
use crate::access::authz::impersonation;
use crate::access::tokens;
use crate::log::origin::Origin;
use crate::schema::body::FieldValidation;
use crate::schema::kinds::Part;
use crate::schema::shape::Shape;
use crate::server::audit::{AuditRecord, AuditVerb};
use crate::server::core::Core;
use crate::server::discovery::{self, Document};
use crate::server::openapi;
use crate::server::reviews;
use crate::server::verbs::{
    Answer, Call, Effect, bind, create, delete, evict, get, list, scale, update, watch as watch_verb,
};
use crate::values::identity::Identity;
use crate::values::object::to_bytes;
use crate::values::query::Query;
use crate::values::route::{ResourcePath, ResourceRequest, Route, Verb};
use crate::values::status::{ApiError, ApiResult};

/// The server went away, or broke down, before it had answered. The request may have taken effect
/// or not.
#[derive(Debug, thiserror::Error)]
#[error("the API server did not answer")]
pub struct NoResponse(#[source] tokio::task::JoinError);

/// Largest request body, as in kube-apiserver.
const MAX_BODY: usize = 3 * 1024 * 1024;

/// Time limit for receiving a body. In kube-apiserver, the whole request has this limit.
const BODY_TIMEOUT: Duration = Duration::from_secs(60);

/// Answer to a request that made the server panic.
pub const PANICKED: &str = "the request caused a panic in the API server (please report it); see its log";

/// The server's service for one caller. Cheap to clone.
#[derive(Clone)]
pub struct ApiService {
    core: Arc<Core>,
    credentials: Credentials,
    user_agent: Option<Arc<str>>,
    view: Option<ReplicaView>,
}

impl std::fmt::Debug for ApiService {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ApiService").field("credentials", &self.credentials).finish_non_exhaustive()
    }
}

impl ApiService {
    pub(crate) fn new(core: Arc<Core>, credentials: Credentials) -> Self {
        ApiService { core, credentials, user_agent: None, view: None }
    }

    /// The `User-Agent` of requests that carry none.
    #[must_use]
    pub fn with_user_agent(mut self, user_agent: &str) -> Self {
        self.user_agent = Some(user_agent.into());
        self
    }

    /// Lets a replica that may lag answer the reads that allow it (`resourceVersion=0`).
    #[must_use]
    pub fn with_replica_view(mut self, view: ReplicaView) -> Self {
        self.view = Some(view);
        self
    }
}

impl<B> Service<Request<B>> for ApiService
where
    B: http_body::Body<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    type Response = Response<Body>;
    type Error = NoResponse;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Body>, NoResponse>> + Send>>;

    fn poll_ready(&mut self, _context: &mut Context<'_>) -> Poll<Result<(), NoResponse>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let handle = self.clone();
        let tasks = self.core.tasks.clone();
        // Dropping a join handle does not stop the task.
        let running = tasks.spawn(async move { handle.answer(request).await });
        Box::pin(async move { running.await.map_err(NoResponse) })
    }
}

impl ApiService {
    async fn answer<B>(self, request: Request<B>) -> Response<Body>
    where
        B: http_body::Body<Data = Bytes> + Send + 'static,
        B::Error: Into<BoxError>,
    {
        let (mut parts, body) = request.into_parts();
        if let (Some(agent), false) = (&self.user_agent, parts.headers.contains_key(header::USER_AGENT))
            && let Ok(agent) = agent.parse()
        {
            parts.headers.insert(header::USER_AGENT, agent);
        }
        let route = Route::parse(&parts.method, parts.uri.path(), parts.uri.query());
        let mut record = record_of(&parts, &route);
        // After a panic, nothing of the request is reused except the audit record, which is
        // complete at any moment.
        let dispatched =
            AssertUnwindSafe(self.dispatch(parts, route, body, &mut record)).catch_unwind().await;
        let outcome = dispatched.unwrap_or_else(|panic| {
            tracing::error!(panic = panic_text(&*panic), "A request caused a panic");
            Err(ApiError::internal(PANICKED))
        });
        let response = match outcome {
            Ok(Reply::Answer(answer)) => {
                record.revision = answer.revision;
                if let Some(name) = answer.name {
                    record.name = name;
                }
                warned(json_response(answer.code, answer.body), &answer.warnings)
            }
            Ok(Reply::Stream(body)) => response(200, "application/json", body),
            Ok(Reply::Text(code, text)) => {
                response(code, "text/plain; charset=utf-8", full(Bytes::from_static(text.as_bytes())))
            }
            Ok(Reply::Made(made)) => made,
            Err(error) => refused(&error),
        };
        record.code = response.status().as_u16();
        self.core.audit.publish(record);
        response
    }

    async fn dispatch<B>(
        &self,
        parts: request::Parts,
        route: Route,
        body: B,
        record: &mut AuditRecord,
    ) -> ApiResult<Reply>
    where
        B: http_body::Body<Data = Bytes> + Send,
        B::Error: Into<BoxError>,
    {
        let identity = match (&route, self.authenticate(&parts)?) {
            (_, Some(identity)) => identity,
            (Route::Other(path), None) if discovery::is_public(path) => Arc::new(Identity::anonymous()),
            (Route::Other(_) | Route::Resource(_), None) => return Err(ApiError::unauthorized()),
        };
        record.user.clone_from(&identity.user);
        let asked = Attributes::of(&parts.method, &route);
        let acting = impersonation::impersonated(self.core.authorizer(), &identity, &parts.headers, &asked)?;
        record.impersonated = acting.as_ref().map(|acting| acting.user.clone());
        let identity = acting.map_or(identity, Arc::new);
        self.core.authorizer().authorize(&identity, &asked)?;
        match route {
            Route::Other(path) => {
                // The served resources may depend on definitions that are not saved yet. If saving
                // fails, the answer is sent anyway.
                let _failed = self.core.store.saved(self.core.store.head()).await;
                Ok(other(&path, &parts, &self.core))
            }
            Route::Resource(asked) => {
                // Only after authentication: an anonymous client must not make the server buffer a
                // body.
                let body = read_body(body).await?;
                self.resource(parts, *asked, body, identity, record).await
            }
        }
    }

    fn authenticate(&self, parts: &request::Parts) -> ApiResult<Option<Arc<Identity>>> {
        let authenticator = Authenticator {
            store: &self.core.store,
            keys: &self.core.keys,
            now: self.core.config.clock.now(),
        };
        authenticator.authenticate(&self.credentials, &parts.headers)
    }

    async fn resource(
        &self,
        parts: request::Parts,
        asked: ResourceRequest,
        body: Bytes,
        identity: Arc<Identity>,
        record: &mut AuditRecord,
    ) -> ApiResult<Reply> {
        let ResourceRequest { path, verb, query } = asked;
        let registry = self.core.registry();
        let Some(served) = registry.find(&path.group, &path.version, &path.plural).cloned() else {
            record.verb = AuditVerb::Other(parts.method);
            // An unknown resource in a group of built-in kinds gets the error of built-in kinds.
            let mut beside = registry.resources(&path.group, &path.version).into_iter().flatten();
            let is_beside_built_ins = beside.any(|served| !served.is_custom());
            return if is_beside_built_ins {
                Err(ApiError::no_such_resource())
            } else {
                Ok(page_not_found())
            };
        };
        let misplaced = if served.resource.namespaced {
            path.namespace.is_empty() && (!path.name.is_empty() || parts.method == http::Method::POST)
        } else {
            !path.namespace.is_empty()
        };
        let query = query?;
        let verb = verb.ok_or_else(ApiError::method_not_allowed)?;
        if misplaced {
            return Ok(page_not_found());
        }
        let call = Call {
            core: self.core.clone(),
            shape: Shape::negotiate(&parts.headers, &query)?,
            origin: Origin {
                user: identity.user.as_str().into(),
                user_agent: record.user_agent.as_str().into(),
            },
            // A deletion takes its options from its body, if present, and otherwise from its query.
            effect: options_of(verb).map_or(Ok(Effect::Commit), |kind| Effect::asked(&query, kind))?,
            validation: options_of(verb)
                .map_or(Ok(FieldValidation::Ignore), |kind| FieldValidation::asked(&query, kind))?,
            warnings: Mutex::default(),
            served,
            query,
            headers: parts.headers,
            body,
            identity,
            view: self.view.clone(),
            path,
        };
        let changes = !verb.is_read() && call.is_kept();
        let store = &self.core.store;
        if changes {
            store.writable().map_err(|failed| failed.refusal())?;
        }
        let reply = perform(&call, verb).await;
        if changes {
            // A rejection also waits: it may rest on a commit that is not saved yet.
            let seen = match &reply {
                Ok(Reply::Answer(Answer { revision: Some(committed), .. })) => *committed,
                _ => store.head(),
            };
            store.saved(seen).await.map_err(|failed| failed.refusal())?;
        }
        let warnings = call.warnings.into_inner().unwrap_or_else(PoisonError::into_inner);
        Ok(match reply {
            Ok(Reply::Answer(answer)) => Reply::Answer(Answer { warnings, ..answer }),
            Ok(other) => other,
            Err(error) => Reply::Made(warned(refused(&error), &warnings)),
        })
    }
}

/// Kind of the options that a write has in its query.
fn options_of(verb: Verb) -> Option<&'static str> {
    match verb {
        Verb::Create => Some("CreateOptions"),
        Verb::Update => Some("UpdateOptions"),
        Verb::Patch => Some("PatchOptions"),
        Verb::Get | Verb::List | Verb::Watch | Verb::Delete | Verb::DeleteCollection => None,
    }
}

/// Creates the audit record before authentication, so that the record of a rejected request is
/// complete.
fn record_of(parts: &request::Parts, route: &Route) -> AuditRecord {
    let (path, verb) = match route {
        Route::Other(path) => (ResourcePath { plural: path.clone(), ..ResourcePath::default() }, None),
        Route::Resource(asked) => (asked.path.clone(), asked.verb),
    };
    AuditRecord {
        user: String::new(),
        impersonated: None,
        user_agent: text_header(parts, header::USER_AGENT),
        verb: verb.map_or_else(|| AuditVerb::Other(parts.method.clone()), AuditVerb::Resource),
        group: path.group,
        resource: path.plural,
        subresource: path.subresource,
        namespace: path.namespace,
        name: path.name,
        code: 0,
        revision: None,
    }
}

/// Answer to a request.
enum Reply {
    Answer(Answer),
    Stream(Body),
    Text(u16, &'static str),
    /// A complete response with its own headers.
    Made(Response<Body>),
}

async fn perform(call: &Call, verb: Verb) -> ApiResult<Reply> {
    if call.served.is_only_created() {
        let on_collection = call.path.name.is_empty();
        return match (on_collection, verb == Verb::Create) {
            (true, true) => reviews::create(call).map(Reply::Answer),
            (true, false) => Err(ApiError::method_not_allowed()),
            (false, _) => Err(ApiError::no_such_resource()),
        };
    }
    let part = match call.path.subresource.as_str() {
        "" => Part::Main,
        "status" if call.served.has_status() => Part::Status,
        name => return subresource(call, verb, name).await,
    };
    let answer = match (verb, part) {
        (Verb::Watch, Part::Main) => return watch_verb::watch(call).await.map(Reply::Stream),
        (Verb::List, Part::Main) => list::list(call).await,
        (Verb::Get, _) => get::get(call).await,
        (Verb::Create, Part::Main) if call.path.name.is_empty() => create::create(call),
        (Verb::Update, part) => update::update(call, part),
        (Verb::Patch, part) => update::patch(call, part),
        (Verb::Delete, Part::Main) => delete::delete(call),
        (Verb::DeleteCollection, Part::Main) if call.served.deletes_collections() => {
            delete::delete_collection(call)
        }
        (
            Verb::Watch | Verb::List | Verb::Create | Verb::Delete | Verb::DeleteCollection,
            Part::Main | Part::Status | Part::Approval | Part::Finalize,
        ) => Err(ApiError::method_not_allowed()),
    };
    answer.map(Reply::Answer)
}

async fn subresource(call: &Call, verb: Verb, name: &str) -> ApiResult<Reply> {
    if !call.served.subresources().iter().any(|s| s.name == name) {
        return Err(if call.served.is_custom() {
            call.served.not_found(&call.path.name)
        } else {
            ApiError::no_such_resource()
        });
    }
    let answer = match (name, verb) {
        ("scale", Verb::Get) => scale::get(call).await,
        ("scale", Verb::Update) => scale::update(call),
        ("scale", Verb::Patch) => scale::patch(call),
        ("eviction", Verb::Create) => evict::evict(call),
        ("binding", Verb::Create) => bind::bind(call),
        ("approval", Verb::Get) => get::get(call).await,
        ("approval", Verb::Update) => update::update(call, Part::Approval),
        ("approval", Verb::Patch) => update::patch(call, Part::Approval),
        ("token", Verb::Create) => verbs::token::create(call),
        ("finalize", Verb::Update) => update::update(call, Part::Finalize),
        (
            _,
            Verb::Get
            | Verb::List
            | Verb::Watch
            | Verb::Create
            | Verb::Update
            | Verb::Patch
            | Verb::Delete
            | Verb::DeleteCollection,
        ) => Err(ApiError::method_not_allowed()),
    };
    answer.map(Reply::Answer)
}

fn other(path: &str, parts: &request::Parts, core: &Core) -> Reply {
    if !matches!(parts.method, http::Method::GET | http::Method::HEAD) {
        return page_not_found();
    }
    if let Some(reply) = api_description(path, parts, core) {
        return reply;
    }
    if let Some(answered) = tokens::discovery::document(path, &text_header(parts, header::HOST), &core.keys) {
        return match answered {
            Ok((media_type, text)) => Reply::Made(response(200, media_type, full(text))),
            Err(error) => Reply::Made(refused(&error)),
        };
    }
    let accept = text_header(parts, header::ACCEPT);
    if discovery::wants_aggregated(&accept)
        && let Some(value) = discovery::aggregated(path, &core.registry())
    {
        return Reply::Made(tagged(discovery::AGGREGATED, to_bytes(&value), parts));
    }
    match discovery::document(path, &core.registry()) {
        Some(Document::Json(value)) => Reply::Answer(Answer::json(200, to_bytes(&value))),
        Some(Document::Text(text)) => Reply::Text(200, text),
        None => page_not_found(),
    }
}

/// Answer to an unknown path. Clients distinguish it from the API's own 404.
fn page_not_found() -> Reply {
    Reply::Text(404, "404 page not found\n")
}

async fn read_body<B>(body: B) -> ApiResult<Bytes>
where
    B: http_body::Body<Data = Bytes> + Send,
    B::Error: Into<BoxError>,
{
    match tokio::time::timeout(BODY_TIMEOUT, Limited::new(body, MAX_BODY).collect()).await {
        Ok(Ok(collected)) => Ok(collected.to_bytes()),
        Ok(Err(error)) if error.is::<LengthLimitError>() => Err(ApiError::too_large(MAX_BODY)),
        Ok(Err(error)) => Err(ApiError::bad_request(format!("the body could not be read: {error}"))),
        Err(_elapsed) => Err(ApiError::new(
            408,
            "Timeout",
            format!("the body did not arrive within {} seconds", BODY_TIMEOUT.as_secs()),
        )),
    }
}

/// Returns the text of a panic.
fn panic_text(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("no text")
}

fn text_header(parts: &request::Parts, name: header::HeaderName) -> String {
    parts.headers.get(name).and_then(|v| v.to_str().ok()).unwrap_or_default().to_owned()
}

fn full(bytes: Bytes) -> Body {
    Full::new(bytes).map_err(|never| match never {}).boxed_unsync()
}

fn response(code: u16, content_type: &'static str, body: Body) -> Response<Body> {
    let mut response = Response::new(body);
    *response.status_mut() = StatusCode::from_u16(code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    response.headers_mut().insert(header::CONTENT_TYPE, header::HeaderValue::from_static(content_type));
    response
}

/// Serves a document that clients cache. A request with the current tag gets 304 and no body.
fn tagged(media_type: &'static str, bytes: Bytes, parts: &request::Parts) -> Response<Body> {
    let tag = format!("\"{}\"", openapi::hash(&bytes));
    let known = text_header(parts, header::IF_NONE_MATCH);
    let is_known = known.split(',').any(|known| known.trim().trim_start_matches("W/") == tag);
    let (code, bytes) = if is_known { (304, Bytes::new()) } else { (200, bytes) };
    let mut made = response(code, media_type, full(bytes));
    made.headers_mut().insert(header::VARY, header::HeaderValue::from_static("Accept"));
    if let Ok(tag) = tag.parse() {
        made.headers_mut().insert(header::ETAG, tag);
    }
    made
}

/// Serves OpenAPI: the index, or the document of one group and version. A request with an outdated
/// hash is redirected.
fn api_description(path: &str, parts: &request::Parts, core: &Core) -> Option<Reply> {
    let documents = core.openapi();
    if path == "/openapi/v3" {
        return Some(Reply::Made(tagged("application/json", documents.index.clone(), parts)));
    }
    let document = documents.of(path.strip_prefix("/openapi/v3/")?)?;
    let asked = Query::parse(parts.uri.query()).ok().map(|q| q.text("hash").to_owned()).unwrap_or_default();
    if asked.is_empty() || asked == document.hash {
        return Some(Reply::Made(tagged("application/json", document.text.clone(), parts)));
    }
    let mut made = response(301, "application/json", full(Bytes::new()));
    if let Ok(location) = format!("{path}?hash={}", document.hash).parse() {
        made.headers_mut().insert(header::LOCATION, location);
    }
    Some(Reply::Made(made))
}

/// Adds a `Warning` header for each text in `warnings`.
fn warned(mut response: Response<Body>, warnings: &[String]) -> Response<Body> {
    for warning in warnings {
        let text = warning.replace('\\', "\\\\").replace('"', "\\\"");
        // A warning with a name that a header cannot contain is omitted.
        if let Ok(value) = format!("299 - \"{text}\"").parse() {
            response.headers_mut().append(header::WARNING, value);
        }
    }
    response
}

fn json_response(code: u16, body: Bytes) -> Response<Body> {
    response(code, "application/json", full(body))
}

fn refused(error: &ApiError) -> Response<Body> {
    let status: Value = error.status();
    let mut response = json_response(error.code(), to_bytes(&status));
    if let Some(seconds) = error.retry_after_header() {
        response.headers_mut().insert(header::RETRY_AFTER, seconds.into());
    }
    response
}
