//! Random stories: the server answers every request, and its views of the same history agree.

mod relations;

use std::collections::BTreeMap;

use bytes::Bytes;
use http::Request;
use http_body::Body as _;
use http_body_util::{BodyExt, Full};
use machinist_apiserver::{Config, History, Identity, SeededIds, Server};
use proptest::prelude::*;
use serde_json::{Value, json};
use tower::Service;

const MAPS: &str = "/api/v1/namespaces/default/configmaps";

#[derive(Debug, Clone)]
enum Act {
    Create { name: u8, label: u8 },
    Label { name: u8, label: u8 },
    Data { name: u8, value: u8 },
    Finalizers { name: u8, held: bool },
    Delete { name: u8 },
}

fn act() -> impl Strategy<Value = Act> {
    let name = || 0_u8..4;
    prop_oneof![
        3 => (name(), 0_u8..3).prop_map(|(name, label)| Act::Create { name, label }),
        2 => (name(), 0_u8..3).prop_map(|(name, label)| Act::Label { name, label }),
        2 => (name(), 0_u8..2).prop_map(|(name, value)| Act::Data { name, value }),
        1 => (name(), any::<bool>()).prop_map(|(name, held)| Act::Finalizers { name, held }),
        2 => name().prop_map(|name| Act::Delete { name }),
    ]
}

async fn send(server: &Server, verb: &str, path: &str, body: Option<Value>) -> (u16, Value) {
    send_as(server, verb, path, if verb == "PATCH" { "merge-patch+json" } else { "json" }, body).await
}

async fn send_as(server: &Server, verb: &str, path: &str, media: &str, body: Option<Value>) -> (u16, Value) {
    let bytes = body.map(|b| Bytes::from(b.to_string())).unwrap_or_default();
    let request = Request::builder()
        .method(verb)
        .uri(path)
        .header("Content-Type", format!("application/{media}"))
        .body(Full::new(bytes))
        .expect("a request");
    let response = server.service_as(Identity::admin()).call(request).await.expect("an answer");
    let code = response.status().as_u16();
    let bytes = response.into_body().collect().await.expect("a body").to_bytes();
    (
        code,
        serde_json::from_slice(&bytes)
            .unwrap_or_else(|_| Value::String(String::from_utf8_lossy(&bytes).into())),
    )
}

async fn perform(server: &Server, act: &Act) -> (u16, Value) {
    perform_with(server, act, "").await
}

async fn perform_with(server: &Server, act: &Act, query: &str) -> (u16, Value) {
    let path = |name: &u8| format!("{MAPS}/m{name}?{query}");
    let (code, answer) = match act {
        Act::Create { name, label } => {
            let body = json!({"metadata": {"name": format!("m{name}"), "labels": {"l": label.to_string()}}});
            send(server, "POST", &format!("{MAPS}?{query}"), Some(body)).await
        }
        Act::Label { name, label } => {
            let body = json!({"metadata": {"labels": {"l": label.to_string()}}});
            send(server, "PATCH", &path(name), Some(body)).await
        }
        Act::Data { name, value } => {
            send(server, "PATCH", &path(name), Some(json!({"data": {"v": value.to_string()}}))).await
        }
        Act::Finalizers { name, held } => {
            let list = if *held { json!(["t.dev/f"]) } else { Value::Null };
            send(server, "PATCH", &path(name), Some(json!({"metadata": {"finalizers": list}}))).await
        }
        Act::Delete { name } => send(server, "DELETE", &path(name), None).await,
    };
    assert!(matches!(code, 200 | 201 | 404 | 409 | 422), "{act:?}: {code} {answer}");
    (code, answer)
}

fn by_name(items: &[Value]) -> BTreeMap<String, String> {
    let version = |item: &Value| item["metadata"]["resourceVersion"].as_str().unwrap_or_default().to_owned();
    let name = |item: &Value| item["metadata"]["name"].as_str().unwrap_or_default().to_owned();
    items.iter().map(|item| (name(item), version(item))).collect()
}

async fn list(server: &Server, query: &str) -> (BTreeMap<String, String>, String) {
    let (code, list) = send(server, "GET", &format!("{MAPS}?{query}"), None).await;
    assert_eq!(code, 200, "{list}");
    let revision = list["metadata"]["resourceVersion"].as_str().unwrap_or_default().to_owned();
    (by_name(list["items"].as_array().expect("items")), revision)
}

