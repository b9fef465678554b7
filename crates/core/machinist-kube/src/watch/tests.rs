//! Tests of all failures of a list or a watch, against the embedded server over a faulty
//! connection.

use std::sync::Mutex;

use k8s_openapi::api::core::v1::ConfigMap;
use serde_json::json;
use tokio::task::JoinHandle;
use tokio::time::sleep;

use super::*;
use crate::faulty_server::{Backup, FaultyServer, Seen, Verdict};
use crate::store::Store;

const MAPS: &str = "/api/v1/namespaces/ns/configmaps";
/// The data of an object that the server knows and the process cannot parse.
const UNREADABLE: &str = "{\"value\":\"unreadable\"}";
const SOON: Duration = Duration::from_millis(100);

fn path(name: &str) -> String {
    format!("{MAPS}/{name}")
}

fn map(value: &str) -> serde_json::Value {
    json!({ "data": { "value": value } })
}

/// A watch that feeds a store, with the reported changes and notes.
struct Watched {
    store: Arc<Mutex<Store<String>>>,
    changes: Arc<Mutex<Vec<String>>>,
    notes: Arc<Mutex<Vec<WatchNote>>>,
    task: JoinHandle<WatchFatal>,
}

fn value(map: ConfigMap) -> String {
    map.data.unwrap_or_default().remove("value").unwrap_or_default()
}

/// Applies a delta, and records the changes.
fn apply(store: &Mutex<Store<String>>, changes: &Mutex<Vec<String>>, delta: Delta<String>) {
    for change in store.lock().expect("unpoisoned").apply(delta) {
        let side = |side: &Option<Arc<String>>| side.as_deref().map_or("-".into(), String::clone);
        let told = format!("{} {}>{}", change.key.name, side(&change.old), side(&change.new));
        changes.lock().expect("unpoisoned").push(told);
    }
}

impl Watched {
    fn start(server: &FaultyServer) -> Self {
        Self::start_seeded(server, 1)
    }

    fn start_seeded(server: &FaultyServer, seed: u64) -> Self {
        let store = Arc::new(Mutex::new(Store::new(&[])));
        let relist = Some(store.lock().expect("unpoisoned").relist_signal());
        let changes = Arc::new(Mutex::new(Vec::new()));
        let notes = Arc::new(Mutex::new(Vec::new()));
        let observer = {
            let notes = notes.clone();
            move |note| notes.lock().expect("unpoisoned").push(note)
        };
        let observer: Option<Arc<dyn Fn(WatchNote) + Send + Sync>> = Some(Arc::new(observer));
        let options = WatchOptions { seed, observer, relist, ..WatchOptions::default() };
        let sink = {
            let (store, changes) = (store.clone(), changes.clone());
            move |delta| apply(&store, &changes, delta)
        };
        let api: Api<ConfigMap> = Api::namespaced(server.client(), "ns");
        let task = tokio::spawn(run_watch(api, options, value, sink));
        Self { store, changes, notes, task }
    }

    /// Lists the kind as for a deadline that is due.
    async fn list_once(&self, server: &FaultyServer) {
        let api: Api<ConfigMap> = Api::namespaced(server.client(), "ns");
        let list = list_once(api, &ListParams::default(), value).await.expect("listed");
        apply(&self.store, &self.changes, Delta::ListedOnce(list));
    }

    /// The changes since the last call.
    fn changes(&self) -> Vec<String> {
        std::mem::take(&mut self.changes.lock().expect("unpoisoned"))
    }

    fn observed_rv(&self) -> u64 {
        self.store.lock().expect("unpoisoned").observed_rv()
    }

    fn notes(&self) -> Vec<WatchNote> {
        self.notes.lock().expect("unpoisoned").clone()
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        self.task.abort();
    }
}

#[tokio::test(start_paused = true)]
async fn a_watch_lists_first_and_then_follows() {
    let server = FaultyServer::new();
    server.put(&path("a"), map("1")).await;
    let watched = Watched::start(&server);
    sleep(SOON).await;
    assert_eq!(watched.changes(), ["a ->1"]);
    server.put(&path("b"), map("2")).await;
    server.put(&path("a"), map("3")).await;
    server.delete(&path("b")).await;
    sleep(SOON).await;
    assert_eq!(watched.changes(), ["b ->2", "a 1>3", "b 2>-"]);
    assert_eq!(server.count(Seen::is_list), 1);
}

#[tokio::test(start_paused = true)]
async fn a_bookmark_moves_the_observed_version() {
    let server = FaultyServer::new();
    let watched = Watched::start(&server);
    sleep(SOON).await;
    server.send("{\"type\":\"BOOKMARK\",\"object\":{\"metadata\":{\"resourceVersion\":\"777\"}}}\n");
    sleep(SOON).await;
    assert_eq!(watched.observed_rv(), 777);
}

