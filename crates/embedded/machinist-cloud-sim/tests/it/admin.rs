//! Tests of the admin routes, over a pipe in memory.

use http_body_util::{BodyExt as _, Full};
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::http1::{self, SendRequest};
use hyper::{Method, Request, Response};
use hyper_util::rt::TokioIo;
use machinist_cloud_sim::http::serve_connection;
use machinist_cloud_sim::{Cloud, Settings};
use serde_json::{Value, json};

use crate::{cloud, create, delete, ensure};

async fn connect(cloud: &Cloud) -> SendRequest<Full<Bytes>> {
    let (near, far) = tokio::io::duplex(64 * 1024);
    tokio::spawn(serve_connection(cloud.clone(), far));
    let (sender, connection) = http1::handshake(TokioIo::new(near)).await.expect("a pipe");
    tokio::spawn(connection);
    sender
}

async fn send(
    to: &mut SendRequest<Full<Bytes>>,
    method: Method,
    path: &str,
    body: Value,
) -> Response<Incoming> {
    let request = Request::builder().method(method).uri(path).header("host", "cloud");
    let body = if body.is_null() { String::new() } else { body.to_string() };
    to.send_request(request.body(Full::from(body)).expect("a request")).await.expect("an answer")
}

async fn json_of(response: Response<Incoming>) -> Value {
    let bytes = response.into_body().collect().await.expect("whole").to_bytes();
    serde_json::from_slice(&bytes).expect("json")
}

#[tokio::test(start_paused = true)]
async fn a_patch_changes_the_named_settings_and_an_invalid_one_none() {
    let cloud = cloud(Settings::default());
    let mut to = connect(&cloud).await;
    let changed =
        send(&mut to, Method::PATCH, "/admin/settings", json!({"quota": 2, "bootSeconds": 0.5})).await;
    assert_eq!(json_of(changed).await["quota"], 2);
    let wrong = send(&mut to, Method::PATCH, "/admin/settings", json!({"quota": 3, "bootSecond": 1})).await;
    assert_eq!(wrong.status(), 400);
    let refusal = json_of(wrong).await;
    assert!(refusal["message"].as_str().expect("text").contains("bootSecond"), "{refusal}");
    assert_eq!(cloud.settings().quota, Some(2));
}

#[tokio::test(start_paused = true)]
async fn faults_are_added_listed_and_removed() {
    let cloud = cloud(Settings::default());
    let mut to = connect(&cloud).await;
    let rule = json!({"operation": "ensure", "fault": {"kind": "refuse", "code": "rateLimited", "retryAfterSeconds": 9}});
    let added = json_of(send(&mut to, Method::POST, "/admin/faults", rule).await).await;
    let refused =
        send(&mut to, Method::POST, "/v1/ensure", serde_json::to_value(create("a")).expect("json")).await;
    assert_eq!(refused.status(), 429);
    assert_eq!(refused.headers()["retry-after"], "9");
    drop(json_of(refused).await);
    let path = format!("/admin/faults/{}", added["id"]);
    drop(json_of(send(&mut to, Method::DELETE, &path, Value::Null).await).await);
    assert!(cloud.faults().rules().is_empty());
    let made =
        send(&mut to, Method::POST, "/v1/ensure", serde_json::to_value(create("a")).expect("json")).await;
    assert_eq!(json_of(made).await["instance"]["id"], "sim:///i-1");
}

#[tokio::test(start_paused = true)]
async fn the_commit_stream_has_every_commit_and_no_user_data() {
    let cloud = cloud(Settings::default());
    let made = ensure(&cloud, create("a")).await.expect("made");
    let mut to = connect(&cloud).await;
    let mut stream = send(&mut to, Method::GET, "/admin/commits", Value::Null).await.into_body();
    delete(&cloud, &made).await.expect("accepted");
    let mut lines = String::new();
    while !lines.contains("\"gone\"") {
        let frame = stream.frame().await.expect("more to come").expect("whole");
        lines.push_str(std::str::from_utf8(frame.data_ref().expect("data")).expect("text"));
    }
    let kinds: Vec<Value> = lines
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).expect("a line is whole")["commit"].clone())
        .collect();
    assert_eq!(kinds, ["made", "deletionBegun", "gone"]);
    assert!(!lines.contains("userData"));
}

#[tokio::test(start_paused = true)]
async fn browser_requests_and_unknown_operations_are_refused() {
    let mut to = connect(&cloud(Settings::default())).await;
    let request =
        Request::post("/admin/kill").header("host", "cloud").header("origin", "http://evil.example");
    let response =
        to.send_request(request.body(Full::default()).expect("a request")).await.expect("an answer");
    assert_eq!(response.status(), 401);
    drop(json_of(response).await);
    let response = send(&mut to, Method::POST, "/v1/explode", json!({})).await;
    assert_eq!(response.status(), 400);
    assert!(json_of(response).await["message"].as_str().expect("text").contains("explode"));
}
