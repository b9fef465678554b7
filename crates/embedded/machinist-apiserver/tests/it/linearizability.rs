//! Concurrent clients: each object answers as if requests came one after another, and watches
//! report the changes in that order.
//!
//! The interleaving of threads is random. The requests of each client come from a seed.

mod checker;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt, Full};
use machinist_apiserver::{Body, Config, Folder, History, Identity, Ids, SeededIds, Server};
use serde_json::{Value, json};
use tower::Service as _;

use checker::{Answer, Ask, Call};

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const NAMES: [&str; 3] = ["a", "b", "c"];
const CLIENTS: u64 = 6;
const CALLS: usize = 60;
/// Name of the object that is created last. Watches are read up to it.
const LAST: &str = "zz";

type Calls = BTreeMap<String, Vec<Call>>;

/// Logical clock that shows which calls were concurrent.
#[derive(Default)]
struct Moments(AtomicU64);

impl Moments {
    fn next(&self) -> u64 {
        self.0.fetch_add(1, Ordering::SeqCst)
    }
}

async fn call(server: &Server, verb: &str, path: &str, body: Option<Value>) -> http::Response<Body> {
    let content_type = if verb == "PATCH" { "application/merge-patch+json" } else { "application/json" };
    let body = body.map(|body| Bytes::from(body.to_string())).unwrap_or_default();
    let request = Request::builder().method(verb).uri(path).header("Content-Type", content_type);
    let request = request.body(Full::new(body)).expect("a request");
    server.service_as(Identity::admin()).call(request).await.expect("an answer")
}

async fn ask(server: &Server, verb: &str, path: &str, body: Option<Value>) -> (u16, Value) {
    let response = call(server, verb, path, body).await;
    let code = response.status().as_u16();
    let bytes = response.into_body().collect().await.expect("a body").to_bytes();
    (code, serde_json::from_slice(&bytes).expect("JSON"))
}

fn revision(object: &Value) -> u64 {
    let text = object["metadata"]["resourceVersion"].as_str().expect("a revision");
    text.parse().expect("a number")
}

fn value(object: &Value) -> u64 {
    object["data"]["v"].as_str().expect("a value").parse().expect("a number")
}

fn name(object: &Value) -> String {
    object["metadata"]["name"].as_str().expect("a name").to_owned()
}

fn answer(code: u16, body: &Value) -> Answer {
    match (code, body["reason"].as_str()) {
        (200 | 201, _) if body["kind"] == "ConfigMap" => {
            Answer::Object { revision: revision(body), value: value(body) }
        }
        (200, _) => Answer::Deleted,
        (404, _) => Answer::NotFound,
        (409, Some("AlreadyExists")) => Answer::AlreadyExists,
        (409, Some("Conflict")) => Answer::Conflict,
        _ => panic!("unexpected {code}: {body}"),
    }
}

/// One client with its requests and their answers.
struct Client {
    server: Server,
    moments: Arc<Moments>,
    dice: SeededIds,
    /// Each write gets its own value, so that writes can be distinguished.
    next_value: u64,
    /// Last seen revision of each object.
    seen: BTreeMap<&'static str, u64>,
    calls: Calls,
}

impl Client {
    fn below(&self, end: u64) -> u64 {
        self.dice.bits() % end
    }

    async fn go_on(&mut self) {
        let name = NAMES[usize::try_from(self.below(3)).expect("a small number")];
        let seen = self.seen.get(name).copied().unwrap_or(1);
        self.next_value += 1;
        let value = self.next_value;
        let ask = match self.below(10) {
            0 | 1 => Ask::Get,
            2 | 3 => Ask::Create { value },
            4..=6 => Ask::Put { value, revision: seen },
            7 => Ask::Patch { value },
            8 => Ask::Delete { revision: None },
            _ => Ask::Delete { revision: Some(seen) },
        };
        let object = |value: u64| json!({"metadata": {"name": name}, "data": {"v": value.to_string()}});
        let path = format!("{MAPS}/{name}");
        let (verb, path, body) = match ask {
            Ask::Get => ("GET", path, None),
            Ask::Create { value } => ("POST", MAPS.to_owned(), Some(object(value))),
            Ask::Put { value, revision } => {
                let mut body = object(value);
                body["metadata"]["resourceVersion"] = json!(revision.to_string());
                ("PUT", path, Some(body))
            }
            Ask::Patch { value } => ("PATCH", path, Some(json!({"data": {"v": value.to_string()}}))),
            Ask::Delete { revision } => {
                let options = revision
                    .map(|revision| json!({"preconditions": {"resourceVersion": revision.to_string()}}));
                ("DELETE", path, options)
            }
        };
        let began = self.moments.next();
        let (code, body) = self::ask(&self.server, verb, &path, body).await;
        let ended = self.moments.next();
        let answer = answer(code, &body);
        if let Answer::Object { revision, .. } = answer {
            self.seen.insert(name, revision);
        }
        self.calls.entry(name.to_owned()).or_default().push(Call { began, ended, ask, answer });
    }

