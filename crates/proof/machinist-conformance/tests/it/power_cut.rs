//! Power cut tests: a disk that loses unsynced writes and tears running ones, and a workload that
//! is cut at each of its disk operations.
//!
//! For each sector, chance decides whether unsynced writes survive. Later writes may survive when
//! earlier ones are lost, because disks reorder writes.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures::future::join_all;
use http::{Method, Request};
use http_body_util::{BodyExt as _, Full};
use machinist_apiserver::{ApiService, Authorization, Config, Identity, Server};
use serde_json::{Value, json};
use tower::Service as _;

/// Number of bytes that a disk writes atomically.
const SECTOR: usize = 512;
/// Number of random outcomes per cut. In the first one, all writes survive.
const DRAWS: u64 = 3;

/// A disk that loses unsynced writes in a power cut.
#[derive(Debug, Clone, Default)]
struct Disk(Arc<Mutex<Medium>>);

#[derive(Debug, Default)]
struct Medium {
    /// Content for reads.
    seen: Vec<u8>,
    /// Content that survives every power cut.
    synced: Vec<u8>,
    unsynced: Vec<Unsynced>,
    operations: usize,
    cut_at: Option<usize>,
    is_off: bool,
}

#[derive(Debug, Clone)]
enum Unsynced {
    Write(usize, Vec<u8>),
    Length(usize),
}

impl Disk {
    fn holding(bytes: Vec<u8>) -> Self {
        Disk(Arc::new(Mutex::new(Medium { seen: bytes.clone(), synced: bytes, ..Medium::default() })))
    }

    fn medium(&self) -> MutexGuard<'_, Medium> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn cut_at(&self, operation: usize) {
        let mut medium = self.medium();
        medium.cut_at = Some(medium.operations + operation);
    }

    fn operations(&self) -> usize {
        self.medium().operations
    }

    /// Returns the disk content after the power cut.
    fn surviving(&self, seed: u64) -> Vec<u8> {
        let medium = self.medium();
        let mut draw = Draw(seed);
        let all = seed.is_multiple_of(DRAWS);
        let mut bytes = medium.synced.clone();
        for operation in &medium.unsynced {
            match operation {
                Unsynced::Length(length) if all || draw.heads() => bytes.resize(*length, 0),
                Unsynced::Length(_) => {}
                Unsynced::Write(at, data) => {
                    // All writes, none, or some.
                    let mood = draw.next() % 4;
                    let mut from = 0;
                    while from < data.len() {
                        let to = data.len().min(from + SECTOR - (at + from) % SECTOR);
                        let survives = match mood {
                            _ if all => true,
                            0 => false,
                            1 => true,
                            _ => draw.heads(),
                        };
                        if survives && at + to <= bytes.len() {
                            bytes[at + from..at + to].copy_from_slice(&data[from..to]);
                        }
                        from = to;
                    }
                }
            }
        }
        bytes
    }
}

impl Medium {
    /// Records a change. The change that the cut hits may still have happened.
    fn operate(&mut self, change: Unsynced) -> io::Result<()> {
        if !self.is_off {
            self.unsynced.push(change);
        }
        self.count()
    }

    fn count(&mut self) -> io::Result<()> {
        self.is_off |= self.cut_at.is_some_and(|at| at <= self.operations);
        if self.is_off {
            return Err(io::Error::other("power failure"));
        }
        self.operations += 1;
        Ok(())
    }
}

impl redb::StorageBackend for Disk {
    fn len(&self) -> io::Result<u64> {
        Ok(self.medium().seen.len() as u64)
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let medium = self.medium();
        let from = usize::try_from(offset).map_err(io::Error::other)?;
        let held = medium.seen.get(from..from + out.len());
        out.copy_from_slice(held.ok_or_else(|| io::Error::from(io::ErrorKind::UnexpectedEof))?);
        Ok(())
    }

