//! Gardener's provider for OpenStack: `fixtures/go-openstack`, nine situations with their objects.
//! No server exists in them: Go's creations were refused, or never sent.
//!
//! The servers, ports and volumes are in the small OpenStack of the driver's own tests.

use machinist_driver_http::Http;
use machinist_driver_http::pipe::Pipes;
use machinist_driver_openstack::{OpenStackOptions, OpenStackProvider};

use super::*;

#[path = "../../../../../drivers/machinist-driver-openstack/tests/it/fake/mod.rs"]
#[expect(dead_code, reason = "the tests of the driver use the rest")]
mod fake;

use fake::{Fake, FaultKind, Request, Server as NovaServer, Settings, server};

const REGION: &str = "eu-nl-1";
const PROJECT: &str = "shoot-project";
/// The user and the application credentials in the Secrets of the fixtures.
const USERS: [&str; 3] = ["user", "acid", "acname"];
/// Parts of the metadata by which Go finds the servers of a class.
const MARKS: [&str; 2] = ["kubernetes.io-cluster-", "kubernetes.io-role-"];

/// Requests of Go that our driver never sends, and that the cloud of the tests therefore lacks.
///
/// - The version document of Neutron: the driver appends the version to the URL of the catalogue.
/// - The subnets of a class: the driver gives their ids to Neutron, which refuses unknown ones.
const NEVER_SENT: [&str; 2] = ["GET /network/", "GET /subnets/ID"];

impl Counterpart for Fake {
    fn provider(&self) -> Arc<dyn Provider> {
        let fake = self.clone();
        let transport = Http::over(Pipes(move |far| Ok(server::serve(fake.clone(), far))));
        let clock = self.clone();
        let provider = OpenStackProvider::new(OpenStackOptions::default());
        Arc::new(provider.over(Arc::new(transport)).with_clock(move || clock.now()))
    }

    fn instances(&self) -> Vec<Shown> {
        let shown = |server: &NovaServer| Shown {
            id: server.id.clone(),
            machine: server.name.clone(),
            is_alive: true,
            is_marked: has_marks(&server.metadata.keys().collect::<Vec<_>>()),
            marks: server.metadata.clone(),
            node: server.name.clone(),
            // The cloud controller manager writes no region.
            node_id: format!("openstack:///{}", server.id),
        };
        self.at_now().servers.iter().map(shown).collect()
    }

    fn parts(&self) -> Vec<Part> {
        let state = self.at_now();
        let of = |name: &String, marks: &[&String]| has_marks(marks).then(|| name.clone());
        let port = |port: &fake::Port| Part {
            text: format!("port {}", port.id),
            machine: of(&port.name, &port.tags.iter().collect::<Vec<_>>()),
        };
        let volume = |volume: &fake::Volume| Part {
            text: format!("volume {}", volume.id),
            machine: of(&volume.name, &volume.metadata.keys().collect::<Vec<_>>()),
        };
        state.ports.iter().map(port).chain(state.volumes.iter().map(volume)).collect()
    }
}

fn has_marks(names: &[&String]) -> bool {
    MARKS.iter().all(|mark| names.iter().any(|name| name.starts_with(mark)))
}

/// The project. No fixture has objects in it.
fn project(left: &Left) -> Fake {
    let fake = Fake::new(Settings::default());
    let mut state = fake.lock();
    state.epoch = left.moment();
    state.users = USERS.map(|user| (user.to_owned(), PROJECT.to_owned())).into();
    drop(state);
    fake
}

/// Each situation, and the state that its Machines reach which Go did not delete. Refusals of the
/// recorded cloud have ended.
///
/// Go refuses the Secrets of two situations that our driver accepts: an application credential by
/// its name, and the ids of a domain and a project. Earlier versions of Go's provider accepted
/// both.
const SITUATIONS: [(&str, End); 9] = [
    ("auth-application-credential", End::Run),
    ("auth-application-credential-name", End::Run),
    ("auth-domain-id", End::Run),
    ("create-404", End::Run),
    ("create-by-name", End::Run),
    ("create-quota", End::Run),
    ("delete-none", End::Run),
    ("discovery-404", End::Run),
    ("list-404", End::Run),
];

#[tokio::test(start_paused = true)]
async fn every_situation_of_openstack_is_taken_over() {
    assert_eq!(BTreeSet::from(SITUATIONS.map(|(name, _)| name.to_owned())), names("openstack"));
    let mut all = Vec::new();
    for (name, end) in SITUATIONS {
        let left = Left::read("openstack", name);
        let fake = project(&left);
        let wrong = taken_over(left, fake, end).await;
        all.extend(wrong.into_iter().map(|wrong| format!("{name}: {wrong}")));
    }
    assert!(all.is_empty(), "\n{}", all.join("\n"));
}

