//! Effects of a single request on the server: a panic affects only its own request, and only
//! permitted clients can send a body.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{Request, Response};
use http_body::Frame;
use http_body_util::{BodyExt, Full};
use jiff::Timestamp;
use machinist_apiserver::{ApiService, Body, Clock, Config, Identity, Server};
use serde_json::{Value, json};
use tower::Service;

const MAPS: &str = "/api/v1/namespaces/default/configmaps";

/// A clock that panics when the test breaks it.
#[derive(Debug, Default)]
struct FragileClock {
    is_broken: AtomicBool,
}

impl Clock for FragileClock {
    fn now(&self) -> Timestamp {
        assert!(!self.is_broken.load(Ordering::SeqCst), "the clock is broken");
        Timestamp::UNIX_EPOCH
    }
}

/// A body that never arrives.
struct Never;

impl http_body::Body for Never {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        _context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        Poll::Pending
    }
}

async fn status(answer: Response<Body>) -> (u16, Value) {
    let code = answer.status().as_u16();
    let body = answer.into_body().collect().await.expect("a body").to_bytes();
    (code, serde_json::from_slice(&body).unwrap_or_default())
}

async fn send(mut service: ApiService, verb: &str, path: &str, media: &str, body: &str) -> (u16, Value) {
    let request = Request::builder()
        .method(verb)
        .uri(path)
        .header("Content-Type", format!("application/{media}"))
        .body(Full::new(Bytes::from(body.to_owned())))
        .expect("a request");
    status(service.call(request).await.expect("an answer")).await
}

#[tokio::test(start_paused = true)]
async fn a_request_that_panics_is_answered_and_recorded() {
    let clock = Arc::new(FragileClock::default());
    let server = Server::new(Config { clock: clock.clone(), ..Config::default() });
    let mut audit = server.audit();
    clock.is_broken.store(true, Ordering::SeqCst);
    let body = json!({"metadata": {"name": "a"}}).to_string();
    let (code, refusal) = send(server.service_as(Identity::admin()), "POST", MAPS, "json", &body).await;
    assert_eq!(
        (code, &refusal["kind"], &refusal["reason"]),
        (500, &json!("Status"), &json!("InternalError"))
    );
    let record = audit.drain().remove(0);
    assert_eq!((record.code, record.verb.as_str(), record.resource.as_str()), (500, "create", "configmaps"));
    clock.is_broken.store(false, Ordering::SeqCst);
    let (code, _) = send(server.service_as(Identity::admin()), "POST", MAPS, "json", &body).await;
    assert_eq!(code, 201);
}

/// Expects the codes and messages of kube-apiserver 1.36.3.
#[tokio::test(start_paused = true)]
async fn a_patch_must_be_an_object_and_produce_one() {
    let server = Server::new(Config::default());
    let admin = || server.service_as(Identity::admin());
    send(admin(), "POST", MAPS, "json", r#"{"metadata": {"name": "a"}}"#).await;
    let path = format!("{MAPS}/a");
    let no_map =
        |kind: &str| format!("json: cannot unmarshal {kind} into Go value of type map[string]interface {{}}");
    let decoding = |kind: &str| format!("error decoding patch: {}", no_map(kind));
    let unprocessable = "the server rejected our request due to an error in our request".to_owned();
    for (media, patch, want, message) in [
        ("merge-patch+json", r#""x""#, 400, decoding("string")),
        ("merge-patch+json", "[1]", 400, decoding("array")),
        ("merge-patch+json", "3", 400, decoding("number")),
        ("merge-patch+json", "null", 400, "Invalid JSON Patch".to_owned()),
        ("strategic-merge-patch+json", r#""x""#, 400, no_map("string")),
        ("json-patch+json", r#"[{"op": "replace", "path": "", "value": "x"}]"#, 422, unprocessable.clone()),
        ("json-patch+json", r#"[{"op": "add", "path": "", "value": {}}]"#, 422, unprocessable),
    ] {
        let (code, refusal) = send(admin(), "PATCH", &path, media, patch).await;
        assert_eq!((code, &refusal["message"]), (want, &json!(message)), "{media} {patch}");
    }
    let list = r#"[{"op": "replace", "path": "", "value": []}]"#;
    let (code, refusal) = send(admin(), "PATCH", &path, "json-patch+json", list).await;
    assert_eq!((code, &refusal["details"]["causes"][0]["field"]), (422, &json!("patch")));
    assert_eq!(send(admin(), "PATCH", &path, "strategic-merge-patch+json", "null").await.0, 200);
}

#[tokio::test(start_paused = true)]
async fn anonymous_requests_are_rejected_before_the_body_is_read() {
    let server = Server::new(Config::default());
    let mut audit = server.audit();
    let post =
        || Request::post(MAPS).header("Content-Type", "application/json").body(Never).expect("a request");
    let began = tokio::time::Instant::now();
    let (code, _) = status(server.service_anonymous().call(post()).await.expect("an answer")).await;
    assert_eq!((code, began.elapsed().as_secs()), (401, 0));
    let answer = server.service_as(Identity::admin()).call(post()).await.expect("an answer");
    assert_eq!(status(answer).await.0, 408);
    assert_eq!(began.elapsed().as_secs(), 60);
    let codes: Vec<u16> = audit.drain().iter().map(|record| record.code).collect();
    assert_eq!(codes, [401, 408]);
}

/// kube-apiserver also establishes this definition and keeps serving its own kind.
#[tokio::test(start_paused = true)]
async fn a_definition_does_not_shadow_a_built_in_kind() {
    const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/default/leases";
    let server = Server::new(Config::default());
    let admin = || server.service_as(Identity::admin());
    send(admin(), "POST", LEASES, "json", r#"{"metadata": {"name": "a"}, "spec": {"holderIdentity": "me"}}"#)
        .await;
    let definition = json!({
        "metadata": {
            "name": "leases.coordination.k8s.io",
            "annotations": {"api-approved.kubernetes.io": "https://github.com/kubernetes/kubernetes/pull/1111"}
        },
        "spec": {
            "group": "coordination.k8s.io", "scope": "Cluster",
            "names": {"plural": "leases", "kind": "Lease", "singular": "lease", "listKind": "LeaseList"},
            "versions": [{
                "name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {"type": "object"}}
            }]
        }
    });
    let (code, answer) = send(admin(), "POST", DEFINITIONS, "json", &definition.to_string()).await;
    assert_eq!(code, 201, "{answer}");
    let still = async || send(admin(), "GET", &format!("{LEASES}/a"), "json", "").await;
    assert_eq!(still().await.1["spec"]["holderIdentity"], "me");
    let path = format!("{DEFINITIONS}/leases.coordination.k8s.io");
    assert_eq!(send(admin(), "DELETE", &path, "json", "").await.0, 200);
    assert_eq!(send(admin(), "GET", &path, "json", "").await.0, 404);
    assert_eq!(still().await.1["spec"]["holderIdentity"], "me");
}
