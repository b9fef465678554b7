//! The common behaviour of all requests: tokens, projects, the rate limit, headers and unknown
//! paths.

use std::num::NonZeroU32;
use std::time::Duration;

use http::StatusCode;
use machinist_standin_hcloud::Settings;
use serde_json::json;

use crate::client::{Client, OTHER, TOKEN, instant, names, settings, standin};

#[tokio::test(start_paused = true)]
async fn a_request_needs_a_valid_token() {
    let standin = standin(settings());
    for client in [Client::without_token(&standin), Client::with_token(&standin, "unknown")] {
        let reply = client.get("/v1/locations").await;
        assert_eq!(reply.failure(), (401, "unauthorized"));
    }
    let client = Client::new(&standin);
    assert_eq!(client.get("/v1/locations").await.status, StatusCode::OK);
    assert!(standin.revoke_token(TOKEN));
    assert_eq!(client.get("/v1/locations").await.failure(), (401, "unauthorized"));
    assert_eq!(Client::with_token(&standin, OTHER).get("/v1/locations").await.status, StatusCode::OK);
}

#[tokio::test(start_paused = true)]
async fn a_project_sees_only_its_own_objects() {
    let standin = standin(instant());
    let (ours, theirs) = (Client::new(&standin), Client::with_token(&standin, OTHER));
    let server = ours.server("a").await;
    let network = json!({"name": "n", "ip_range": "10.0.0.0/16"});
    let network = ours.post("/v1/networks", network).await.json["network"]["id"].clone();
    for path in [format!("/v1/servers/{server}"), format!("/v1/networks/{network}")] {
        assert_eq!(ours.get(&path).await.status, StatusCode::OK, "{path}");
        assert_eq!(theirs.get(&path).await.failure(), (404, "not_found"), "{path}");
        assert_eq!(theirs.delete(&path).await.failure(), (404, "not_found"), "{path}");
    }
    assert_eq!(names(&theirs.get("/v1/servers").await, "servers"), Vec::<&str>::new());
    let action = ours.get("/v1/actions").await.json["actions"][0]["id"].clone();
    assert_eq!(theirs.get(&format!("/v1/actions/{action}")).await.failure(), (404, "not_found"));
    theirs.server("a").await;
    let ids: Vec<i64> = standin.servers_ever().iter().map(|server| server.id).collect();
    assert_eq!(ids.len(), 2, "names are unique per project only");
}

#[tokio::test(start_paused = true)]
async fn an_empty_bucket_refuses_until_it_refills() {
    let limit = NonZeroU32::new(3600).expect("not zero");
    let standin = standin(Settings { requests_per_hour: limit, ..settings() });
    standin.set_rate("a", 3600, 2);
    let client = Client::new(&standin);
    let first = client.get("/v1/locations").await;
    assert_eq!(first.header("ratelimit-limit"), "3600");
    assert_eq!(first.header("ratelimit-remaining"), "1");
    let full_at: i64 = first.header("ratelimit-reset").parse().expect("a number");
    assert_eq!(full_at - standin.now().as_second(), 3599);
    client.get("/v1/servers/1").await;
    let refused = client.get("/v1/locations").await;
    assert_eq!(refused.failure(), (429, "rate_limit_exceeded"));
    assert_eq!(refused.header("ratelimit-remaining"), "0");
    assert_eq!(Client::with_token(&standin, OTHER).get("/v1/locations").await.status, StatusCode::OK);
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(client.get("/v1/locations").await.status, StatusCode::OK);
    assert_eq!(client.get("/v1/locations").await.failure(), (429, "rate_limit_exceeded"));
}

#[tokio::test(start_paused = true)]
async fn every_reply_has_its_own_correlation_id() {
    let standin = standin(settings());
    let client = Client::new(&standin);
    let ok = client.get("/v1/locations").await;
    let failed = client.get("/v1/servers/1").await;
    let ids = [ok.header("x-correlation-id"), failed.header("x-correlation-id")];
    assert!(ids.iter().all(|id| !id.is_empty()) && ids[0] != ids[1], "{ids:?}");
    assert_eq!(ok.header("date"), "Thu, 01 Jan 2026 00:00:00 GMT", "the stand-in's own time");
}

