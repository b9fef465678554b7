//! Tests with kube-rs as the client of the in-process service.

use std::time::Duration;

use futures::{StreamExt, TryStreamExt};
use http::Request;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Node, Secret};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::{
    Api, ApiResource, DeleteParams, DynamicObject, GroupVersionKind, ListParams, Patch, PatchParams,
    PostParams, WatchEvent, WatchParams,
};
use kube::runtime::{WatchStreamExt, watcher};
use machinist_apiserver::{Config, Identity, Server};
use serde_json::json;
use tower::Service;

fn client(server: &Server) -> kube::Client {
    kube::Client::new(server.service_as(Identity::admin()).with_user_agent("it"), "default")
}

fn machine_definition() -> CustomResourceDefinition {
    serde_json::from_value(json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "machines.t.dev"},
        "spec": {
            "group": "t.dev", "scope": "Namespaced", "names": {"plural": "machines", "kind": "Machine", "shortNames": ["mc"]},
            "versions": [{
                "name": "v1", "served": true, "storage": true,
                "subresources": {"status": {}, "scale": {"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas"}},
                "schema": {"openAPIV3Schema": {"type": "object", "properties": {
                    "spec": {"type": "object", "properties": {
                        "replicas": {"type": "integer", "default": 1, "minimum": 0}, "class": {"type": "string"}
                    }},
                    "status": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}
                }}}
            }]
        }
    }))
    .expect("a definition")
}

fn machines(client: &kube::Client) -> Api<DynamicObject> {
    let kind =
        ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk("t.dev", "v1", "Machine"), "machines");
    Api::namespaced_with(client.clone(), "default", &kind)
}

fn machine(name: &str) -> DynamicObject {
    serde_json::from_value(
        json!({"apiVersion": "t.dev/v1", "kind": "Machine", "metadata": {"name": name}, "spec": {}}),
    )
    .expect("a machine")
}

#[tokio::test(start_paused = true)]
async fn objects_are_created_read_patched_and_deleted() {
    let server = Server::new(Config::default());
    let secrets: Api<Secret> = Api::default_namespaced(client(&server));
    let secret: Secret = serde_json::from_value(json!({"metadata": {"name": "a"}, "stringData": {"k": "v"}}))
        .expect("a secret");
    let made = secrets.create(&PostParams::default(), &secret).await.expect("created");
    assert_eq!(made.data.expect("data")["k"].0, b"v");
    assert!(made.metadata.uid.is_some());
    let patch = json!({"metadata": {"labels": {"x": "y"}}});
    let patched = secrets.patch("a", &PatchParams::default(), &Patch::Merge(&patch)).await.expect("patched");
    let again = secrets.patch("a", &PatchParams::default(), &Patch::Merge(&patch)).await.expect("patched");
    assert_eq!(patched.metadata.resource_version, again.metadata.resource_version);
    assert_eq!(secrets.list(&ListParams::default().labels("x=y")).await.expect("list").items.len(), 1);
    secrets.delete("a", &DeleteParams::default()).await.expect("deleted");
    assert!(secrets.get_opt("a").await.expect("get").is_none());
}

#[tokio::test(start_paused = true)]
async fn definitions_are_served_as_soon_as_they_exist() {
    let server = Server::new(Config::default());
    let client = client(&server);
    let definitions: Api<CustomResourceDefinition> = Api::all(client.clone());
    definitions.create(&PostParams::default(), &machine_definition()).await.expect("created");
    let machines = machines(&client);
    let made = machines.create(&PostParams::default(), &machine("a")).await.expect("created");
    assert_eq!(made.data["spec"]["replicas"], 1);
    assert_eq!(made.metadata.generation, Some(1));
    let scaled = machines
        .patch_scale("a", &PatchParams::default(), &Patch::Merge(json!({"spec": {"replicas": 3}})))
        .await
        .expect("scaled");
    assert_eq!(scaled.spec.and_then(|s| s.replicas), Some(3));
    let status = json!({"status": {"phase": "Running"}, "metadata": {"labels": {"ignored": "yes"}}});
    let patched =
        machines.patch_status("a", &PatchParams::default(), &Patch::Merge(&status)).await.expect("patched");
    assert_eq!(patched.metadata.generation, Some(2));
    assert_eq!(patched.metadata.labels, None);
    definitions.delete("machines.t.dev", &DeleteParams::default()).await.expect("deleted");
    let gone = machines.get("a").await.expect_err("the definition is deleted");
    assert!(matches!(gone, kube::Error::Api(status) if status.code == 404));
}

#[tokio::test(start_paused = true)]
async fn watches_see_every_change_in_order() {
    let server = Server::new(Config::default());
    let maps: Api<ConfigMap> = Api::default_namespaced(client(&server));
    let map = |name: &str, label: &str| -> ConfigMap {
        serde_json::from_value(json!({"metadata": {"name": name, "labels": {"app": label}}}))
            .expect("a config map")
    };
    maps.create(&PostParams::default(), &map("a", "x")).await.expect("created");
    let params = WatchParams::default().labels("app=x").timeout(30);
    let mut events = maps.watch(&params, "0").await.expect("watch").boxed();
    maps.create(&PostParams::default(), &map("b", "y")).await.expect("created");
    for label in ["x", "y"] {
        let patch = json!({"metadata": {"labels": {"app": label}}});
        maps.patch("b", &PatchParams::default(), &Patch::Merge(&patch)).await.expect("patched");
    }
    maps.delete("a", &DeleteParams::default()).await.expect("deleted");
    let mut seen = Vec::new();
    while let Some(event) = events.try_next().await.expect("no error") {
        seen.push(match event {
            WatchEvent::Added(o) => format!("+{}", o.metadata.name.unwrap_or_default()),
            WatchEvent::Modified(o) => format!("~{}", o.metadata.name.unwrap_or_default()),
            WatchEvent::Deleted(o) => format!("-{}", o.metadata.name.unwrap_or_default()),
            WatchEvent::Bookmark(_) => "bookmark".to_owned(),
            WatchEvent::Error(e) => format!("error {}", e.code),
        });
    }
    assert_eq!(seen, ["+a", "+b", "-b", "-a"]);
    assert_eq!(server.open_watches(), 0);
}

