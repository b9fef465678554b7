//! Plays a case against a server.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt, Full};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::canonical::{Answer, Canonical};
use crate::case::{CaseError, RecordedCase, Step, files, parse, read};
use crate::endpoint::{Actor, ExaminedServer, ExchangeError};
use crate::trace::replaced;
use machinist_apiserver::Body;
use machinist_apiserver::{Ids, RandomIds};

/// Time limit for each answer, event, and newly served definition.
const PATIENCE: Duration = Duration::from_secs(30);
/// Stands for the case's namespace in binary bodies, which must keep their length.
pub(crate) const TRACED: &str = "case-trace";
/// Pause between two checks of a condition.
const PAUSE: Duration = Duration::from_millis(100);

/// Answers to a case in canonical form.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Transcript {
    case: String,
    /// `gitVersion` of the server that answered.
    pub server: String,
    answers: Vec<Value>,
}

impl Transcript {
    #[cfg(test)]
    pub(crate) fn of(case: &str, server: &str, answers: Vec<Value>) -> Self {
        Transcript { case: case.to_owned(), server: server.to_owned(), answers }
    }

    /// Reads a golden file.
    ///
    /// # Errors
    /// When the file cannot be read, or differs in any byte from the output of
    /// [`Transcript::text`].
    pub fn load(file: &Path) -> Result<Self, CaseError> {
        let wrong = |message: String| CaseError::Parse { file: file.to_owned(), message };
        let text = read(file)?;
        let transcript: Transcript = serde_json::from_str(&text).map_err(|e| wrong(e.to_string()))?;
        if transcript.text() != text {
            return Err(wrong("was edited by hand. Record it again".to_owned()));
        }
        Ok(transcript)
    }

    /// Name of the played case.
    pub fn case(&self) -> &str {
        &self.case
    }

    /// Answers in order: one object each, with the id of its step.
    pub(crate) fn answers(&self) -> &[Value] {
        &self.answers
    }

    /// Renders the transcript as a golden file.
    pub fn text(&self) -> String {
        let document = json!({"case": self.case, "server": self.server, "answers": self.answers});
        let mut text = serde_json::to_string_pretty(&document).expect("a JSON value serialises");
        text.push('\n');
        text
    }
}

/// Error that stops a case before its end.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The server could not be reached.
    #[error("{case}, step {step}: {source}")]
    Endpoint {
        /// Name of the case.
        case: String,
        /// Id of the step.
        step: String,
        /// Cause of the failure.
        source: ExchangeError,
    },
    /// A step did not get the answer that its case expects.
    #[error("{case}, step {step}: {why}")]
    Step {
        /// Name of the case.
        case: String,
        /// Id of the step.
        step: String,
        /// Description of the problem.
        why: String,
    },
    /// A case or definition cannot be loaded.
    #[error(transparent)]
    Case(#[from] CaseError),
}

/// Applies the CustomResourceDefinitions that cases use, and waits until the server serves them.
///
/// # Errors
/// When the server rejects a definition, or does not serve it in time.
pub async fn prepare(endpoint: &ExaminedServer, definitions: &Path) -> Result<(), RunError> {
    for file in files(definitions)? {
        let definition: Value = parse(&file)?;
        let text = |pointer: &str| {
            definition.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned()
        };
        let name = text("/metadata/name");
        let scene = Scene::new(endpoint, &name, "");
        let path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
        let made = scene.request("define", "POST", path, Some(&definition)).await?;
        if made.code != 201 && made.code != 409 {
            return Err(scene.wrong("define", format!("answered {}: {}", made.code, made.body)));
        }
        let list = format!(
            "/apis/{}/{}/{}",
            text("/spec/group"),
            text("/spec/versions/0/name"),
            text("/spec/names/plural")
        );
        scene.wait_for_code("serve", &list, 200).await?;
    }
    Ok(())
}

