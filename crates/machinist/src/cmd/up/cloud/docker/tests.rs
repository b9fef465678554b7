//! Removes clusters from an engine in memory, under paused time.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard};
use std::{fmt, io};

use async_trait::async_trait;
use machinist_driver_docker::{Connector, DockerOptions, Wire};
use machinist_instance::{InstanceKey, InstanceSpec, NodeName, UserData};
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream};
use tokio::time::timeout;

use super::*;
use crate::output::Output;
use crate::progress::Form;

/// An engine in memory, behind real HTTP. The engine continues with a request whose connection
/// broke. Its connections are pipes: paused time would pass while a socket is awaited.
#[derive(Clone, Default)]
struct Engine {
    state: Arc<Mutex<State>>,
}

impl fmt::Debug for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Engine").finish_non_exhaustive()
    }
}

#[async_trait]
impl Connector for Engine {
    async fn connect(&self) -> io::Result<Box<dyn Wire>> {
        let (ours, theirs) = tokio::io::duplex(1 << 16);
        tokio::spawn(answer(theirs, self.state.clone()));
        Ok(Box::new(ours))
    }
}

#[derive(Default)]
struct State {
    /// The labels of the containers, by name. The name is also the id.
    containers: BTreeMap<String, Value>,
    networks: BTreeSet<String>,
    /// The number of deletions that fail before one succeeds.
    deletions_to_fail: usize,
    /// How long the engine works on the creation of a container.
    creation_takes: Duration,
    /// Whether the connection of each creation breaks at once.
    loses_answers: bool,
}

/// One request: the method, the parts of the path, the query and the body.
struct Request {
    method: String,
    path: Vec<String>,
    query: String,
    body: Vec<u8>,
}

impl Engine {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no panic")
    }

    async fn docker(&self) -> Docker {
        let identity = Identity::of(None).expect("an identity");
        let options = DockerOptions {
            engine_id: Some("engine-a".to_owned()),
            network: identity.name.clone(),
            privileges: Privileges::None,
            ..DockerOptions::default()
        };
        let provider = DockerProvider::over(Arc::new(self.clone()), options);
        let credential = Credential::default();
        let driver = provider.open(&provider.account(&credential), &credential).expect("opened");
        Docker {
            identity,
            provider,
            driver,
            image: "a:1".to_owned(),
            folder: PathBuf::new(),
            is_continued_later: false,
            privileges: Privileges::None,
            creation: tokio::sync::Mutex::default(),
        }
    }

    /// Creates a network and containers, as a run does.
    fn has_cluster(&self, docker: &Docker, names: [&str; 2]) {
        let mut state = self.state();
        state.networks.insert(docker.name().to_owned());
        for name in names {
            let labels = json!({"machinist.dev/cluster": docker.name(), "machinist.dev/owner-uid": name});
            state.containers.insert(name.to_owned(), labels);
        }
    }

    fn assert_without_a_trace(&self) {
        let state = self.state();
        assert_eq!((state.containers.len(), state.networks.len()), (0, 0));
    }
}

fn progress() -> Progress {
    Progress::new(Output::memory().0, Form::Lines)
}

async fn answer(mut stream: DuplexStream, state: Arc<Mutex<State>>) {
    let Some(request) = read(&mut stream).await else { return };
    let path: Vec<&str> = request.path.iter().map(String::as_str).collect();
    let (status, body) = match (request.method.as_str(), path.as_slice()) {
        ("POST", ["containers", "create"]) => {
            let (takes, loses_answers) = {
                let state = state.lock().expect("no panic");
                (state.creation_takes, state.loses_answers)
            };
            if loses_answers {
                drop(stream);
                tokio::time::sleep(takes).await;
                state.lock().expect("no panic").create(&request);
                return;
            }
            tokio::time::sleep(takes).await;
            state.lock().expect("no panic").create(&request)
        }
        (method, path) => state.lock().expect("no panic").answer(method, path, &request),
    };
    let body = if body.is_null() { String::new() } else { body.to_string() };
    let length = body.len();
    let text = format!("HTTP/1.1 {status} X\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}");
    // The caller may have ended.
    let _ = stream.write_all(text.as_bytes()).await;
}