    fn set_len(&self, length: u64) -> io::Result<()> {
        let length = usize::try_from(length).map_err(io::Error::other)?;
        let mut medium = self.medium();
        medium.operate(Unsynced::Length(length))?;
        medium.seen.resize(length, 0);
        Ok(())
    }

    fn sync_data(&self) -> io::Result<()> {
        let mut medium = self.medium();
        medium.count()?;
        medium.synced = medium.seen.clone();
        medium.unsynced.clear();
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        let at = usize::try_from(offset).map_err(io::Error::other)?;
        let mut medium = self.medium();
        medium.operate(Unsynced::Write(at, data.to_vec()))?;
        let end = at + data.len();
        if medium.seen.len() < end {
            medium.seen.resize(end, 0);
        }
        medium.seen[at..end].copy_from_slice(data);
        Ok(())
    }
}

/// xorshift: the same draws in every process.
struct Draw(u64);

impl Draw {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ 0x2545_F491_4F6C_DD1D;
        self.0 ^= self.0 >> 29;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn heads(&mut self) -> bool {
        self.next() & 0x10000 == 0
    }
}

/// Starts a server on a disk.
fn start(disk: &Disk) -> Server {
    start_with(disk, Config::default())
}

fn start_with(disk: &Disk, config: Config) -> Server {
    Server::open_on(config, disk.clone()).expect("the disk content after a power cut is readable")
}

async fn ask(server: &Server, method: Method, path: &str, body: Option<Value>) -> (u16, Value) {
    ask_through(server.service_as(Identity::admin()), method, path, body).await
}

async fn ask_through(
    mut service: ApiService,
    method: Method,
    path: &str,
    body: Option<Value>,
) -> (u16, Value) {
    let text = body.map(|body| body.to_string()).unwrap_or_default();
    let kind = if method == Method::PATCH { "application/merge-patch+json" } else { "application/json" };
    let request = Request::builder().method(method).uri(path).header("content-type", kind);
    let request = request.body(Full::from(text)).expect("a request");
    let response = service.call(request).await.expect("an answer");
    let code = response.status().as_u16();
    let body = response.into_body().collect().await.expect("a body").to_bytes();
    (code, serde_json::from_slice(&body).unwrap_or(Value::Null))
}

const PATH: &str = "/api/v1/namespaces/default/configmaps";

/// A step of the workload: sets an object's number, or deletes the object.
#[derive(Debug, Clone, Copy)]
enum Step {
    Put(usize, u64),
    Delete(usize),
}

impl Step {
    fn apply(self, known: &mut Known) {
        match self {
            Step::Put(object, number) => known.insert(object, number),
            Step::Delete(object) => known.remove(&object),
        };
    }

    fn object(self) -> usize {
        match self {
            Step::Put(object, _) | Step::Delete(object) => object,
        }
    }
}

/// Creations, changes of different sizes, and deletions; small enough to be cut at every operation.
/// The steps of a wave run at the same time, so that they share syncs.
fn workload() -> Vec<Vec<Step>> {
    let mut waves = Vec::new();
    for round in 0..4_u64 {
        let put = |object| Step::Put(object, round * 10 + object as u64);
        waves.push((0..4).map(put).collect());
        waves.push(vec![put(4)]);
        waves.push(vec![Step::Delete(usize::try_from(round).unwrap_or_default()), put(5)]);
    }
    waves
}

/// The known numbers of the existing objects.
type Known = BTreeMap<usize, u64>;

/// Large enough for several sectors and pages, with the number in all of them.
fn body(object: usize, number: u64) -> Value {
    let length = 200 + 1500 * (number % 4);
    let filling = format!("{number},").repeat(usize::try_from(length).unwrap_or_default() / 3);
    json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": format!("o{object}")},
        "data": {"number": number.to_string(), "filling": filling}
    })
}

/// State that clients know when the power fails.
struct Told {
    known: Known,
    /// Steps without a successful answer.
    open: Vec<Step>,
    revision: u64,
}

