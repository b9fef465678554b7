//! Tests of the Events that reach the embedded server, over a faulty connection.

use serde_json::Value;
use tokio::task::JoinHandle;
use tokio::time::sleep;

use super::*;
use crate::clock::TokioClock;
use crate::faulty_server::{FaultyServer, Seen, Verdict};
use crate::lease::{Elector, LeaseOptions};

const EVENTS: &str = "/api/v1/namespaces/ns/events";

struct Recording {
    recorder: Recorder,
    task: JoinHandle<()>,
}

impl Recording {
    fn start(server: &FaultyServer) -> Self {
        Self::start_with(server, None)
    }

    fn start_with(server: &FaultyServer, leadership: Option<Leadership>) -> Self {
        let recorder = Recorder::new("machinist", "pod-1", clock());
        let task = tokio::spawn(recorder.clone().run(server.client(), leadership));
        Self { recorder, task }
    }

    fn warn(&self, uid: &str, reason: &str, message: &str) {
        self.recorder.record(&machine(uid), EventType::Warning, reason, message);
    }
}

impl Drop for Recording {
    fn drop(&mut self) {
        self.task.abort();
    }
}

fn clock() -> SharedClock {
    Arc::new(TokioClock::starting_at("2026-01-01T00:00:00Z".parse().expect("a time")))
}

fn machine(uid: &str) -> ObjectReference {
    ObjectReference {
        api_version: Some("machine.sapcloud.io/v1alpha1".into()),
        kind: Some("Machine".into()),
        namespace: Some("ns".into()),
        name: Some("m1".into()),
        uid: Some(uid.into()),
        ..ObjectReference::default()
    }
}

/// Events as `reason xCOUNT message`.
fn events(server: &FaultyServer) -> Vec<String> {
    let text = |event: &Value| {
        let (reason, message) = (event["reason"].as_str(), event["message"].as_str());
        format!("{} x{} {}", reason.unwrap_or("-"), event["count"], message.unwrap_or("-"))
    };
    server.objects(EVENTS).iter().map(text).collect()
}

fn patches(server: &FaultyServer) -> usize {
    server.count(|seen: &Seen| seen.method == "PATCH")
}

#[tokio::test(start_paused = true)]
async fn an_event_can_name_a_part_of_the_program() {
    let server = FaultyServer::new();
    let recording = Recording::start(&server);
    let recorder = &recording.recorder;
    recorder.record_by("set-controller", &machine("u1"), EventType::Normal, "SuccessfulCreate", "Created m1");
    sleep(Duration::from_secs(1)).await;
    let event = server.objects(EVENTS).remove(0);
    assert_eq!(event["source"]["component"], "set-controller");
    assert_eq!(event["reportingComponent"], "set-controller");
}

#[tokio::test(start_paused = true)]
async fn an_event_has_what_kubectl_describe_shows() {
    let server = FaultyServer::new();
    let recording = Recording::start(&server);
    recording.warn("u1", "FailedDrain", "pods are left");
    sleep(Duration::from_secs(1)).await;
    let event = server.objects(EVENTS).remove(0);
    assert_eq!(event["involvedObject"]["uid"], "u1");
    assert_eq!(event["type"], "Warning");
    assert_eq!(event["source"]["component"], "machinist");
    assert_eq!(event["reportingInstance"], "pod-1");
    assert_eq!(event["firstTimestamp"], "2026-01-01T00:00:00Z");
    let name = event["metadata"]["name"].as_str().expect("a name");
    assert!(name.starts_with("m1.") && name.len() == 19, "{name}");
}

#[tokio::test(start_paused = true)]
async fn the_name_of_an_event_is_the_same_in_every_run() {
    let name = async || {
        let server = FaultyServer::new();
        let recording = Recording::start(&server);
        recording.warn("u1", "FailedDrain", "pods are left");
        sleep(Duration::from_secs(1)).await;
        server.objects(EVENTS)[0]["metadata"]["name"].clone()
    };
    assert_eq!(name().await, name().await);
}

#[tokio::test(start_paused = true)]
async fn a_loop_produces_few_events_and_few_requests() {
    let server = FaultyServer::new();
    let recording = Recording::start(&server);
    for n in 1..=6_000 {
        recording.warn("u1", "FailedDrain", &format!("attempt {n}"));
        sleep(Duration::from_millis(100)).await;
    }
    assert!((4..=8).contains(&patches(&server)), "{}", patches(&server));
    sleep(SLOWEST_REPEAT).await;
    let told = events(&server);
    assert_eq!(told.len(), 11, "{told:?}");
    let combined = "FailedDrain x5990 (combined from similar events): attempt 6000".to_owned();
    assert!(told.contains(&combined), "{told:?}");
}

/// A set says for each Machine that it was created.
#[tokio::test(start_paused = true)]
async fn messages_about_different_things_are_events_of_their_own() {
    let server = FaultyServer::new();
    let recording = Recording::start(&server);
    for name in ["a", "b", "a", "c"] {
        recording.warn("u1", "SuccessfulCreate", &format!("Created Machine {name}"));
        sleep(Duration::from_secs(1)).await;
    }
    sleep(FIRST_REPEAT).await;
    let mut told = events(&server);
    told.sort();
    let created = |name: &str, count: u32| format!("SuccessfulCreate x{count} Created Machine {name}");
    assert_eq!(told, [created("b", 1), created("c", 1), created("a", 2)]);
}

