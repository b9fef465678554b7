//! Limits: sizes, depths, numbers, long lists, and clients that do not read. Requests within the
//! limits are answered in time.

use std::time::{Duration, Instant};

use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt, Full};
use machinist_apiserver::{Config, Identity, Server};
use serde_json::{Value, json};
use tower::Service;

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const NODES: &str = "/api/v1/nodes";
const THINGS: &str = "/apis/t.dev/v1/namespaces/default/things";

/// Length of the long lists. A server that compares each item with every other one takes minutes.
const MANY: usize = 40_000;

/// Far above the time that any of these requests needs, even on a busy machine.
const SOON: Duration = Duration::from_secs(20);

#[expect(clippy::disallowed_methods, reason = "the test checks the real time of an answer")]
async fn ask(server: &Server, verb: &str, path: &str, media: &str, body: impl Into<Bytes>) -> (u16, Value) {
    let request = Request::builder()
        .method(verb)
        .uri(path)
        .header("Content-Type", format!("application/{media}"))
        .body(Full::new(body.into()))
        .expect("a request");
    let began = Instant::now();
    let answer = server.service_as(Identity::admin()).call(request).await.expect("an answer");
    let code = answer.status().as_u16();
    let body = answer.into_body().collect().await.expect("a body").to_bytes();
    assert!(began.elapsed() < SOON, "{verb} {path} as {media} took {:?}", began.elapsed());
    (code, serde_json::from_slice(&body).unwrap_or_default())
}

async fn check(server: &Server, verb: &str, path: &str, media: &str, body: &Value, expected: u16) {
    let (code, answer) = ask(server, verb, path, media, body.to_string()).await;
    let shown: String = answer["message"].to_string().chars().take(200).collect();
    assert_eq!(code, expected, "{verb} {path} as {media}: {shown}");
}

async fn define(server: &Server, schema: Value) {
    let definition = json!({
        "metadata": {"name": "things.t.dev"},
        "spec": {"group": "t.dev", "scope": "Namespaced",
            "names": {"plural": "things", "kind": "Thing", "singular": "thing", "listKind": "ThingList"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema}}]}
    });
    let path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    check(server, "POST", path, "json", &definition, 201).await;
}

fn thing(spec: Value) -> Value {
    json!({"apiVersion": "t.dev/v1", "kind": "Thing", "metadata": {"name": "a"}, "spec": spec})
}

