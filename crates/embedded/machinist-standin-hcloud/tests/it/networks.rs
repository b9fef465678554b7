//! Networks, subnets, routes, and the servers in them.

use http::StatusCode;
use machinist_standin_hcloud::Settings;
use serde_json::{Value, json};

use crate::client::{Client, instant, names, standin};

/// Creates a network with a subnet, and returns its path.
async fn network(client: &Client) -> String {
    let body = json!({
        "name": "n", "ip_range": "10.0.0.0/8",
        "subnets": [{"type": "cloud", "network_zone": "eu-central", "ip_range": "10.0.0.0/16"}],
    });
    let reply = client.post("/v1/networks", body).await;
    assert_eq!(reply.status, StatusCode::CREATED, "{}", reply.text);
    format!("/v1/networks/{}", reply.json["network"]["id"])
}

fn id_in(path: &str) -> Value {
    json!(path.rsplit('/').next().and_then(|id| id.parse::<i64>().ok()).expect("an id"))
}

#[tokio::test(start_paused = true)]
async fn a_network_is_created_changed_and_deleted() {
    let standin = standin(instant());
    let client = Client::new(&standin);
    let path = network(&client).await;
    let network = client.get(&path).await.json["network"].clone();
    assert_eq!(network["subnets"][0]["gateway"], "10.0.0.1");
    assert_eq!((&network["routes"], &network["servers"]), (&json!([]), &json!([])));
    assert_eq!(names(&client.get("/v1/networks?name=n").await, "networks"), ["n"]);
    let reply = client.put(&path, json!({"name": "m", "labels": {"a": "b"}})).await;
    assert_eq!(reply.json["network"]["name"], "m");
    let body = json!({"name": "m", "ip_range": "10.0.0.0/8"});
    assert_eq!(client.post("/v1/networks", body).await.failure(), (409, "uniqueness_error"));
    client.post(&format!("{path}/actions/change_protection"), json!({"delete": true})).await;
    assert_eq!(client.delete(&path).await.failure(), (423, "protected"));
    client.post(&format!("{path}/actions/change_protection"), json!({"delete": false})).await;
    assert_eq!(client.delete(&path).await.status, StatusCode::NO_CONTENT);
    assert_eq!(client.get(&path).await.failure(), (404, "not_found"));
}

#[tokio::test(start_paused = true)]
async fn ranges_of_networks_and_subnets_are_checked() {
    let standin = standin(instant());
    let client = Client::new(&standin);
    for range in ["8.8.8.0/24", "10.0.0.1/8", "10.0.0.0/28", "ten"] {
        let reply = client.post("/v1/networks", json!({"name": "x", "ip_range": range})).await;
        assert_eq!(reply.fields(), ["ip_range"], "{range}");
    }
    let path = network(&client).await;
    let add = format!("{path}/actions/add_subnet");
    for (body, field) in [
        (json!({"type": "cloud", "network_zone": "moon", "ip_range": "10.1.0.0/16"}), "network_zone"),
        (json!({"type": "tunnel", "network_zone": "us-east", "ip_range": "10.1.0.0/16"}), "type"),
        (json!({"type": "cloud", "network_zone": "us-east", "ip_range": "10.0.1.0/24"}), "ip_range"),
        (json!({"type": "cloud", "network_zone": "us-east", "ip_range": "192.168.0.0/24"}), "ip_range"),
        (json!({"type": "cloud", "network_zone": "us-east", "ip_range": "10.1.0.0/31"}), "ip_range"),
    ] {
        assert_eq!(client.post(&add, body.clone()).await.fields(), [field], "{body}");
    }
    client.post(&add, json!({"type": "cloud", "network_zone": "us-east"})).await;
    let subnets = client.get(&path).await.json["network"]["subnets"].clone();
    assert_eq!(subnets[1]["ip_range"], "10.1.0.0/24", "the first free range");
    let body = json!({"ip_range": "10.0.0.0/9"});
    assert_eq!(client.post(&format!("{path}/actions/change_ip_range"), body).await.status.as_u16(), 201);
    let body = json!({"ip_range": "10.0.0.0/16"});
    assert_eq!(client.post(&format!("{path}/actions/change_ip_range"), body).await.fields(), ["ip_range"]);
    let remove = format!("{path}/actions/delete_subnet");
    assert_eq!(client.post(&remove, json!({"ip_range": "10.9.0.0/24"})).await.code(), "not_found");
    client.post(&remove, json!({"ip_range": "10.1.0.0/24"})).await;
    assert_eq!(client.get(&path).await.json["network"]["subnets"].as_array().map(Vec::len), Some(1));
}