#[tokio::test(start_paused = true)]
async fn a_relist_finds_a_deletion_during_an_outage() {
    let server = FaultyServer::new();
    server.put(&path("a"), map("1")).await;
    server.put(&path("b"), map("2")).await;
    let watched = Watched::start(&server);
    sleep(SOON).await;
    watched.changes();
    server.hook(|_| Verdict::Refuse);
    server.close_watches();
    server.delete(&path("b")).await;
    sleep(Duration::from_secs(5)).await;
    assert_eq!(watched.changes(), Vec::<String>::new());
    server.compact();
    server.hook(|_| Verdict::Pass);
    sleep(Duration::from_secs(60)).await;
    assert_eq!(watched.changes(), ["b 2>-"]);
}

/// A restarted server no longer has the old events, and its clients have waited long enough.
#[tokio::test(start_paused = true)]
async fn seconds_after_an_outage_the_store_is_up_to_date() {
    let server = FaultyServer::new();
    server.put(&path("a"), map("1")).await;
    let watched = Watched::start(&server);
    sleep(Duration::from_secs(60)).await;
    watched.changes();
    server.hook(|_| Verdict::Refuse);
    server.close_watches();
    sleep(Duration::from_secs(600)).await;
    server.put(&path("a"), map("2")).await;
    server.compact();
    server.hook(|_| Verdict::Pass);
    sleep(NO_SERVER_CAP + Duration::from_secs(2)).await;
    assert_eq!(watched.changes(), ["a 1>2"]);
}

#[tokio::test(start_paused = true)]
async fn an_http_410_leads_to_a_relist() {
    let server = FaultyServer::new();
    server.put(&path("a"), map("1")).await;
    let watched = Watched::start(&server);
    sleep(Duration::from_secs(60)).await;
    let mut goes_wrong = true;
    server.hook(move |seen| {
        if seen.is_watch() && std::mem::take(&mut goes_wrong) { Verdict::Answer(410) } else { Verdict::Pass }
    });
    server.put(&path("a"), map("2")).await;
    server.close_watches();
    sleep(SOON).await;
    assert_eq!(watched.changes(), ["a ->1", "a 1>2"]);
    assert_eq!(server.count(Seen::is_list), 2, "the watch lists again at once, and only once");
    server.put(&path("a"), map("3")).await;
    sleep(SOON).await;
    assert_eq!(watched.changes(), ["a 2>3"]);
}

#[tokio::test(start_paused = true)]
async fn a_410_within_the_stream_leads_to_a_relist() {
    let server = FaultyServer::new();
    server.put(&path("a"), map("1")).await;
    let watched = Watched::start(&server);
    sleep(Duration::from_secs(60)).await;
    let status =
        "{\"type\":\"ERROR\",\"object\":{\"kind\":\"Status\",\"code\":410,\"reason\":\"Expired\"}}\n";
    server.send(status);
    server.close_watches();
    server.put(&path("a"), map("2")).await;
    sleep(SOON).await;
    assert_eq!(watched.changes(), ["a ->1", "a 1>2"]);
    assert_eq!(server.count(Seen::is_list), 2);
}

#[tokio::test(start_paused = true)]
async fn repeated_410_answers_lead_to_rarer_lists() {
    let server = FaultyServer::new();
    server.hook(|seen| if seen.is_watch() { Verdict::Answer(410) } else { Verdict::Pass });
    let _watched = Watched::start(&server);
    sleep(Duration::from_secs(3600)).await;
    let lists = server.count(Seen::is_list);
    assert!((100..200).contains(&lists), "{lists} lists in an hour");
}

#[tokio::test(start_paused = true)]
async fn streams_that_close_at_once_are_resumed_slowly() {
    let server = FaultyServer::new();
    server.hook(|seen| if seen.is_watch() { Verdict::Stream("") } else { Verdict::Pass });
    let _watched = Watched::start(&server);
    sleep(Duration::from_secs(60)).await;
    let watches = server.count(Seen::is_watch);
    assert!((5..=30).contains(&watches), "{watches} watches in a minute");
}

