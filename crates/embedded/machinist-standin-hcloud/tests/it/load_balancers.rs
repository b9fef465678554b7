//! Load balancers and certificates.

use http::StatusCode;
use machinist_standin_hcloud::DeletionReply;
use serde_json::{Value, json};

use crate::client::{Client, Reply, instant, names, standin};

/// Creates a load balancer with further fields, and returns its path.
async fn balancer(client: &Client, fields: Value) -> String {
    let mut body = json!({"name": "lb", "load_balancer_type": "lb11", "location": "fsn1"});
    body.as_object_mut().expect("an object").extend(fields.as_object().expect("an object").clone());
    let reply = client.post("/v1/load_balancers", body).await;
    assert_eq!(reply.status, StatusCode::CREATED, "{}", reply.text);
    format!("/v1/load_balancers/{}", reply.json["load_balancer"]["id"])
}

async fn act(client: &Client, path: &str, command: &str, body: Value) -> Reply {
    client.post(&format!("{path}/actions/{command}"), body).await
}

async fn shown(client: &Client, path: &str) -> Value {
    client.get(path).await.json["load_balancer"].clone()
}

/// Creates a network with a subnet for `eu-central`, and returns its id.
async fn network(client: &Client, name: &str) -> Value {
    let body = json!({
        "name": name, "ip_range": "10.0.0.0/16",
        "subnets": [{"type": "cloud", "network_zone": "eu-central", "ip_range": "10.0.0.0/24"}],
    });
    client.post("/v1/networks", body).await.json["network"]["id"].clone()
}

#[tokio::test(start_paused = true)]
async fn a_load_balancer_lives_from_create_to_delete() {
    let standin = standin(instant());
    let client = Client::new(&standin);
    let path = balancer(&client, json!({"labels": {"hcloud-ccm/service-uid": "u1"}})).await;
    let lb = shown(&client, &path).await;
    assert_eq!(lb["load_balancer_type"]["name"], "lb11");
    assert_eq!((&lb["location"]["name"], &lb["algorithm"]["type"]), (&json!("fsn1"), &json!("round_robin")));
    assert_eq!(lb["public_net"]["enabled"], true);
    assert_eq!(lb["public_net"]["ipv4"]["ip"], "198.18.0.1");
    let found = client.get("/v1/load_balancers?label_selector=hcloud-ccm/service-uid%3Du1").await;
    assert_eq!(names(&found, "load_balancers"), ["lb"]);
    let body = json!({"name": "lb", "load_balancer_type": "lb11", "network_zone": "eu-central"});
    assert_eq!(client.post("/v1/load_balancers", body).await.failure(), (409, "uniqueness_error"));
    let reply = client.put(&path, json!({"name": "renamed", "labels": {}})).await;
    assert_eq!(reply.json["load_balancer"]["name"], "renamed");
    act(&client, &path, "change_protection", json!({"delete": true})).await;
    assert_eq!(client.delete(&path).await.failure(), (423, "protected"));
    act(&client, &path, "change_protection", json!({"delete": false})).await;
    let reply = client.delete(&path).await;
    assert_eq!(
        (reply.status, &reply.json["action"]["command"]),
        (StatusCode::CREATED, &json!("delete_load_balancer"))
    );
    assert_eq!(client.get(&path).await.failure(), (404, "not_found"));
    let path = balancer(&client, json!({})).await;
    standin.configure(|settings| settings.balancer_deletion = DeletionReply::NoContent);
    assert_eq!(client.delete(&path).await.status, StatusCode::NO_CONTENT);
    assert_eq!(client.get(&path).await.failure(), (404, "not_found"));
}

