//! Controls for the simulator: history, lag, bookmarks, clock and ids.

use std::sync::Arc;
use std::time::Duration;

use futures::{StreamExt, TryStreamExt};
use http::Request;
use http_body_util::{BodyExt, Full};
use k8s_openapi::api::core::v1::{ConfigMap, Event};
use kube::api::{Api, ListParams, Patch, PatchParams, PostParams, VersionMatch, WatchEvent, WatchParams};
use machinist_apiserver::{
    ApiService, Config, History, Identity, ReplicaView, SeededIds, Server, TokioClock,
};
use serde_json::{Value, json};
use tower::Service;

fn server() -> Server {
    let epoch = "2026-01-01T00:00:00Z".parse().expect("a time");
    Server::new(Config {
        clock: Arc::new(TokioClock::starting_at(epoch)),
        ids: Arc::new(SeededIds::new(7)),
        history: History::Manual,
        bookmark_interval: Some(Duration::from_secs(10)),
        ..Config::default()
    })
}

fn maps(service: ApiService) -> Api<ConfigMap> {
    Api::default_namespaced(kube::Client::new(service, "default"))
}

async fn make(maps: &Api<ConfigMap>, name: &str) -> ConfigMap {
    let map: ConfigMap = serde_json::from_value(json!({"metadata": {"name": name}})).expect("a config map");
    maps.create(&PostParams::default(), &map).await.expect("created")
}

async fn touch(maps: &Api<ConfigMap>, name: &str, value: &str) {
    let patch = Patch::Merge(json!({"data": {"k": value}}));
    maps.patch(name, &PatchParams::default(), &patch).await.expect("patched");
}

/// Sends a request without kube-rs.
async fn raw(server: &Server, path: &str) -> (u16, Value) {
    let request = Request::get(path).body(Full::new(bytes::Bytes::new())).expect("a request");
    let response = server.service_as(Identity::admin()).call(request).await.expect("an answer");
    let code = response.status().as_u16();
    let body = response.into_body().collect().await.expect("a body").to_bytes();
    (code, serde_json::from_slice(&body).unwrap_or(Value::Null))
}

#[tokio::test(start_paused = true)]
async fn an_expired_page_offers_an_inconsistent_continuation() {
    let server = server();
    let maps = maps(server.service_as(Identity::admin()));
    for name in ["a", "b", "c"] {
        make(&maps, name).await;
    }
    let path = "/api/v1/namespaces/default/configmaps";
    let (_, page) = raw(&server, &format!("{path}?limit=1")).await;
    assert_eq!(page["metadata"]["remainingItemCount"], 2);
    let token = page["metadata"]["continue"].as_str().expect("a token").to_owned();
    make(&maps, "d").await;
    let (code, second) = raw(&server, &format!("{path}?limit=1&continue={token}")).await;
    assert_eq!((code, &second["items"][0]["metadata"]["name"]), (200, &json!("b")));
    assert_eq!(second["metadata"]["resourceVersion"], page["metadata"]["resourceVersion"]);
    server.compact();
    let (code, expired) = raw(&server, &format!("{path}?limit=1&continue={token}")).await;
    assert_eq!((code, &expired["reason"]), (410, &json!("Expired")));
    let fresh = expired["metadata"]["continue"].as_str().expect("a fresh token");
    let (code, rest) = raw(&server, &format!("{path}?continue={fresh}")).await;
    let names: Vec<&Value> =
        rest["items"].as_array().expect("items").iter().map(|i| &i["metadata"]["name"]).collect();
    assert_eq!((code, names), (200, vec![&json!("b"), &json!("c"), &json!("d")]));
}

#[tokio::test(start_paused = true)]
async fn a_frozen_replica_serves_old_state_if_allowed() {
    let server = server();
    let view = ReplicaView::default();
    let fresh = maps(server.service_as(Identity::admin()));
    let lagging = maps(server.service_as(Identity::admin()).with_replica_view(view.clone()));
    make(&fresh, "a").await;
    view.freeze_at(server.revision());
    make(&fresh, "b").await;
    let any = ListParams {
        resource_version: Some("0".into()),
        version_match: Some(VersionMatch::NotOlderThan),
        ..ListParams::default()
    };
    let stale = lagging.list(&any).await.expect("list");
    assert_eq!(stale.items.len(), 1);
    assert_eq!(lagging.list(&ListParams::default()).await.expect("quorum list").items.len(), 2);
    let from = stale.metadata.resource_version.expect("a revision");
    let mut events = lagging.watch(&WatchParams::default().timeout(60), &from).await.expect("watch").boxed();
    let nothing = tokio::time::timeout(Duration::from_secs(30), events.try_next()).await;
    assert!(nothing.is_err(), "the replica has not seen b yet");
    view.thaw();
    match events.try_next().await.expect("no error").expect("an event") {
        WatchEvent::Added(map) => assert_eq!(map.metadata.name.as_deref(), Some("b")),
        other => panic!("expected b, got {other:?}"),
    }
}