#[tokio::test(start_paused = true)]
async fn only_a_watch_that_stays_open_is_noted_as_open() {
    let server = FaultyServer::new();
    server.hook(|seen| if seen.is_watch() { Verdict::Stream("") } else { Verdict::Pass });
    let watched = Watched::start(&server);
    sleep(Duration::from_secs(60)).await;
    let failures = watched.notes().iter().filter(|note| matches!(note, WatchNote::Retrying { .. })).count();
    assert!(1 < failures, "{failures} failures in a minute");
    assert!(!watched.notes().contains(&WatchNote::Opened));

    server.hook(|_| Verdict::Pass);
    sleep(Duration::from_secs(60)).await;
    let opened = watched.notes().iter().filter(|note| **note == WatchNote::Opened).count();
    assert_eq!((watched.notes().last(), opened), (Some(&WatchNote::Opened), 1));
}

#[tokio::test(start_paused = true)]
async fn the_code_of_an_answer_tells_what_is_missing() {
    for (code, is_missing, answers) in [(404, true, true), (403, false, true), (503, false, false)] {
        let server = FaultyServer::new();
        server.hook(move |_| Verdict::Answer(code));
        let watched = Watched::start(&server);
        sleep(Duration::from_secs(60)).await;
        let notes = watched.notes();
        let Some(WatchNote::Retrying { kind_is_missing, server_answers, error, .. }) = notes.last() else {
            panic!("{code}: {notes:?}");
        };
        assert_eq!((*kind_is_missing, *server_answers), (is_missing, answers), "{code}");
        assert!(!error.contains("404"), "{error}");
    }
}

#[tokio::test(start_paused = true)]
async fn streams_that_end_after_each_event_make_progress_slowly() {
    let server = FaultyServer::new();
    server.put(&path("a"), map("0")).await;
    let watched = Watched::start(&server);
    sleep(SOON).await;
    server.forget_seen();
    for n in 1..=600 {
        server.put(&path("a"), map(&n.to_string())).await;
        server.close_watches();
        sleep(SOON).await;
    }
    let watches = server.count(Seen::is_watch);
    assert!((25..=60).contains(&watches), "{watches} watches in a minute");
    sleep(PROGRESS_CAP * 2).await;
    assert_eq!(watched.changes().last().map(String::as_str), Some("a 599>600"));
    assert_eq!(server.count(Seen::is_list), 0);
}

#[tokio::test(start_paused = true)]
async fn a_lasting_stream_resets_the_backoff() {
    let server = FaultyServer::new();
    let watched = Watched::start(&server);
    sleep(SOON).await;
    server.hook(|_| Verdict::Refuse);
    server.close_watches();
    sleep(Duration::from_secs(600)).await;
    server.hook(|_| Verdict::Pass);
    sleep(Duration::from_secs(120)).await;

    server.hook(|_| Verdict::Refuse);
    server.close_watches();
    sleep(SOON).await;
    server.hook(|_| Verdict::Pass);
    server.put(&path("a"), map("1")).await;
    sleep(Duration::from_secs(1)).await;
    assert_eq!(watched.changes(), ["a ->1"]);
}

#[tokio::test(start_paused = true)]
async fn half_a_line_is_dropped_and_read_again() {
    let server = FaultyServer::new();
    let watched = Watched::start(&server);
    sleep(SOON).await;
    server.send("{\"type\":\"ADDED\",\"object\":{\"meta");
    server.close_watches();
    server.put(&path("a"), map("1")).await;
    sleep(Duration::from_secs(1)).await;
    assert_eq!(watched.changes(), ["a ->1"]);
}

#[tokio::test(start_paused = true)]
async fn a_stalled_stream_is_reopened() {
    let server = FaultyServer::new();
    let mut goes_wrong = true;
    server.hook(move |seen| {
        if seen.is_watch() && std::mem::take(&mut goes_wrong) { Verdict::Stall } else { Verdict::Pass }
    });
    let watched = Watched::start(&server);
    sleep(Duration::from_secs(240)).await;
    assert_eq!(server.count(Seen::is_watch), 1);
    sleep(Duration::from_secs(140)).await;
    assert_eq!(server.count(Seen::is_watch), 2);
    server.put(&path("a"), map("1")).await;
    sleep(SOON).await;
    assert_eq!(watched.changes(), ["a ->1"]);
}

#[tokio::test(start_paused = true)]
async fn an_unanswered_watch_is_reopened() {
    let server = FaultyServer::new();
    let mut goes_wrong = true;
    server.hook(move |seen| {
        if seen.is_watch() && std::mem::take(&mut goes_wrong) { Verdict::Hang } else { Verdict::Pass }
    });
    let watched = Watched::start(&server);
    sleep(OPEN_TIMEOUT + Duration::from_secs(1)).await;
    server.put(&path("a"), map("1")).await;
    sleep(SOON).await;
    assert_eq!(watched.changes(), ["a ->1"]);
}

