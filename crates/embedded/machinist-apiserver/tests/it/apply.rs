//! Server-side apply with random appliers: properties that hold for any configuration.

use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt, Full};
use machinist_apiserver::{Config, Identity, Server};
use proptest::prelude::*;
use serde_json::{Map, Value, json};
use tower::Service;

const CONDITIONS: &str = "/api/v1/nodes/n/status";
const NODE: &str = "/api/v1/nodes/n";

async fn apply(server: &Server, path: &str, manager: &str, wanted: &Value) -> (u16, Value) {
    send(
        server,
        "PATCH",
        &format!("{path}?fieldManager={manager}&force=true"),
        "application/apply-patch+yaml",
        wanted,
    )
    .await
}

async fn send(server: &Server, verb: &str, path: &str, media_type: &str, body: &Value) -> (u16, Value) {
    let request = Request::builder()
        .method(verb)
        .uri(path)
        .header("Content-Type", media_type)
        .body(Full::new(Bytes::from(body.to_string())))
        .expect("a request");
    let response = server.service_as(Identity::admin()).call(request).await.expect("an answer");
    let code = response.status().as_u16();
    let bytes = response.into_body().collect().await.expect("a body").to_bytes();
    (code, serde_json::from_slice(&bytes).expect("JSON"))
}

/// An applier's configuration for a Node: labels, a set, a keyed list, and an atomic list.
#[derive(Debug, Clone)]
struct Wish {
    labels: Vec<u8>,
    finalizers: Vec<u8>,
    owners: Vec<u8>,
    taints: Option<u8>,
}

fn wish() -> impl Strategy<Value = Wish> {
    let few = || prop::collection::btree_set(0_u8..5, 0..4).prop_map(Vec::from_iter);
    (few(), few(), few(), prop::option::of(0_u8..3)).prop_map(|(labels, finalizers, owners, taints)| Wish {
        labels,
        finalizers,
        owners,
        taints,
    })
}

impl Wish {
    /// Renders the object with `mark` in every name, so that different marks apply to different
    /// fields.
    fn shown(&self, mark: &str) -> Value {
        let labels: Map<String, Value> =
            self.labels.iter().map(|l| (format!("l{mark}{l}"), json!("x"))).collect();
        let finalizers: Vec<String> = self.finalizers.iter().map(|f| format!("t.dev/f{mark}{f}")).collect();
        let owners: Vec<Value> = self
            .owners
            .iter()
            .map(|o| json!({"apiVersion": "v1", "kind": "Namespace", "name": "o", "uid": format!("{mark}{o}")}))
            .collect();
        let mut wanted = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}});
        if !labels.is_empty() {
            wanted["metadata"]["labels"] = Value::Object(labels);
        }
        if !finalizers.is_empty() {
            wanted["metadata"]["finalizers"] = json!(finalizers);
        }
        if !owners.is_empty() {
            wanted["metadata"]["ownerReferences"] = json!(owners);
        }
        if let Some(taint) = self.taints {
            wanted["spec"] = json!({"taints": [{"key": format!("t{taint}"), "effect": "NoSchedule"}]});
        }
        wanted
    }
}

/// Returns an object without values that differ between runs, and with sorted lists.
fn essence(object: &Value) -> Value {
    let mut object = object.clone();
    let metadata = object["metadata"].as_object_mut().expect("metadata");
    for key in ["uid", "resourceVersion", "creationTimestamp"] {
        metadata.remove(key);
    }
    for entry in metadata.get_mut("managedFields").and_then(Value::as_array_mut).into_iter().flatten() {
        entry.as_object_mut().map(|entry| entry.remove("time"));
    }
    for key in ["managedFields", "finalizers", "ownerReferences"] {
        if let Some(list) = metadata.get_mut(key).and_then(Value::as_array_mut) {
            list.sort_by_key(Value::to_string);
        }
    }
    object
}

/// Starts a server with a Node. Another manager has created the Node and owns one of its labels.
async fn server_with_node() -> Server {
    let server = Server::new(Config::default());
    let made = json!({"metadata": {"name": "n", "labels": {"made": "by-hand"}}});
    let (code, answer) =
        send(&server, "POST", "/api/v1/nodes?fieldManager=maker", "application/json", &made).await;
    assert_eq!(code, 201, "{answer}");
    server
}

