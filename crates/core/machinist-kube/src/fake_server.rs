//! A small API server for the tests of this crate, with stored objects, resourceVersions, watches
//! and compaction. The hook of a test decides which requests fail.

use std::collections::BTreeMap;
use std::io::{Error, ErrorKind};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use bytes::Bytes;
use futures::StreamExt;
use futures::channel::mpsc::{UnboundedSender, unbounded};
use http::{Method, Request, Response, Uri};
use http_body::Frame;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use kube::client::Body;
use serde_json::{Value, json};
use tokio::time::Instant;
use tower::BoxError;

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
    /// The server answers as for a creation in a namespace that is being deleted.
    NamespaceEnds,
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
    pub(crate) fn is_watch(&self) -> bool {
        self.uri.query().is_some_and(|query| query.contains("watch=true"))
    }

    pub(crate) fn is_list(&self) -> bool {
        self.method == Method::GET && !self.is_watch()
    }
}

type Hook = Box<dyn FnMut(&Seen) -> Verdict + Send>;

/// The fake API server. A clone is the same server.
#[derive(Clone)]
pub(crate) struct FakeServer {
    state: Arc<Mutex<State>>,
}

struct State {
    /// Objects by path.
    objects: BTreeMap<String, Value>,
    rv: u64,
    /// All events: resourceVersion, path of the collection, line of the watch.
    log: Vec<(u64, String, Bytes)>,
    compacted: u64,
    watchers: Vec<Watcher>,
    seen: Vec<Seen>,
    hook: Hook,
    date: Option<&'static str>,
}

/// An open watch.
struct Watcher {
    /// Path of the collection.
    path: String,
    /// The watch gets only later events, also if the server has not reached this resourceVersion.
    from: u64,
    lines: UnboundedSender<Bytes>,
}

