//! Removes clusters from an engine in memory, under paused time.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard};
use std::{fmt, io};

use async_trait::async_trait;
use machinist_driver_docker::{Connector, DockerOptions, Wire};
use machinist_instance::{InstanceKey, InstanceSpec, NodeName, Place, UserData};
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream};
use tokio::time::timeout;

use super::nodes::ServerNews;
use super::*;
use crate::cmd::up::progress::End;
use crate::cmd::up::{BrokenControlPlane, delete_broken};
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
    /// Names of the containers that do not run.
    exited: BTreeSet<String>,
    /// The published port of the API server.
    port: Option<u16>,
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
        self.docker_in(None)
    }

    /// The cluster of a run with that `--data-dir`.
    fn docker_in(&self, data_dir: Option<&Path>) -> Docker {
        let identity = Identity::of(data_dir).expect("an identity");
        let options = DockerOptions {
            engine_id: Some("engine-a".to_owned()),
            network: identity.name.clone(),
            privileges: Privileges::None,
            ..DockerOptions::default()
        };
        let provider = DockerProvider::over(Arc::new(self.clone()), options);
        let credential = Credential::default();
        let driver = provider
            .open(&provider.account(&credential, &Place::WHOLE), &credential, &Place::WHOLE)
            .expect("opened");
        Docker {
            identity,
            provider,
            driver,
            image: "a:1".to_owned(),
            folder: data_dir.unwrap_or(Path::new("")).to_owned(),
            is_continued_later: data_dir.is_some(),
            privileges: Privileges::None,
            creation: tokio::sync::Mutex::default(),
            killed_run_calls_until: OnceLock::new(),
            is_removed: AtomicBool::new(false),
            is_explained: AtomicBool::new(false),
            may_have_moved: Notify::new(),
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
        // All requests except the request for the version name a version of the API.
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
            ("DELETE", ["networks", name]) => {
                if self.networks.remove(*name) {
                    (204, Value::Null)
                } else {
                    (404, json!({"message": format!("network {name} not found")}))
                }
            }
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
                        "NetworkSettings": {"Ports": {"6443/tcp": [{"HostPort": self.port.map_or_else(String::new, |port| port.to_string())}]}},
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
            let state = if self.exited.contains(name) { "exited" } else { "created" };
            json!({"Id": name, "Names": [format!("/{name}")], "State": state, "Labels": labels})
        });
        shown.collect()
    }

    fn create(&mut self, request: &Request) -> (u16, Value) {
        let name = request
            .query
            .split('&')
            .find_map(|parameter| parameter.strip_prefix("name="))
            .unwrap_or_default();
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
    let message = docker.remove(&progress()).await.expect_err("the engine is busy").to_string();
    for part in ["cannot delete container control-plane", "device or resource busy", "within 60 s"] {
        assert!(message.contains(part), "expected {part:?} in {message}");
    }
    assert!(message.ends_with(&identity::cleanup(docker.name())), "{message}");
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
    let message = docker.start(&progress()).await.expect_err("no answer").to_string();
    assert!(message.contains("could not be created"), "{message}");
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
    let controller = provider
        .open(&provider.account(&credential, &Place::WHOLE), &credential, &Place::WHOLE)
        .expect("opened");
    let worker = InstanceSpec {
        key: InstanceKey::new("uid-1"),
        name: NodeName::new("worker").expect("a name"),
        cluster: docker.name().to_owned(),
        provider_spec: json!({"image": "a:1"}),
        user_data: UserData::default(),
        tags: BTreeMap::new(),
        annotations: BTreeMap::new(),
        adopt_made_since: None,
        last_known_state: None,
    };
    let ended = timeout(Duration::from_secs(1), controller.instances().ensure(&worker)).await;
    assert!(ended.is_err(), "the engine is creating the container");
    docker.remove(&progress()).await.expect("removed");
    sleep(Duration::from_secs(5)).await;
    engine.assert_without_a_trace();
}

