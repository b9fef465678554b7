//! The embedded API server behind a connection that fails as a test asks. The hook of a test
//! decides which requests fail.

use std::io::{Error, ErrorKind};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use bytes::Bytes;
use futures::channel::mpsc::{UnboundedReceiver, UnboundedSender, unbounded};
use futures::{StreamExt, stream};
use http::{HeaderValue, Method, Request, Response, Uri, header};
use http_body::Frame;
use http_body_util::{BodyExt, Full, StreamBody};
use kube::client::Body;
use machinist_apiserver::{Body as Answer, Config, History, Identity, SeededIds, Server, TokioClock};
use serde_json::{Value, json};
use tokio::time::Instant;
use tower::{BoxError, ServiceExt};

use crate::client::layer_client;
use crate::request::ClientOptions;

/// Duration of each request. Without it, a loop without pauses would take no time and the tests
/// would not detect the loop.
const LATENCY: Duration = Duration::from_millis(5);

/// The decision of a hook about one request.
pub(crate) enum Verdict {
    /// The server processes the request.
    Pass,
    /// The server answers with this code, without any effect.
    Answer(u16),
    /// The server answers 429 with a plain text and this `Retry-After` header, without any effect.
    Throttle { retry_after: &'static str },
    /// The server processes the request, and then answers with this code.
    ServeThenAnswer(u16),
    /// The connection is refused.
    Refuse,
    /// The connection breaks before the server processes the request.
    Reset,
    /// The server never answers.
    Hang,
    /// The server opens a watch, sends only this text and closes the watch.
    Stream(&'static str),
    /// The server opens a watch, and neither sends anything nor closes the watch.
    Stall,
}

/// The data of one request, for the hook and for the log.
#[derive(Clone, Debug)]
pub(crate) struct Seen {
    pub(crate) at: Instant,
    pub(crate) method: Method,
    pub(crate) uri: Uri,
    pub(crate) user_agent: String,
}

impl Seen {
    fn now(request: &Request<Body>) -> Self {
        let agent = request.headers().get(header::USER_AGENT).and_then(|agent| agent.to_str().ok());
        Self {
            at: Instant::now(),
            method: request.method().clone(),
            uri: request.uri().clone(),
            user_agent: agent.unwrap_or_default().to_owned(),
        }
    }

    pub(crate) fn is_watch(&self) -> bool {
        self.uri.query().is_some_and(|query| query.contains("watch=true"))
    }

    pub(crate) fn is_list(&self) -> bool {
        self.method == Method::GET && !self.is_watch()
    }
}

type Hook = Box<dyn FnMut(&Seen) -> Verdict + Send>;

/// The API server, with an empty namespace `ns`. A clone is the same server.
#[derive(Clone)]
pub(crate) struct FaultyServer {
    state: Arc<Mutex<State>>,
}

struct State {
    server: Server,
    hook: Hook,
    seen: Vec<Seen>,
    date: Option<&'static str>,
    /// A text, and the text that all answers show in its place.
    alteration: Option<(&'static str, &'static str)>,
    /// One sender per open watch. The watch also sends these lines, and closes when the sender is
    /// dropped.
    watches: Vec<UnboundedSender<Bytes>>,
}

/// The objects of one collection, and the resourceVersion of the server.
pub(crate) struct Backup {
    objects: Vec<Value>,
    rv: u64,
}

impl FaultyServer {
    pub(crate) fn new() -> Self {
        let state = State {
            server: embedded(1),
            hook: Box::new(|_| Verdict::Pass),
            seen: Vec::new(),
            date: None,
            alteration: None,
            watches: Vec::new(),
        };
        Self { state: Arc::new(Mutex::new(state)) }
    }

    pub(crate) fn client(&self) -> kube::Client {
        self.client_with(&ClientOptions::new("test"))
    }

    pub(crate) fn client_with(&self, options: &ClientOptions) -> kube::Client {
        let server = self.clone();
        let service = tower::service_fn(move |request| server.clone().serve(request));
        layer_client(service, options)
    }

    /// From now on, `hook` decides about each request.
    pub(crate) fn hook(&self, hook: impl FnMut(&Seen) -> Verdict + Send + 'static) {
        self.lock().hook = Box::new(hook);
    }

    /// Sets the `Date` header of all answers of the server.
    pub(crate) fn date(&self, date: &'static str) {
        self.lock().date = Some(date);
    }

    /// From now on, answers and new watches show `shown` in the place of `text`.
    pub(crate) fn alter(&self, text: &'static str, shown: &'static str) {
        self.lock().alteration = Some((text, shown));
    }

    /// Another client creates or replaces an object. Returns its resourceVersion.
    pub(crate) async fn put(&self, path: &str, mut object: Value) -> u64 {
        let (collection, name) = path.rsplit_once('/').expect("a path");
        object["metadata"]["name"] = name.into();
        let body = object.to_string();
        let mut written = self.ask(Method::PUT, path, &body).await;
        if matches!(&written, Err(kube::Error::Api(status)) if status.is_not_found()) {
            written = self.ask(Method::POST, collection, &body).await;
        }
        let written = written.expect("the object is valid");
        let rv = written["metadata"]["resourceVersion"].as_str().and_then(|rv| rv.parse().ok());
        rv.expect("a number")
    }

    /// Another client deletes an object.
    pub(crate) async fn delete(&self, path: &str) {
        self.ask(Method::DELETE, path, "").await.expect("the object exists");
    }

    pub(crate) fn get(&self, path: &str) -> Option<Value> {
        let (collection, name) = path.rsplit_once('/').expect("a path");
        self.objects(collection).into_iter().find(|object| object["metadata"]["name"] == name)
    }

    pub(crate) fn objects(&self, collection: &str) -> Vec<Value> {
        let segments: Vec<&str> = collection.split('/').collect();
        let [.., "namespaces", namespace, plural] = segments[..] else {
            panic!("{collection} is not the path of a collection in a namespace");
        };
        let mut objects = self.lock().server.snapshot(plural);
        objects.retain(|object| object.namespace() == namespace);
        objects.iter().map(|object| object.value().clone()).collect()
    }

    /// Drops all old events, as a compaction of etcd does.
    pub(crate) fn compact(&self) {
        self.lock().server.compact();
    }

    pub(crate) fn backup(&self, collection: &str) -> Backup {
        Backup { objects: self.objects(collection), rv: self.lock().server.revision() }
    }

    /// Replaces the server by a server with the state of the backup, and returns its
    /// resourceVersion. Each write before the backup must have created one of its objects.
    pub(crate) fn restore(&self, backup: &Backup) -> u64 {
        let server = embedded(2);
        for object in &backup.objects {
            server.load(object.clone()).expect("the server is empty");
        }
        assert_eq!(server.revision(), backup.rv, "each write created one of the objects");
        let mut state = self.lock();
        state.server = server;
        state.watches.clear();
        backup.rv
    }

    /// Sends raw bytes to every open watch.
    pub(crate) fn send(&self, bytes: &'static str) {
        // A client may have dropped its watch.
        self.lock()
            .watches
            .retain(|watch| watch.unbounded_send(Bytes::from_static(bytes.as_bytes())).is_ok());
    }

    /// Closes every open watch.
    pub(crate) fn close_watches(&self) {
        self.lock().watches.clear();
    }

    pub(crate) fn seen(&self) -> Vec<Seen> {
        self.lock().seen.clone()
    }

    pub(crate) fn count(&self, of: impl Fn(&Seen) -> bool) -> usize {
        self.lock().seen.iter().filter(|seen| of(seen)).count()
    }

    pub(crate) fn forget_seen(&self) {
        self.lock().seen.clear();
    }

    async fn serve(self, request: Request<Body>) -> Result<Response<Answer>, BoxError> {
        let seen = Seen::now(&request);
        let verdict = {
            let mut state = self.lock();
            state.seen.push(seen.clone());
            (state.hook)(&seen)
        };
        tokio::time::sleep(LATENCY).await;
        match verdict {
            Verdict::Pass => self.process(&seen, request).await,
            Verdict::Answer(code) => Ok(failure(code)),
            Verdict::Throttle { retry_after } => {
                let mut answer = whole(429, "Too many requests, please try again later.\n".into());
                answer.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from_static(retry_after));
                Ok(answer)
            }
            Verdict::ServeThenAnswer(code) => {
                self.process(&seen, request).await?;
                Ok(failure(code))
            }
            Verdict::Refuse => Err(Error::from(ErrorKind::ConnectionRefused).into()),
            Verdict::Reset => Err(Error::from(ErrorKind::ConnectionReset).into()),
            Verdict::Hang => std::future::pending().await,
            Verdict::Stream(text) => Ok(whole(200, text.into())),
            Verdict::Stall => Ok(Response::new(StreamBody::new(stream::pending()).boxed_unsync())),
        }
    }

    async fn process(&self, seen: &Seen, request: Request<Body>) -> Result<Response<Answer>, BoxError> {
        let service = self.lock().server.service_as(Identity::admin());
        let mut answer = service.oneshot(request).await?;
        let mut state = self.lock();
        if let Some(date) = state.date {
            answer.headers_mut().insert(header::DATE, HeaderValue::from_static(date));
        }
        if let Some((text, shown)) = state.alteration {
            answer = answer.map(|body| altered(body, text, shown));
        }
        if seen.is_watch() {
            let (sender, lines) = unbounded();
            state.watches.push(sender);
            answer = answer.map(|body| controlled(body, lines));
        }
        Ok(answer)
    }

    /// Sends a request of another client. The request takes no time, and the hook does not see it.
    async fn ask(&self, method: Method, path: &str, body: &str) -> kube::Result<Value> {
        let client = kube::Client::new(self.lock().server.service_as(Identity::admin()), "ns");
        let request =
            Request::builder().method(method).uri(path).header(header::CONTENT_TYPE, "application/json");
        client.request(request.body(body.into()).expect("a request")).await
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no test panics while it holds the lock")
    }
}

/// A server with an empty namespace `ns`. Its watches send no bookmarks, and the server never
/// compacts automatically.
fn embedded(seed: u64) -> Server {
    let epoch = "2026-01-01T00:00:00Z".parse().expect("a time");
    let server = Server::new(Config {
        clock: Arc::new(TokioClock::starting_at(epoch)),
        ids: Arc::new(SeededIds::new(seed)),
        history: History::Manual,
        bookmark_interval: None,
        ..Config::default()
    });
    let namespace = json!({
        "apiVersion": "v1", "kind": "Namespace",
        "metadata": { "name": "ns" }, "spec": { "finalizers": ["kubernetes"] },
    });
    server.load(namespace).expect("the server is empty");
    server
}

/// Each frame with one text in the place of another. The embedded server sends whole lines and
/// whole lists as one frame.
fn altered(body: Answer, text: &'static str, shown: &'static str) -> Answer {
    let alter = move |data: Bytes| String::from_utf8_lossy(&data).replace(text, shown).into();
    body.map_frame(move |frame| frame.map_data(alter)).boxed_unsync()
}

/// The stream of a watch that also sends `lines`, and ends with them.
fn controlled(body: Answer, lines: UnboundedReceiver<Bytes>) -> Answer {
    let frames = stream::unfold((body, lines), async |(mut body, mut lines)| {
        // A watch that is closed after a write sends the event of that write first.
        let frame = tokio::select! {
            biased;
            frame = body.frame() => frame?,
            line = lines.next() => Ok(Frame::data(line?)),
        };
        Some((frame, (body, lines)))
    });
    StreamBody::new(frames).boxed_unsync()
}

fn whole(code: u16, text: Bytes) -> Response<Answer> {
    let body = Full::new(text).map_err(|never| match never {}).boxed_unsync();
    Response::builder().status(code).body(body).expect("a valid status code")
}

fn failure(code: u16) -> Response<Answer> {
    let status = json!({ "kind": "Status", "status": "Failure", "code": code, "message": "failure requested by the test" });
    whole(code, status.to_string().into())
}