/// A server with object `a`, a backup of it, and a watch that has seen later changes. Every API
/// server is stopped during a restore.
async fn before_a_restore() -> (FaultyServer, Watched, Backup) {
    let server = FaultyServer::new();
    server.put(&path("a"), map("old")).await;
    let backup = server.backup(MAPS);
    let watched = Watched::start(&server);
    sleep(SOON).await;
    for n in 0..5 {
        server.put(&path("a"), map(&n.to_string())).await;
    }
    server.put(&path("b"), map("new")).await;
    sleep(SOON).await;
    watched.changes();
    (server, watched, backup)
}

/// Changes an object in another namespace until the resourceVersion is higher than before the
/// restore.
async fn pass_the_lost_versions(server: &FaultyServer) {
    for n in 0..20 {
        server.put("/api/v1/namespaces/default/configmaps/other", map(&n.to_string())).await;
    }
}

#[tokio::test(start_paused = true)]
async fn after_a_restore_the_watch_lists_the_restored_state() {
    let (server, watched, backup) = before_a_restore().await;
    sleep(SHORT_STREAM).await;
    server.hook(|_| Verdict::Refuse);
    let rv = server.restore(&backup);
    sleep(SOON).await;
    server.hook(|_| Verdict::Pass);
    sleep(Duration::from_secs(10)).await;
    assert_eq!(watched.changes(), ["a 4>old", "b new>-"]);
    assert_eq!(watched.observed_rv(), rv);
    server.put(&path("b"), map("next")).await;
    sleep(SOON).await;
    assert_eq!(watched.changes(), ["b ->next"]);
}

/// A real API server sends nothing to a watch that is ahead of it.
#[tokio::test(start_paused = true)]
async fn a_list_shows_a_restore_to_a_silent_watch() {
    let (server, watched, backup) = before_a_restore().await;
    sleep(SHORT_STREAM).await;
    let rv = server.restore(&backup);
    sleep(FRESH_FOR * 2).await;
    assert_eq!(watched.changes(), Vec::<String>::new());
    assert!(!watched.store.lock().expect("unpoisoned").is_fresh());
    watched.list_once(&server).await;
    sleep(SOON).await;
    assert_eq!(watched.changes(), ["a 4>old", "b new>-"]);
    assert_eq!(watched.observed_rv(), rv);
    assert!(watched.store.lock().expect("unpoisoned").is_fresh());
}

#[tokio::test(start_paused = true)]
async fn a_list_shows_a_restore_after_the_old_version() {
    let (server, watched, backup) = before_a_restore().await;
    sleep(SHORT_STREAM).await;
    server.restore(&backup);
    pass_the_lost_versions(&server).await;
    sleep(FRESH_FOR * 2).await;
    watched.list_once(&server).await;
    sleep(SOON).await;
    assert_eq!(watched.changes(), ["a 4>old", "b new>-"]);
}

/// The first event after the lost versions does not show the changes before it.
#[tokio::test(start_paused = true)]
async fn an_event_after_a_silence_leads_to_a_relist() {
    let (server, watched, backup) = before_a_restore().await;
    sleep(SHORT_STREAM).await;
    server.restore(&backup);
    // Longer than one stream, so that the next stream is young when the event arrives.
    sleep(SERVER_TIMEOUT * 2).await;
    pass_the_lost_versions(&server).await;
    for n in 0..20 {
        server.put(&path("c"), map(&n.to_string())).await;
    }
    sleep(SOON).await;
    assert_eq!(watched.changes(), ["a 4>old", "b new>-", "c ->19"]);
}