#[tokio::test(start_paused = true)]
async fn each_reason_and_object_has_its_own_event() {
    let server = FaultyServer::new();
    let recording = Recording::start(&server);
    recording.warn("u1", "A", "1");
    recording.warn("u1", "B", "2");
    recording.warn("u2", "A", "3");
    sleep(Duration::from_secs(1)).await;
    let mut told = events(&server);
    told.sort();
    assert_eq!(told, ["A x1 1", "A x1 3", "B x1 2"]);
}

#[tokio::test(start_paused = true)]
async fn a_quiet_series_ends_and_the_next_event_is_new() {
    let server = FaultyServer::new();
    let recording = Recording::start(&server);
    recording.warn("u1", "A", "then");
    sleep(SERIES_ENDS_AFTER + Duration::from_secs(1)).await;
    assert_eq!(recording.recorder.lock().series.len(), 0);
    recording.warn("u1", "A", "now");
    sleep(Duration::from_secs(1)).await;
    assert_eq!(server.objects(EVENTS).len(), 2);
}

#[tokio::test(start_paused = true)]
async fn an_event_with_a_lost_answer_is_not_created_twice() {
    let server = FaultyServer::new();
    let recording = Recording::start(&server);
    server.hook(|_| Verdict::ServeThenAnswer(504));
    recording.warn("u1", "A", "again");
    sleep(Duration::from_secs(1)).await;
    server.hook(|_| Verdict::Pass);
    recording.warn("u1", "A", "again");
    sleep(FIRST_REPEAT + Duration::from_secs(1)).await;
    assert_eq!(events(&server), ["A x2 again"]);
}

#[tokio::test(start_paused = true)]
async fn a_restart_within_a_second_continues_the_event() {
    let server = FaultyServer::new();
    let first = Recording::start(&server);
    first.warn("u1", "A", "in both lives");
    sleep(Duration::from_millis(100)).await;
    drop(first);
    let second = Recording::start(&server);
    second.warn("u1", "A", "in both lives");
    sleep(Duration::from_millis(100)).await;
    assert_eq!(events(&server), ["A x1 in both lives"]);
}

#[tokio::test(start_paused = true)]
async fn an_event_that_the_server_deleted_is_recreated() {
    let server = FaultyServer::new();
    let recording = Recording::start(&server);
    recording.warn("u1", "A", "again");
    sleep(Duration::from_secs(1)).await;
    let name = server.objects(EVENTS)[0]["metadata"]["name"].as_str().expect("a name").to_owned();
    server.delete(&format!("{EVENTS}/{name}")).await;
    recording.warn("u1", "A", "again");
    sleep(FIRST_REPEAT).await;
    assert_eq!(events(&server), ["A x2 again"]);
}

#[tokio::test(start_paused = true)]
async fn memory_and_request_rate_are_limited() {
    let server = FaultyServer::new();
    let recording = Recording::start(&server);
    for n in 0..MAX_SERIES + 50 {
        recording.warn(&format!("u{n}"), "A", "many");
    }
    assert_eq!(recording.recorder.metrics().dropped, 50);
    sleep(Duration::from_secs(10)).await;
    let sent = server.seen().len();
    assert!((100..=151).contains(&sent), "{sent} requests in 10 s");
}

#[tokio::test(start_paused = true)]
async fn long_messages_are_cut_between_characters() {
    let server = FaultyServer::new();
    let recording = Recording::start(&server);
    recording.warn("u1", "A", &"\u{e9}".repeat(1_000));
    sleep(Duration::from_secs(1)).await;
    let message = server.objects(EVENTS)[0]["message"].as_str().expect("a message").len();
    assert_eq!(message, MAX_MESSAGE_BYTES);
}

/// As with a process that was suspended, and wakes up when another process leads.
#[tokio::test(start_paused = true)]
async fn a_process_without_its_lease_sends_no_event() {
    let (server, leases) = (FaultyServer::new(), FaultyServer::new());
    let options = LeaseOptions::new("ns", "lease", "one");
    let (elector, leadership) = Elector::new(leases.client(), options, clock());
    let election = tokio::spawn(elector.run(std::future::pending()));
    leadership.acquired().await.expect("the Lease is free");
    let recording = Recording::start_with(&server, Some(leadership));
    recording.warn("u1", "FailedDrain", "pods are left");
    sleep(Duration::from_secs(1)).await;
    assert_eq!(events(&server), ["FailedDrain x1 pods are left"]);
    // The Lease is no longer renewed.
    election.abort();
    recording.warn("u1", "FailedDrain", "pods are left");
    recording.warn("u2", "FailedDrain", "pods are left");
    tokio::time::advance(Duration::from_secs(20)).await;
    sleep(Duration::from_secs(600)).await;
    assert_eq!(events(&server), ["FailedDrain x1 pods are left"]);
}
