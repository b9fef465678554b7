//! Actions: progress, success, failure, and the locks that they hold.

use std::time::Duration;

use machinist_standin_hcloud::{Busy, Settings};
use serde_json::{Value, json};

use crate::client::{Client, Reply, instant, settings, standin};

/// Creates a network with one action on it, and returns the ids of both.
async fn network_with_action(client: &Client) -> (i64, i64) {
    let body = json!({"name": "n", "ip_range": "10.0.0.0/8"});
    let network = client.post("/v1/networks", body).await.json["network"]["id"].as_i64().expect("an id");
    let reply = add_route(client, network, 1).await;
    (network, reply.json["action"]["id"].as_i64().expect("an id"))
}

async fn add_route(client: &Client, network: i64, number: u8) -> Reply {
    let body =
        json!({"destination": format!("10.244.{number}.0/24"), "gateway": format!("10.0.0.{}", number + 1)});
    client.post(&format!("/v1/networks/{network}/actions/add_route"), body).await
}

#[tokio::test(start_paused = true)]
async fn an_action_progresses_until_its_time() {
    let standin = standin(Settings { action: Duration::from_secs(4), ..settings() });
    let client = Client::new(&standin);
    let (network, action) = network_with_action(&client).await;
    let mut seen = Vec::new();
    for _ in 0..3 {
        let reply = client.get(&format!("/v1/actions/{action}")).await;
        let action = &reply.json["action"];
        seen.push((action["status"].clone(), action["progress"].as_u64().expect("a number")));
        assert_eq!(action["finished"].is_null(), action["status"] == "running");
        assert_eq!(action["resources"], json!([{"id": network, "type": "network"}]));
        tokio::time::sleep(Duration::from_secs(2)).await;
    }
    assert_eq!(seen, [(json!("running"), 0), (json!("running"), 49), (json!("success"), 100)]);
}

#[tokio::test(start_paused = true)]
async fn reads_end_an_action_if_the_settings_say_so() {
    let standin = standin(Settings { action_polls: Some(2), ..settings() });
    let client = Client::new(&standin);
    let (_, action) = network_with_action(&client).await;
    let mut seen = Vec::new();
    for _ in 0..3 {
        let reply = client.get(&format!("/v1/actions?id={action}")).await;
        seen.push(reply.json["actions"][0]["status"].as_str().unwrap_or_default().to_owned());
    }
    assert_eq!(seen, ["running", "running", "success"]);
}

#[tokio::test(start_paused = true)]
async fn an_unknown_id_is_missing_from_the_list() {
    let standin = standin(instant());
    let client = Client::new(&standin);
    let (network, action) = network_with_action(&client).await;
    let reply = client.get(&format!("/v1/actions?id={action}&id=1&sort=status&sort=id")).await;
    let ids: Vec<&Value> =
        reply.json["actions"].as_array().expect("a list").iter().map(|action| &action["id"]).collect();
    assert_eq!(ids, [&json!(action)]);
    assert_eq!(client.get("/v1/actions/1").await.failure(), (404, "not_found"));
    assert_eq!(client.get("/v1/actions?id=x").await.fields(), ["id"]);
    for path in [
        format!("/v1/networks/{network}/actions"),
        "/v1/networks/actions".to_owned(),
        "/v1/networks/actions?status=success".to_owned(),
    ] {
        let reply = client.get(&path).await;
        assert_eq!(reply.json["actions"][0]["command"], "add_route", "{path}: {}", reply.text);
    }
    let path = format!("/v1/networks/{network}/actions/{action}");
    assert_eq!(client.get(&path).await.json["action"]["id"], json!(action));
    let path = format!("/v1/servers/actions/{action}");
    assert_eq!(client.get(&path).await.failure(), (404, "not_found"), "of another sort");
}

#[tokio::test(start_paused = true)]
async fn a_running_action_locks_its_resource() {
    let standin = standin(settings());
    let client = Client::new(&standin);
    let (network, _) = network_with_action(&client).await;
    assert_eq!(add_route(&client, network, 2).await.failure(), (423, "locked"));
    standin.configure(|settings| settings.busy = Busy::Conflict);
    assert_eq!(add_route(&client, network, 2).await.failure(), (409, "conflict"));
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(add_route(&client, network, 2).await.json["action"]["status"], "running");
}

#[tokio::test(start_paused = true)]
async fn a_failed_action_has_an_error_and_no_effect() {
    let standin = standin(instant());
    let client = Client::new(&standin);
    standin.fail_next_action(Some("add_route"), "action_failed", "no capacity");
    let (network, action) = network_with_action(&client).await;
    let reply = client.get(&format!("/v1/actions/{action}")).await;
    assert_eq!(reply.json["action"]["status"], "error");
    assert_eq!(reply.json["action"]["error"], json!({"code": "action_failed", "message": "no capacity"}));
    let routes = &client.get(&format!("/v1/networks/{network}")).await.json["network"]["routes"];
    assert_eq!(*routes, json!([]));
    assert_eq!(add_route(&client, network, 1).await.json["action"]["status"], "success");
}

#[tokio::test(start_paused = true)]
async fn a_failed_deletion_leaves_the_server_running() {
    let standin = standin(instant());
    let client = Client::new(&standin);
    let id = client.server("a").await;
    standin.fail_next_action(None, "action_failed", "try again");
    client.delete(&format!("/v1/servers/{id}")).await;
    assert_eq!(client.get(&format!("/v1/servers/{id}")).await.json["server"]["status"], "running");
}

#[tokio::test(start_paused = true)]
async fn frozen_actions_end_after_the_thaw() {
    let standin = standin(settings());
    let client = Client::new(&standin);
    standin.freeze_actions();
    let (_, action) = network_with_action(&client).await;
    let path = format!("/v1/actions/{action}");
    tokio::time::sleep(Duration::from_secs(3600)).await;
    assert_eq!(client.get(&path).await.json["action"]["status"], "running");
    standin.thaw_actions();
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(client.get(&path).await.json["action"]["status"], "success");
}

#[tokio::test(start_paused = true)]
async fn the_operator_advances_time() {
    let standin = standin(Settings { action: Duration::from_secs(3600), ..settings() });
    let client = Client::new(&standin);
    let (_, action) = network_with_action(&client).await;
    standin.advance(Duration::from_secs(3600));
    let reply = client.get(&format!("/v1/actions/{action}")).await;
    assert_eq!(reply.json["action"]["finished"], "2026-01-01T01:00:00Z");
}