async fn read(stream: &mut DuplexStream) -> Option<Request> {
    let (mut bytes, mut buffer) = (Vec::new(), vec![0; 4096]);
    loop {
        if let Some(request) = Request::parse(&bytes) {
            return Some(request);
        }
        match stream.read(&mut buffer).await {
            Ok(count) if 0 < count => bytes.extend_from_slice(&buffer[..count]),
            _ => return None,
        }
    }
}

impl Request {
    /// Returns the request once all its bytes have arrived.
    fn parse(bytes: &[u8]) -> Option<Self> {
        const END: &[u8] = b"\r\n\r\n";
        let end = bytes.windows(END.len()).position(|window| window == END)?;
        let head = String::from_utf8_lossy(&bytes[..end]).to_lowercase();
        let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")?.parse().ok());
        let body = bytes.get(end + END.len()..)?.get(..length.unwrap_or(0))?.to_vec();
        let mut words = head.split(' ');
        let (method, target) = (words.next()?.to_uppercase(), words.next()?);
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        // All requests except the one for the version name a version of the API.
        let path = path.split('/').filter(|part| !part.is_empty() && *part != "v1.41");
        Some(Self { method, path: path.map(str::to_owned).collect(), query: query.to_owned(), body })
    }
}

impl State {
    fn answer(&mut self, method: &str, path: &[&str], request: &Request) -> (u16, Value) {
        match (method, path) {
            ("GET", ["version"]) => (200, json!({"ApiVersion": "1.41"})),
            ("GET", ["info"]) => (200, json!({"ID": "engine-a"})),
            ("GET", ["images", ..]) => (200, json!({"Id": "image"})),
            ("GET", ["networks"]) => (200, json!([])),
            ("GET", ["networks", name]) if self.networks.contains(*name) => (200, json!({"Id": name})),
            ("GET", ["networks", name]) => (404, json!({"message": format!("network {name} not found")})),
            ("POST", ["networks", "create"]) => {
                let body: Value = serde_json::from_slice(&request.body).unwrap_or_default();
                self.networks.insert(body["Name"].as_str().unwrap_or_default().to_owned());
                (201, json!({"Id": "network"}))
            }
            ("DELETE", ["networks", name]) => match self.networks.remove(*name) {
                true => (204, Value::Null),
                false => (404, json!({"message": format!("network {name} not found")})),
            },
            ("GET", ["containers", "json"]) => (200, self.list(&request.query)),
            ("DELETE", ["containers", _]) if 0 < self.deletions_to_fail => {
                self.deletions_to_fail -= 1;
                (500, json!({"message": "device or resource busy"}))
            }
            (method, ["containers", name, ..]) => match (method, self.containers.get(*name).cloned()) {
                (_, None) => (404, json!({"message": format!("No such container: {name}")})),
                ("DELETE", Some(_)) => {
                    self.containers.remove(*name);
                    (204, Value::Null)
                }
                ("GET", Some(labels)) => {
                    let shown = json!({
                        "Id": name, "Name": format!("/{name}"), "Config": {"Labels": labels},
                        "State": {"Status": "created"},
                    });
                    (200, shown)
                }
                (_, Some(_)) => (204, Value::Null),
            },
            _ => (404, json!({"message": "page not found"})),
        }
    }

    /// Lists the containers with the label of the query.
    fn list(&self, query: &str) -> Value {
        let is_listed = |labels: &Value| {
            let mut labels = labels.as_object().into_iter().flatten().map(|(name, value)| {
                let name = name.replace('/', "%2f");
                format!("{name}%3d{}%22", value.as_str().unwrap_or_default())
            });
            labels.any(|label| query.contains(&label))
        };
        let listed = self.containers.iter().filter(|(_, labels)| is_listed(labels));
        let shown = listed.map(|(name, labels)| {
            json!({"Id": name, "Names": [format!("/{name}")], "State": "created", "Labels": labels})
        });
        shown.collect()
    }

    fn create(&mut self, request: &Request) -> (u16, Value) {
        let name = request.query.split('&').find_map(|it| it.strip_prefix("name=")).unwrap_or_default();
        if self.containers.contains_key(name) {
            return (409, json!({"message": "Conflict. The container name is already in use"}));
        }
        let body: Value = serde_json::from_slice(&request.body).unwrap_or_default();
        self.containers.insert(name.to_owned(), body["Labels"].clone());
        (201, json!({ "Id": name }))
    }
}