/// Go reports a missing permission for the first one, and an internal error for the second one. So
/// the cluster autoscaler does not try another group.
#[tokio::test(start_paused = true)]
async fn a_quota_that_lasts_is_reported_as_used_up() {
    let left = Left::read("openstack", "create-quota");
    let fake = project(&left);
    fake.lock().settings.quota = Some(0);
    let mut wrong = taken_over(left, fake, End::Refused("ResourceExhausted")).await;
    let left = Left::read("openstack", "create-by-name");
    let fake = project(&left);
    let answer = left.requests().into_iter().find(|request| request["status"] == 413).expect("a refusal");
    assert!(answer["answer"]["overLimit"]["message"].as_str().is_some_and(|text| text.contains("exceeded")));
    // More refusals than attempts.
    for _ in 0..1000 {
        let text = "VolumeLimitExceeded: Maximum number of volumes allowed (10) exceeded for quota volumes.";
        let kind = FaultKind::Refuse { status: 413, name: "overLimit", text, retry_after: None };
        fake.inject("POST /volumes", kind);
    }
    wrong.extend(taken_over(left, fake, End::Refused("ResourceExhausted")).await);
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// A recorded request, as the cloud of the tests reads it. The endpoints of the recording have
/// other paths.
fn request(recorded: &Value, token: &str) -> Request {
    let uri = text(&recorded["path"]);
    let (path, query) = uri.split_once('?').unwrap_or((&uri, ""));
    let services = ["/compute/v2.1", "/network/v2.0"];
    let path = match services.iter().find_map(|service| path.strip_prefix(service)) {
        Some(rest) => rest,
        // Below the endpoint of volumes comes the id of the project.
        None => path
            .strip_prefix("/volume/v3/")
            .and_then(|rest| rest.find('/').map(|at| &rest[at..]))
            .unwrap_or(path),
    };
    let pairs = query.split('&').filter_map(|pair| pair.split_once('='));
    Request {
        method: text(&recorded["method"]),
        path: path.to_owned(),
        query: pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).collect(),
        body: recorded["body"].clone(),
        region: REGION.to_owned(),
        token: token.to_owned(),
        microversion: String::new(),
        if_match: String::new(),
    }
}

/// Sends a recorded request. Returns the status and the body of the answer.
fn send(fake: &Fake, recorded: &Value, token: &str) -> (u16, Value) {
    let request = request(recorded, token);
    let mut state = fake.lock();
    let (status, body, _) = state.act(&request);
    if request.action() == "POST /ports" {
        // Later requests name the port by its recorded id.
        state.ports.last_mut().expect("a port").id = text(&recorded["answer"]["port"]["id"]);
    }
    (status, body)
}

/// A token of the user of the fixtures.
fn token(fake: &Fake) -> String {
    let login = json!({"auth": {"identity": {"password": {"user": {"name": USERS[0]}}}}});
    let login = json!({"method": "POST", "path": "/v3/auth/tokens", "body": login});
    let (_, _, token) = fake.lock().act(&request(&login, ""));
    token.expect("a token")
}

/// So the counterpart of these tests understands all that Go sends, except for `NEVER_SENT`. It
/// accepts what the recorded cloud refused.
#[tokio::test(start_paused = true)]
async fn recorded_requests_are_understood() {
    let (mut unknown, mut servers) = (BTreeSet::new(), BTreeSet::new());
    for (name, _) in SITUATIONS {
        let left = Left::read("openstack", name);
        let fake = project(&left);
        let token = token(&fake);
        for recorded in left.requests() {
            let (status, body) = send(&fake, recorded, &token);
            let action = request(recorded, "").action();
            if 400 <= status {
                assert!(body.to_string().contains("no route"), "{name}: {recorded}: {body}");
                unknown.insert(action);
                continue;
            }
            if action == "POST /servers" {
                servers.insert(name);
                let mut state = fake.lock();
                let is_used: Vec<bool> = state.ports.iter().map(|port| !port.device.is_empty()).collect();
                assert_eq!(is_used, [true], "{name}: the server uses the port, and has no other one");
                // The recorded cloud refused the server, so the next attempt is the same.
                (state.servers, state.ports) = Default::default();
            }
        }
    }
    assert_eq!(unknown, BTreeSet::from(NEVER_SENT.map(str::to_owned)));
    assert_eq!(servers, BTreeSet::from(["auth-application-credential", "create-quota"]));
}