/// As after a restore of an older backup.
#[tokio::test(start_paused = true)]
async fn a_watch_from_a_later_version_shows_only_what_follows_it() {
    let server = Server::new(Config::default());
    let maps: Api<ConfigMap> = Api::default_namespaced(client(&server));
    let map = |name: &str| ConfigMap {
        metadata: ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() },
        ..ConfigMap::default()
    };
    let first = maps.create(&PostParams::default(), &map("a")).await.expect("created");
    let now: u64 = first.metadata.resource_version.expect("a version").parse().expect("a number");
    let mut params = WatchParams::default().timeout(300);
    params.bookmarks = true;
    let mut events = maps.watch(&params, &(now + 2).to_string()).await.expect("watch").boxed();
    tokio::time::sleep(Duration::from_secs(120)).await;
    for name in ["b", "c", "d"] {
        maps.create(&PostParams::default(), &map(name)).await.expect("created");
    }
    let event = events.try_next().await.expect("no error").expect("an event");
    assert!(matches!(&event, WatchEvent::Added(o) if o.metadata.name.as_deref() == Some("d")), "{event:?}");
}

#[tokio::test(start_paused = true)]
async fn a_streaming_watcher_starts_up_and_survives_compaction() {
    let server = Server::new(Config::default());
    let namespaces: Api<Namespace> = Api::all(client(&server));
    for config in [watcher::Config::default(), watcher::Config::default().streaming_lists()] {
        let mut stream = watcher(namespaces.clone(), config).default_backoff().boxed();
        let mut applied = 0;
        loop {
            match stream.try_next().await.expect("no error").expect("never ends") {
                watcher::Event::InitApply(_) => applied += 1,
                watcher::Event::InitDone => break,
                watcher::Event::Init | watcher::Event::Apply(_) | watcher::Event::Delete(_) => {}
            }
        }
        assert_eq!(applied, 4);
    }
    // A watch from a compacted revision gets an error event in its stream.
    let mut old = namespaces.watch(&WatchParams::default(), "1").await.expect("HTTP 200").boxed();
    match old.try_next().await.expect("a line") {
        Some(WatchEvent::Error(e)) => assert_eq!((e.code, e.reason.as_str()), (410, "Expired")),
        other => panic!("expected an error event, got {other:?}"),
    }
}

#[tokio::test(start_paused = true)]
async fn a_commit_survives_its_caller() {
    let server = Server::new(Config::default());
    let maps: Api<ConfigMap> = Api::default_namespaced(client(&server));
    let request = Request::post("/api/v1/namespaces/default/configmaps")
        .body(kube::client::Body::from(br#"{"metadata": {"name": "a"}}"#.to_vec()))
        .expect("a request");
    let mut service = server.service_as(Identity::admin());
    // The request is handed over and its answer is dropped.
    drop(service.call(request));
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(maps.get_opt("a").await.expect("get").is_some());
}

#[tokio::test(start_paused = true)]
async fn nodes_get_a_taint_and_their_provider_id_is_immutable() {
    let server = Server::new(Config::default());
    let nodes: Api<Node> = Api::all(client(&server));
    let node: Node = serde_json::from_value(json!({"metadata": {"name": "n"}})).expect("a node");
    let made = nodes.create(&PostParams::default(), &node).await.expect("created");
    let taints = made.spec.and_then(|s| s.taints).unwrap_or_default();
    assert_eq!(taints.iter().map(|t| t.key.as_str()).collect::<Vec<_>>(), ["node.kubernetes.io/not-ready"]);
    let set = |id: &str| Patch::Merge(json!({"spec": {"providerID": id}}));
    nodes.patch("n", &PatchParams::default(), &set("sim:///1")).await.expect("set once");
    let refused =
        nodes.patch("n", &PatchParams::default(), &set("sim:///2")).await.expect_err("never changed");
    assert!(matches!(refused, kube::Error::Api(status) if status.code == 422));
}

#[tokio::test(start_paused = true)]
async fn requests_and_commits_are_on_record() {
    let server = Server::new(Config::default());
    let (mut audit, mut commits) = (server.audit(), server.commits());
    let maps: Api<ConfigMap> = Api::default_namespaced(client(&server));
    let map: ConfigMap = serde_json::from_value(json!({"metadata": {"name": "a"}})).expect("a config map");
    maps.create(&PostParams::default(), &map).await.expect("created");
    let _missing = maps.get_opt("b").await.expect("get");
    let records: Vec<String> = audit
        .drain()
        .iter()
        .map(|r| {
            format!(
                "{} {} {} {}/{} {} {:?}",
                r.user, r.user_agent, r.verb, r.resource, r.name, r.code, r.revision
            )
        })
        .collect();
    let revision = server.revision();
    assert_eq!(
        records,
        [
            format!("kubernetes-admin it create configmaps/a 201 Some({revision})"),
            "kubernetes-admin it get configmaps/b 404 None".to_owned()
        ]
    );
    let commits = commits.drain();
    assert_eq!(commits.len(), 1);
    assert_eq!((&*commits[0].resource, commits[0].key.as_str()), ("configmaps", "default/a"));
    assert!(commits[0].old.is_none());
}