/// Performs the workload until a write is rejected.
async fn perform(server: &Server) -> Told {
    let mut told = Told { known: Known::new(), open: Vec::new(), revision: 0 };
    for wave in workload() {
        let under_way =
            wave.iter().map(|step| perform_one(server, *step, told.known.contains_key(&step.object())));
        for (step, (code, answer)) in wave.iter().zip(join_all(under_way).await) {
            if code == 500 {
                let why = answer["message"].as_str().unwrap_or_default();
                assert!(why.contains("cannot write to its data folder"), "{answer}");
                told.open.push(*step);
                continue;
            }
            assert!(code < 300, "{step:?}: {answer}");
            step.apply(&mut told.known);
            let revision = answer.pointer("/metadata/resourceVersion").and_then(Value::as_str);
            let revision = revision.and_then(|text| text.parse().ok()).unwrap_or_default();
            told.revision = told.revision.max(revision);
        }
        if !told.open.is_empty() {
            break;
        }
    }
    told
}

async fn perform_one(server: &Server, step: Step, exists: bool) -> (u16, Value) {
    match step {
        Step::Put(object, number) if exists => {
            ask(server, Method::PATCH, &format!("{PATH}/o{object}"), Some(body(object, number))).await
        }
        Step::Put(object, number) => ask(server, Method::POST, PATH, Some(body(object, number))).await,
        Step::Delete(object) => ask(server, Method::DELETE, &format!("{PATH}/o{object}"), None).await,
    }
}

/// Reads all objects of a server and checks that each is complete.
async fn found(server: &Server) -> (Known, u64) {
    let (code, list) = ask(server, Method::GET, PATH, None).await;
    assert_eq!(code, 200, "{list}");
    let mut found = Known::new();
    for item in list["items"].as_array().expect("items") {
        let name = item.pointer("/metadata/name").and_then(Value::as_str).expect("a name");
        let object = name.trim_start_matches('o').parse().expect("ours");
        let number = item.pointer("/data/number").and_then(Value::as_str).expect("a number");
        let number = number.parse().expect("a number");
        assert_eq!(item["data"], body(object, number)["data"], "half of a write");
        found.insert(object, number);
    }
    let revision = list.pointer("/metadata/resourceVersion").and_then(Value::as_str).expect("a revision");
    (found, revision.parse().expect("a number"))
}

#[tokio::test]
async fn a_power_cut_loses_no_answered_write() {
    // The initial content of the folder is created under another name and renamed, so a power cut
    // cannot tear it.
    let new = Disk::default();
    drop(start(&new));
    let image = new.medium().synced.clone();

    let whole = Disk::holding(image.clone());
    let server = start(&whole);
    let before = whole.operations();
    let complete = perform(&server).await;
    assert!(complete.open.is_empty());
    let points = whole.operations() - before;
    drop(server);

    let (mut lost, mut kept) = (0, 0);
    for point in 0..=points {
        for draw in 0..DRAWS {
            let disk = Disk::holding(image.clone());
            let server = start(&disk);
            disk.cut_at(point);
            let told = perform(&server).await;
            let (shown, shown_at) = found(&server).await;
            assert_eq!(shown, told.known, "point {point}: unsaved writes are not shown");
            drop(server);

            let again = start(&Disk::holding(disk.surviving(point as u64 * DRAWS + draw)));
            let (found, found_at) = found(&again).await;
            let at = format!("point {point}, draw {draw}");
            assert!(told.revision.max(shown_at) <= found_at, "{at}: the revision decreased");
            let mut explained = told.known.clone();
            for step in &told.open {
                let mut with = explained.clone();
                step.apply(&mut with);
                let is_there = found.get(&step.object()) == with.get(&step.object());
                *(if is_there { &mut kept } else { &mut lost }) += 1;
                if is_there {
                    explained = with;
                }
            }
            assert_eq!(found, explained, "{at}: {:?} was in progress", told.open);
            let (code, made) = ask(&again, Method::POST, PATH, Some(body(99, 0))).await;
            assert_eq!(code, 201, "{made}");
        }
    }
    println!(
        "{points} points, {DRAWS} draws each: of the writes that were cut, {lost} were lost and {kept} kept"
    );
    assert!(0 < lost && 0 < kept, "the cuts hit both sides of a sync");
}

