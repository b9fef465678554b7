//! The driver against an engine with scripted answers: cases that a real engine does not produce.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};

use machinist_driver::{Driver, Provider as _};
use machinist_driver_docker::{DockerOptions, DockerProvider};
use machinist_instance::{
    AccountId, BalancerKey, BalancerSpec, Credential, ErrorKind, Ingress, InstanceKey, InstanceRef,
    InstanceSpec, Listener, NativeId, NodeName, Place, Power, ProviderId, Scope, Sighting, TransportProtocol,
    UserData,
};
use serde_json::json;
use tokio::net::TcpListener;

use crate::wire::{Reply, Request, serve};

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
    /// The last JSON body of each request.
    bodies: BTreeMap<String, serde_json::Value>,
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
        let state = State {
            id: "engine-a".to_owned(),
            requests: Vec::new(),
            bodies: BTreeMap::new(),
            answer: Box::new(answer),
        };
        let state = Arc::new(Mutex::new(state));
        let served = state.clone();
        serve(listener, move |request: &Request| {
            let mut state = served.lock().expect("no panic");
            let (status, body) = state.answer_to(request);
            Reply::Answer(status, body.into_bytes())
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
        provider
            .open(&provider.account(&credential, &Place::WHOLE), &credential, &Place::WHOLE)
            .expect("opened")
    }
}