/// The engine carries out a call of a run that was killed.
#[tokio::test(start_paused = true)]
async fn a_worker_created_after_a_kill_of_the_run_is_deleted() {
    let folder = tempfile::tempdir().expect("a folder");
    let engine = Engine::default();
    let killed = engine.docker_in(Some(folder.path()));
    killed.keep().expect("written");
    engine.has_cluster(&killed, ["control-plane", "worker"]);
    let (late, name) = (engine.clone(), killed.name().to_owned());
    tokio::spawn(async move {
        sleep(Duration::from_secs(59)).await;
        let labels = json!({"machinist.dev/cluster": name, "machinist.dev/owner-uid": "late"});
        late.state().containers.insert("late".to_owned(), labels);
    });
    drop(killed);

    let docker = engine.docker_in(Some(folder.path()));
    assert!(docker.is_kept());
    docker.keep().expect("written");
    let (output, printed) = Output::memory();
    docker.remove(&Progress::new(output, Form::Lines)).await.expect("removed");
    docker.end().await;
    let printed = printed.text();
    let message = "An earlier run was killed, and its calls may take effect for another 80 s";
    assert!(printed.contains(message), "expected {message:?} in {printed}");
    sleep(Duration::from_secs(60)).await;
    engine.assert_without_a_trace();
}

#[tokio::test(start_paused = true)]
async fn a_removal_after_an_end_in_order_is_quick() {
    let folder = tempfile::tempdir().expect("a folder");
    let engine = Engine::default();
    let earlier = engine.docker_in(Some(folder.path()));
    earlier.keep().expect("written");
    engine.has_cluster(&earlier, ["control-plane", "worker"]);
    earlier.end().await;
    let began = Instant::now();
    let docker = engine.docker_in(Some(folder.path()));
    // A second start in the same run is not a kill.
    docker.keep().expect("written");
    docker.keep().expect("written");
    docker.remove(&progress()).await.expect("removed");
    assert!(began.elapsed() <= LOOK_EVERY, "{:?}", began.elapsed());
}

/// A run between the kill and the removal ends in order, and too soon.
#[tokio::test(start_paused = true)]
async fn a_short_run_does_not_end_the_wait_for_a_killed_one() {
    let folder = tempfile::tempdir().expect("a folder");
    let engine = Engine::default();
    let start = || {
        let docker = engine.docker_in(Some(folder.path()));
        docker.keep().expect("written");
        docker
    };
    drop(start());
    let short = start();
    sleep(Duration::from_secs(5)).await;
    short.end().await;
    let last = start();
    assert!(last.killed_run_calls_until().is_some());
    sleep(PROMISES.call_bound + Duration::from_secs(1)).await;
    last.end().await;
    assert!(start().killed_run_calls_until().is_none());
}

/// Another `up` was refused before it did anything, for example because the directory is in use.
#[tokio::test(start_paused = true)]
async fn a_refused_run_keeps_the_note_of_another() {
    let engine = Engine::default();
    let folder = tempfile::tempdir().expect("a directory");
    let killed = engine.docker_in(Some(folder.path()));
    killed.keep().expect("written");
    engine.docker_in(Some(folder.path())).end().await;
    drop(killed);
    let next = engine.docker_in(Some(folder.path()));
    next.keep().expect("written");
    assert!(next.killed_run_calls_until().is_some(), "the killed run has noted its calls");
}

#[test]
fn an_engine_that_does_not_answer_is_named_with_advice() {
    let message =
        |kind| no_engine(&Error::new(kind, "GET /version: no engine answers at unix:///a")).to_string();
    let absent = message(ErrorKind::Unavailable);
    for part in ["--cloud docker: ", "unix:///a", "DOCKER_HOST", "Start Docker"] {
        assert!(absent.contains(part), "expected {part:?} in {absent}");
    }
    assert!(message(ErrorKind::Denied).contains("group `docker`"));
    assert!(message(ErrorKind::Unsupported).contains("20.10"));
}