/// A server with a disk that fails after the start.
async fn diskless() -> Server {
    let disk = Disk::default();
    let server = start_with(&disk, Config { authorization: Authorization::Rbac, ..Config::default() });
    server.saved().await.expect("the start is saved");
    disk.cut_at(0);
    server
}

#[tokio::test]
async fn an_unsaved_permission_grants_nothing() {
    let server = diskless().await;
    let jane = server.service_as(Identity::new("jane", [""; 0]));
    let binding = json!({
        "metadata": {"name": "b"}, "subjects": [{"kind": "User", "name": "jane"}],
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "view"},
    });
    let bindings = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings";
    assert_eq!(ask(&server, Method::POST, bindings, Some(binding)).await.0, 500);
    assert_eq!(ask_through(jane, Method::GET, PATH, None).await.0, 403);
}

#[tokio::test]
async fn an_unsaved_bootstrap_token_is_rejected() {
    let server = diskless().await;
    let secret = json!({
        "metadata": {"name": "bootstrap-token-abcdef"}, "type": "bootstrap.kubernetes.io/token",
        "stringData": {
            "token-id": "abcdef", "token-secret": "0123456789abcdef", "usage-bootstrap-authentication": "true",
        },
    });
    let secrets = "/api/v1/namespaces/kube-system/secrets";
    assert_eq!(ask(&server, Method::POST, secrets, Some(secret)).await.0, 500);
    let bearer = server.service_with_bearer("abcdef.0123456789abcdef");
    assert_eq!(ask_through(bearer, Method::GET, "/api", None).await.0, 401);
}

#[tokio::test]
async fn a_disk_failure_is_reported_and_answered_writes_stay() {
    let disk = Disk::default();
    let server = start(&disk);
    assert_eq!(ask(&server, Method::POST, PATH, Some(body(1, 1))).await.0, 201);
    disk.cut_at(0);
    let (failed, (code, answer)) =
        tokio::join!(server.failed(), ask(&server, Method::POST, PATH, Some(body(2, 1))));
    assert!(failed.to_string().contains("state.redb can no longer be written: "), "{failed}");
    assert!(failed.to_string().contains("power failure"), "{failed}");
    assert_eq!((code, &answer["kind"], &answer["reason"]), (500, &json!("Status"), &json!("InternalError")));
    let message = answer["message"].as_str().unwrap_or_default();
    assert!(message.contains("cannot write to its data folder"), "{answer}");
    assert_eq!(found(&server).await.0.into_keys().collect::<Vec<_>>(), [1]);
    drop(server);
    let again = start(&Disk::holding(disk.surviving(1)));
    assert_eq!(found(&again).await.0.into_keys().collect::<Vec<_>>(), [1]);
}

#[tokio::test]
async fn requests_without_stored_objects_need_no_disk() {
    let server = diskless().await;
    assert_eq!(ask(&server, Method::POST, PATH, Some(body(1, 1))).await.0, 500);
    let review = json!({"spec": {"user": "jane", "resourceAttributes": {"verb": "get", "resource": "pods"}}});
    let reviews = "/apis/authorization.k8s.io/v1/subjectaccessreviews";
    assert_eq!(ask(&server, Method::POST, reviews, Some(review)).await.0, 201);
    let token = "/api/v1/namespaces/default/serviceaccounts/default/token";
    let (code, granted) = ask(&server, Method::POST, token, Some(json!({}))).await;
    assert_eq!(code, 201, "{granted}");
    let bearer = granted["status"]["token"].as_str().expect("a token");
    assert_eq!(ask_through(server.service_with_bearer(bearer), Method::GET, "/api", None).await.0, 200);
}