impl State {
    fn answer_to(&mut self, request: &Request) -> Answer {
        if request.path == "/version" {
            return ok(json!({"ApiVersion": "1.47"}));
        }
        if request.path == "/info" {
            return ok(json!({"ID": self.id, "CgroupVersion": "2"}));
        }
        let (body, request) = (&request.body, format!("{} {}", request.method, request.path));
        self.requests.push(request.clone());
        if let Ok(body) = serde_json::from_slice(body) {
            self.bodies.insert(request.clone(), body);
        }
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

fn conflict(name: &str) -> Answer {
    let text = format!("Conflict. The container name \"/{name}\" is already in use by container \"id-2\".");
    (409, json!({ "message": text }).to_string())
}

fn worker() -> InstanceSpec {
    InstanceSpec {
        key: InstanceKey::new("u1"),
        name: NodeName::new("c-w").expect("not empty"),
        cluster: "c".to_owned(),
        provider_spec: json!({"image": "node:1", "privileges": "none"}),
        user_data: UserData::default(),
        tags: BTreeMap::new(),
        annotations: BTreeMap::new(),
        adopt_made_since: None,
        last_known_state: None,
    }
}

fn load_balancer() -> BalancerSpec {
    BalancerSpec {
        key: BalancerKey::new("u1"),
        claim: Default::default(),
        id: None,
        native_id: None,
        name: "c-lb".to_owned(),
        listeners: vec![Listener { protocol: TransportProtocol::Tcp, port: 6443, target_port: 6443 }],
        targets: Vec::new(),
        options: BTreeMap::new(),
    }
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
    let made = engine.driver().await.instances().ensure(&worker()).await.expect("another call started it");
    assert_eq!(made.power, Power::Running);
}

/// The container exists, so no error may say that the call had no effect.
#[tokio::test]
async fn an_error_after_the_creation_leaves_the_effect_open() {
    for refused in ["POST /containers/id-1/start", "GET /containers/id-1/json"] {
        let mut inspected = 0;
        let engine = Scripted::start(move |request| match request {
            "GET /containers/json" => ok(json!([{
                "Id": "id-1", "Names": ["/c-w"], "State": "created",
                "Labels": {"machinist.dev/owner-uid": "u1"},
            }])),
            "GET /containers/id-1/json" if refused == request && 0 < inspected => {
                (503, json!({"message": "the engine stops"}).to_string())
            }
            "GET /containers/id-1/json" => {
                inspected += 1;
                let mut shown = container("id-1", "c-w", Some("u1"));
                shown["State"]["Status"] = json!("created");
                ok(shown)
            }
            "POST /containers/id-1/start" if refused == request => {
                (500, json!({"message": "no space left on device"}).to_string())
            }
            "POST /containers/id-1/start" => (204, String::new()),
            "DELETE /containers/id-1" => (500, json!({"message": "no space left on device"}).to_string()),
            _ => missing(),
        })
        .await;
        let made = engine.driver().await.instances().ensure(&worker()).await;
        assert_eq!(made.map_err(|error| error.kind).err(), Some(ErrorKind::Ambiguous), "{refused}");
    }
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
    let account =
        |provider: &DockerProvider| -> AccountId { provider.account(&Credential::default(), &Place::WHOLE) };
    let first = account(&engine.provider().await);
    let driver = engine.driver().await;
    assert_eq!(driver.instances().find(&recorded()).await, Ok(Sighting::Absent));
    engine.state().id = "engine-b".to_owned();
    let error = driver.instances().find(&recorded()).await.expect_err("another engine");
    assert_eq!(error.kind, ErrorKind::Unavailable);
    assert!(error.message.contains("engine-a"), "{error}");
    assert_ne!(account(&engine.provider().await), first, "another engine is another account");
}

#[tokio::test]
async fn a_list_of_another_engine_is_an_error() {
    let engine = Scripted::start(|request| match request {
        "GET /containers/json" => ok(json!([])),
        _ => missing(),
    })
    .await;
    let driver = engine.driver().await;
    let scopes = [Scope::Visible, Scope::Ours("c".to_owned())];
    for scope in &scopes {
        assert_eq!(driver.instances().list(scope).await, Ok(Vec::new()));
    }
    engine.state().id = "engine-b".to_owned();
    for scope in &scopes {
        let error = driver.instances().list(scope).await.expect_err("another engine");
        assert_eq!(error.kind, ErrorKind::Unavailable);
        assert!(error.message.contains("engine-a"), "{error}");
    }
}

/// Another process creates the container between the look and the creation.
async fn ensure_at_conflict(labels: serde_json::Value) -> (Result<String, ErrorKind>, Vec<String>) {
    let engine = Scripted::start(move |request| match request {
        "GET /containers/json" => ok(json!([])),
        "GET /images/node%3A1/json" | "GET /networks/kind" => ok(json!({"Id": "x"})),
        "POST /containers/create" => conflict("c-w"),
        "GET /containers/c-w/json" => {
            let mut shown = container("id-2", "c-w", None);
            shown["Config"]["Labels"] = labels.clone();
            ok(shown)
        }
        _ => missing(),
    })
    .await;
    let made = engine.driver().await.instances().ensure(&worker()).await;
    let requests = engine.state().requests.clone();
    let made = made.map(|made| made.native_id.map(|id| id.to_string()).unwrap_or_default());
    (made.map_err(|error| error.kind), requests)
}

#[tokio::test]
async fn the_container_of_a_taken_name_is_used_only_if_it_is_ours() {
    let owner = "machinist.dev/owner-uid";
    let (made, _) = ensure_at_conflict(json!({owner: "u1"})).await;
    assert_eq!(made, Ok("id-2".to_owned()));
    for labels in [
        json!({}),
        json!({owner: "u2"}),
        json!({owner: "u1", "io.x-k8s.kind.role": "external-load-balancer"}),
    ] {
        let (made, requests) = ensure_at_conflict(labels.clone()).await;
        assert_eq!(made, Err(ErrorKind::Denied), "{labels}");
        assert_eq!(requests.last().map(String::as_str), Some("GET /containers/c-w/json"), "{labels}");
    }
}

#[tokio::test]
async fn a_balancer_of_a_taken_name_is_used_only_if_it_is_ours() {
    for labels in [
        json!({}),
        json!({"machinist.dev/owner-uid": "u2", "io.x-k8s.kind.role": "external-load-balancer"}),
        json!({"machinist.dev/owner-uid": "u1", "io.x-k8s.kind.role": "worker"}),
    ] {
        let mut creations = 0;
        let mut looks = 0;
        let engine = Scripted::start(move |request| match request {
            "GET /containers/json" => ok(json!([])),
            "POST /containers/create" => {
                creations += 1;
                assert_eq!(creations, 1, "no second attempt");
                conflict("c-lb")
            }
            "GET /containers/c-lb/json" => {
                looks += 1;
                let mut shown = container("id-2", "c-lb", None);
                shown["Config"]["Labels"] = labels.clone();
                if looks == 1 { missing() } else { ok(shown) }
            }
            request if request.starts_with("GET /images/") => ok(json!({"Id": "x"})),
            "GET /networks/kind" => ok(json!({"Id": "x"})),
            _ => missing(),
        })
        .await;
        let driver = engine.driver().await;
        let balancers = driver.balancers().expect("this driver has balancers");
        let error = balancers.ensure(&load_balancer()).await.expect_err("another owner");
        assert_eq!(error.kind, ErrorKind::InvalidSpec, "{error}");
        let requests = engine.state().requests.clone();
        assert_eq!(requests.last().map(String::as_str), Some("GET /containers/c-lb/json"), "{requests:?}");
    }
}

/// The default image of load balancers has changed, and the engine does not have the new one. The
/// load balancer that works at another address is kept until the image is there.
#[tokio::test]
async fn a_renamed_balancer_stays_while_its_name_is_taken() {
    let labels = json!({
        "machinist.dev/owner-uid": "u1", "io.x-k8s.kind.role": "external-load-balancer",
        "machinist.dev/ports": "6443",
    });
    let engine = Scripted::start(move |request| match request {
        "GET /containers/json" => ok(json!([{"Id": "id-1", "Names": ["/old"], "State": "running"}])),
        "GET /containers/id-1/json" => {
            let mut shown = container("id-1", "old", None);
            shown["Config"] = json!({"Labels": labels, "Image": "haproxy:old"});
            ok(shown)
        }
        "GET /containers/c-lb/json" => ok(container("id-2", "c-lb", Some("another"))),
        request if request.starts_with("GET /images/") => ok(json!({"Id": "image"})),
        _ => missing(),
    })
    .await;
    let driver = engine.driver().await;
    let balancers = driver.balancers().expect("this driver has balancers");
    balancers.ensure(&load_balancer()).await.expect_err("another container has the name");
    let requests = engine.state().requests.clone();
    assert!(requests.iter().any(|request| request == "GET /containers/c-lb/json"), "{requests:?}");
    assert!(!requests.iter().any(|request| request.starts_with("DELETE ")), "{requests:?}");
}

#[tokio::test]
async fn a_moved_balancer_stays_until_its_image_is_there() {
    let labels = json!({
        "machinist.dev/owner-uid": "u1", "io.x-k8s.kind.role": "external-load-balancer",
        "machinist.dev/ports": "6443",
    });
    let engine = Scripted::start(move |request| match request {
        "GET /containers/json" => ok(json!([{"Id": "id-1", "Names": ["/c-lb"], "State": "running"}])),
        "GET /containers/id-1/json" => {
            let mut shown = container("id-1", "c-lb", None);
            shown["Config"] = json!({"Labels": labels, "Image": "haproxy:old"});
            shown["HostConfig"] = json!({"NetworkMode": "kind"});
            shown["NetworkSettings"] =
                json!({"Networks": {"kind": {"IPAddress": "172.18.0.7"}}, "Ports": {}});
            ok(shown)
        }
        "GET /networks/kind" => ok(json!({"Id": "x", "Containers": {}})),
        "GET /containers/id-1/archive" | "PUT /containers/id-1/archive" => ok(json!({})),
        "POST /containers/id-1/exec" => ok(json!({"Id": "exec-1"})),
        "POST /exec/exec-1/start" => (101, String::new()),
        "GET /exec/exec-1/json" => ok(json!({"Running": false, "ExitCode": 0})),
        "POST /containers/id-1/kill" => (204, String::new()),
        // Neither the image nor a registry that has it.
        _ => missing(),
    })
    .await;
    let driver = engine.driver().await;
    let balancers = driver.balancers().expect("this driver has balancers");
    let mut spec = load_balancer();
    spec.options.insert("ip".to_owned(), "172.18.0.2".to_owned());
    spec.options.insert("image".to_owned(), "haproxy:new".to_owned());
    let mut notes = Vec::new();
    for _ in 0..3 {
        let ensured = balancers.ensure(&spec).await.expect("it works").done().expect("complete");
        notes = ensured.notes;
    }
    let moved = notes.iter().find(|note| note.reason == "AddressMoved").expect("a note");
    assert!(
        moved.message.contains("172.18.0.2") && moved.message.contains("haproxy:new"),
        "{}",
        moved.message
    );
    let requests = engine.state().requests.clone();
    assert!(!requests.iter().any(|request| request.starts_with("DELETE ")), "{requests:?}");
}

#[tokio::test]
async fn a_moved_balancer_is_replaced_at_its_recorded_address() {
    let labels = json!({
        "machinist.dev/owner-uid": "u1", "io.x-k8s.kind.role": "external-load-balancer",
        "machinist.dev/ports": "6443",
    });
    let shown = move |id: &str, status: &str, address: &str| {
        let mut shown = container(id, "c-lb", None);
        shown["State"]["Status"] = json!(status);
        shown["Config"] = json!({"Labels": labels, "Image": DockerOptions::default().balancer_image});
        shown["HostConfig"] = json!({"NetworkMode": "kind"});
        shown["NetworkSettings"] = json!({
            "Networks": {"kind": {"IPAddress": address}},
            "Ports": {"6443/tcp": [{"HostIp": "0.0.0.0", "HostPort": "32770"}]},
        });
        ok(shown)
    };
    let mut is_started = false;
    let engine = Scripted::start(move |request| match request {
        "GET /containers/json" => ok(json!([{"Id": "id-1", "Names": ["/c-lb"], "State": "running"}])),
        "GET /containers/id-1/json" => shown("id-1", "running", "172.18.0.7"),
        "GET /networks/kind" => ok(json!({"Id": "x", "Containers": {}})),
        "DELETE /containers/id-1" => (204, String::new()),
        "POST /containers/create" => (201, json!({"Id": "id-2"}).to_string()),
        "GET /containers/id-2/json" if is_started => shown("id-2", "running", "172.18.0.2"),
        "GET /containers/id-2/json" => shown("id-2", "created", ""),
        "PUT /containers/id-2/archive" => ok(json!({})),
        "POST /containers/id-2/start" => {
            is_started = true;
            (204, String::new())
        }
        request if request.starts_with("GET /images/") => ok(json!({"Id": "x"})),
        // The command that checks the configuration.
        "POST /containers/id-2/exec" => ok(json!({"Id": "exec-1"})),
        "POST /exec/exec-1/start" => (101, String::new()),
        "GET /exec/exec-1/json" => ok(json!({"Running": false, "ExitCode": 0})),
        "POST /containers/id-2/kill" => (204, String::new()),
        _ => missing(),
    })
    .await;
    let driver = engine.driver().await;
    let balancers = driver.balancers().expect("this driver has balancers");
    let mut spec = load_balancer();
    spec.options.insert("ip".to_owned(), "172.18.0.2".to_owned());
    let ensured = balancers.ensure(&spec).await.expect("replaced").done().expect("complete");
    assert!(matches!(
        ensured.balancer.ingress.as_slice(),
        [Ingress::Ip { address, .. }] if address.to_string() == "172.18.0.2"
    ));
    assert!(ensured.notes.is_empty(), "{:?}", ensured.notes);
    let state = engine.state();
    let body = &state.bodies["POST /containers/create"];
    let address = &body["NetworkingConfig"]["EndpointsConfig"]["kind"]["IPAMConfig"]["IPv4Address"];
    assert_eq!(address, "172.18.0.2");
    assert_eq!(body["HostConfig"]["PortBindings"]["6443/tcp"][0]["HostPort"], "32770");
}