/// Applies the events of a watch from `revision` to a list.
async fn replay(server: &Server, query: &str, revision: &str, held: &mut BTreeMap<String, String>) {
    let path = format!("{MAPS}?watch=1&timeoutSeconds=1&resourceVersion={revision}&{query}");
    let (code, stream) = send(server, "GET", &path, None).await;
    assert_eq!(code, 200);
    let text = match stream {
        Value::String(text) => text,
        // A single line is parsed as one value.
        one => format!("{one}\n"),
    };
    let mut last = revision.parse::<u64>().unwrap_or_default();
    for line in text.lines() {
        let event: Value = serde_json::from_str(line).expect("an event");
        let object = &event["object"];
        let name = object["metadata"]["name"].as_str().expect("a name").to_owned();
        let version = object["metadata"]["resourceVersion"].as_str().expect("a version").to_owned();
        let now = version.parse::<u64>().expect("a number");
        assert!(last < now, "events are out of order: {last} then {now}");
        last = now;
        match event["type"].as_str() {
            Some("ADDED") => assert!(held.insert(name, version).is_none(), "added twice: {event}"),
            Some("MODIFIED") => {
                assert!(held.insert(name, version).is_some(), "modified before it was added: {event}")
            }
            Some("DELETED") => assert!(held.remove(&name).is_some(), "deleted before it was added: {event}"),
            other => panic!("unexpected {other:?}"),
        }
    }
}

fn in_runtime<F: Future>(story: F) -> F::Output {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    runtime.expect("a runtime").block_on(story)
}

fn server() -> Server {
    let ids = std::sync::Arc::new(SeededIds::new(1));
    Server::new(Config { ids, history: History::Manual, ..Config::default() })
}

fn pieces() -> impl Strategy<Value = String> {
    prop_oneof![
        Just("pods".to_owned()),
        Just("namespaces".to_owned()),
        Just("default".to_owned()),
        Just("configmaps".to_owned()),
        Just("nodes".to_owned()),
        Just("status".to_owned()),
        Just("eviction".to_owned()),
        Just("scale".to_owned()),
        Just("customresourcedefinitions".to_owned()),
        "[a-z%0-9./-]{0,6}",
    ]
}