#[tokio::test(start_paused = true)]
async fn a_deletion_that_fails_once_is_repeated() {
    let engine = Engine::default();
    let docker = engine.docker().await;
    engine.has_cluster(&docker, ["control-plane", "worker"]);
    engine.state().deletions_to_fail = 1;
    docker.remove(&progress()).await.expect("removed");
    engine.assert_without_a_trace();
}

#[tokio::test(start_paused = true)]
async fn a_failed_removal_says_how_to_delete_the_rest() {
    let engine = Engine::default();
    let docker = engine.docker().await;
    engine.has_cluster(&docker, ["control-plane", "worker"]);
    engine.state().deletions_to_fail = usize::MAX;
    let told = docker.remove(&progress()).await.expect_err("the engine is busy").to_string();
    for part in ["cannot delete container control-plane", "device or resource busy", "within 60 s"] {
        assert!(told.contains(part), "expected {part:?} in {told}");
    }
    assert!(told.ends_with(&identity::cleanup(docker.name())), "{told}");
}

#[tokio::test(start_paused = true)]
async fn a_removal_without_open_calls_is_quick() {
    let engine = Engine::default();
    let docker = engine.docker().await;
    engine.has_cluster(&docker, ["control-plane", "worker"]);
    let began = Instant::now();
    docker.remove(&progress()).await.expect("removed");
    assert!(began.elapsed() <= LOOK_EVERY, "{:?}", began.elapsed());
    engine.assert_without_a_trace();
}

#[tokio::test(start_paused = true)]
async fn a_control_plane_created_after_the_stop_is_deleted() {
    let engine = Engine::default();
    let docker = engine.docker().await;
    engine.state().creation_takes = Duration::from_secs(2);
    let began = Instant::now();
    let started = timeout(Duration::from_secs(1), docker.start(&progress())).await;
    assert!(started.is_err(), "the engine is creating the container");
    docker.remove(&progress()).await.expect("removed");
    assert!(began.elapsed() < Duration::from_secs(4), "{:?}", began.elapsed());
    sleep(Duration::from_secs(5)).await;
    engine.assert_without_a_trace();
}

#[tokio::test(start_paused = true)]
async fn a_control_plane_created_after_a_lost_answer_is_deleted() {
    let engine = Engine::default();
    let docker = engine.docker().await;
    {
        let mut state = engine.state();
        state.creation_takes = Duration::from_secs(15);
        state.loses_answers = true;
    }
    let told = docker.start(&progress()).await.expect_err("no answer").to_string();
    assert!(told.contains("could not be created"), "{told}");
    docker.remove(&progress()).await.expect("removed");
    sleep(Duration::from_secs(60)).await;
    engine.assert_without_a_trace();
}

#[tokio::test(start_paused = true)]
async fn a_worker_created_after_its_controller_ended_is_deleted() {
    let engine = Engine::default();
    let docker = engine.docker().await;
    engine.state().creation_takes = Duration::from_secs(2);
    let provider = docker.provider();
    let credential = Credential::default();
    let controller = provider.open(&provider.account(&credential), &credential).expect("opened");
    let worker = InstanceSpec {
        key: InstanceKey::new("uid-1"),
        name: NodeName::new("worker").expect("a name"),
        cluster: docker.name().to_owned(),
        provider_spec: json!({"image": "a:1"}),
        user_data: UserData::default(),
        tags: BTreeMap::new(),
        adopt_made_since: None,
    };
    let ended = timeout(Duration::from_secs(1), controller.instances().ensure(&worker)).await;
    assert!(ended.is_err(), "the engine is creating the container");
    docker.remove(&progress()).await.expect("removed");
    sleep(Duration::from_secs(5)).await;
    engine.assert_without_a_trace();
}

#[test]
fn an_engine_that_does_not_answer_is_named_with_advice() {
    let told =
        |kind| no_engine(&Error::new(kind, "GET /version: no engine answers at unix:///a")).to_string();
    let absent = told(ErrorKind::Unavailable);
    for part in ["--cloud docker: ", "unix:///a", "DOCKER_HOST", "Start Docker"] {
        assert!(absent.contains(part), "expected {part:?} in {absent}");
    }
    assert!(told(ErrorKind::Denied).contains("group `docker`"));
    assert!(told(ErrorKind::Unsupported).contains("20.10"));
}