/// Plays `case` in the namespace `namespace`, which must not exist yet.
///
/// # Errors
/// When the server cannot be reached, or a step gets another answer than its case expects.
pub async fn run(
    endpoint: &ExaminedServer,
    case: &RecordedCase,
    namespace: &str,
) -> Result<Transcript, RunError> {
    let mut scene = Scene::new(endpoint, &case.name, namespace);
    scene.set_up().await?;
    let server = endpoint.version().await.map_err(|source| scene.unreachable("version", source))?;
    for step in &case.steps {
        scene.play(step).await?;
    }
    let answers = Canonical::new(namespace).answers(&scene.answers);
    Ok(Transcript {
        case: case.name.clone(),
        server,
        answers: answers
            .iter()
            .map(|answer| serde_json::to_value(answer).expect("an answer serialises"))
            .collect(),
    })
}

/// Returns an unused name for a case's namespace, as long as the namespace of recorded
/// traces.
pub fn unused_namespace() -> String {
    format!("case-{}", RandomIds.suffix())
}

/// Creates a namespace with the content that every case expects.
///
/// # Errors
/// When the server rejects the namespace.
pub async fn make_namespace(endpoint: &ExaminedServer, namespace: &str) -> Result<(), RunError> {
    Scene::new(endpoint, "trace", namespace).set_up().await
}

struct Scene<'a> {
    endpoint: &'a ExaminedServer,
    case: &'a str,
    namespace: &'a str,
    /// Answers so far as received, for references.
    seen: BTreeMap<String, Value>,
    /// Open watches with the HTTP code of their answer.
    watches: BTreeMap<String, (u16, Body)>,
    answers: Vec<Answer>,
}

impl<'a> Scene<'a> {
    fn new(endpoint: &'a ExaminedServer, case: &'a str, namespace: &'a str) -> Self {
        Scene {
            endpoint,
            case,
            namespace,
            seen: BTreeMap::new(),
            watches: BTreeMap::new(),
            answers: Vec::new(),
        }
    }

    fn wrong(&self, step: &str, why: String) -> RunError {
        RunError::Step { case: self.case.to_owned(), step: step.to_owned(), why }
    }

    /// Creates the namespace, and the ServiceAccount that pods need. A controller would create the
    /// account in a cluster.
    async fn set_up(&self) -> Result<(), RunError> {
        let namespace = json!({"metadata": {"name": self.namespace}});
        let account = json!({"metadata": {"name": "default"}});
        let accounts = format!("/api/v1/namespaces/{}/serviceaccounts", self.namespace);
        for (path, body) in [("/api/v1/namespaces", &namespace), (accounts.as_str(), &account)] {
            let made = self.request("set-up", "POST", path, Some(body)).await?;
            let is_there = made.code == 201 || (made.code == 409 && path == accounts);
            if !is_there {
                return Err(self.wrong("set-up", format!("{path} answered {}: {}", made.code, made.body)));
            }
        }
        Ok(())
    }

    async fn play(&mut self, step: &Step) -> Result<(), RunError> {
        if step.compact {
            return self.endpoint.compact().await.map_err(|source| self.unreachable(&step.id, source));
        }
        if let Some(path) = &step.barrier {
            let path = self.resolve(&step.id, path)?;
            let wanted = if step.gone { 404 } else { 200 };
            return self.wait_for_code(&step.id, &path, wanted).await;
        }
        if let Some(path) = &step.watch {
            return self.open(step, path).await;
        }
        if let Some(opened) = &step.close {
            return self.close(step, opened).await;
        }
        let verb =
            step.verb.as_deref().ok_or_else(|| self.wrong(&step.id, "needs a verb or a watch".into()))?;
        let request = self.build(step, verb, &step.path)?;
        let mut answer = self.answer(&step.id, &self.actor(step)?, request).await?;
        if let (false, Some(Value::Array(items))) = (step.among.is_empty(), answer.body.get_mut("items")) {
            let name =
                |item: &Value| item.pointer("/metadata/name").and_then(Value::as_str).map(str::to_owned);
            items.retain(|item| name(item).is_some_and(|name| step.among.contains(&name)));
        }
        self.expect(step, &answer)?;
        self.seen.insert(step.id.clone(), answer.body.clone());
        if !step.setup {
            self.answers.push(answer.without(&step.except));
        }
        Ok(())
    }

