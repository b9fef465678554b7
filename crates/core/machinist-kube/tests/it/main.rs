//! Tests all parts of this crate together against the embedded API server.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use k8s_openapi::api::core::v1::{ConfigMap, Event, ObjectReference, Pod};
use kube::api::{DeleteParams, ObjectMeta, PostParams, Preconditions};
use kube::{Api, Client};
use machinist_apiserver::{Config, Identity, Server};
use machinist_kube::barrier::{Expect, Settled, WriteKind};
use machinist_kube::eviction;
use machinist_kube::outcome::EvictionOutcome;
use machinist_kube::recorder::EventType;
use machinist_kube::store::RelistPart;
use machinist_kube::{
    Barrier, ClientOptions, Cluster, Delta, Elector, GuardedPatch, LeaseOptions, ObjectKey, Recorder,
    SharedClock, Store, TokioClock, WatchFatal, WatchOptions, WriteOutcome, layer_client, run_watch,
};
use serde_json::{Value, json};
use tokio::time::{sleep, timeout};

const SOON: Duration = Duration::from_millis(200);

fn client(server: &Server) -> Client {
    layer_client(server.service_as(Identity::admin()), &ClientOptions::new("it"))
}

fn maps(server: &Server) -> Api<ConfigMap> {
    Api::namespaced(client(server), "default")
}

fn map(name: &str, value: &str) -> ConfigMap {
    let metadata = ObjectMeta { name: Some(name.into()), ..ObjectMeta::default() };
    ConfigMap {
        metadata,
        data: Some(BTreeMap::from([("value".into(), value.into())])),
        ..ConfigMap::default()
    }
}

async fn create(maps: &Api<ConfigMap>, name: &str, value: &str) -> ConfigMap {
    maps.create(&PostParams::default(), &map(name, value)).await.expect("created")
}

fn uid(map: &ConfigMap) -> String {
    map.metadata.uid.clone().expect("a UID")
}

fn rv(map: &ConfigMap) -> u64 {
    map.metadata.resource_version.as_deref().and_then(|rv| rv.parse().ok()).expect("a number")
}

/// Sends a patch and returns the outcome.
async fn send(maps: &Api<ConfigMap>, name: &str, patch: GuardedPatch) -> WriteOutcome {
    WriteOutcome::of(&maps.patch(name, &Default::default(), &patch.into_kube()).await)
}

#[tokio::test(start_paused = true)]
async fn a_patch_is_stale_if_and_only_if_a_tested_field_changed() {
    let server = Server::new(Config::default());
    let maps = maps(&server);
    let made = create(&maps, "a", "").await;
    let patch = || GuardedPatch::new(&uid(&made));
    let value = ["data", "value"];
    let other = ["data", "other"];
    let write = |patch: GuardedPatch| patch.add(&["data", "written"], json!("1"));

    assert_eq!(send(&maps, "a", write(patch().test(&value, Some(&json!(""))))).await, WriteOutcome::Done);
    assert_eq!(send(&maps, "a", write(patch().test(&other, None))).await, WriteOutcome::Done);
    // Absent and empty differ, in both directions.
    assert_eq!(send(&maps, "a", write(patch().test(&value, None))).await, WriteOutcome::Stale);
    assert_eq!(send(&maps, "a", write(patch().test(&other, Some(&json!(""))))).await, WriteOutcome::Stale);
    assert_eq!(send(&maps, "a", write(GuardedPatch::new("another"))).await, WriteOutcome::Stale);
    assert_eq!(send(&maps, "b", write(patch())).await, WriteOutcome::NotFound);
}