fn in_runtime<T>(story: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build();
    runtime.expect("a runtime").block_on(story)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn appliers_of_different_fields_commute(
        stories in prop::collection::vec((wish(), wish()), 1..4)
    ) {
        let play = |swapped: bool| in_runtime({
            let stories = stories.clone();
            async move {
                let server = server_with_node().await;
                for (a, b) in &stories {
                    // Taints are one field, so only one of the two applies any.
                    let (a, b) = (a.shown("a"), Wish { taints: None, ..b.clone() }.shown("b"));
                    let order = if swapped { [("m-b", &b), ("m-a", &a)] } else { [("m-a", &a), ("m-b", &b)] };
                    for (manager, wanted) in order {
                        let (code, answer) = apply(&server, NODE, manager, wanted).await;
                        assert_eq!(code, 200, "{answer}");
                    }
                }
                essence(&send(&server, "GET", NODE, "", &json!({})).await.1)
            }
        });
        prop_assert_eq!(play(false), play(true));
    }

    #[test]
    fn a_repeated_apply_writes_nothing(wishes in prop::collection::vec(wish(), 1..5)) {
        in_runtime(async {
            let server = server_with_node().await;
            for (number, wish) in wishes.iter().enumerate() {
                let (manager, wanted) = (format!("m{}", number % 2), wish.shown(""));
                let (_, once) = apply(&server, NODE, &manager, &wanted).await;
                let before = server.revision();
                let (code, twice) = apply(&server, NODE, &manager, &wanted).await;
                assert_eq!((code, &twice), (200, &once));
                assert_eq!(server.revision(), before);
            }
        });
    }

    #[test]
    fn fields_that_an_applier_drops_are_deleted(first in wish(), second in wish()) {
        in_runtime(async {
            let server = server_with_node().await;
            let (_, only) = apply(&server, NODE, "m", &second.shown("")).await;
            let other = server_with_node().await;
            apply(&other, NODE, "m", &first.shown("")).await;
            let (_, after) = apply(&other, NODE, "m", &second.shown("")).await;
            // The taint of every new Node has no owner. It is removed with the first applied
            // taints.
            let plain = |object: &Value| {
                let mut object = essence(object);
                object.as_object_mut().map(|object| object.remove("spec"));
                object
            };
            assert_eq!(plain(&after), plain(&only));
        });
    }

    #[test]
    fn managed_fields_of_any_shape_are_answered(entries in prop::collection::vec(owner(), 0..4)) {
        in_runtime(async {
            let server = Server::new(Config::default());
            let body = json!({"metadata": {"name": "n", "managedFields": entries}});
            let (code, answer) = send(&server, "POST", "/api/v1/nodes", "application/json", &body).await;
            assert!(matches!(code, 201 | 400), "{code} {answer}");
            if code != 201 {
                let plain = json!({"metadata": {"name": "n"}});
                send(&server, "POST", "/api/v1/nodes", "application/json", &plain).await;
            }
            let patch = json!({"metadata": {"managedFields": entries, "labels": {"a": "b"}}});
            let (code, answer) = send(&server, "PATCH", NODE, "application/merge-patch+json", &patch).await;
            assert!(matches!(code, 200 | 400 | 422), "{code} {answer}");
            let wanted = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"},
                "status": {"conditions": [{"type": "Ready", "status": "True"}]}});
            let (code, answer) = apply(&server, CONDITIONS, "m", &wanted).await;
            assert_eq!(code, 200, "{answer}");
        });
    }
}