    fn expect(&self, step: &Step, answer: &Answer) -> Result<(), RunError> {
        match step.expect {
            Some(code) if code != answer.code => {
                Err(self.wrong(&step.id, format!("expected {code}, got {}: {}", answer.code, answer.body)))
            }
            None if step.setup && !(200..300).contains(&answer.code) => {
                Err(self.wrong(&step.id, format!("got {}: {}", answer.code, answer.body)))
            }
            Some(_) | None => Ok(()),
        }
    }

    async fn wait_for_code(&self, step: &str, path: &str, wanted: u16) -> Result<(), RunError> {
        let arrives = async {
            while self.request(step, "GET", path, None).await?.code != wanted {
                tokio::time::sleep(PAUSE).await;
            }
            Ok(())
        };
        match tokio::time::timeout(PATIENCE, arrives).await {
            Ok(done) => done,
            Err(_elapsed) => Err(self.wrong(step, format!("{path} did not answer {wanted} in time"))),
        }
    }

    async fn open(&mut self, step: &Step, path: &str) -> Result<(), RunError> {
        let mut step = step.clone();
        step.query.insert("watch".into(), "true".into());
        let request = self.build(&step, "GET", path)?;
        let sent = tokio::time::timeout(PATIENCE, self.endpoint.send(&self.actor(&step)?, request)).await;
        let response = match sent {
            Ok(response) => response.map_err(|source| self.unreachable(&step.id, source))?,
            Err(_elapsed) => return Err(self.wrong(&step.id, "no answer in time".into())),
        };
        let code = response.status().as_u16();
        if code != step.expect.unwrap_or(200) {
            return Err(self.wrong(&step.id, format!("the watch got HTTP {code}")));
        }
        self.watches.insert(step.id.clone(), (code, response.into_body()));
        Ok(())
    }

    async fn close(&mut self, step: &Step, opened: &str) -> Result<(), RunError> {
        let Some((code, mut body)) = self.watches.remove(opened) else {
            return Err(self.wrong(&step.id, format!("watch {opened} is not open")));
        };
        let until = self.resolve(&step.id, step.until.as_deref().unwrap_or("end"))?;
        let mut events: Vec<Value> = Vec::new();
        let mut pending: Vec<u8> = Vec::new();
        let taking = async {
            while let Some(frame) = body.frame().await {
                let Ok(data) = frame.map(http_body::Frame::into_data) else { break };
                pending.extend_from_slice(&data.unwrap_or_default());
                while let Some(end) = pending.iter().position(|b| *b == b'\n') {
                    let line: Vec<u8> = pending.drain(..=end).collect();
                    let event: Value = serde_json::from_slice(&line).unwrap_or(Value::Null);
                    let is_last = is_sentinel(&event, &until);
                    events.push(event);
                    if is_last {
                        return;
                    }
                }
            }
        };
        if tokio::time::timeout(PATIENCE, taking).await.is_err() {
            return Err(self.wrong(
                &step.id,
                format!("event {until:?} did not arrive. Events so far: {}", Value::Array(events)),
            ));
        }
        let progress = |event: &Value| {
            event["type"] == "BOOKMARK"
                && event.pointer("/object/metadata/annotations/k8s.io~1initial-events-end").is_none()
        };
        events.retain(|event| !progress(event));
        let answer =
            Answer { step: step.id.clone(), code, headers: BTreeMap::new(), body: Value::Array(events) };
        self.seen.insert(step.id.clone(), answer.body.clone());
        self.answers.push(answer.without(&step.except));
        Ok(())
    }