#[tokio::test(start_paused = true)]
async fn an_unreadable_object_is_reported_without_its_content() {
    let server = FaultyServer::new();
    server.alter(UNREADABLE, "\"s3cr3t \\\"canary\\\"\"");
    server.put(&path("a"), map("1")).await;
    let watched = Watched::start(&server);
    sleep(SOON).await;
    server.put(&path("a"), map("unreadable")).await;
    server.put(&path("b"), map("2")).await;
    sleep(SOON).await;
    assert_eq!(watched.changes(), ["a ->1", "b ->2"]);
    let key = ObjectKey::new("ns", "a");
    assert!(watched.store.lock().expect("unpoisoned").is_unreadable(&key));
    let notes = watched.notes();
    let told =
        notes.iter().find(|note| matches!(note, WatchNote::Undecodable { key: Some(k), .. } if *k == key));
    let told = format!("{told:?}");
    assert!(told.contains("invalid type: string") && !told.contains("canary"), "{told}");

    // A relist must not treat the object as deleted either.
    server.compact();
    server.close_watches();
    server.hook(|seen| if seen.is_watch() { Verdict::Answer(410) } else { Verdict::Pass });
    sleep(Duration::from_secs(30)).await;
    assert!(1 < server.count(Seen::is_list));
    assert_eq!(watched.changes(), Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn an_expired_continue_token_restarts_the_list() {
    let server = FaultyServer::new();
    for n in 0..1_200 {
        server.put(&path(&format!("m{n:04}")), map("1")).await;
    }
    let mut expired = 1;
    server.hook(move |seen| {
        let is_next_page = seen.uri.query().is_some_and(|query| query.contains("continue="));
        if is_next_page && 0 < expired {
            expired -= 1;
            Verdict::Answer(410)
        } else {
            Verdict::Pass
        }
    });
    let watched = Watched::start(&server);
    sleep(SOON).await;
    assert_eq!(watched.changes().len(), 1_200);
    assert_eq!(server.count(Seen::is_list), 2 + 3);
    let listed = WatchNote::Listed { objects: 1_200 };
    let notes = watched.notes.lock().expect("unpoisoned").clone();
    assert!(notes.contains(&listed), "the first page is in the list once: {notes:?}");
}

#[tokio::test(start_paused = true)]
async fn a_list_with_tokens_that_always_expire_is_not_paged() {
    let server = FaultyServer::new();
    for n in 0..600 {
        server.put(&path(&format!("m{n:04}")), map("1")).await;
    }
    server.hook(|seen| {
        if seen.uri.query().is_some_and(|query| query.contains("continue=")) {
            Verdict::Answer(410)
        } else {
            Verdict::Pass
        }
    });
    let watched = Watched::start(&server);
    sleep(SOON).await;
    assert_eq!(watched.changes().len(), 600);
}

#[tokio::test(start_paused = true)]
async fn a_request_that_can_never_succeed_ends_the_watch() {
    let server = FaultyServer::new();
    server.hook(|_| Verdict::Answer(400));
    let api: Api<ConfigMap> = Api::namespaced(server.client(), "ns");
    let fatal = run_watch(api, WatchOptions::default(), drop::<ConfigMap>, |_| {}).await;
    assert!(fatal.to_string().contains("configmaps"), "{fatal}");
}

#[tokio::test(start_paused = true)]
async fn waits_depend_only_on_the_seed() {
    let run = async |seed| {
        let server = FaultyServer::new();
        server.hook(|_| Verdict::Refuse);
        let _watched = Watched::start_seeded(&server, seed);
        let start = Instant::now();
        sleep(Duration::from_secs(300)).await;
        server.seen().iter().map(|seen| seen.at - start).collect::<Vec<_>>()
    };
    let first = run(7).await;
    assert_eq!(first, run(7).await);
    assert_ne!(first, run(8).await);
}

#[tokio::test]
async fn a_single_list_names_unreadable_objects() {
    let server = FaultyServer::new();
    server.alter(UNREADABLE, "\"no map\"");
    server.put(&path("a"), map("unreadable")).await;
    server.put(&path("b"), map("2")).await;
    let api: Api<ConfigMap> = Api::namespaced(server.client(), "ns");
    let list = list_once(api, &ListParams::default(), value).await.expect("listed");
    let read: Vec<_> =
        list.items.iter().map(|(key, entry)| (key.name.as_str(), entry.facts.as_str())).collect();
    assert_eq!(read, [("b", "2")]);
    let unreadable: Vec<_> = list.unreadable.into_iter().map(|(key, _)| key).collect();
    assert_eq!(unreadable, [ObjectKey::new("ns", "a")]);
}

#[tokio::test(start_paused = true)]
async fn data_after_a_long_silence_is_not_believed() {
    let server = FaultyServer::new();
    server.put(&path("a"), map("1")).await;
    let watched = Watched::start(&server);
    sleep(SOON).await;
    watched.changes();
    let (lists, watches) = (server.count(Seen::is_list), server.count(Seen::is_watch));
    sleep(FRESH_FOR + SOON).await;
    assert!(!watched.store.lock().expect("unpoisoned").is_fresh());
    // The line may have waited in a buffer, so a list shows the present state.
    server.send("{\"type\":\"BOOKMARK\",\"object\":{\"metadata\":{\"resourceVersion\":\"777\"}}}\n");
    let rv = server.put(&path("a"), map("2")).await;
    sleep(SOON).await;
    assert_eq!((watched.changes(), watched.observed_rv()), (vec!["a 1>2".to_owned()], rv));
    assert!(watched.store.lock().expect("unpoisoned").is_fresh());
    assert_eq!((server.count(Seen::is_list), server.count(Seen::is_watch)), (lists + 1, watches + 1));
}