/// Existing objects in the tested server, so that requests are processed completely.
const HELD: [(&str, &str); 4] = [
    ("/api/v1/namespaces/default/configmaps", r#"{"metadata": {"name": "m0"}, "data": {"a": "b"}}"#),
    (
        "/api/v1/nodes",
        r#"{"metadata": {"name": "m0"}, "spec": {"taints": [{"key": "k", "effect": "NoSchedule"}]}}"#,
    ),
    (
        "/api/v1/namespaces/default/pods",
        r#"{"metadata": {"name": "m0"}, "spec": {"nodeName": "m0", "containers": [{"name": "c", "image": "i"}]}}"#,
    ),
    (
        "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
        r#"{"metadata": {"name": "m0.t.dev"}, "spec": {"group": "t.dev", "scope": "Namespaced",
            "names": {"plural": "m0", "kind": "M", "singular": "m", "listKind": "MList"},
            "versions": [{"name": "v1", "served": true, "storage": true, "subresources": {"status": {}},
                "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}}]}}"#,
    ),
];

async fn hold_objects(server: &Server) {
    for (collection, object) in HELD {
        let object = serde_json::from_str(object).expect("an object");
        let (code, answer) = send(server, "POST", collection, Some(object)).await;
        assert_eq!(code, 201, "{answer}");
    }
}

/// Generates a JSON patch, valid or nearly valid.
fn operations() -> impl Strategy<Value = Value> {
    let pointer = || {
        prop_oneof![
            Just(String::new()),
            Just("/metadata".to_owned()),
            Just("/metadata/labels".to_owned()),
            Just("/metadata/finalizers/-".to_owned()),
            Just("/spec/taints/0".to_owned()),
            "(/[a-z0-9~-]{0,3}){0,3}",
        ]
    };
    let op = prop_oneof![
        Just("add"),
        Just("remove"),
        Just("replace"),
        Just("move"),
        Just("copy"),
        Just("test"),
        Just("other")
    ];
    let operation = (op, pointer(), pointer(), json_value())
        .prop_map(|(op, from, path, value)| json!({"op": op, "from": from, "path": path, "value": value}));
    prop::collection::vec(operation, 0..4).prop_map(Value::from)
}

fn json_value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        "[a-z$./:%-]{0,6}".prop_map(Value::from),
    ];
    let key = prop_oneof![
        Just("metadata".to_owned()),
        Just("spec".to_owned()),
        Just("status".to_owned()),
        Just("name".to_owned()),
        Just("labels".to_owned()),
        Just("finalizers".to_owned()),
        Just("conditions".to_owned()),
        Just("versions".to_owned()),
        Just("containers".to_owned()),
        Just("$patch".to_owned()),
        Just("$setElementOrder/conditions".to_owned()),
        Just("op".to_owned()),
        Just("path".to_owned()),
        Just("type".to_owned()),
    ];
    leaf.prop_recursive(5, 40, 5, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map(key.clone(), inner, 0..5)
                .prop_map(|m| Value::Object(m.into_iter().collect())),
        ]
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, ..ProptestConfig::default() })]

    #[test]
    fn no_request_breaks_the_server(
        group in prop_oneof![Just("/api/v1"), Just("/apis/policy/v1"), Just("/apis/apiextensions.k8s.io/v1"), Just("/apis"), Just("")],
        path in prop::collection::vec(pieces(), 0..5),
        query in "(watch=1|limit=1|continue=[a-zA-Z0-9]{0,8}|labelSelector=[a-z!=,() ]{0,8}|resourceVersion=[0-9a]{0,3}|fieldSelector=[a-z.=,]{0,8}|timeoutSeconds=1|&){0,4}",
        verb in prop_oneof![Just("GET"), Just("POST"), Just("PUT"), Just("PATCH"), Just("DELETE")],
        media in prop_oneof![Just("json"), Just("merge-patch+json"), Just("json-patch+json"), Just("strategic-merge-patch+json"), Just("yaml")],
        body in json_value(),
    ) {
        let uri = format!("{group}/{}?timeoutSeconds=1&{}", path.join("/"), query.replace(' ', "%20"));
        let Ok(request) = Request::builder()
            .method(verb)
            .uri(uri)
            .header("Content-Type", format!("application/{media}"))
            .body(Full::new(Bytes::from(body.to_string())))
        else {
            return Ok(());
        };
        in_runtime(async {
            let server = server();
            let answered = server.service_as(Identity::admin()).call(request).await;
            prop_assert!(answered.is_ok(), "{:?}", answered.err());
            let answer = answered.expect("checked");
            prop_assert!(answer.body().size_hint().lower() < 10_000_000);
            prop_assert_ne!(reason_of(answer).await, "InternalError");
            // The server still answers.
            prop_assert_eq!(send(&server, "GET", "/readyz", None).await.0, 200);
            Ok(())
        })?;
    }

    #[test]
    fn no_patch_or_watch_of_an_object_breaks_the_server(
        at in 0..HELD.len(),
        subresource in prop_oneof![4 => Just(""), 1 => Just("/status"), 1 => Just("/approval"), 1 => Just("/scale")],
        (media, body) in prop_oneof![
            json_value().prop_map(|body| ("merge-patch+json", body)),
            json_value().prop_map(|body| ("strategic-merge-patch+json", body)),
            operations().prop_map(|body| ("json-patch+json", body)),
        ],
        timeout in prop_oneof![any::<i64>(), Just(i64::MAX), Just(i64::MIN)],
    ) {
        in_runtime(async {
            let server = server();
            hold_objects(&server).await;
            let collection = HELD[at].0;
            let name = if collection.ends_with("definitions") { "m0.t.dev" } else { "m0" };
            let patch = Request::builder()
                .method("PATCH")
                .uri(format!("{collection}/{name}{subresource}"))
                .header("Content-Type", format!("application/{media}"))
                .body(Full::new(Bytes::from(body.to_string())))
                .expect("a request");
            let answer = server.service_as(Identity::admin()).call(patch).await.expect("an answer");
            prop_assert_ne!(reason_of(answer).await, "InternalError");
            let watch = Request::get(format!("{collection}?watch=1&timeoutSeconds={timeout}"))
                .body(Full::new(Bytes::new()))
                .expect("a request");
            let answer = server.service_as(Identity::admin()).call(watch).await.expect("an answer");
            prop_assert_eq!(answer.status(), 200);
            Ok(())
        })?;
    }
}

/// Returns the reason of a rejection. Empty for any other answer, and for a watch, which would not
/// end.
async fn reason_of(answer: http::Response<machinist_apiserver::Body>) -> String {
    if answer.status().is_success() {
        return String::new();
    }
    let body = answer.into_body().collect().await.expect("a body").to_bytes();
    let status: Value = serde_json::from_slice(&body).unwrap_or_default();
    status["reason"].as_str().unwrap_or_default().to_owned()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn a_list_plus_its_watch_gives_the_next_list(before in prop::collection::vec(act(), 0..12), after in prop::collection::vec(act(), 0..20)) {
        in_runtime(async {
            let server = server();
            for act in &before {
                perform(&server, act).await;
            }
            let queries = ["", "labelSelector=l%3D1", "labelSelector=l%20notin%20(0)", "fieldSelector=metadata.name%3Dm1"];
            let mut held = Vec::new();
            for query in queries {
                held.push(list(&server, query).await);
            }
            for act in &after {
                perform(&server, act).await;
            }
            for (query, (mut items, revision)) in queries.into_iter().zip(held) {
                // Only the revisions of selected objects can differ: an object that left the
                // selector and returned is a new one.
                replay(&server, query, &revision, &mut items).await;
                prop_assert_eq!(&items, &list(&server, query).await.0, "{}", query);
            }
            Ok(())
        })?;
    }
}