/// The cloud accepts the recorded requests of a creation, and Go's process is killed before it
/// reads the answer to one of them.
#[tokio::test(start_paused = true)]
async fn a_creation_of_a_killed_process_is_continued() {
    let mut all = Vec::new();
    for last in ["POST /ports", "PUT /ports/ID/tags", "POST /servers"] {
        let left = Left::read("openstack", "create-quota");
        let fake = project(&left);
        let token = token(&fake);
        for recorded in left.requests() {
            send(&fake, recorded, &token);
            if request(recorded, "").action() == last {
                break;
            }
        }
        let of_go: Vec<String> = fake.lock().servers.iter().map(|server| server.id.clone()).collect();
        let wrong = taken_over(left, fake.clone(), End::Run).await;
        all.extend(wrong.into_iter().map(|wrong| format!("killed after {last}: {wrong}")));
        let sent = fake.lock().requests.clone();
        let count = |action: &str| sent.iter().filter(|request| request.action() == action).count();
        // A port without Go's tags is not recognized, and stays: it may belong to a user.
        let expected = (usize::from(last == "POST /ports"), usize::from(of_go.is_empty()));
        assert_eq!((count("POST /ports"), count("POST /servers")), expected, "killed after {last}");
        // A port of Go gets the addresses of pods, which Go writes last.
        let is_completed = sent.iter().any(|request| {
            let pairs = list(&request.body["port"]["allowed_address_pairs"]);
            request.method == "PUT" && pairs.iter().any(|pair| pair["ip_address"] == "100.96.0.0/11")
        });
        assert_eq!(is_completed, last != "POST /ports", "killed after {last}");
    }
    assert!(all.is_empty(), "\n{}", all.join("\n"));
}

/// The body of the first request of an action.
fn body(all: &[Request], action: &str) -> Value {
    let found = all.iter().find(|request| request.action() == action);
    found.unwrap_or_else(|| panic!("no {action}")).body.clone()
}

/// Compares the fields of an object that Go sends with ours, except for the fields with other
/// names.
fn assert_fields_of_go(ours: &Value, of_go: &Value, except: &[&str]) {
    for (name, value) in of_go.as_object().expect("an object") {
        if !except.contains(&name.as_str()) {
            assert_eq!(ours[name], *value, "{name}: {ours}");
        }
    }
}

/// Compares marks, to which ours may add some.
fn assert_marks_of_go(ours: &Value, of_go: &Value) {
    let (ours, of_go) = (texts(ours), texts(of_go));
    assert!(of_go.iter().all(|(name, value)| ours.get(name) == Some(value)), "{ours:?}: {of_go:?}");
}

/// Both programs create an instance for the same Machine, because Go's creation was refused.
#[tokio::test(start_paused = true)]
async fn a_creation_sends_the_fields_that_go_sends() {
    for name in ["auth-application-credential", "create-by-name", "create-quota"] {
        let left = Left::read("openstack", name);
        let of_go: Vec<Request> = left.requests().into_iter().map(|one| request(one, "")).collect();
        let fake = project(&left);
        let after = After::of(left, fake.clone()).await;
        let _processes = after.start();
        after.work(End::Run).await;
        let ours = fake.lock().requests.clone();
        let is_login = |request: &&Request| request.path.ends_with("/auth/tokens");
        let login = |all: &[Request]| {
            let mut body = all.iter().find(is_login).expect("a login").body.clone();
            // The Secrets of the fixtures have others.
            for secret in
                ["/auth/identity/password/user/password", "/auth/identity/application_credential/secret"]
            {
                if let Some(secret) = body.pointer_mut(secret) {
                    secret.take();
                }
            }
            body
        };
        assert_eq!(login(&ours), login(&of_go), "{name}");

        let (port, port_of_go) = (body(&ours, "POST /ports"), body(&of_go, "POST /ports"));
        // The ids of the groups come from the other cloud.
        assert_fields_of_go(&port["port"], &port_of_go["port"], &["security_groups"]);
        assert_eq!(list(&port["port"]["security_groups"]).len(), 1, "{name}");
        let (tags, of_go_tags) = (body(&ours, "PUT /ports/ID/tags"), body(&of_go, "PUT /ports/ID/tags"));
        let tags = list(&tags["tags"]);
        assert!(list(&of_go_tags["tags"]).iter().all(|tag| tags.contains(tag)), "{name}: {tags:?}");

        let server = &body(&ours, "POST /servers")["server"];
        if name == "create-by-name" {
            let (volume, of_go) =
                (&body(&ours, "POST /volumes")["volume"], &body(&of_go, "POST /volumes")["volume"]);
            assert_fields_of_go(volume, of_go, &["metadata", "imageRef"]);
            assert_marks_of_go(&volume["metadata"], &of_go["metadata"]);
            // Go did not come as far as the server.
            assert_marks_of_go(&server["metadata"], &of_go["metadata"]);
            continue;
        }
        let of_go = &body(&of_go, "POST /servers")["server"];
        // Go names the network of the port and its groups once more.
        assert_fields_of_go(server, of_go, &["metadata", "networks", "security_groups"]);
        assert_marks_of_go(&server["metadata"], &of_go["metadata"]);
    }
}
