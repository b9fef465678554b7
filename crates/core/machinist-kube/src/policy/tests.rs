//! Tests of the request policy against the embedded server, over a faulty connection.

use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use serde_json::json;

use super::*;
use crate::clock::{SharedClock, TokioClock};
use crate::faulty_server::{FaultyServer, Verdict};
use crate::outcome::WriteOutcome;

const MAPS: &str = "/api/v1/namespaces/ns/configmaps";

fn maps(server: &FaultyServer) -> Api<ConfigMap> {
    Api::namespaced(server.client(), "ns")
}

fn named(name: &str) -> ConfigMap {
    serde_json::from_value(json!({ "metadata": { "name": name } })).expect("a ConfigMap")
}

#[tokio::test(start_paused = true)]
async fn no_write_is_ever_repeated() {
    let verdicts: [fn() -> Verdict; 6] = [
        || Verdict::Answer(429),
        || Verdict::Answer(500),
        || Verdict::Answer(503),
        || Verdict::Answer(504),
        || Verdict::Refuse,
        || Verdict::Reset,
    ];
    for verdict in verdicts {
        let server = FaultyServer::new();
        server.hook(move |_| verdict());
        let maps = maps(&server);
        let patch = Patch::Merge(json!({}));
        assert!(maps.create(&PostParams::default(), &named("a")).await.is_err());
        assert!(maps.replace("a", &PostParams::default(), &named("a")).await.is_err());
        assert!(maps.patch("a", &PatchParams::default(), &patch).await.is_err());
        assert!(maps.delete("a", &DeleteParams::default()).await.is_err());
        assert_eq!(server.seen().len(), 4);
    }
}