#[tokio::test(start_paused = true)]
async fn a_route_is_visible_when_its_action_succeeds() {
    let standin = standin(crate::client::settings());
    let client = Client::new(&standin);
    let path = network(&client).await;
    let route = json!({"destination": "10.244.1.0/24", "gateway": "10.0.0.2"});
    let reply = client.post(&format!("{path}/actions/add_route"), route.clone()).await;
    assert_eq!((reply.status.as_u16(), &reply.json["action"]["status"]), (201, &json!("running")));
    assert_eq!(client.get(&path).await.json["network"]["routes"], json!([]));
    standin.advance(std::time::Duration::from_secs(1));
    assert_eq!(client.get(&path).await.json["network"]["routes"], json!([route]));
    let absent = json!({"destination": "10.244.1.0/24", "gateway": "10.0.0.3"});
    let reply = client.post(&format!("{path}/actions/delete_route"), absent).await;
    assert_eq!(reply.failure(), (404, "not_found"));
    client.post(&format!("{path}/actions/delete_route"), route).await;
    standin.advance(std::time::Duration::from_secs(1));
    assert_eq!(client.get(&path).await.json["network"]["routes"], json!([]));
}

#[tokio::test(start_paused = true)]
async fn routes_are_checked_and_limited() {
    let standin = standin(Settings { route_limit: 1, ..instant() });
    let client = Client::new(&standin);
    let path = network(&client).await;
    let add = format!("{path}/actions/add_route");
    for (destination, gateway, field) in [
        ("10.244.1.0", "10.0.0.2", "destination"),
        ("fd00::/64", "10.0.0.2", "destination"),
        ("10.0.9.0/24", "10.0.0.2", "destination"),
        ("10.244.1.0/24", "192.168.0.1", "gateway"),
        ("10.244.1.0/24", "10.0.0.1", "gateway"),
        ("10.244.1.0/24", "somewhere", "gateway"),
    ] {
        let body = json!({"destination": destination, "gateway": gateway});
        assert_eq!(client.post(&add, body).await.fields(), [field], "{destination} {gateway}");
    }
    client.post(&add, json!({"destination": "10.244.1.0/24", "gateway": "10.0.0.2"})).await;
    let again = json!({"destination": "10.244.1.0/24", "gateway": "10.0.0.3"});
    assert_eq!(client.post(&add, again).await.fields(), ["destination"], "the destination is in use");
    let more = json!({"destination": "10.244.2.0/24", "gateway": "10.0.0.3"});
    assert_eq!(client.post(&add, more).await.failure(), (403, "resource_limit_exceeded"));
}

#[tokio::test(start_paused = true)]
async fn servers_get_addresses_in_networks() {
    let standin = standin(instant());
    let client = Client::new(&standin);
    let path = network(&client).await;
    let network = id_in(&path);
    let first = client.server_with("a", json!({"networks": [network]})).await;
    let nets = client.get(&format!("/v1/servers/{first}")).await.json["server"]["private_net"].clone();
    assert_eq!((&nets[0]["network"], &nets[0]["ip"]), (&network, &json!("10.0.0.2")));

    let second = client.server("b").await;
    let attach = format!("/v1/servers/{second}/actions/attach_to_network");
    for (ip, code) in [("10.0.0.2", "ip_not_available"), ("10.99.0.1", "ip_not_available")] {
        let reply = client.post(&attach, json!({"network": network, "ip": ip})).await;
        assert_eq!(reply.code(), code, "{ip}");
    }
    client.post(&attach, json!({"network": network, "ip": "10.0.7.7"})).await;
    assert_eq!(client.post(&attach, json!({"network": network})).await.code(), "server_already_attached");
    let shown = client.get(&path).await.json["network"].clone();
    assert_eq!(shown["servers"], json!([first, second]));
    assert_eq!(client.delete(&path).await.failure(), (409, "conflict"), "the network is in use");
    let reply =
        client.post(&format!("{path}/actions/delete_subnet"), json!({"ip_range": "10.0.0.0/16"})).await;
    assert_eq!(reply.failure(), (409, "conflict"), "the subnet is in use");

    let detach = format!("/v1/servers/{second}/actions/detach_from_network");
    client.post(&detach, json!({"network": network})).await;
    let reply = client.post(&detach, json!({"network": network})).await;
    assert_eq!(reply.code(), "server_not_attached_to_network");
    client.delete(&format!("/v1/servers/{first}")).await;
    assert_eq!(client.get(&path).await.json["network"]["servers"], json!([]));
    let elsewhere = client.server_with("c", json!({"location": "ash"})).await;
    let reply = client
        .post(&format!("/v1/servers/{elsewhere}/actions/attach_to_network"), json!({"network": network}))
        .await;
    assert_eq!(reply.code(), "no_subnet_available", "another network zone");
}

#[tokio::test(start_paused = true)]
async fn a_server_without_a_free_address_is_not_created() {
    let standin = standin(instant());
    let client = Client::new(&standin);
    let body = json!({
        "name": "small", "ip_range": "10.0.0.0/24",
        "subnets": [{"type": "cloud", "network_zone": "eu-central", "ip_range": "10.0.0.0/30"}],
    });
    let network = client.post("/v1/networks", body).await.json["network"]["id"].clone();
    client.server_with("a", json!({"networks": [network]})).await;
    let body = json!({"name": "b", "server_type": "cx22", "image": "debian-12", "networks": [network]});
    assert_eq!(client.post("/v1/servers", body).await.code(), "ip_not_available");
    assert_eq!(standin.servers_ever().len(), 1);
}
