//! The data folder, dumps, and the list of every server that ever existed.

use std::time::Duration;

use machinist_cloud_sim::Clock;
use machinist_standin_hcloud::{OpenError, Settings, Standin};
use serde_json::json;

use crate::client::{Client, epoch, instant, settings, standin};

fn open(folder: &std::path::Path, settings: Settings) -> Result<Standin, OpenError> {
    Standin::open(folder, settings, Clock::starting_at(epoch()))
}

#[tokio::test(start_paused = true)]
async fn objects_outlive_the_process() {
    let folder = tempfile::tempdir().expect("a folder");
    let first = open(folder.path(), instant()).expect("a new folder");
    let client = Client::new(&first);
    let network = json!({"name": "n", "ip_range": "10.0.0.0/8"});
    client.post("/v1/networks", network).await;
    let deleted = client.server("deleted").await;
    client.server_with("kept", json!({"labels": {"key": "1"}, "user_data": "#cloud-config"})).await;
    client.delete(&format!("/v1/servers/{deleted}")).await;
    let before = first.dump();
    assert!(matches!(open(folder.path(), instant()), Err(OpenError::Machines(_))), "the folder is in use");
    drop((first, client));
    let second = open(folder.path(), instant()).expect("the same folder");
    assert_eq!(second.dump(), before);
    assert_eq!(second.truly_alive("key").len(), 1);
    assert_eq!(second.servers_ever().len(), 2);
    let new = Client::new(&second).server("new").await;
    assert!(before.last_id < new, "identifiers are not used again");
    let machines = second.machines().ledger();
    assert_eq!((machines.ever().len(), machines.alive().count()), (3, 2));
    let kept = machines.ever().iter().find(|entry| entry.name.as_str() == "kept").expect("an entry");
    let user_data = second.machines().user_data(&kept.id).expect("user data");
    assert_eq!(user_data.expose(), b"#cloud-config");
}

#[tokio::test(start_paused = true)]
async fn a_running_action_ends_in_the_next_process() {
    let folder = tempfile::tempdir().expect("a folder");
    let first = open(folder.path(), settings()).expect("a new folder");
    let id = Client::new(&first).server("a").await;
    drop(first);
    let second = open(folder.path(), settings()).expect("the same folder");
    tokio::time::sleep(Duration::from_secs(2)).await;
    let reply = Client::new(&second).get(&format!("/v1/servers/{id}")).await;
    assert_eq!(reply.json["server"]["status"], "running");
}

#[tokio::test(start_paused = true)]
async fn a_partial_last_line_is_left_out() {
    let folder = tempfile::tempdir().expect("a folder");
    let first = open(folder.path(), instant()).expect("a new folder");
    Client::new(&first).server("a").await;
    drop(first);
    let journal = folder.path().join("hcloud.jsonl");
    let mut text = std::fs::read(&journal).expect("read");
    text.extend_from_slice(b"{\"last_id\": 1, \"chan");
    std::fs::write(&journal, &text).expect("written");
    assert_eq!(open(folder.path(), instant()).expect("usable").servers_ever().len(), 1);
    std::fs::write(&journal, "{}\nnonsense\n").expect("written");
    let error = open(folder.path(), instant()).expect_err("damaged");
    assert!(error.to_string().ends_with("damaged in line 2: expected one JSON object"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn a_server_that_was_not_written_has_no_machine() {
    let folder = tempfile::tempdir().expect("a folder");
    let first = open(folder.path(), instant()).expect("a new folder");
    Client::new(&first).server("a").await;
    drop(first);
    // A crash between the two files leaves the same state.
    std::fs::remove_file(folder.path().join("hcloud.jsonl")).expect("removed");
    let second = open(folder.path(), instant()).expect("usable");
    assert_eq!(second.machines().ledger().alive().count(), 0);
    Client::new(&second).server("b").await;
    assert_eq!(second.machines().ledger().alive().count(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_dump_is_loaded_as_it_was() {
    let first = standin(instant());
    let client = Client::new(&first);
    client.server_with("a", json!({"labels": {"key": ""}, "user_data": "secret"})).await;
    let dump = serde_json::to_string(&first.dump()).expect("plain data");
    assert!(!dump.contains("secret"), "{dump}");
    let second = standin(instant());
    second.load(serde_json::from_str(&dump).expect("the same form")).expect("in memory");
    assert_eq!(second.dump(), first.dump());
    assert_eq!(second.truly_alive("key").len(), 1);
    assert_eq!(second.truly_alive("other").len(), 0);
    assert_eq!(second.machines().ledger().alive().count(), 1);
    second.reset().expect("in memory");
    assert_eq!(second.servers_ever().len(), 0);
    assert_eq!(second.machines().ledger().alive().count(), 0);
}