#[tokio::test(start_paused = true)]
async fn one_request_creates_services_targets_and_attachment() {
    let standin = standin(instant());
    let client = Client::new(&standin);
    let network = network(&client, "n").await;
    let server = client.server_with("s", json!({"networks": [network]})).await;
    let path = balancer(
        &client,
        json!({
            "network": network, "algorithm": {"type": "least_connections"}, "public_interface": false,
            "services": [{"protocol": "tcp", "listen_port": 80, "destination_port": 30080}],
            "targets": [{"type": "server", "server": {"id": server}, "use_private_ip": true}],
        }),
    )
    .await;
    let lb = shown(&client, &path).await;
    assert_eq!(lb["private_net"], json!([{"network": network, "ip": "10.0.0.3"}]));
    assert_eq!(lb["algorithm"]["type"], "least_connections");
    assert_eq!(lb["public_net"]["enabled"], false);
    assert_eq!(lb["services"][0]["health_check"]["port"], 30080);
    assert_eq!(lb["targets"][0]["use_private_ip"], true);
    assert_eq!(lb["targets"][0]["health_status"], json!([{"listen_port": 80, "status": "healthy"}]));
    let server = client.get(&format!("/v1/servers/{server}")).await.json["server"].clone();
    assert_eq!(server["load_balancers"], json!([lb["id"]]));
}

#[tokio::test(start_paused = true)]
async fn a_create_request_is_validated() {
    let standin = standin(instant());
    let client = Client::new(&standin);
    for (fields, field) in [
        (json!({"load_balancer_type": "lb99"}), "load_balancer_type"),
        (json!({"location": "moon"}), "location"),
        (json!({"network_zone": "eu-central"}), "location"),
        (json!({"algorithm": {"type": "random"}}), "algorithm.type"),
        (
            json!({"services": [{"protocol": "udp", "listen_port": 1, "destination_port": 1}]}),
            "services.0.protocol",
        ),
        (json!({"targets": [{"type": "server", "server": {"id": 1}}]}), "server.id"),
    ] {
        let mut body = json!({"name": "lb", "load_balancer_type": "lb11", "location": "fsn1"});
        body.as_object_mut().expect("an object").extend(fields.as_object().expect("an object").clone());
        let reply = client.post("/v1/load_balancers", body).await;
        assert!(reply.fields().contains(&field), "{fields}: {}", reply.text);
    }
    assert_eq!(names(&client.get("/v1/load_balancers").await, "load_balancers"), Vec::<&str>::new());
}

#[tokio::test(start_paused = true)]
async fn services_are_added_updated_and_deleted() {
    let standin = standin(instant());
    let client = Client::new(&standin);
    let path = balancer(&client, json!({})).await;
    let service = json!({
        "protocol": "http", "listen_port": 80, "destination_port": 30080, "proxyprotocol": true,
        "http": {"sticky_sessions": true, "cookie_name": "C"},
        "health_check": {"protocol": "http", "port": 30081, "interval": 5, "timeout": 3, "retries": 2,
            "http": {"path": "/healthz"}},
    });
    assert_eq!(act(&client, &path, "add_service", service.clone()).await.status, StatusCode::CREATED);
    let reply = act(&client, &path, "add_service", service).await;
    assert_eq!(reply.failure(), (422, "source_port_already_used"));
    let stored = shown(&client, &path).await["services"][0].clone();
    assert_eq!(
        (&stored["http"]["cookie_name"], &stored["http"]["cookie_lifetime"]),
        (&json!("C"), &json!(300))
    );
    assert_eq!(stored["health_check"]["http"]["path"], "/healthz");
    assert_eq!(stored["health_check"]["http"]["status_codes"], json!(["2??", "3??"]));

    let update = json!({"listen_port": 80, "destination_port": 30090});
    act(&client, &path, "update_service", update).await;
    let updated = shown(&client, &path).await["services"][0].clone();
    assert_eq!(updated["destination_port"], 30090);
    assert_eq!(updated["proxyprotocol"], true, "absent fields keep their value");
    assert_eq!(updated["health_check"]["port"], 30081);
    act(&client, &path, "update_service", json!({"listen_port": 80, "protocol": "tcp"})).await;
    assert_eq!(shown(&client, &path).await["services"][0].get("http"), None);

    for (command, body) in
        [("update_service", json!({"listen_port": 81})), ("delete_service", json!({"listen_port": 81}))]
    {
        assert_eq!(act(&client, &path, command, body).await.failure(), (404, "not_found"), "{command}");
    }
    act(&client, &path, "delete_service", json!({"listen_port": 80})).await;
    assert_eq!(shown(&client, &path).await["services"], json!([]));
    let bad = json!({"protocol": "tcp", "listen_port": 99999, "destination_port": 1});
    assert_eq!(act(&client, &path, "add_service", bad).await.fields(), ["listen_port"]);
}

