//! Servers: their life, fields, lists and errors.

use std::time::Duration;

use http::StatusCode;
use machinist_standin_hcloud::{LargePages, ReadOnlyCode, Settings};
use serde_json::{Value, json};

use crate::client::{Client, READ_ONLY, instant, names, settings, standin};

#[tokio::test(start_paused = true)]
async fn a_new_server_becomes_running_over_time() {
    let standin = standin(settings());
    let client = Client::new(&standin);
    let body = json!({
        "name": "a", "server_type": "cx22", "image": "ubuntu-24.04", "location": "nbg1",
        "labels": {"role": "worker"}, "user_data": "#cloud-config\n",
    });
    let reply = client.post("/v1/servers", body).await;
    assert_eq!(reply.status, StatusCode::CREATED);
    assert_eq!(reply.json["server"]["status"], "initializing");
    assert_eq!(reply.json["action"]["command"], "create_server");
    assert_eq!(reply.json["action"]["status"], "running");
    assert_eq!(reply.json["next_actions"][0]["command"], "start_server");
    let id = reply.json["server"]["id"].as_i64().expect("an id");
    let mut seen = Vec::new();
    for _ in 0..3 {
        let reply = client.get(&format!("/v1/servers/{id}")).await;
        seen.push(reply.json["server"]["status"].as_str().unwrap_or_default().to_owned());
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    assert_eq!(seen, ["initializing", "starting", "running"]);
}

#[tokio::test(start_paused = true)]
async fn a_server_has_the_documented_fields() {
    let standin = standin(instant());
    let client = Client::new(&standin);
    let id = client.server_with("a", json!({"location": "ash", "labels": {"role": "worker"}})).await;
    assert!(i64::from(u32::MAX) < id, "{id}");
    let server = client.get(&format!("/v1/servers/{id}")).await.json["server"].clone();
    assert_eq!(server["name"], "a");
    assert_eq!(server["status"], "running");
    assert_eq!(server["server_type"]["name"], "cx22");
    assert_eq!(server["image"]["name"], "ubuntu-24.04");
    assert_eq!(server["location"]["name"], "ash");
    assert_eq!(server["location"]["network_zone"], "us-east");
    assert_eq!(server["labels"], json!({"role": "worker"}));
    assert_eq!(server["public_net"]["ipv4"]["ip"], "198.18.0.1");
    let ipv6 = server["public_net"]["ipv6"]["ip"].as_str().expect("an address");
    assert!(ipv6.starts_with("2001:db8:") && ipv6.ends_with("::/64"), "{ipv6}");
    assert_eq!(server["locked"], false);
    assert_eq!(server["created"], "2026-01-01T00:00:00Z");
    assert_eq!(server["private_net"], json!([]));
    assert_eq!(server.get("datacenter"), None, "the field was removed");
    assert!(server.get("stand_in").is_some(), "a field that no client knows");

    standin.configure(|settings| settings.datacenter = true);
    let old = client.get(&format!("/v1/servers/{id}")).await;
    assert_eq!(old.json["server"]["datacenter"]["name"], "ash-dc1");
    assert_eq!(old.json["server"]["datacenter"]["location"]["name"], "ash");
}

#[tokio::test(start_paused = true)]
async fn public_addresses_can_be_absent() {
    let standin = standin(instant());
    let client = Client::new(&standin);
    let id = client.server_with("a", json!({"public_net": {"enable_ipv4": false}})).await;
    let server = client.get(&format!("/v1/servers/{id}")).await.json["server"].clone();
    assert_eq!(server["public_net"]["ipv4"], Value::Null);
    assert_ne!(server["public_net"]["ipv6"], Value::Null);
}

#[tokio::test(start_paused = true)]
async fn a_create_request_is_validated() {
    let standin = standin(instant());
    let client = Client::new(&standin);
    let base = json!({"name": "a", "server_type": "cx22", "image": "ubuntu-24.04"});
    let long = "x".repeat(32 * 1024 + 1);
    for (field, value) in [
        ("name", json!("not a host name")),
        ("name", json!("")),
        ("server_type", json!("cx1000")),
        ("server_type", json!(1)),
        ("image", json!("plan-9")),
        ("location", json!("moon")),
        ("user_data", json!(long)),
        ("labels", json!({"a": "b c"})),
        ("networks", json!([1])),
    ] {
        let mut body = base.clone();
        body[field] = value;
        let reply = client.post("/v1/servers", body).await;
        assert_eq!(reply.failure(), (422, "invalid_input"), "{field}: {}", reply.text);
        assert_eq!(reply.fields(), [field]);
    }
    let reply = client.post("/v1/servers", json!([])).await;
    assert_eq!(reply.failure(), (400, "json_error"));
    assert_eq!(standin.servers_ever().len(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_name_is_unique_in_its_project_until_deletion() {
    let standin = standin(instant());
    let client = Client::new(&standin);
    let first = client.server("a").await;
    let body = json!({"name": "a", "server_type": "cx22", "image": "ubuntu-24.04"});
    let reply = client.post("/v1/servers", body).await;
    assert_eq!(reply.failure(), (409, "uniqueness_error"));
    assert_eq!(reply.fields(), ["name"]);
    client.delete(&format!("/v1/servers/{first}")).await;
    let second = client.server("a").await;
    assert_ne!(first, second);
}

#[tokio::test(start_paused = true)]
async fn limits_and_stock_refuse_a_server() {
    let mut settings = instant();
    settings.server_limit = Some(1);
    settings.out_of_stock = vec!["cx32/fsn1".to_owned()];
    let standin = standin(settings);
    let client = Client::new(&standin);
    let body = |name: &str, kind: &str| json!({"name": name, "server_type": kind, "image": "ubuntu-24.04"});
    let reply = client.post("/v1/servers", body("a", "cx32")).await;
    assert_eq!(reply.failure(), (412, "resource_unavailable"));
    client.server("a").await;
    let reply = client.post("/v1/servers", body("b", "cx22")).await;
    assert_eq!(reply.failure(), (403, "resource_limit_exceeded"));
    assert_eq!(reply.json["error"]["details"]["limits"][0]["name"], "servers");
}

#[tokio::test(start_paused = true)]
async fn a_server_is_renamed_and_labelled() {
    let standin = standin(instant());
    let client = Client::new(&standin);
    let id = client.server_with("a", json!({"labels": {"old": "1"}})).await;
    client.server("taken").await;
    let path = format!("/v1/servers/{id}");
    let reply = client.put(&path, json!({"name": "b", "labels": {"new": "2"}})).await;
    assert_eq!(reply.status, StatusCode::OK);
    assert_eq!(reply.json["server"]["name"], "b");
    assert_eq!(reply.json["server"]["labels"], json!({"new": "2"}), "labels are replaced");
    let reply = client.put(&path, json!({"labels": {"only": "labels"}})).await;
    assert_eq!(reply.json["server"]["name"], "b");
    assert_eq!(client.put(&path, json!({"name": "taken"})).await.code(), "uniqueness_error");
}

#[tokio::test(start_paused = true)]
async fn a_deleted_server_is_not_found_after_its_action() {
    let standin = standin(settings());
    let client = Client::new(&standin);
    let id = client.server("a").await;
    tokio::time::sleep(Duration::from_secs(2)).await;
    let path = format!("/v1/servers/{id}");
    let reply = client.delete(&path).await;
    assert_eq!(reply.status, StatusCode::OK);
    assert_eq!(reply.json["action"]["command"], "delete_server");
    assert_eq!(client.get(&path).await.json["server"]["status"], "deleting");
    tokio::time::sleep(Duration::from_secs(1)).await;
    let reply = client.get(&path).await;
    assert_eq!(reply.failure(), (404, "not_found"));
    assert_eq!(client.delete(&path).await.failure(), (404, "not_found"));
    assert_eq!(client.get("/v1/servers/seven").await.failure(), (404, "not_found"));
    let ever = standin.servers_ever();
    assert_eq!((ever.len(), ever[0].is_alive()), (1, false), "the ledger keeps it");
}

#[tokio::test(start_paused = true)]
async fn power_actions_change_the_status() {
    let standin = standin(instant());
    let client = Client::new(&standin);
    let id = client.server("a").await;
    for (command, status) in
        [("poweroff", "off"), ("poweron", "running"), ("shutdown", "off"), ("poweron", "running")]
    {
        let reply = client.post(&format!("/v1/servers/{id}/actions/{command}"), json!({})).await;
        assert_eq!(reply.status, StatusCode::CREATED, "{}", reply.text);
        assert_eq!(reply.json["action"]["status"], "success");
        let server = client.get(&format!("/v1/servers/{id}")).await;
        assert_eq!(server.json["server"]["status"], status, "{command}");
    }
    let reply =
        client.post(&format!("/v1/servers/{id}/actions/change_type"), json!({"server_type": "cx32"})).await;
    assert_eq!(reply.code(), "server_not_stopped");
    client.post(&format!("/v1/servers/{id}/actions/poweroff"), json!({})).await;
    assert_eq!(
        client.post(&format!("/v1/servers/{id}/actions/reboot"), json!({})).await.code(),
        "server_not_running"
    );
    let body = json!({"server_type": "cx32", "upgrade_disk": false});
    client.post(&format!("/v1/servers/{id}/actions/change_type"), body).await;
    let server = client.get(&format!("/v1/servers/{id}")).await;
    assert_eq!(server.json["server"]["server_type"]["name"], "cx32");
    assert_eq!(server.json["server"]["primary_disk_size"], 40);
}

#[tokio::test(start_paused = true)]
async fn a_protected_server_is_not_deleted() {
    let standin = standin(instant());
    let client = Client::new(&standin);
    let id = client.server("a").await;
    let body = json!({"delete": true, "rebuild": true});
    client.post(&format!("/v1/servers/{id}/actions/change_protection"), body).await;
    assert_eq!(client.delete(&format!("/v1/servers/{id}")).await.failure(), (423, "protected"));
    assert_eq!(standin.servers_ever().iter().filter(|server| server.is_alive()).count(), 1);
}

#[tokio::test(start_paused = true)]
async fn pages_have_all_servers_once_in_order() {
    let standin = standin(instant());
    let client = Client::new(&standin);
    for index in 0..7 {
        client.server(&format!("s{index}")).await;
    }
    let mut seen = Vec::new();
    let mut page = 1;
    loop {
        let reply = client.get(&format!("/v1/servers?page={page}&per_page=3&sort=id:desc")).await;
        seen.extend(names(&reply, "servers").into_iter().map(str::to_owned));
        let pagination = reply.json["meta"]["pagination"].clone();
        assert_eq!(pagination["total_entries"], 7);
        assert_eq!(pagination["last_page"], 3);
        assert_eq!(reply.header("link").contains("rel=\"next\""), page < 3);
        match pagination["next_page"].as_u64() {
            Some(next) => page = next,
            None => break,
        }
    }
    assert_eq!(seen, ["s6", "s5", "s4", "s3", "s2", "s1", "s0"]);
    let first = client.get("/v1/servers?per_page=3").await;
    assert_eq!(first.json["meta"]["pagination"]["previous_page"], Value::Null);
    assert_eq!(client.get("/v1/servers").await.json["meta"]["pagination"]["per_page"], 25);
    let beyond = client.get("/v1/servers?page=9").await;
    assert_eq!(names(&beyond, "servers"), Vec::<&str>::new());
}

#[tokio::test(start_paused = true)]
async fn a_page_above_fifty_is_clamped_or_rejected() {
    let standin = standin(instant());
    let client = Client::new(&standin);
    let reply = client.get("/v1/servers?per_page=100").await;
    assert_eq!(reply.json["meta"]["pagination"]["per_page"], 50);
    standin.configure(|settings| settings.large_pages = LargePages::Reject);
    let reply = client.get("/v1/servers?per_page=100").await;
    assert_eq!(reply.failure(), (422, "invalid_input"));
    assert_eq!(client.get("/v1/servers?page=0").await.fields(), ["page"]);
}

#[tokio::test(start_paused = true)]
async fn lists_filter_by_name_label_and_status() {
    let standin = standin(instant());
    let client = Client::new(&standin);
    client.server_with("a", json!({"labels": {"role": "worker", "cluster": "c1"}})).await;
    client.server_with("b", json!({"labels": {"role": "master"}})).await;
    client.server_with("c", json!({"start_after_create": false})).await;
    for (query, expected) in [
        ("name=b", vec!["b"]),
        ("name=nothing", vec![]),
        ("label_selector=role%3Dworker", vec!["a"]),
        ("label_selector=role", vec!["a", "b"]),
        ("label_selector=%21role", vec!["c"]),
        ("label_selector=role+in+%28worker%2Cmaster%29%2C%21cluster", vec!["b"]),
        ("status=off", vec!["c"]),
        ("status=off&status=running&sort=name:desc", vec!["c", "b", "a"]),
    ] {
        let reply = client.get(&format!("/v1/servers?{query}")).await;
        assert_eq!(names(&reply, "servers"), expected, "{query}");
    }
    assert_eq!(client.get("/v1/servers?label_selector=a%20b").await.fields(), ["label_selector"]);
    assert_eq!(client.get("/v1/servers?sort=color").await.fields(), ["sort"]);
}

#[tokio::test(start_paused = true)]
async fn a_new_server_is_visible_by_id_before_lists() {
    let standin = standin(Settings {
        visible_by_id: Duration::from_secs(1),
        visible_in_lists: Duration::from_secs(3),
        ..instant()
    });
    let client = Client::new(&standin);
    let id = client.server("a").await;
    let mut seen = Vec::new();
    for _ in 0..4 {
        let by_id = client.get(&format!("/v1/servers/{id}")).await.status == StatusCode::OK;
        let listed = names(&client.get("/v1/servers").await, "servers").len();
        seen.push((by_id, listed));
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    assert_eq!(seen, [(false, 0), (true, 0), (true, 0), (true, 1)]);
    let body = json!({"name": "a", "server_type": "cx22", "image": "ubuntu-24.04"});
    assert_eq!(client.post("/v1/servers", body).await.code(), "uniqueness_error");
}

#[tokio::test(start_paused = true)]
async fn the_address_of_a_deleted_server_is_used_again() {
    let standin = standin(instant());
    let client = Client::new(&standin);
    let first = client.server("a").await;
    client.server("b").await;
    client.delete(&format!("/v1/servers/{first}")).await;
    let third = client.server("c").await;
    let server = client.get(&format!("/v1/servers/{third}")).await;
    assert_eq!(server.json["server"]["public_net"]["ipv4"]["ip"], "198.18.0.1");
}

#[tokio::test(start_paused = true)]
async fn a_read_only_token_reads_and_does_not_write() {
    let standin = standin(instant());
    let id = Client::new(&standin).server("a").await;
    let reader = Client::with_token(&standin, READ_ONLY);
    assert_eq!(reader.get(&format!("/v1/servers/{id}")).await.status, StatusCode::OK);
    for reply in [
        reader.post("/v1/servers", json!({})).await,
        reader.put(&format!("/v1/servers/{id}"), json!({"name": "b"})).await,
        reader.delete(&format!("/v1/servers/{id}")).await,
    ] {
        assert_eq!(reply.failure(), (403, "token_readonly"));
    }
    standin.configure(|settings| settings.read_only_code = ReadOnlyCode::Forbidden);
    assert_eq!(reader.post("/v1/servers", json!({})).await.failure(), (403, "forbidden"));
}