#[tokio::test(start_paused = true)]
async fn bookmarks_are_periodic_and_name_delivered_revisions() {
    let server = server();
    let maps = maps(server.service_as(Identity::admin()));
    let mut events = maps.watch(&WatchParams::default().timeout(35), "0").await.expect("watch").boxed();
    make(&maps, "a").await;
    let revision = server.revision().to_string();
    let mut seen = Vec::new();
    while let Some(event) = events.try_next().await.expect("no error") {
        seen.push(match event {
            WatchEvent::Added(_) => "added".to_owned(),
            WatchEvent::Bookmark(mark) => mark.metadata.resource_version,
            other => panic!("unexpected {other:?}"),
        });
    }
    assert_eq!(seen, ["added".to_owned(), revision.clone(), revision.clone(), revision]);
    assert_eq!(server.open_watches(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_read_waits_for_a_future_revision() {
    let server = server();
    let maps = maps(server.service_as(Identity::admin()));
    let next = server.revision() + 1;
    let path = format!("/api/v1/namespaces/default/configmaps/a?resourceVersion={next}");
    let (read, _made) = tokio::join!(raw(&server, &path), async {
        tokio::time::sleep(Duration::from_secs(2)).await;
        make(&maps, "a").await
    });
    assert_eq!(read.0, 200);
    let (code, _) = raw(&server, &format!("/api/v1/configmaps?resourceVersion={}", next + 100)).await;
    assert_eq!(code, 504);
}

#[tokio::test(start_paused = true)]
async fn old_history_is_dropped_unless_the_simulator_keeps_it() {
    let bounded = Server::new(Config {
        history: History::Bounded { age: Duration::from_secs(300), events: 1000, bytes: 1 << 20 },
        ..Config::default()
    });
    let maps = maps(bounded.service_as(Identity::admin()));
    make(&maps, "a").await;
    let first = bounded.revision();
    tokio::time::advance(Duration::from_secs(200)).await;
    touch(&maps, "a", "1").await;
    assert!(bounded.compacted() < first);
    tokio::time::advance(Duration::from_secs(101)).await;
    touch(&maps, "a", "2").await;
    assert_eq!(bounded.compacted(), first);
}

#[tokio::test(start_paused = true)]
async fn history_is_shorter_when_objects_are_large() {
    let bounded = Server::new(Config {
        history: History::Bounded { age: Duration::from_secs(300), events: 1000, bytes: 1 << 20 },
        ..Config::default()
    });
    let maps = maps(bounded.service_as(Identity::admin()));
    make(&maps, "large").await;
    for number in 0..800 {
        touch(&maps, "large", &format!("{number:010240}")).await;
    }
    let kept = bounded.revision() - bounded.compacted();
    // The newest 500, and others up to 1 MiB.
    assert!((590..=605).contains(&kept), "{kept} of 10 KiB each");
    make(&maps, "small").await;
    for number in 0..1000 {
        touch(&maps, "small", &number.to_string()).await;
    }
    assert_eq!(bounded.revision() - bounded.compacted(), 1000);
}

#[tokio::test(start_paused = true)]
async fn events_are_deleted_an_hour_after_their_last_write() {
    let server = server();
    let events: Api<Event> =
        Api::default_namespaced(kube::Client::new(server.service_as(Identity::admin()), "default"));
    let event = |name: &str| -> Event {
        serde_json::from_value(
            json!({"metadata": {"name": name}, "involvedObject": {"namespace": "default"}}),
        )
        .expect("an event")
    };
    for name in ["old", "renewed"] {
        events.create(&PostParams::default(), &event(name)).await.expect("created");
    }
    tokio::time::advance(Duration::from_secs(1800)).await;
    let patch = Patch::Merge(json!({"count": 2}));
    events.patch("renewed", &PatchParams::default(), &patch).await.expect("patched");
    tokio::time::advance(Duration::from_secs(1801)).await;
    events.create(&PostParams::default(), &event("new")).await.expect("created");
    let names: Vec<String> = server.snapshot("events").iter().map(|e| e.name().to_owned()).collect();
    assert_eq!(names, ["new", "renewed"]);
}

#[tokio::test(start_paused = true)]
async fn the_same_seed_gives_the_same_bytes() {
    let mut runs = Vec::new();
    for _ in 0..2 {
        let server = server();
        let maps = maps(server.service_as(Identity::admin()));
        let mut commits = server.commits();
        for name in ["a", "b"] {
            make(&maps, name).await;
            tokio::time::advance(Duration::from_secs(1)).await;
            touch(&maps, name, "x").await;
        }
        let log: Vec<String> = commits
            .drain()
            .iter()
            .map(|c| format!("{} {} {:?}", c.revision, c.key, c.new.as_ref().map(|o| o.value().to_string())))
            .collect();
        runs.push(log);
    }
    assert_eq!(runs[0].len(), 4);
    // The clock and the ids start again with each server.
    assert_eq!(runs[0], runs[1]);
}