#[tokio::test(start_paused = true)]
async fn a_type_limits_services_and_targets() {
    let standin = standin(instant());
    let client = Client::new(&standin);
    let path = balancer(&client, json!({})).await;
    for port in 1..=5 {
        let body = json!({"protocol": "tcp", "listen_port": port, "destination_port": port});
        assert_eq!(act(&client, &path, "add_service", body).await.status, StatusCode::CREATED);
    }
    let body = json!({"protocol": "tcp", "listen_port": 6, "destination_port": 6});
    let reply = act(&client, &path, "add_service", body.clone()).await;
    assert_eq!(reply.failure(), (403, "resource_limit_exceeded"));
    for number in 0..25 {
        let body = json!({"type": "ip", "ip": {"ip": format!("192.0.2.{number}")}});
        assert_eq!(act(&client, &path, "add_target", body).await.status, StatusCode::CREATED);
    }
    let target = json!({"type": "ip", "ip": {"ip": "192.0.2.99"}});
    let reply = act(&client, &path, "add_target", target).await;
    assert_eq!(reply.failure(), (403, "resource_limit_exceeded"));
    act(&client, &path, "change_type", json!({"load_balancer_type": "lb21"})).await;
    assert_eq!(act(&client, &path, "add_service", body).await.status, StatusCode::CREATED);
    let reply = act(&client, &path, "change_type", json!({"load_balancer_type": "lb11"})).await;
    assert_eq!(reply.code(), "invalid_load_balancer_type");
}

#[tokio::test(start_paused = true)]
async fn targets_are_checked_and_removed() {
    let standin = standin(instant());
    let client = Client::new(&standin);
    let network = network(&client, "n").await;
    let path = balancer(&client, json!({})).await;
    let server = client.server_with("s", json!({"labels": {"role": "worker"}})).await;
    let public = json!({"type": "server", "server": {"id": server}});
    let private = json!({"type": "server", "server": {"id": server}, "use_private_ip": true});
    let code = async |body: &Value| act(&client, &path, "add_target", body.clone()).await.code().to_owned();

    assert_eq!(code(&private).await, "load_balancer_not_attached_to_network");
    act(&client, &path, "attach_to_network", json!({"network": network})).await;
    let reply = act(&client, &path, "attach_to_network", json!({"network": network})).await;
    assert_eq!(reply.code(), "load_balancer_already_attached");
    assert_eq!(code(&private).await, "server_not_attached_to_network");
    assert_eq!(code(&public).await, "");
    assert_eq!(code(&public).await, "target_already_defined");
    assert_eq!(
        code(&json!({"type": "label_selector", "label_selector": {"selector": "role=worker"}})).await,
        ""
    );
    let ip = standin.server(server).and_then(|server| server.ipv4).expect("an address").ip;
    assert_eq!(code(&json!({"type": "ip", "ip": {"ip": ip}})).await, "cloud_resource_ip_not_allowed");
    let targets = shown(&client, &path).await["targets"].clone();
    assert_eq!(targets[1]["targets"][0]["server"]["id"], server);

    act(&client, &path, "remove_target", public.clone()).await;
    assert_eq!(act(&client, &path, "remove_target", public).await.failure(), (404, "not_found"));
    let attach = format!("/v1/servers/{server}/actions/attach_to_network");
    client.post(&attach, json!({"network": network})).await;
    assert_eq!(code(&private).await, "");
    act(&client, &path, "detach_from_network", json!({"network": network})).await;
    let targets = shown(&client, &path).await["targets"].clone();
    assert_eq!(targets.as_array().map(Vec::len), Some(1), "private targets end with the attachment");
    let reply = act(&client, &path, "detach_from_network", json!({"network": network})).await;
    assert_eq!(reply.code(), "load_balancer_not_attached_to_network");
}