#[tokio::test]
async fn oversized_bodies_are_rejected() {
    let server = Server::new(Config::default());
    let filled = |length: usize| format!(r#"{{"metadata": {{"name": "{}"}}}}"#, "x".repeat(length));
    assert_eq!(ask(&server, "POST", MAPS, "json", filled(3 << 20)).await.0, 413);
    for media in ["json", "yaml", "vnd.kubernetes.protobuf", "merge-patch+json"] {
        let verb = if media.starts_with("merge") { "PATCH" } else { "POST" };
        let path = if verb == "PATCH" { format!("{MAPS}/a") } else { MAPS.to_owned() };
        assert_eq!(ask(&server, verb, &path, media, vec![b' '; (3 << 20) + 1]).await.0, 413, "{media}");
    }
    assert_eq!(ask(&server, "POST", MAPS, "json", filled(253)).await.0, 201);
    assert_eq!(ask(&server, "POST", MAPS, "json", filled(254)).await.0, 422);
    let label =
        |length: usize| json!({"metadata": {"generateName": "l-", "labels": {"a": "x".repeat(length)}}});
    check(&server, "POST", MAPS, "json", &label(63), 201).await;
    check(&server, "POST", MAPS, "json", &label(64), 422).await;
    let annotation =
        |length: usize| json!({"metadata": {"generateName": "a-", "annotations": {"a": "x".repeat(length)}}});
    check(&server, "POST", MAPS, "json", &annotation((256 << 10) - 1), 201).await;
    check(&server, "POST", MAPS, "json", &annotation(256 << 10), 422).await;
    let data = |length: usize| json!({"metadata": {"generateName": "d-"}, "data": {"a": "x".repeat(length)}});
    check(&server, "POST", MAPS, "json", &data(1 << 20), 201).await;
    check(&server, "POST", MAPS, "json", &data((1 << 20) + 1), 422).await;
}

#[tokio::test]
async fn deeply_nested_bodies_are_rejected() {
    let server = Server::new(Config::default());
    for (media, open) in
        [("json", "{\"a\":"), ("json", "["), ("yaml", "["), ("yaml", "- "), ("yaml", "? "), ("yaml", "{a: ")]
    {
        let (code, _) = ask(&server, "POST", MAPS, media, open.repeat(300_000)).await;
        assert_eq!(code, 400, "{media} {open}");
    }
    check(&server, "POST", MAPS, "json", &json!({"metadata": {"name": "a"}}), 201).await;
    for media in ["merge-patch+json", "strategic-merge-patch+json", "json-patch+json", "apply-patch+yaml"] {
        let path = format!("{MAPS}/a?fieldManager=f");
        let (code, _) = ask(&server, "PATCH", &path, media, "{\"a\":".repeat(300_000)).await;
        assert_eq!(code, 400, "{media}");
    }
}

#[tokio::test]
async fn invalid_numbers_are_rejected() {
    let server = Server::new(Config::default());
    define(&server, json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true})).await;
    for (number, code) in
        [("1e999", 400), ("01", 400), ("-", 400), ("1e308", 201), ("18446744073709551616", 201)]
    {
        let body = format!(
            r#"{{"apiVersion": "t.dev/v1", "kind": "Thing", "metadata": {{"generateName": "a"}}, "spec": {number}}}"#
        );
        assert_eq!(ask(&server, "POST", THINGS, "json", body).await.0, code, "{number}");
    }
    let (code, list) = ask(&server, "GET", THINGS, "json", "").await;
    assert_eq!((code, list["items"].as_array().map(Vec::len)), (200, Some(2)));
}

#[tokio::test]
async fn the_number_of_patch_operations_is_limited() {
    let server = Server::new(Config::default());
    check(&server, "POST", MAPS, "json", &json!({"metadata": {"name": "a"}, "data": {"a": "b"}}), 201).await;
    let tests =
        |count: usize| Value::from(vec![json!({"op": "test", "path": "/data/a", "value": "b"}); count]);
    check(&server, "PATCH", &format!("{MAPS}/a"), "json-patch+json", &tests(10_000), 200).await;
    check(&server, "PATCH", &format!("{MAPS}/a"), "json-patch+json", &tests(10_001), 413).await;
}

#[tokio::test]
async fn long_lists_of_built_in_kinds_are_merged_in_time() {
    let server = Server::new(Config::default());
    let taints = |value: &str| -> Value {
        (0..MANY).map(|n| json!({"key": format!("k{n}"), "effect": "NoSchedule", "value": value})).collect()
    };
    check(
        &server,
        "POST",
        NODES,
        "json",
        &json!({"metadata": {"name": "n"}, "spec": {"taints": taints("a")}}),
        201,
    )
    .await;
    let patch = json!({"spec": {"taints": taints("b")}});
    check(&server, "PATCH", &format!("{NODES}/n"), "strategic-merge-patch+json", &patch, 200).await;
    let conditions: Vec<Value> =
        (0..MANY).map(|n| json!({"type": format!("t{n}"), "status": "True"})).collect();
    let backwards: Vec<&Value> = conditions.iter().rev().collect();
    let status = format!("{NODES}/n/status?fieldManager=f");
    let path = "strategic-merge-patch+json";
    check(&server, "PATCH", &status, path, &json!({"status": {"conditions": conditions}}), 200).await;
    check(&server, "PATCH", &status, path, &json!({"status": {"conditions": backwards}}), 200).await;
    let applied = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}, "status": {"conditions": conditions}});
    check(&server, "PATCH", &format!("{status}&force=true"), "apply-patch+yaml", &applied, 200).await;
    let finalizers: Vec<String> = (0..MANY).map(|n| format!("t.dev/f{n}")).collect();
    let map = json!({"metadata": {"name": "m", "finalizers": finalizers}});
    check(&server, "POST", MAPS, "json", &map, 201).await;
    let (gone, kept) = finalizers.split_at(MANY / 2);
    let patch = json!({"metadata": {"$deleteFromPrimitiveList/finalizers": gone, "finalizers": kept}});
    check(&server, "PATCH", &format!("{MAPS}/m"), path, &patch, 200).await;
}