    /// Lists all objects. This counts as a read of every object at once.
    async fn list(&mut self) -> Value {
        let began = self.moments.next();
        let (code, list) = ask(&self.server, "GET", MAPS, None).await;
        let ended = self.moments.next();
        assert_eq!(code, 200, "{list}");
        let items = list["items"].as_array().expect("items");
        for name in NAMES {
            let item = items.iter().find(|item| item["metadata"]["name"] == name);
            let answer = item.map_or(Answer::NotFound, |item| Answer::Object {
                revision: revision(item),
                value: value(item),
            });
            self.calls.entry(name.to_owned()).or_default().push(Call { began, ended, ask: Ask::Get, answer });
        }
        list
    }
}

/// Objects from a list and from the watch that continues it.
struct View {
    /// Revision of the list.
    from: u64,
    objects: BTreeMap<String, u64>,
    /// Revisions of the events in order of arrival.
    events: Vec<u64>,
}

impl View {
    /// Reads a list's watch up to the last object.
    async fn of(server: &Server, list: &Value) -> Self {
        let from = revision(list);
        let items = list["items"].as_array().expect("items");
        let objects = items.iter().map(|item| (name(item), revision(item))).collect();
        let mut view = View { from, objects, events: Vec::new() };
        let mut body =
            call(server, "GET", &format!("{MAPS}?watch=1&resourceVersion={from}"), None).await.into_body();
        let mut pending = Vec::new();
        let mut newest = from;
        while let Some(frame) = body.frame().await {
            pending.extend_from_slice(&frame.expect("a frame").into_data().unwrap_or_default());
            while let Some(end) = pending.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = pending.drain(..=end).collect();
                let event: Value = serde_json::from_slice(&line).expect("an event");
                let (name, now) = (name(&event["object"]), revision(&event["object"]));
                assert!(newest < now, "events are out of order or repeated: {newest}, then {event}");
                newest = now;
                view.take(&event, &name, now);
                if name == LAST {
                    return view;
                }
            }
        }
        panic!("the watch ended")
    }

    fn take(&mut self, event: &Value, name: &str, now: u64) {
        self.events.push(now);
        let fits = match event["type"].as_str() {
            Some("ADDED") => self.objects.insert(name.to_owned(), now).is_none(),
            Some("MODIFIED") => self.objects.insert(name.to_owned(), now).is_some(),
            Some("DELETED") => self.objects.remove(name).is_some(),
            _ => false,
        };
        assert!(fits, "the event does not fit the earlier events of the watch: {event}");
    }
}

/// Plays one story and checks the result.
async fn play(server: Server, seed: u64) {
    let moments = Arc::new(Moments::default());
    let (_, empty) = ask(&server, "GET", MAPS, None).await;
    let whole = tokio::spawn({
        let server = server.clone();
        async move { View::of(&server, &empty).await }
    });
    let mut clients = Vec::new();
    for number in 0..CLIENTS {
        let mut client = Client {
            server: server.clone(),
            moments: moments.clone(),
            dice: SeededIds::new(seed * 1000 + number),
            next_value: number * 1_000_000,
            seen: BTreeMap::new(),
            calls: Calls::new(),
        };
        clients.push(tokio::spawn(async move {
            let mut views = Vec::new();
            for count in 0..CALLS {
                client.go_on().await;
                if count % 20 == 10 {
                    let list = client.list().await;
                    let server = client.server.clone();
                    views.push(tokio::spawn(async move { View::of(&server, &list).await }));
                }
            }
            (client.calls, views)
        }));
    }
    let (mut calls, mut views) = (Calls::new(), vec![whole]);
    for client in clients {
        let (of_client, of_its_watches) = client.await.expect("a client");
        for (name, more) in of_client {
            calls.entry(name).or_default().extend(more);
        }
        views.extend(of_its_watches);
    }
    let (code, last) = ask(&server, "POST", MAPS, Some(json!({"metadata": {"name": LAST}}))).await;
    assert_eq!(code, 201, "{last}");

    checker::check_each(&calls);
    let (_, list) = ask(&server, "GET", MAPS, None).await;
    let objects: BTreeMap<String, u64> =
        list["items"].as_array().expect("items").iter().map(|item| (name(item), revision(item))).collect();
    let mut all_events: Option<BTreeSet<u64>> = None;
    for view in views {
        let view = view.await.expect("a watch");
        assert_eq!(view.objects, objects, "a list and its watch lead to the newest list");
        // The first view covers the whole story. The events of the others are its final part.
        let all = all_events.get_or_insert_with(|| view.events.iter().copied().collect());
        assert!(all.range(view.from + 1..).eq(view.events.iter()), "a watch has all events after its list");
    }
    let all = all_events.expect("one watch covers the whole story");
    for call in calls.values().flatten() {
        if let (Ask::Create { .. } | Ask::Put { .. } | Ask::Patch { .. }, Answer::Object { revision, .. }) =
            (call.ask, call.answer)
        {
            assert!(all.contains(&revision), "no watch reports {call:?}");
        }
    }
}

fn config(seed: u64) -> Config {
    Config { ids: Arc::new(SeededIds::new(seed)), history: History::Manual, ..Config::default() }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn concurrent_clients_see_one_order_in_memory() {
    for seed in 0..20 {
        play(Server::new(config(seed)), seed).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn concurrent_clients_see_one_order_on_disk() {
    for seed in 0..3 {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let kept = Folder::open(folder.path()).expect("an empty folder");
        play(Server::open(config(seed), kept).expect("a server"), seed).await;
    }
}