#[tokio::test(start_paused = true)]
async fn a_create_with_a_lost_answer_is_unknown_and_creates_once() {
    let server = FaultyServer::new();
    server.hook(|_| Verdict::ServeThenAnswer(504));
    let outcome = WriteOutcome::of(&maps(&server).create(&PostParams::default(), &named("a")).await);
    assert!(matches!(outcome, WriteOutcome::Unknown { .. }), "{outcome:?}");
    assert_eq!(server.objects(MAPS).len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_read_succeeds_after_a_few_failures() {
    for verdict in [|| Verdict::Answer(503), || Verdict::Answer(429), || Verdict::Refuse, || Verdict::Reset] {
        let server = FaultyServer::new();
        server.put(&format!("{MAPS}/a"), json!({})).await;
        let mut failures = crate::request::DEFAULT_READ_RETRIES;
        server.hook(move |_| match failures {
            0 => Verdict::Pass,
            _ => {
                failures -= 1;
                verdict()
            }
        });
        assert!(maps(&server).get("a").await.is_ok());
        assert_eq!(server.seen().len(), 4);
    }
}

#[tokio::test(start_paused = true)]
async fn without_retries_a_read_is_sent_once() {
    let server = FaultyServer::new();
    server.hook(|_| Verdict::Answer(503));
    let options = ClientOptions { read_retries: 0, ..ClientOptions::new("test") };
    let maps: Api<ConfigMap> = Api::namespaced(server.client_with(&options), "ns");
    assert!(maps.get("a").await.is_err());
    assert_eq!(server.seen().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_read_stops_retrying_within_the_window() {
    let server = FaultyServer::new();
    server.hook(|_| Verdict::Answer(503));
    let start = Instant::now();
    assert!(maps(&server).list(&ListParams::default()).await.is_err());
    assert_eq!(server.seen().len(), 4);
    assert!(start.elapsed() < READ_RETRY_WINDOW);
}

#[tokio::test(start_paused = true)]
async fn a_read_is_not_repeated_after_a_permanent_error() {
    for code in [400, 403, 404, 410] {
        let server = FaultyServer::new();
        server.hook(move |_| Verdict::Answer(code));
        assert!(maps(&server).get("a").await.is_err());
        assert_eq!(server.seen().len(), 1, "{code}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_read_obeys_retry_after_within_the_window() {
    for (retry_after, requests, at_least) in [("2", 4, 6), ("30", 1, 0)] {
        let server = FaultyServer::new();
        server.hook(move |_| Verdict::Throttle { retry_after });
        let start = Instant::now();
        assert!(maps(&server).get("a").await.is_err());
        assert_eq!(server.seen().len(), requests);
        assert!(at_least <= start.elapsed().as_secs());
    }
}

#[tokio::test(start_paused = true)]
async fn retry_after_of_a_throttled_write_reaches_the_caller() {
    let server = FaultyServer::new();
    server.hook(|_| Verdict::Throttle { retry_after: "7" });
    let outcome = WriteOutcome::of(&maps(&server).create(&PostParams::default(), &named("a")).await);
    assert_eq!(outcome, WriteOutcome::Throttled { retry_after: Some(Duration::from_secs(7)) });
}

#[tokio::test(start_paused = true)]
async fn a_write_without_an_answer_times_out_as_unknown() {
    let server = FaultyServer::new();
    server.hook(|_| Verdict::Hang);
    let options = ClientOptions { request_timeout: Duration::from_secs(3), ..ClientOptions::new("test") };
    let maps: Api<ConfigMap> = Api::namespaced(server.client_with(&options), "ns");
    let start = Instant::now();
    let outcome = WriteOutcome::of(&maps.create(&PostParams::default(), &named("a")).await);
    assert!(matches!(outcome, WriteOutcome::Unknown { .. }), "{outcome:?}");
    assert_eq!(start.elapsed().as_secs(), 3);
}

#[tokio::test(start_paused = true)]
async fn the_deadline_covers_the_whole_answer() {
    let stalling = tower::service_fn(|_: Request<Body>| async {
        let first = futures::stream::iter([Ok::<_, BoxError>(http_body::Frame::data(Bytes::from("{")))]);
        let stalled = futures::StreamExt::chain(first, futures::stream::pending());
        Ok::<_, BoxError>(Response::new(http_body_util::StreamBody::new(stalled)))
    });
    let options = ClientOptions { request_timeout: Duration::from_secs(3), ..ClientOptions::new("test") };
    let maps: Api<ConfigMap> = Api::namespaced(crate::layer_client(stalling, &options), "ns");
    let start = Instant::now();
    assert!(maps.create(&PostParams::default(), &named("a")).await.is_err());
    assert_eq!(start.elapsed().as_secs(), 3);
}

#[tokio::test(start_paused = true)]
async fn requests_for_leases_bypass_the_rate_limit() {
    let server = FaultyServer::new();
    let options = ClientOptions { qps: Some(0.1), burst: Some(1), ..ClientOptions::new("test") };
    let client = server.client_with(&options);
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), "ns");
    let leases: Api<Lease> = Api::namespaced(client, "ns");
    let start = Instant::now();
    assert!(maps.get_opt("a").await.expect("an answer").is_none());
    for _ in 0..5 {
        assert!(leases.get_opt("l").await.expect("an answer").is_none());
    }
    assert_eq!(start.elapsed().as_secs(), 0);
    assert!(maps.get_opt("a").await.expect("an answer").is_none());
    assert!((9..=10).contains(&start.elapsed().as_secs()), "{:?}", start.elapsed());
}

#[tokio::test(start_paused = true)]
async fn every_request_has_a_user_agent_and_is_reported() {
    let server = FaultyServer::new();
    server.date("Tue, 14 Nov 2023 22:14:20 GMT");
    let reports = Arc::new(Mutex::new(Vec::new()));
    let observer = {
        let reports = reports.clone();
        move |report: &RequestReport<'_>| {
            let told = format!("{} {} {:?}", report.operation, report.path, report.status);
            reports.lock().expect("unpoisoned").push(told);
        }
    };
    let noon = "2023-11-14T22:13:20Z".parse().expect("a time");
    let clock: SharedClock = Arc::new(TokioClock::starting_at(noon));
    let options = ClientOptions {
        clock,
        observer: Some(Arc::new(observer)),
        ..ClientOptions::new("machinist-machine-controller/1")
    };
    let maps: Api<ConfigMap> = Api::namespaced(server.client_with(&options), "ns");
    assert!(maps.create(&PostParams::default(), &named("a")).await.is_ok());
    assert_eq!(server.seen()[0].user_agent, "machinist-machine-controller/1");
    let told = reports.lock().expect("unpoisoned").clone();
    assert_eq!(told, ["create /api/v1/namespaces/ns/configmaps Some(201)"]);
    let skew = options.skew.at_most(options.clock.now());
    assert!(skew.is_some_and(|skew| Duration::from_secs(30) < skew), "{:?}", options.skew);
}

#[test]
fn watches_are_distinguished_from_reads() {
    let kind = |method: &str, uri: &str| {
        let request = Request::builder().method(method).uri(uri).body(()).expect("a request");
        RequestKind::of(&request)
    };
    assert_eq!(kind("GET", "/api/v1/pods?limit=500"), RequestKind::Read);
    assert_eq!(kind("GET", "/api/v1/pods?watch=true&timeoutSeconds=290"), RequestKind::Watch);
    assert_eq!(kind("GET", "/api/v1/pods?labelSelector=watch%3Dtrue"), RequestKind::Read);
    assert_eq!(kind("DELETE", "/api/v1/pods?watch=true"), RequestKind::Write);
}
