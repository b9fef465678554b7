//! The simulated cloud that boots the servers.

use std::time::Duration;

use machinist_cloud_sim::LedgerCommit;
use serde_json::json;

use crate::client::{Client, settings, standin};

#[tokio::test(start_paused = true)]
async fn a_machine_has_power_while_its_server_runs() {
    let standin = standin(settings());
    let client = Client::new(&standin);
    let mut following = standin.machines().follow();
    let id = client.server_with("a", json!({"user_data": "#cloud-config", "location": "hel1"})).await;
    tokio::time::sleep(Duration::from_secs(3)).await;
    client.post(&format!("/v1/servers/{id}/actions/poweroff"), json!({})).await;
    tokio::time::sleep(Duration::from_secs(2)).await;
    client.post(&format!("/v1/servers/{id}/actions/poweron"), json!({})).await;
    tokio::time::sleep(Duration::from_secs(2)).await;
    client.delete(&format!("/v1/servers/{id}")).await;
    tokio::time::sleep(Duration::from_secs(2)).await;
    let mut seen = Vec::new();
    while let Ok(commit) = following.commits.try_recv() {
        seen.push(match &*commit {
            LedgerCommit::Made { entry } => {
                assert_eq!(entry.id.as_str(), format!("hcloud://{id}"));
                assert_eq!((entry.name.as_str(), entry.region.as_str()), ("a", "hel1"));
                assert_eq!(entry.boots(), None, "no power before the server runs");
                "made"
            }
            LedgerCommit::Started { .. } => "started",
            LedgerCommit::Stopped { .. } => "stopped",
            LedgerCommit::Gone { .. } => "gone",
            other => panic!("{other:?}"),
        });
    }
    assert_eq!(seen, ["made", "started", "stopped", "started", "stopped", "gone"]);
}

#[tokio::test(start_paused = true)]
async fn a_server_boots_without_further_requests() {
    let standin = standin(settings());
    let id = Client::new(&standin).server("a").await;
    let mut following = standin.machines().follow();
    let commit = following.commits.recv().await.expect("a commit");
    assert!(
        matches!(&*commit, LedgerCommit::Started { id: started, .. } if started.as_str() == format!("hcloud://{id}"))
    );
    let waited = standin.now().duration_since(crate::client::epoch());
    assert_eq!(waited.as_secs(), 2, "one second initializing, one second starting");
}

#[tokio::test(start_paused = true)]
async fn a_machine_prints_on_the_console_of_its_server() {
    let standin = standin(settings());
    let id = Client::new(&standin).server("a").await;
    let machine = standin.machines().ledger().ever()[0].id.clone();
    standin.machines().print(&machine, "booting");
    assert_eq!(standin.console(id, 10), ["booting"]);
}
