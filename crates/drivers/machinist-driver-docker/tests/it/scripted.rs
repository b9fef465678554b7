//! The driver against an engine with scripted answers: cases that a real engine does not produce.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};

use machinist_driver::{Driver, Provider as _};
use machinist_driver_docker::{DockerOptions, DockerProvider};
use machinist_instance::{
    AccountId, Credential, ErrorKind, InstanceKey, InstanceRef, InstanceSpec, NativeId, NodeName, Power,
    ProviderId, Sighting, UserData,
};
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

/// An answer: the status and the body.
type Answer = (u16, String);

/// An engine that answers each request as a test says.
struct Scripted {
    address: String,
    state: Arc<Mutex<State>>,
}

struct State {
    id: String,
    /// The requests, without the version of the API and without the query.
    requests: Vec<String>,
    answer: Box<dyn FnMut(&str) -> Answer + Send>,
}

fn ok(body: serde_json::Value) -> Answer {
    (200, body.to_string())
}

/// The engine's answer to a request for an object that does not exist.
fn missing() -> Answer {
    (404, json!({"message": "No such container: c-w"}).to_string())
}

impl Scripted {
    async fn start(answer: impl FnMut(&str) -> Answer + Send + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = format!("tcp://{}", listener.local_addr().expect("bound"));
        let state = State { id: "engine-a".to_owned(), requests: Vec::new(), answer: Box::new(answer) };
        let state = Arc::new(Mutex::new(state));
        let served = state.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(serve(stream, served.clone()));
            }
        });
        Self { address, state }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no panic")
    }

    async fn provider(&self) -> DockerProvider {
        let engine = self.address.parse().expect("an address");
        let options = DockerOptions { engine, ..DockerOptions::default() };
        DockerProvider::connect(options).await.expect("the engine answers")
    }

    async fn driver(&self) -> Arc<dyn Driver> {
        let (provider, credential) = (self.provider().await, Credential::default());
        provider.open(&provider.account(&credential), &credential).expect("opened")
    }
}

/// Answers one request. The driver opens a connection for each.
async fn serve(mut stream: TcpStream, state: Arc<Mutex<State>>) {
    let mut request = Vec::new();
    let mut buffer = vec![0; 16 * 1024];
    loop {
        let text = String::from_utf8_lossy(&request).into_owned();
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let length = head.lines().find_map(|line| {
                let (name, value) = line.split_once(':')?;
                name.eq_ignore_ascii_case("content-length").then(|| value.trim().parse::<usize>().ok())?
            });
            if length.unwrap_or_default() <= body.len() {
                let (status, body) = state.lock().expect("no panic").answer_to(head);
                let answer = format!(
                    "HTTP/1.1 {status} X\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
                    body.len()
                );
                let _ = stream.write_all(answer.as_bytes()).await;
                return;
            }
        }
        match stream.read(&mut buffer).await {
            Ok(count) if 0 < count => request.extend_from_slice(&buffer[..count]),
            _ => return,
        }
    }
}

impl State {
    fn answer_to(&mut self, head: &str) -> Answer {
        let mut words = head.split_whitespace();
        let (method, path) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
        if path == "/version" {
            return ok(json!({"ApiVersion": "1.47"}));
        }
        let path = path.split('?').next().unwrap_or_default();
        let path = path.trim_start_matches('/').split_once('/').map_or("", |(_, path)| path);
        if path == "info" {
            return ok(json!({"ID": self.id, "CgroupVersion": "2"}));
        }
        let request = format!("{method} /{path}");
        self.requests.push(request.clone());
        (self.answer)(&request)
    }
}

fn container(id: &str, name: &str, key: Option<&str>) -> serde_json::Value {
    let labels = key.map_or(json!({}), |key| json!({"machinist.dev/owner-uid": key}));
    json!({
        "Id": id, "Name": format!("/{name}"), "State": {"Status": "running"},
        "Config": {"Labels": labels},
    })
}

/// A container whose name is recorded.
fn recorded() -> InstanceRef {
    InstanceRef { id: ProviderId::parse("docker:////c-w").ok(), ..InstanceRef::default() }
}