#[tokio::test(start_paused = true)]
async fn an_unknown_path_is_a_page_in_html() {
    let standin = standin(settings());
    let client = Client::new(&standin);
    for path in ["/v1/volumes", "/v2/servers", "/", "/v1/servers/1/actions/explode/now"] {
        let reply = client.get(path).await;
        assert_eq!(reply.status, StatusCode::NOT_FOUND, "{path}");
        assert_eq!(reply.header("content-type"), "text/html", "{path}");
        assert!(reply.json.is_null(), "{path}: {}", reply.text);
    }
    let reply = client.get("/v1/datacenters").await;
    assert_eq!(reply.failure(), (410, "deprecated_api_endpoint"));
}

#[tokio::test(start_paused = true)]
async fn the_fixed_lists_are_complete() {
    let standin = standin(settings());
    let client = Client::new(&standin);
    let locations = client.get("/v1/locations").await;
    assert_eq!(names(&locations, "locations"), ["fsn1", "nbg1", "hel1", "ash", "hil", "sin"]);
    let zone = &client.get("/v1/locations?name=sin").await.json["locations"][0]["network_zone"];
    assert_eq!(*zone, "ap-southeast");
    let reply = client.get("/v1/load_balancer_types?name=lb21").await;
    let kind = &reply.json["load_balancer_types"][0];
    assert_eq!((&kind["max_targets"], &kind["max_services"]), (&json!(75), &json!(15)));
    let id = kind["id"].clone();
    let reply = client.get(&format!("/v1/load_balancer_types/{id}")).await;
    assert_eq!(reply.json["load_balancer_type"]["name"], "lb21");
    let images = client.get("/v1/images?name=ubuntu-24.04&architecture=arm").await;
    assert_eq!(names(&images, "images"), ["ubuntu-24.04"]);
    assert_eq!(client.get("/v1/server_types/1").await.failure(), (404, "not_found"));
    assert_eq!(names(&client.get("/v1/server_types?name=cax11").await, "server_types"), ["cax11"]);
}

#[tokio::test(start_paused = true)]
async fn requests_are_recorded_without_their_token() {
    let standin = standin(instant());
    let client = Client::new(&standin);
    let id = client.server("a").await;
    client.get(&format!("/v1/servers/{id}")).await;
    client.get("/v1/servers/77").await;
    Client::without_token(&standin).get("/v1/servers?page=1").await;
    assert_eq!(
        standin.counters(),
        [("GET /v1/servers", 1), ("GET /v1/servers/{id}", 2), ("POST /v1/servers", 1)]
            .map(|(name, count)| (name.to_owned(), count))
            .into()
    );
    let requests = standin.requests();
    let last = requests.last().expect("four requests");
    assert_eq!((last.path.as_str(), last.status, &last.project), ("/v1/servers?page=1", Some(401), &None));
    assert_eq!(requests[2].code.as_deref(), Some("not_found"));
    assert_eq!(requests[2].project.as_deref(), Some("a"));
    assert_eq!(requests[2].user_agent, "test/1");
    let text = format!("{requests:?} {:?} {:?}", standin.settings(), standin.dump());
    assert!(!text.contains(TOKEN), "{text}");
    standin.clear_requests();
    assert!(standin.counters().is_empty() && standin.requests().is_empty());
}

#[tokio::test(start_paused = true)]
async fn equal_seeds_and_requests_give_equal_replies() {
    let run = async |seed: u32| {
        let standin = standin(Settings { seed, ..instant() });
        let client = Client::new(&standin);
        client.server("a").await;
        client.get("/v1/servers").await.text
    };
    assert_eq!(run(1).await, run(1).await);
    assert_ne!(run(1).await, run(2).await);
}

#[tokio::test(start_paused = true)]
async fn ssh_keys_are_created_listed_and_deleted() {
    let standin = standin(instant());
    let client = Client::new(&standin);
    let key = json!({"name": "k", "public_key": "ssh-ed25519 AAAA"});
    let created = client.post("/v1/ssh_keys", key.clone()).await;
    assert_eq!(created.status, StatusCode::CREATED);
    let id = created.json["ssh_key"]["id"].clone();
    assert_eq!(client.post("/v1/ssh_keys", key).await.failure(), (409, "uniqueness_error"));
    assert_eq!(names(&client.get("/v1/ssh_keys").await, "ssh_keys"), ["k"]);
    let reply = client.server_with("a", json!({"ssh_keys": [id]})).await;
    assert!(0 < reply);
    assert_eq!(client.delete(&format!("/v1/ssh_keys/{id}")).await.status, StatusCode::NO_CONTENT);
    assert_eq!(client.get(&format!("/v1/ssh_keys/{id}")).await.failure(), (404, "not_found"));
}