/// Generates a value for an entry of `managedFields`, valid or not.
fn owner() -> impl Strategy<Value = Value> {
    let field = prop_oneof![
        "f:[a-z]{1,8}",
        Just("f:metadata".to_owned()),
        Just("f:labels".to_owned()),
        Just("f:status".to_owned()),
        "k:\\{\"[a-z]{1,4}\":(1|\"x\"|null)\\}",
        "v:(1|\"x\"|\\[\\]|\\{)",
        "i:-?[0-9]{1,20}",
        Just(".".to_owned()),
        "[a-z]:.{0,4}",
        ".{0,6}",
    ];
    let leaf = prop_oneof![8 => Just(json!({})), 1 => Just(Value::Null), 1 => Just(json!("text")), 1 => Just(json!([1]))];
    let fields = leaf.prop_recursive(6, 40, 5, move |below| {
        prop::collection::btree_map(field.clone(), below, 0..5)
            .prop_map(|map| Value::Object(map.into_iter().collect()))
    });
    let operation = prop_oneof![Just("Apply"), Just("Update"), Just(""), Just("Frobnicate")];
    let version = prop_oneof![Just("v1"), Just("t.dev/v1"), Just(""), Just("a/b/c")];
    let kind = prop_oneof![4 => Just("FieldsV1"), 1 => Just(""), 1 => Just("FieldsV2")];
    (fields, operation, version, kind, "[a-z]{0,3}").prop_map(|(fields, operation, version, kind, manager)| {
        json!({"manager": manager, "operation": operation, "apiVersion": version, "fieldsType": kind, "fieldsV1": fields})
    })
}

#[tokio::test(start_paused = true)]
async fn deeply_nested_managed_fields_are_rejected() {
    let server = Server::new(Config::default());
    let fields = format!("{}{{}}{}", "{\"f:a\":".repeat(100_000), "}".repeat(100_000));
    let body = format!(
        r#"{{"metadata":{{"name":"n","managedFields":[{{"manager":"m","operation":"Update","apiVersion":"v1","fieldsType":"FieldsV1","fieldsV1":{fields}}}]}}}}"#
    );
    let request =
        Request::builder().method("POST").uri("/api/v1/nodes").header("Content-Type", "application/json");
    let request = request.body(Full::new(Bytes::from(body))).expect("a request");
    let response = server.service_as(Identity::admin()).call(request).await.expect("an answer");
    assert_eq!(response.status(), 400);
}

#[tokio::test(start_paused = true)]
async fn a_write_without_changes_commits_nothing() {
    let server = Server::new(Config::default());
    let body = json!({"metadata": {"name": "m"}, "data": {"k": "v"}});
    let maps = "/api/v1/namespaces/default/configmaps";
    let (_, made) = send(&server, "POST", &format!("{maps}?fieldManager=a"), "application/json", &body).await;
    let before = server.revision();
    let (code, put) =
        send(&server, "PUT", &format!("{maps}/m?fieldManager=b"), "application/json", &body).await;
    assert_eq!((code, &put), (200, &made));
    assert_eq!(server.revision(), before);
    assert_eq!(made["metadata"]["managedFields"][0]["manager"], "a");
}

#[tokio::test(start_paused = true)]
async fn an_object_of_maximum_depth_gets_no_deeper() {
    let server = Server::new(Config::default());
    let definition = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": "wells.t.dev"},
        "spec": {"group": "t.dev", "scope": "Namespaced", "names": {"plural": "wells", "kind": "Well"}, "versions": [{
            "name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {
                "type": "object", "properties": {"spec": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}}}
        }]}
    });
    let definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    assert_eq!(send(&server, "POST", definitions, "application/json", &definition).await.0, 201);
    let wells = "/apis/t.dev/v1/namespaces/default/wells";
    let well = |bottom: Value| {
        let deep = (0..125).fold(bottom, |below, _| json!({"k": below}));
        json!({"apiVersion": "t.dev/v1", "kind": "Well", "metadata": {"name": "w"}, "spec": deep})
    };
    // Reading the answers is the test: the parser has the same depth limit as any client.
    assert_eq!(send(&server, "POST", wells, "application/json", &well(json!(1))).await.0, 201);
    let (code, answer) = apply(&server, &format!("{wells}/w"), "m", &well(json!(2))).await;
    assert_eq!(code, 200, "{answer}");
    let (code, answer) = apply(&server, &format!("{wells}/w"), "m", &well(json!(3))).await;
    assert_eq!((code, answer["metadata"]["managedFields"].as_array().map(Vec::len)), (200, Some(2)));
}