    fn build(&self, step: &Step, verb: &str, path: &str) -> Result<Request<Full<Bytes>>, RunError> {
        let mut target = self.resolve(&step.id, path)?;
        let mut query = step.query.clone();
        if matches!(verb, "POST" | "PUT" | "PATCH") {
            // Cases leave out field validation unless they test it.
            query.entry("fieldValidation".into()).or_insert_with(|| "Ignore".into());
        }
        for (index, (key, value)) in query.iter().enumerate() {
            let value = self.resolve(&step.id, value)?;
            target.push(if index == 0 { '?' } else { '&' });
            target.push_str(&format!("{key}={}", percent_encode(&value)));
        }
        let body = match (&step.base64, &step.raw, &step.body) {
            (Some(text), ..) => {
                let bytes = STANDARD.decode(text);
                let bytes =
                    bytes.map_err(|e| self.wrong(&step.id, format!("its body is not base64: {e}")))?;
                Some(replaced(&bytes, TRACED, self.namespace))
            }
            (None, Some(raw), _) => Some(raw.clone().into_bytes()),
            (None, None, Some(body)) => {
                let text = serde_json::to_string(&self.resolve_value(&step.id, body)?)
                    .expect("a JSON value serialises");
                Some(text.into_bytes())
            }
            (None, None, None) => None,
        };
        let accept = match step.accept.as_deref() {
            Some("table") => "application/json;as=Table;v=v1;g=meta.k8s.io,application/json",
            Some("discovery") => {
                "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json"
            }
            Some(other) => other,
            None => "application/json",
        };
        let content_type = match step.patch.as_deref() {
            Some("json") => "application/json-patch+json",
            Some("apply") => "application/apply-patch+yaml",
            Some("merge") => "application/merge-patch+json",
            Some("strategic") => "application/strategic-merge-patch+json",
            Some(other) => other,
            None => "application/json",
        };
        let mut request = Request::builder().method(verb).uri(target);
        if body.is_some() && !step.headers.contains_key("Content-Type") {
            request = request.header(http::header::CONTENT_TYPE, content_type);
        }
        if !step.headers.contains_key("Accept") {
            request = request.header(http::header::ACCEPT, accept);
        }
        for (key, value) in &step.headers {
            request = request.header(key, value);
        }
        request
            .body(Full::new(body.unwrap_or_default().into()))
            .map_err(|e| self.wrong(&step.id, format!("is not a request: {e}")))
    }

    /// Parses `admin`, `nobody`, `bearer TOKEN`, `as USER` or `as USER in GROUP,GROUP`. References
    /// are resolved.
    fn actor(&self, step: &Step) -> Result<Actor, RunError> {
        let text = self.resolve(&step.id, step.actor.as_deref().unwrap_or("admin"))?;
        Ok(match text.split_once(' ') {
            None if text == "admin" => Actor::Admin,
            None if text == "nobody" => Actor::Nobody,
            Some(("bearer", token)) => Actor::Bearer(token.to_owned()),
            Some(("as", whom)) => {
                let (user, groups) = whom.split_once(" in ").unwrap_or((whom, ""));
                let groups = groups.split(',').filter(|group| !group.is_empty()).map(str::to_owned).collect();
                Actor::As { user: user.to_owned(), groups }
            }
            _ => return Err(self.wrong(&step.id, format!("unknown actor {text:?}"))),
        })
    }

    async fn request(
        &self,
        step: &str,
        verb: &str,
        path: &str,
        body: Option<&Value>,
    ) -> Result<Answer, RunError> {
        let mut request = Request::builder().method(verb).uri(path);
        if body.is_some() {
            request = request.header(http::header::CONTENT_TYPE, "application/json");
        }
        let bytes = body.map(|b| Bytes::from(b.to_string())).unwrap_or_default();
        let request = request.body(Full::new(bytes)).map_err(|e| self.wrong(step, e.to_string()))?;
        self.answer(step, &Actor::Admin, request).await
    }