#[tokio::test(start_paused = true)]
async fn deleting_a_server_removes_its_target() {
    let standin = standin(instant());
    let client = Client::new(&standin);
    let server = client.server("s").await;
    let targets = json!([{"type": "server", "server": {"id": server}}]);
    let path = balancer(&client, json!({"targets": targets})).await;
    client.delete(&format!("/v1/servers/{server}")).await;
    assert_eq!(shown(&client, &path).await["targets"], json!([]));
}

#[tokio::test(start_paused = true)]
async fn algorithm_interface_and_dns_name_change() {
    let standin = standin(instant());
    let client = Client::new(&standin);
    let path = balancer(&client, json!({})).await;
    act(&client, &path, "change_algorithm", json!({"type": "least_connections"})).await;
    act(&client, &path, "disable_public_interface", json!({})).await;
    let ip = shown(&client, &path).await["public_net"]["ipv4"]["ip"].clone();
    act(&client, &path, "change_dns_ptr", json!({"ip": ip, "dns_ptr": "lb.example"})).await;
    let lb = shown(&client, &path).await;
    assert_eq!(lb["algorithm"]["type"], "least_connections");
    assert_eq!(lb["public_net"]["enabled"], false);
    assert_eq!(lb["public_net"]["ipv4"]["dns_ptr"], "lb.example");
    let reply = act(&client, &path, "change_dns_ptr", json!({"ip": "192.0.2.1", "dns_ptr": "x"})).await;
    assert_eq!(reply.fields(), ["ip"]);
    act(&client, &path, "enable_public_interface", json!({})).await;
    assert_eq!(shown(&client, &path).await["public_net"]["enabled"], true);
}

#[tokio::test(start_paused = true)]
async fn https_needs_a_certificate_that_exists() {
    let standin = standin(instant());
    let client = Client::new(&standin);
    let managed = json!({"name": "m", "type": "managed", "domain_names": ["example.org"]});
    let reply = client.post("/v1/certificates", managed).await;
    assert_eq!(reply.json["action"]["command"], "create_certificate");
    let certificate = reply.json["certificate"]["id"].clone();
    let issued = client.get(&format!("/v1/certificates/{certificate}")).await;
    assert_eq!(issued.json["certificate"]["status"]["issuance"], "completed");
    let path = balancer(&client, json!({})).await;
    for (certificates, field) in [(json!([]), "http.certificates"), (json!([1]), "http.certificates")] {
        let body = json!({"protocol": "https", "http": {"certificates": certificates}});
        assert_eq!(act(&client, &path, "add_service", body).await.fields(), [field]);
    }
    let body = json!({"protocol": "https", "http": {"certificates": [certificate], "redirect_http": true}});
    act(&client, &path, "add_service", body).await;
    let service = shown(&client, &path).await["services"][0].clone();
    assert_eq!((&service["listen_port"], &service["destination_port"]), (&json!(443), &json!(80)));
    let reply = client.delete(&format!("/v1/certificates/{certificate}")).await;
    assert_eq!(reply.code(), "resource_in_use");
    act(&client, &path, "delete_service", json!({"listen_port": 443})).await;
    let reply = client.delete(&format!("/v1/certificates/{certificate}")).await;
    assert_eq!(reply.status, StatusCode::NO_CONTENT);
    let uploaded = json!({"name": "u", "certificate": "c", "private_key": "secret-key"});
    let reply = client.post("/v1/certificates", uploaded).await;
    assert_eq!(reply.json["certificate"]["type"], "uploaded");
    assert!(!standin_text(&standin).contains("secret-key"));
}

fn standin_text(standin: &machinist_standin_hcloud::Standin) -> String {
    format!("{:?}", standin.dump())
}