#[tokio::test(start_paused = true)]
async fn missing_metadata_maps_are_created_when_needed() {
    let server = Server::new(Config::default());
    let maps = maps(&server);
    let made = create(&maps, "a", "1").await;
    let first = GuardedPatch::new(&uid(&made))
        .set_label(made.metadata.labels.as_ref(), "machinist.dev/a.b", "x")
        .set_label(made.metadata.labels.as_ref(), "second", "y")
        .set_annotation(made.metadata.annotations.as_ref(), "note", "z")
        .add_finalizer(made.metadata.finalizers.as_deref(), "machinist.dev/ours");
    assert_eq!(send(&maps, "a", first.clone()).await, WriteOutcome::Done);
    assert_eq!(send(&maps, "a", first).await, WriteOutcome::Stale, "the maps exist now");

    let now = maps.get("a").await.expect("the object exists").metadata;
    let labels = now.labels.clone().unwrap_or_default();
    assert_eq!((labels["machinist.dev/a.b"].as_str(), labels["second"].as_str()), ("x", "y"));
    let second = GuardedPatch::new(&uid(&made))
        .remove_label(now.labels.as_ref(), "second")
        .set_annotation(now.annotations.as_ref(), "note", "zz")
        .remove_finalizer(now.finalizers.as_deref(), "machinist.dev/ours");
    assert_eq!(send(&maps, "a", second).await, WriteOutcome::Done);
    let now = maps.get("a").await.expect("the object exists").metadata;
    assert_eq!(now.labels.unwrap_or_default().len(), 1);
    assert_eq!(now.finalizers.unwrap_or_default(), Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn server_answers_have_the_expected_outcomes() {
    let server = Server::new(Config::default());
    let maps = maps(&server);
    let made = create(&maps, "a", "1").await;
    let again = maps.create(&PostParams::default(), &map("a", "2")).await;
    assert_eq!(WriteOutcome::of(&again), WriteOutcome::AlreadyExists);
    let bad_name = maps.create(&PostParams::default(), &map("Not A Name", "2")).await;
    let WriteOutcome::Invalid { causes, .. } = WriteOutcome::of(&bad_name) else { panic!("{bad_name:?}") };
    assert_eq!(causes[0].field, "metadata.name");

    let guarded = |uid: &str| {
        let preconditions = Preconditions { uid: Some(uid.into()), resource_version: None };
        DeleteParams::default().preconditions(preconditions)
    };
    assert_eq!(WriteOutcome::of(&maps.delete("a", &guarded("another")).await), WriteOutcome::Stale);
    assert_eq!(WriteOutcome::of(&maps.delete("a", &guarded(&uid(&made))).await), WriteOutcome::Done);
    assert_eq!(WriteOutcome::of(&maps.delete("a", &guarded(&uid(&made))).await), WriteOutcome::NotFound);
}

#[tokio::test(start_paused = true)]
async fn an_eviction_never_reaches_another_pod_of_the_same_name() {
    let server = Server::new(Config::default());
    let pods: Api<Pod> = Api::namespaced(client(&server), "default");
    let evict = async |name: &str, uid: &str| EvictionOutcome::of(&eviction::evict(&pods, name, uid).await);
    assert_eq!(evict("missing", "u").await, EvictionOutcome::Gone);
    let pod: Pod = serde_json::from_value(json!({
        "metadata": {"name": "p"}, "spec": {"nodeName": "n", "containers": [{"name": "c", "image": "i"}]}
    }))
    .expect("a pod");
    let made = pods.create(&PostParams::default(), &pod).await.expect("created");
    assert_eq!(evict("p", "of-another").await, EvictionOutcome::Gone);
    let held = pods.get("p").await.expect("the object exists");
    assert_eq!(held.metadata.resource_version, made.metadata.resource_version, "the pod was not changed");
    assert_eq!(evict("p", &held.metadata.uid.expect("a UID")).await, EvictionOutcome::Evicted);
    let going = pods.get("p").await.expect("the pod exists during its grace period");
    assert!(going.metadata.deletion_timestamp.is_some());
}

/// A store and a barrier that a watch feeds, as in a controller.
struct Fed {
    store: Store<String>,
    barrier: Barrier<&'static str>,
    woken: Vec<&'static str>,
}

impl Fed {
    fn take_in(&mut self, delta: Delta<String>) {
        let changes = self.store.apply(delta);
        let observed = self.store.observed_rv();
        self.woken.extend(self.barrier.observe(Cluster::Control, "configmaps", observed, &changes));
    }

    fn value(&self, name: &str) -> Option<String> {
        self.store.get(&ObjectKey::new("default", name)).map(|entry| entry.facts.as_ref().clone())
    }
}

fn value_of(map: &ConfigMap) -> String {
    map.data.as_ref().and_then(|data| data.get("value")).cloned().unwrap_or_default()
}

fn watch(api: Api<ConfigMap>) -> (Arc<Mutex<Fed>>, tokio::task::JoinHandle<WatchFatal>) {
    let store =
        Store::new(&[("value", |value: &String, values: &mut Vec<String>| values.push(value.clone()))]);
    let fed = Arc::new(Mutex::new(Fed { store, barrier: Barrier::new(), woken: Vec::new() }));
    let sink = {
        let fed = fed.clone();
        move |delta| fed.lock().expect("unpoisoned").take_in(delta)
    };
    let options =
        WatchOptions { field_selector: Some("metadata.namespace=default".into()), ..Default::default() };
    let task = tokio::spawn(run_watch(api, options, |map: ConfigMap| value_of(&map), sink));
    (fed, task)
}

fn expect_map(name: &str, kind: WriteKind) -> Expect {
    let key = ObjectKey::new("default", name);
    Expect { cluster: Cluster::Control, resource: "configmaps", key, kind, uid: None, unchanged_since: None }
}

#[tokio::test(start_paused = true)]
async fn a_key_is_woken_when_the_store_shows_its_writes() {
    let server = Server::new(Config::default());
    let maps = maps(&server);
    let (fed, task) = watch(maps.clone());
    sleep(SOON).await;
    assert!(fed.lock().expect("unpoisoned").store.synced());

    let charge = fed.lock().expect("unpoisoned").barrier.open(&["set"], expect_map("a", WriteKind::Create));
    let made = create(&maps, "a", "1").await;
    {
        let mut fed = fed.lock().expect("unpoisoned");
        let settled = Settled::Committed { uid: uid(&made), resource_version: rv(&made) };
        let woken = fed.barrier.record_outcome(charge, settled);
        fed.woken.extend(woken);
    }
    sleep(SOON).await;
    {
        let mut fed = fed.lock().expect("unpoisoned");
        assert_eq!(fed.woken.split_off(0), ["set"]);
        assert_eq!(fed.value("a").as_deref(), Some("1"));
    }

    // The answer to a deletion has no resourceVersion.
    let charge = fed.lock().expect("unpoisoned").barrier.open(&["set"], expect_map("a", WriteKind::Delete));
    maps.delete("a", &DeleteParams::default()).await.expect("deleted");
    {
        let mut fed = fed.lock().expect("unpoisoned");
        let woken = fed.barrier.record_outcome(charge, Settled::Deleted { uid: uid(&made) });
        fed.woken.extend(woken);
    }
    sleep(SOON).await;
    assert_eq!(fed.lock().expect("unpoisoned").woken, ["set"]);
    task.abort();
}

#[tokio::test(start_paused = true)]
async fn a_relist_after_a_compaction_misses_no_deletion() {
    let server = Server::new(Config::default());
    let maps = maps(&server);
    create(&maps, "a", "1").await;
    create(&maps, "b", "2").await;
    let (fed, task) = watch(maps.clone());
    sleep(SOON).await;
    task.abort();

    // A second watch feeds the same store, after the first has missed the deletion.
    maps.delete("b", &DeleteParams::default()).await.expect("deleted");
    create(&maps, "c", "3").await;
    server.compact();
    let sink = {
        let fed = fed.clone();
        move |delta| fed.lock().expect("unpoisoned").take_in(delta)
    };
    let again = run_watch(maps, WatchOptions::default(), |map: ConfigMap| value_of(&map), sink);
    let again = tokio::spawn(again);
    sleep(SOON).await;
    let fed = fed.lock().expect("unpoisoned");
    let values = ["a", "b", "c"].map(|name| fed.value(name));
    assert_eq!(values, [Some("1".into()), None, Some("3".into())]);
    again.abort();
}

#[tokio::test(start_paused = true)]
async fn one_quorum_list_replaces_a_watch_that_hangs() {
    let server = Server::new(Config::default());
    let maps = maps(&server);
    let made = create(&maps, "a", "1").await;
    let (fed, task) = watch(maps.clone());
    sleep(SOON).await;
    // The watch hangs: its task no longer reads the stream.
    task.abort();
    let charge = fed.lock().expect("unpoisoned").barrier.open(&["set"], expect_map("a", WriteKind::Delete));
    maps.delete("a", &DeleteParams::default()).await.expect("deleted");
    fed.lock().expect("unpoisoned").barrier.record_outcome(charge, Settled::Deleted { uid: uid(&made) });
    sleep(machinist_kube::barrier::OVERDUE_AFTER).await;
    let overdue = fed.lock().expect("unpoisoned").barrier.overdue();
    assert_eq!(overdue.len(), 1);

    let list = maps.list(&Default::default()).await.expect("a quorum list");
    let resource_version = list.metadata.resource_version.and_then(|rv| rv.parse().ok()).expect("a number");
    let mut fed = fed.lock().expect("unpoisoned");
    let part = RelistPart { index: "value", value: "1".into(), items: Vec::new(), resource_version };
    fed.take_in(Delta::RelistPart(part));
    assert_eq!(fed.value("a"), None);
    assert_eq!(
        fed.barrier.verified(overdue[0].charge),
        Vec::<&str>::new(),
        "the deletion in the list has already closed the charge"
    );
    assert_eq!(fed.woken, ["set"]);
}

#[tokio::test(start_paused = true)]
async fn one_process_leads_and_the_other_takes_over() {
    let server = Server::new(Config::default());
    let epoch = "2026-01-01T00:00:00Z".parse().expect("a time");
    let clock: SharedClock = Arc::new(TokioClock::starting_at(epoch));
    let start = |identity: &str| {
        let options = LeaseOptions::new("default", "machine-controller", identity);
        let (elector, leadership) = Elector::new(client(&server), options, clock.clone());
        (tokio::spawn(elector.run(std::future::pending())), leadership)
    };
    let (one_task, one) = start("one");
    one.acquired().await.expect("no other process competes");
    let (_two_task, two) = start("two");
    sleep(Duration::from_secs(60)).await;
    assert!(one.is_held() && !two.is_held());
    one_task.abort();
    timeout(Duration::from_secs(20), two.acquired())
        .await
        .expect("in time")
        .expect("the first process has ended");
    assert!(!one.is_held());
}

#[tokio::test(start_paused = true)]
async fn repeated_events_are_counted() {
    let server = Server::new(Config::default());
    let made = create(&maps(&server), "a", "1").await;
    let epoch = "2026-01-01T00:00:00Z".parse().expect("a time");
    let recorder = Recorder::new("machinist", "it", Arc::new(TokioClock::starting_at(epoch)));
    let task = tokio::spawn(recorder.clone().run(client(&server), None));
    let object = ObjectReference {
        api_version: Some("v1".into()),
        kind: Some("ConfigMap".into()),
        namespace: Some("default".into()),
        name: Some("a".into()),
        uid: made.metadata.uid,
        ..ObjectReference::default()
    };
    for _ in 0..2 {
        recorder.record(&object, EventType::Normal, "Tested", "again");
        sleep(Duration::from_secs(30)).await;
    }
    let events: Api<Event> = Api::namespaced(client(&server), "default");
    let events = events.list(&Default::default()).await.expect("a list").items;
    let told: Vec<Value> =
        events.iter().map(|event| json!([event.reason, event.count, event.message])).collect();
    assert_eq!(told, [json!(["Tested", 2, "again"])]);
    assert_eq!(recorder.metrics().failed, 0);
    task.abort();
}