impl FakeServer {
    pub(crate) fn new() -> Self {
        let state = State {
            objects: BTreeMap::new(),
            rv: 100,
            log: Vec::new(),
            compacted: 0,
            watchers: Vec::new(),
            seen: Vec::new(),
            hook: Box::new(|_| Verdict::Pass),
            date: None,
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

    /// Sets the `Date` header of all answers.
    pub(crate) fn date(&self, date: &'static str) {
        self.lock().date = Some(date);
    }

    /// Creates or replaces an object, and returns its resourceVersion.
    pub(crate) fn put(&self, path: &str, object: Value) -> u64 {
        self.lock().put(path, object)
    }

    pub(crate) fn get(&self, path: &str) -> Option<Value> {
        self.lock().objects.get(path).cloned()
    }

    pub(crate) fn objects(&self) -> Vec<Value> {
        self.lock().objects.values().cloned().collect()
    }

    pub(crate) fn delete(&self, path: &str) {
        self.lock().delete(path);
    }

    /// Drops all old events, as a compaction of etcd does.
    pub(crate) fn compact(&self) {
        let mut state = self.lock();
        state.compacted = state.rv;
        state.log.clear();
    }

    /// Restores all objects and the resourceVersion of an earlier state.
    pub(crate) fn restore(&self, objects: BTreeMap<String, Value>, rv: u64) {
        let mut state = self.lock();
        (state.objects, state.rv, state.log) = (objects, rv, Vec::new());
        state.watchers.clear();
    }

    pub(crate) fn snapshot(&self) -> (BTreeMap<String, Value>, u64) {
        let state = self.lock();
        (state.objects.clone(), state.rv)
    }

    /// Sends raw bytes to every open watch.
    pub(crate) fn send(&self, bytes: &str) {
        for watcher in &self.lock().watchers {
            // It is not an error of the test if a client has dropped its watch.
            let _gone = watcher.lines.unbounded_send(Bytes::copy_from_slice(bytes.as_bytes())).is_err();
        }
    }

    /// Closes every open watch.
    pub(crate) fn close_watches(&self) {
        self.lock().watchers.clear();
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

    async fn serve(
        self,
        request: Request<Body>,
    ) -> Result<Response<UnsyncBoxBody<Bytes, BoxError>>, BoxError> {
        let (parts, body) = request.into_parts();
        let bytes = body.collect().await?.to_bytes();
        let agent = parts.headers.get("user-agent").and_then(|agent| agent.to_str().ok()).unwrap_or_default();
        let seen = Seen {
            at: Instant::now(),
            method: parts.method.clone(),
            uri: parts.uri.clone(),
            user_agent: agent.to_owned(),
        };
        let verdict = {
            let mut state = self.lock();
            state.seen.push(seen.clone());
            (state.hook)(&seen)
        };
        tokio::time::sleep(LATENCY).await;
        match verdict {
            Verdict::Pass => Ok(self.lock().answer(&seen, &bytes)),
            Verdict::Answer(code) => Ok(failure(code, "")),
            Verdict::NamespaceEnds => {
                let causes = json!([{"reason": "NamespaceTerminating", "field": "metadata.namespace"}]);
                let status = json!({
                    "kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "Forbidden", "code": 403,
                    "message": "unable to create new content in namespace ns because it is being terminated",
                    "details": {"causes": causes},
                });
                Ok(whole(403, status.to_string().into()))
            }
            Verdict::Throttle { retry_after } => {
                let mut answer = whole(429, "Too many requests, please try again later.\n".into());
                answer.headers_mut().insert("retry-after", retry_after.parse()?);
                Ok(answer)
            }
            Verdict::ServeThenAnswer(code) => {
                self.lock().answer(&seen, &bytes);
                Ok(failure(code, ""))
            }
            Verdict::Refuse => Err(Error::from(ErrorKind::ConnectionRefused).into()),
            Verdict::Reset => Err(Error::from(ErrorKind::ConnectionReset).into()),
            Verdict::Hang => std::future::pending().await,
            Verdict::Stream(text) => Ok(whole(200, text.into())),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no test panics while it holds the lock")
    }
}

impl State {
    fn answer(&mut self, seen: &Seen, body: &[u8]) -> Response<UnsyncBoxBody<Bytes, BoxError>> {
        let path = seen.uri.path().to_owned();
        let body: Value = serde_json::from_slice(body).unwrap_or(Value::Null);
        let mut answer = match seen.method.as_str() {
            "GET" if seen.is_watch() => self.watch(&path, seen),
            "GET" if self.objects.contains_key(&path) => whole(200, self.objects[&path].to_string().into()),
            "GET" if is_collection(&path) => self.list(&path, seen),
            "POST" => {
                let name = body["metadata"]["name"].as_str().unwrap_or_default();
                let path = format!("{path}/{name}");
                if self.objects.contains_key(&path) {
                    failure(409, "AlreadyExists")
                } else {
                    self.put(&path, body);
                    whole(201, self.objects[&path].to_string().into())
                }
            }
            _ if !self.objects.contains_key(&path) => failure(404, "NotFound"),
            "PUT"
                if body["metadata"]["resourceVersion"]
                    != self.objects[&path]["metadata"]["resourceVersion"] =>
            {
                failure(409, "Conflict")
            }
            "PUT" => {
                self.put(&path, body);
                whole(200, self.objects[&path].to_string().into())
            }
            "PATCH" => {
                let mut object = self.objects[&path].clone();
                for (field, value) in body.as_object().into_iter().flatten() {
                    object[field] = value.clone();
                }
                self.put(&path, object);
                whole(200, self.objects[&path].to_string().into())
            }
            "DELETE" => {
                self.delete(&path);
                whole(200, json!({ "kind": "Status", "status": "Success" }).to_string().into())
            }
            _ => failure(405, ""),
        };
        if let Some(date) = self.date {
            answer.headers_mut().insert("date", http::HeaderValue::from_static(date));
        }
        answer
    }

    fn list(&self, path: &str, seen: &Seen) -> Response<UnsyncBoxBody<Bytes, BoxError>> {
        let below = format!("{path}/");
        let all: Vec<&Value> =
            self.objects.iter().filter(|(p, _)| p.starts_with(&below)).map(|(_, o)| o).collect();
        let number = |name: &str| query(seen, name).and_then(|text| text.parse::<usize>().ok());
        let start = number("continue").unwrap_or(0);
        let end = all.len().min(start + number("limit").unwrap_or(usize::MAX - start));
        let next = if end < all.len() { end.to_string() } else { String::new() };
        let metadata = json!({ "resourceVersion": self.rv.to_string(), "continue": next });
        whole(
            200,
            json!({ "kind": "List", "metadata": metadata, "items": &all[start..end] }).to_string().into(),
        )
    }

    fn watch(&mut self, path: &str, seen: &Seen) -> Response<UnsyncBoxBody<Bytes, BoxError>> {
        let from: u64 = query(seen, "resourceVersion").and_then(|rv| rv.parse().ok()).unwrap_or(0);
        if from < self.compacted {
            let status = json!({ "kind": "Status", "code": 410, "reason": "Expired", "message": "too old resource version" });
            return whole(200, format!("{}\n", json!({ "type": "ERROR", "object": status })).into());
        }
        let (sender, receiver) = unbounded();
        for (_, _, line) in self.log.iter().filter(|(rv, of, _)| from < *rv && of == path) {
            sender.unbounded_send(line.clone()).expect("the receiver is below");
        }
        self.watchers.push(Watcher { path: path.to_owned(), from, lines: sender });
        let frames = receiver.map(|line| Ok::<_, BoxError>(Frame::data(line)));
        Response::new(StreamBody::new(frames).boxed_unsync())
    }

    fn put(&mut self, path: &str, mut object: Value) -> u64 {
        self.rv += 1;
        let old = self.objects.get(path);
        let kind = if old.is_some() { "MODIFIED" } else { "ADDED" };
        let uid = old.map_or_else(|| json!(format!("uid-{}", self.rv)), |old| old["metadata"]["uid"].clone());
        let (collection, name) = path.rsplit_once('/').expect("a path");
        object["metadata"]["name"] = name.into();
        object["metadata"]["namespace"] = "ns".into();
        object["metadata"]["uid"] = uid;
        object["metadata"]["resourceVersion"] = self.rv.to_string().into();
        self.objects.insert(path.to_owned(), object.clone());
        self.tell(kind, collection, &object);
        self.rv
    }

    fn delete(&mut self, path: &str) {
        let Some(mut object) = self.objects.remove(path) else { return };
        self.rv += 1;
        object["metadata"]["resourceVersion"] = self.rv.to_string().into();
        let (collection, _) = path.rsplit_once('/').expect("a path");
        self.tell("DELETED", collection, &object);
    }

    fn tell(&mut self, kind: &str, collection: &str, object: &Value) {
        let line = Bytes::from(format!("{}\n", json!({ "type": kind, "object": object })));
        self.log.push((self.rv, collection.to_owned(), line.clone()));
        let rv = self.rv;
        self.watchers.retain(|watcher| {
            let is_silent = watcher.path != collection || rv <= watcher.from;
            is_silent || watcher.lines.unbounded_send(line.clone()).is_ok()
        });
    }
}

fn is_collection(path: &str) -> bool {
    ["configmaps", "leases", "events"].iter().any(|kind| path.ends_with(kind))
}

fn query(seen: &Seen, name: &str) -> Option<String> {
    let mut pairs = seen.uri.query().unwrap_or_default().split('&');
    pairs.find_map(|pair| pair.strip_prefix(name)?.strip_prefix('=')).map(str::to_owned)
}

fn whole(code: u16, text: Bytes) -> Response<UnsyncBoxBody<Bytes, BoxError>> {
    let body = Full::new(text).map_err(|never| match never {}).boxed_unsync();
    Response::builder().status(code).body(body).expect("a valid status code")
}

fn failure(code: u16, reason: &str) -> Response<UnsyncBoxBody<Bytes, BoxError>> {
    let status = json!({ "kind": "Status", "status": "Failure", "code": code, "reason": reason, "message": "failure requested by the test" });
    whole(code, status.to_string().into())
}