    async fn answer(
        &self,
        step: &str,
        actor: &Actor,
        request: Request<Full<Bytes>>,
    ) -> Result<Answer, RunError> {
        let whole = async {
            let response = self.endpoint.send(actor, request).await.map_err(|e| self.unreachable(step, e))?;
            let (parts, body) = response.into_parts();
            let bytes = body.collect().await.map_err(|e| self.wrong(step, e.to_string()))?.to_bytes();
            let body = serde_json::from_slice(&bytes)
                .unwrap_or_else(|_| Value::String(String::from_utf8_lossy(&bytes).into_owned()));
            let mut headers = BTreeMap::new();
            for name in ["content-type", "retry-after", "vary", "warning"] {
                let all = parts.headers.get_all(name).iter().filter_map(|value| value.to_str().ok());
                let lines: Vec<&str> = all.collect();
                if !lines.is_empty() {
                    headers.insert(name.to_owned(), lines.join("\n"));
                }
            }
            Ok(Answer { step: step.to_owned(), code: parts.status.as_u16(), headers, body })
        };
        match tokio::time::timeout(PATIENCE, whole).await {
            Ok(answer) => answer,
            Err(_elapsed) => Err(self.wrong(step, "no answer in time".into())),
        }
    }

    fn unreachable(&self, step: &str, source: ExchangeError) -> RunError {
        RunError::Endpoint { case: self.case.to_owned(), step: step.to_owned(), source }
    }

    /// Replaces `${ns}`, `${fill.N}`, `${STEP.path.to.field}` and `${STEP.path|STEP.path|LITERAL}`.
    fn resolve(&self, step: &str, text: &str) -> Result<String, RunError> {
        let mut resolved = String::new();
        let mut rest = text;
        while let Some((before, reference)) = rest.split_once("${") {
            let Some((reference, after)) = reference.split_once('}') else {
                return Err(self.wrong(step, format!("{text:?} has a reference without a closing brace")));
            };
            resolved.push_str(before);
            resolved.push_str(&self.reference(step, reference)?);
            rest = after;
        }
        resolved.push_str(rest);
        Ok(resolved)
    }

    fn reference(&self, step: &str, reference: &str) -> Result<String, RunError> {
        if reference == "ns" {
            return Ok(self.namespace.to_owned());
        }
        if let Some(count) = reference.strip_prefix("fill.").and_then(|n| n.parse().ok()) {
            return Ok("x".repeat(count));
        }
        if let Some((places, literal)) = reference.rsplit_once('|') {
            // An earlier step may have been rejected or removed.
            let found = places.split('|').find_map(|place| self.reference(step, place).ok());
            return Ok(found.unwrap_or_else(|| literal.to_owned()));
        }
        let (from, path) = reference.split_once('.').unwrap_or((reference, ""));
        let answer = self
            .seen
            .get(from)
            .ok_or_else(|| self.wrong(step, format!("there is no earlier step {from}")))?;
        let found = answer.pointer(&format!("/{}", path.replace('.', "/")));
        match found {
            Some(Value::String(text)) => Ok(text.clone()),
            Some(other) => Ok(other.to_string()),
            None => Err(self.wrong(step, format!("step {from} has no {path}: {answer}"))),
        }
    }

    fn resolve_value(&self, step: &str, value: &Value) -> Result<Value, RunError> {
        Ok(match value {
            Value::String(text) => Value::String(self.resolve(step, text)?),
            Value::Array(items) => {
                Value::Array(items.iter().map(|i| self.resolve_value(step, i)).collect::<Result<_, _>>()?)
            }
            Value::Object(map) => {
                let entries =
                    map.iter().map(|(k, v)| Ok((self.resolve(step, k)?, self.resolve_value(step, v)?)));
                Value::Object(entries.collect::<Result<_, RunError>>()?)
            }
            Value::Null | Value::Bool(_) | Value::Number(_) => value.clone(),
        })
    }
}

/// Reports whether an event matches `TYPE name`.
fn is_sentinel(event: &Value, until: &str) -> bool {
    let (kind, name) = until.split_once(' ').unwrap_or((until, ""));
    event["type"] == kind
        && (name.is_empty()
            || ["/object/metadata/name", "/object/rows/0/cells/0"]
                .iter()
                .any(|place| event.pointer(place).is_some_and(|n| n == name)))
}

fn percent_encode(text: &str) -> String {
    text.bytes()
        .map(|b| {
            if b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.' | b'~') {
                char::from(b).to_string()
            } else {
                format!("%{b:02X}")
            }
        })
        .collect()
}
