//! The operator's functions, in process and as `/_control`.

use http::{Method, StatusCode};
use machinist_standin_hcloud::{NewServer, ServerStatus};
use serde_json::{Value, json};

use crate::client::{Client, OTHER, TOKEN, instant, names, settings, standin};

#[tokio::test(start_paused = true)]
async fn the_operator_changes_servers_behind_the_api() {
    let standin = standin(instant());
    let client = Client::new(&standin);
    let server = standin.create_server(&NewServer::new("a", "pet")).expect("created");
    let path = format!("/v1/servers/{}", server.id);
    assert_eq!(client.get(&path).await.json["server"]["name"], "pet");
    standin
        .change_server(server.id, |server| {
            server.status = ServerStatus::Migrating;
            server.server_type = "cx42".to_owned();
            server.name = "renamed".to_owned();
            server.ipv4 = None;
            server.ipv6 = None;
        })
        .expect("the server exists");
    let shown = client.get(&path).await.json["server"].clone();
    assert_eq!((&shown["status"], &shown["name"]), (&json!("migrating"), &json!("renamed")));
    assert_eq!(shown["server_type"]["name"], "cx42");
    assert_eq!((&shown["public_net"]["ipv4"], &shown["public_net"]["ipv6"]), (&Value::Null, &Value::Null));
    standin.power_off(server.id).expect("the server exists");
    assert_eq!(client.get(&path).await.json["server"]["status"], "off");
    standin.power_on(server.id).expect("the server exists");
    assert_eq!(client.get(&path).await.json["server"]["status"], "running");
    standin.change_server(server.id, |server| server.project = "b".to_owned()).expect("the server exists");
    assert_eq!(client.get(&path).await.failure(), (404, "not_found"));
    assert_eq!(Client::with_token(&standin, OTHER).get(&path).await.status, StatusCode::OK);
    standin.delete_server(server.id).expect("the server exists");
    standin.delete_server(server.id).expect_err("the server was deleted");
    let refused =
        standin.create_server(&NewServer { server_type: "x".to_owned(), ..NewServer::new("a", "b") });
    assert!(refused.expect_err("no such type").to_string().starts_with("invalid_input: "));
}

#[tokio::test(start_paused = true)]
async fn a_project_is_emptied_at_once() {
    let standin = standin(instant());
    let (ours, theirs) = (Client::new(&standin), Client::with_token(&standin, OTHER));
    ours.server("a").await;
    ours.server("b").await;
    theirs.server("c").await;
    standin.empty_project("a");
    assert_eq!(names(&ours.get("/v1/servers").await, "servers"), Vec::<&str>::new());
    assert_eq!(names(&theirs.get("/v1/servers").await, "servers"), ["c"]);
}

#[tokio::test(start_paused = true)]
async fn control_works_over_http() {
    let standin = standin(settings());
    let client = Client::new(&standin);
    let control = Client::without_token(&standin);
    let created = control.post("/_control/servers", json!({"project": "a", "name": "pet"})).await;
    let id = created.json["id"].as_i64().unwrap_or_else(|| panic!("{}", created.text));
    let reply = control.post("/_control/advance", json!({"seconds": 2.0})).await;
    assert_eq!(reply.json["now"], "2026-01-01T00:00:02Z");
    assert_eq!(client.get(&format!("/v1/servers/{id}")).await.json["server"]["status"], "running");

    let body = json!({"status": "off", "ipv4": null, "labels": {"key": "1"}});
    let patched = control
        .try_send(Method::PATCH, &format!("/_control/servers/{id}"), Some(body))
        .await
        .expect("a reply");
    assert_eq!(patched.status, StatusCode::OK, "{}", patched.text);
    let shown = client.get(&format!("/v1/servers/{id}")).await.json["server"].clone();
    assert_eq!((&shown["status"], &shown["public_net"]["ipv4"]), (&json!("off"), &Value::Null));
    let alive = control.get("/_control/alive?label=key").await;
    assert_eq!(alive.json[0]["id"], id);

    let rule = json!({"method": "GET", "path": "/v1/servers", "times": 1,
        "fault": {"kind": "error", "code": "maintenance"}});
    control.post("/_control/faults", rule).await;
    assert_eq!(control.get("/_control/faults").await.json["0"]["times"], 1);
    assert_eq!(client.get("/v1/servers").await.failure(), (503, "maintenance"));
    assert_eq!(control.get("/_control/counters").await.json["GET /v1/servers"], 1);
    assert_eq!(control.get("/_control/requests").await.json[2]["code"], "maintenance");

    let patch = Some(json!({"datacenter": true}));
    let reply = control.try_send(Method::PATCH, "/_control/settings", patch).await.expect("a reply");
    assert_eq!((&reply.json["datacenter"], reply.json.get("tokens")), (&json!(true), None));
    control.post("/_control/rate", json!({"project": "a", "limit": 1, "remaining": 0})).await;
    assert_eq!(client.get("/v1/servers").await.failure(), (429, "rate_limit_exceeded"));
    control.post("/_control/tokens/revoke", json!({"token": TOKEN})).await;
    assert_eq!(client.get("/v1/servers").await.failure(), (401, "unauthorized"));

    let state = control.get("/_control/state").await.json;
    control.post("/_control/reset", json!({})).await;
    assert_eq!(control.get("/_control/servers").await.json, json!([]));
    control.put("/_control/state", state).await;
    assert_eq!(control.get("/_control/servers").await.json[0]["name"], "pet");
    control.delete(&format!("/_control/servers/{id}")).await;
    assert_ne!(control.get("/_control/servers").await.json[0]["deleted"], Value::Null);
}

#[tokio::test(start_paused = true)]
async fn control_explains_what_it_expects() {
    let standin = standin(settings());
    let control = Client::without_token(&standin);
    for (path, body, expected) in [
        ("/_control/advance", json!({"minutes": 1}), "unknown field `minutes`"),
        ("/_control/faults", json!({"fault": {"kind": "magic"}}), "unknown variant `magic`"),
        ("/_control/nothing", json!({}), "/_control has no POST nothing"),
    ] {
        let reply = control.post(path, body).await;
        let message = reply.json["error"]["message"].as_str().unwrap_or_default();
        assert!(message.contains(expected), "{path}: {message}");
    }
    assert_eq!(control.get("/_control/alive").await.status, StatusCode::BAD_REQUEST);
}