#[tokio::test]
async fn long_lists_of_custom_resources_are_validated_in_time() {
    let server = Server::new(Config::default());
    let item = json!({"type": "object", "required": ["k"], "properties": {"k": {"type": "string"}, "v": {"type": "integer"}}});
    define(
        &server,
        json!({"type": "object", "properties": {"spec": {"type": "object", "properties": {
            "map": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"], "items": item},
            "set": {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "integer"}}
        }}}}),
    )
    .await;
    let spec = |value: usize| {
        let map: Vec<Value> = (0..MANY).map(|n| json!({"k": format!("k{n}"), "v": value})).collect();
        thing(json!({"map": map, "set": (0..MANY).collect::<Vec<_>>()}))
    };
    check(&server, "POST", THINGS, "json", &spec(0), 201).await;
    check(&server, "PATCH", &format!("{THINGS}/a"), "merge-patch+json", &spec(1), 200).await;
    check(
        &server,
        "PATCH",
        &format!("{THINGS}/a?fieldManager=f&force=true"),
        "apply-patch+yaml",
        &spec(2),
        200,
    )
    .await;
    check(
        &server,
        "PATCH",
        &format!("{THINGS}/a?fieldManager=f&force=true"),
        "apply-patch+yaml",
        &spec(3),
        200,
    )
    .await;
}

#[tokio::test]
async fn long_selectors_and_large_lists_are_answered_in_time() {
    let server = Server::new(Config::default());
    let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"namespace": "default", "labels": {"a": "x"}}});
    for number in 0..10_000 {
        let mut map = map.clone();
        map["metadata"]["name"] = json!(format!("m{number}"));
        server.load(map).expect("loaded");
    }
    let (code, list) = ask(&server, "GET", MAPS, "json", "").await;
    assert_eq!((code, list["items"].as_array().map(Vec::len)), (200, Some(10_000)));
    assert_eq!(list["metadata"]["continue"], Value::Null);
    // Nearly the maximum length of a URI.
    let values: Vec<String> = (0..9000).map(|n| format!("v{n}")).collect();
    for (operator, found) in [("in", 0), ("notin", 10_000)] {
        let path = format!("{MAPS}?labelSelector=a%20{operator}%20({})", values.join(","));
        let (code, list) = ask(&server, "GET", &path, "json", "").await;
        assert_eq!((code, list["items"].as_array().map(Vec::len)), (200, Some(found)));
    }
}

#[tokio::test]
async fn an_unread_watch_ends_when_its_buffer_is_full() {
    let server = Server::new(Config { watch_buffer: 8, ..Config::default() });
    let open = Request::get(format!("{MAPS}?watch=1&resourceVersion={}", server.revision()))
        .body(Full::<Bytes>::default());
    let answer =
        server.service_as(Identity::admin()).call(open.expect("a request")).await.expect("an answer");
    assert_eq!(server.open_watches(), 1);
    for number in 0..100 {
        let map = json!({"metadata": {"name": format!("m{number}")}});
        check(&server, "POST", MAPS, "json", &map, 201).await;
    }
    assert_eq!(server.open_watches(), 0);
    let seen = answer.into_body().collect().await.expect("its end").to_bytes();
    assert_eq!(seen.iter().filter(|byte| **byte == b'\n').count(), 8);
}