/// `--until gone` of a cluster whose control plane does not answer, or whose machines never end.
#[tokio::test(start_paused = true)]
async fn a_broken_cluster_is_deleted_in_any_state() {
    let broken = || Err(anyhow!("no answer").context(BrokenControlPlane));
    for (ended, is_deleted) in [
        (broken(), true),
        (Ok(End::Timeout), true),
        (Ok(End::Interrupted), false),
        // For example a directory that another `up` has locked.
        (Err(anyhow!("another process uses the directory")), false),
    ] {
        let engine = Engine::default();
        let docker = engine.docker().await;
        engine.has_cluster(&docker, ["control-plane", "worker"]);
        let (output, printed) = Output::memory();
        let progress = Progress::new(output, Form::Lines);
        let what = format!("{ended:?}");
        let deleted = delete_broken(&docker, ended, Path::new("state"), Some(Vec::new()), &progress).await;
        assert_eq!(matches!(deleted, Ok(End::Gone)), is_deleted, "{what}: {deleted:?}");
        assert_eq!(engine.state().containers.is_empty(), is_deleted, "{what}");
        let printed = printed.text();
        assert_eq!(printed.contains("cannot be deleted in order"), is_deleted, "{printed}");
        assert_eq!(printed.contains("mv "), is_deleted, "the way to start again: {printed}");
    }
}

/// The cluster also has machines of an earlier manifest, or that is not known.
#[tokio::test(start_paused = true)]
async fn a_broken_cluster_with_machines_of_other_manifests_is_kept() {
    for (others, expected) in [
        (Some(vec!["MachineSet a".to_owned()]), "contains MachineSet a. "),
        (Some(vec!["MachineSet a".to_owned(), "Machine c".to_owned()]), "contains MachineSet a and 1 more. "),
        (None, "were not read. "),
    ] {
        for ended in [Err(anyhow!("no answer").context(BrokenControlPlane)), Ok(End::Timeout)] {
            let engine = Engine::default();
            let docker = engine.docker().await;
            engine.has_cluster(&docker, ["control-plane", "worker"]);
            let (output, printed) = Output::memory();
            let progress = Progress::new(output, Form::Lines);
            let ended = delete_broken(&docker, ended, Path::new("state"), others.clone(), &progress).await;
            assert!(!matches!(ended, Ok(End::Gone)), "{ended:?}");
            assert_eq!(engine.state().containers.len(), 2);
            let printed = printed.text();
            for part in [expected, &identity::cleanup(docker.name())] {
                assert!(printed.contains(part), "expected {part:?} in {printed}");
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn only_containers_that_run_are_counted_as_running() {
    let engine = Engine::default();
    let docker = engine.docker().await;
    engine.has_cluster(&docker, ["control-plane", "worker"]);
    engine.state().exited.insert("worker".to_owned());
    let counts = docker.counts().await.expect("the engine answers");
    assert_eq!((counts.alive, counts.stopped), (2, 1));
}

fn target(port: u16) -> Target {
    Target {
        url: format!("https://127.0.0.1:{port}"),
        kubeconfig: PathBuf::new(),
        container: NativeId::new("control-plane").expect("not empty"),
    }
}

/// Clusters of earlier versions have a port that changes when the container starts.
#[tokio::test(start_paused = true)]
async fn another_published_port_is_noticed() {
    let engine = Engine::default();
    let docker = Arc::new(engine.docker().await);
    engine.has_cluster(&docker, ["control-plane", "worker"]);
    engine.state().port = Some(20_001);
    assert!(!docker.has_moved(&target(20_001)).await);
    assert!(docker.has_moved(&target(20_002)).await);
    engine.state().port = None;
    let began = Instant::now();
    assert!(!docker.has_moved(&target(20_002)).await, "the container does not run");
    assert_eq!(began.elapsed(), Duration::from_secs(60));
}

/// One piece of advice, and none if another note has named the cause.
#[tokio::test]
async fn a_silent_api_server_is_reported_once_with_advice() {
    let engine = Engine::default();
    let docker = engine.docker().await;
    let printed_for = |news: ServerNews| {
        let (output, printed) = Output::memory();
        docker.hear(&target(20_001), news, &Progress::new(output, Form::Lines));
        printed.text()
    };
    let text = printed_for(ServerNews::Silent("connection refused".to_owned()));
    for part in
        ["https://127.0.0.1:20001 does not answer: connection refused", "docker restart ", "--until gone"]
    {
        assert!(text.contains(part), "expected {part:?} in {text}");
    }
    assert!(printed_for(ServerNews::Back).contains("answers again"));
    docker.is_explained.store(true, Ordering::Relaxed);
    assert_eq!(printed_for(ServerNews::Silent("connection refused".to_owned())), "", "the engine is silent");
    assert!(printed_for(ServerNews::Back).contains("answers again"));
    assert!(printed_for(ServerNews::Silent("timed out".to_owned())).contains("timed out"));
}
