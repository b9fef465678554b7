//! Tests of `Server::load`, which stores objects unchanged.

use futures::{StreamExt, TryStreamExt};
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::{Api, DynamicObject, Patch, PatchParams, WatchEvent, WatchParams};
use kube::core::{ApiResource, GroupVersionKind};
use machinist_apiserver::{Config, Identity, LoadError, Server};
use serde_json::{Value, json};

fn client(server: &Server) -> kube::Client {
    kube::Client::new(server.service_as(Identity::admin()), "default")
}

/// A Pod as a backup contains it: old, owned, in deletion, with a status, and with a field that no
/// request could have left in it.
fn pod() -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "name": "p", "namespace": "default", "uid": "11111111-2222-3333-4444-555555555555", "generation": 7,
            "resourceVersion": "4711", "creationTimestamp": "2020-01-01T00:00:00Z",
            "deletionTimestamp": "2020-01-02T00:00:00Z", "deletionGracePeriodSeconds": 0,
            "finalizers": ["example.com/held"],
            "ownerReferences": [{"apiVersion": "v1", "kind": "Node", "name": "n", "uid": "not-there"}]
        },
        "spec": {"containers": [], "unheard": "of"},
        "status": {"phase": "Running"}
    })
}

fn definition() -> Value {
    let schema = json!({"openAPIV3Schema": {"type": "object", "properties": {
        "spec": {"type": "object", "properties": {"size": {"type": "integer", "default": 3}}}}}});
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "things.example.com", "uid": "d", "creationTimestamp": "2020-01-01T00:00:00Z"},
        "spec": {
            "group": "example.com", "scope": "Namespaced",
            "names": {"plural": "things", "singular": "thing", "kind": "Thing", "listKind": "ThingList"},
            "versions": [
                {"name": "v1", "served": true, "storage": true, "schema": schema},
                {"name": "v1beta1", "served": true, "storage": false, "schema": schema}
            ]
        }
    })
}

#[tokio::test]
async fn a_loaded_object_keeps_everything_but_its_revision() {
    let server = Server::new(Config::default());
    let stored = server.load(pod()).expect("a Pod is served");
    let mut expected = pod();
    expected["metadata"]["resourceVersion"] = json!(server.revision().to_string());
    assert_eq!(stored.value(), &expected);
    let pods: Api<Pod> = Api::default_namespaced(client(&server));
    let read = pods.get("p").await.expect("the Pod exists");
    assert_eq!(serde_json::to_value(read.metadata).expect("metadata serialises"), expected["metadata"]);
}

#[tokio::test]
async fn watchers_and_commits_show_a_loaded_object() {
    let server = Server::new(Config::default());
    let nodes: Api<Node> = Api::all(client(&server));
    let mut watch = nodes.watch(&WatchParams::default(), "0").await.expect("watched").boxed();
    let mut commits = server.commits();
    let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n", "uid": "u"}});
    server.load(node).expect("a Node is served");
    match watch.try_next().await.expect("no error").expect("an event") {
        WatchEvent::Added(node) => assert_eq!(node.metadata.uid.as_deref(), Some("u")),
        other => panic!("expected the Node, got {other:?}"),
    }
    let commit = commits.next().await.expect("a commit");
    assert_eq!((&*commit.resource, commit.key.as_str(), commit.old.is_none()), ("nodes", "n", true));
}

#[tokio::test]
async fn a_loaded_deletion_ends_with_its_last_finalizer() {
    let server = Server::new(Config::default());
    let mut node = json!({"apiVersion": "v1", "kind": "Node"});
    node["metadata"] = json!({"name": "n", "uid": "u", "finalizers": ["example.com/held"],
        "deletionTimestamp": "2020-01-02T00:00:00Z", "deletionGracePeriodSeconds": 0});
    server.load(node).expect("a Node is served");
    let nodes: Api<Node> = Api::all(client(&server));
    let let_go = Patch::Merge(json!({"metadata": {"finalizers": null}}));
    nodes.patch("n", &PatchParams::default(), &let_go).await.expect("patched");
    assert!(nodes.get_opt("n").await.expect("read").is_none());
}

#[tokio::test]
async fn a_loaded_definition_is_served_with_unknown_fields() {
    let server = Server::new(Config::default());
    server.load(definition()).expect("definitions are served");
    let thing = json!({
        "apiVersion": "example.com/v1beta1", "kind": "Thing",
        "metadata": {"name": "t", "namespace": "default", "uid": "t", "generation": 9},
        "spec": {"unheard": "of"}
    });
    server.load(thing).expect("both versions are served");
    let gvk = GroupVersionKind::gvk("example.com", "v1", "Thing");
    let resource = ApiResource::from_gvk_with_plural(&gvk, "things");
    let things: Api<DynamicObject> = Api::default_namespaced_with(client(&server), &resource);
    let read = things.get("t").await.expect("the object exists");
    assert_eq!(read.types.expect("a type").api_version, "example.com/v1");
    assert_eq!((read.metadata.uid.as_deref(), read.metadata.generation), (Some("t"), Some(9)));
    // Missing fields are shown with their defaults, as for every object that is older than its
    // schema.
    assert_eq!(read.data["spec"], json!({"size": 3, "unheard": "of"}));
}

#[tokio::test]
async fn an_object_without_a_valid_place_is_rejected() {
    let server = Server::new(Config::default());
    let before = server.revision();
    let named = |api_version: &str, kind: &str, metadata: Value| json!({"apiVersion": api_version, "kind": kind, "metadata": metadata});
    for (object, complaint) in [
        (json!("text"), "apiVersion: expected a served group and version"),
        (
            named("example.com/v1", "Thing", json!({"name": "t"})),
            "apiVersion: expected a served group and version",
        ),
        (named("v1", "Thing", json!({"name": "t"})), "kind: expected a kind served in v1"),
        (named("v1", "Pod", json!({"name": "p"})), "metadata.namespace: expected a namespace for a Pod"),
        (
            named("v1", "Node", json!({"name": "n", "namespace": "default"})),
            "metadata.namespace: expected no namespace for a Node",
        ),
        (named("v1", "Node", json!({})), "metadata.name: expected a name"),
        (named("v1", "Node", json!({"name": "a/b"})), "metadata.name: expected no slash"),
    ] {
        let refused = server.load(object.clone()).expect_err("the object has no valid place");
        assert_eq!(refused.to_string(), complaint, "{object}");
    }
    assert_eq!(server.revision(), before, "nothing was stored");
}

#[tokio::test]
async fn a_taken_name_is_rejected() {
    let server = Server::new(Config::default());
    let first = server.load(pod()).expect("a Pod is served");
    let refused = server.load(pod()).expect_err("the name is taken");
    assert!(
        matches!(&refused, LoadError::Taken { resource, key } if resource == "pods" && key == "default/p")
    );
    assert_eq!(refused.to_string(), "metadata.name: expected a free name, but pods default/p already exists");
    assert_eq!(server.revision(), first.revision());
}