#[tokio::test]
async fn a_renamed_container_is_found_and_deleted() {
    let renamed = container("id-1", "renamed", Some("u1"));
    let of_another = container("id-2", "c-w", None);
    let engine = Scripted::start(move |request| match request {
        "GET /containers/id-1/json" => ok(renamed.clone()),
        "GET /containers/c-w/json" => ok(of_another.clone()),
        "GET /containers/json" => ok(json!([])),
        "DELETE /containers/id-1" => (204, String::new()),
        _ => missing(),
    })
    .await;
    let driver = engine.driver().await;
    let key = InstanceKey::new("u1");
    let by = |id: &str| InstanceRef { key: Some(key.clone()), native_id: NativeId::new(id), ..recorded() };
    let found = driver.instances().find(&by("id-1")).await;
    assert!(matches!(&found, Ok(Sighting::Present(it)) if it.name.as_str() == "renamed"), "{found:?}");
    assert_eq!(driver.instances().find(&by("id-0")).await, Ok(Sighting::Absent), "another one has the name");
    delete(&*driver, &by("id-1"), &key).await;
    let requests = engine.state().requests.clone();
    assert_eq!(requests.last().map(String::as_str), Some("DELETE /containers/id-1"), "{requests:?}");
}

#[expect(clippy::disallowed_methods, reason = "the test checks the deletion")]
async fn delete(driver: &dyn Driver, which: &InstanceRef, key: &InstanceKey) {
    driver.instances().delete(which, key).await.expect("deleted");
}

#[tokio::test]
async fn a_container_that_another_call_started_is_kept() {
    let created = json!([{
        "Id": "id-1", "Names": ["/c-w"], "State": "created",
        "Labels": {"machinist.dev/owner-uid": "u1"},
    }]);
    let mut inspected = 0;
    let engine = Scripted::start(move |request| match request {
        "GET /containers/json" => ok(created.clone()),
        "GET /containers/id-1/json" => {
            inspected += 1;
            let mut shown = container("id-1", "c-w", Some("u1"));
            if inspected == 1 {
                shown["State"]["Status"] = json!("created");
            }
            ok(shown)
        }
        "POST /containers/id-1/start" => (500, json!({"message": "cannot start"}).to_string()),
        "DELETE /containers/id-1" => (409, json!({"message": "container is running"}).to_string()),
        _ => missing(),
    })
    .await;
    let spec = InstanceSpec {
        key: InstanceKey::new("u1"),
        name: NodeName::new("c-w").expect("not empty"),
        cluster: "c".to_owned(),
        provider_spec: json!({"image": "node:1", "privileges": "none"}),
        user_data: UserData::default(),
        tags: BTreeMap::new(),
        adopt_made_since: None,
    };
    let made = engine.driver().await.instances().ensure(&spec).await.expect("another call started it");
    assert_eq!(made.power, Power::Running);
}

#[tokio::test]
async fn a_page_of_a_proxy_proves_no_absence() {
    let engine = Scripted::start(|_| (404, "<html>Not Found</html>".to_owned())).await;
    let error = engine.driver().await.instances().find(&recorded()).await.expect_err("a proxy");
    assert_eq!(error.kind, ErrorKind::Unavailable);
}

#[tokio::test]
async fn an_engine_at_the_same_address_proves_no_absence() {
    let engine = Scripted::start(|_| missing()).await;
    let account = |provider: &DockerProvider| -> AccountId { provider.account(&Credential::default()) };
    let first = account(&engine.provider().await);
    let driver = engine.driver().await;
    assert_eq!(driver.instances().find(&recorded()).await, Ok(Sighting::Absent));
    engine.state().id = "engine-b".to_owned();
    let error = driver.instances().find(&recorded()).await.expect_err("another engine");
    assert_eq!(error.kind, ErrorKind::Unavailable);
    assert!(error.message.contains("engine-a"), "{error}");
    assert_ne!(account(&engine.provider().await), first, "another engine is another account");
}
