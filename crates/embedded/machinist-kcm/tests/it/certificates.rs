//! A kubelet joins with a bootstrap token and gets its certificate.

use base64::Engine as _;
use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use k8s_openapi::api::core::v1::Node;
use kube::Client;
use kube::api::{Api, PostParams};
use serde_json::{Value, json};

use crate::objects::request;
use crate::world::{Authorization, World};

const CSRS: &str = "certificatesigningrequests";

async fn file(client: &Client, request: &CertificateSigningRequest) {
    let api: Api<CertificateSigningRequest> = Api::all(client.clone());
    api.create(&PostParams::default(), request).await.expect("filed");
}

/// Asserts that the server rejects a node's request for the identity of another node.
async fn assert_usurping_is_refused(node: &Client) {
    let api: Api<CertificateSigningRequest> = Api::all(node.clone());
    let filed = api.create(&PostParams::default(), &request("usurp", "system:node:b")).await;
    let refused = filed.expect_err("the server accepts the request").to_string();
    assert!(refused.contains("can only create a node CSR with CN=system:node:a"), "{refused}");
}

fn certificate(world: &World, name: &str) -> Option<String> {
    let request = world.get(CSRS, name)?;
    let base64 = request.pointer("/status/certificate").and_then(Value::as_str)?;
    let pem = base64::engine::general_purpose::STANDARD.decode(base64).expect("base64");
    Some(String::from_utf8(pem).expect("text"))
}

/// Returns a world in which roles allow bootstrap tokens and nodes to create requests, and grant
/// nothing else.
async fn world_with_roles() -> World {
    let mut world = World::with_authorization(Authorization::Rbac);
    for group in ["system:bootstrappers", "system:nodes", "people"] {
        bind(&world, "system:node-bootstrapper", group).await;
    }
    world.start_controllers(|_| {});
    world
}

async fn bind(world: &World, role: &str, group: &str) {
    let api_group = "rbac.authorization.k8s.io";
    let binding = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
        "metadata": { "name": format!("{role}:{group}") },
        "roleRef": { "apiGroup": api_group, "kind": "ClusterRole", "name": role },
        "subjects": [{ "apiGroup": api_group, "kind": "Group", "name": group }],
    });
    world.create(binding).await;
}

#[tokio::test(start_paused = true)]
async fn a_requester_without_a_binding_is_not_approved() {
    let mut world = world_with_roles().await;
    let bootstrapper = world.client_as("system:bootstrap:abcdef", &["system:bootstrappers"]);
    file(&bootstrapper, &request("join", "system:node:a")).await;
    let node = world.client_as("system:node:a", &["system:nodes"]);
    file(&node, &request("renew", "system:node:a")).await;
    assert_usurping_is_refused(&node).await;
    world.pass(30).await;
    assert_eq!(world.requests(), Vec::<String>::new());

    // Each binding takes effect for existing requests, too.
    let role = |of: &str| format!("system:certificates.k8s.io:certificatesigningrequests:{of}");
    bind(&world, &role("selfnodeclient"), "system:nodes").await;
    world.until("the certificate is renewed", 61, |world| certificate(world, "renew").is_some()).await;
    assert_eq!(certificate(&world, "join"), None);
    bind(&world, &role("nodeclient"), "system:bootstrappers").await;
    world.until("the joining request is signed", 61, |world| certificate(world, "join").is_some()).await;
}

#[tokio::test(start_paused = true)]
async fn a_bootstrap_token_becomes_a_node_that_renews_itself() {
    let mut world = world_with_roles().await;
    bind(&world, "system:certificates.k8s.io:certificatesigningrequests:nodeclient", "system:bootstrappers")
        .await;
    bind(&world, "system:certificates.k8s.io:certificatesigningrequests:selfnodeclient", "system:nodes")
        .await;
    let bootstrapper = world.client_as("system:bootstrap:abcdef", &["system:bootstrappers"]);
    file(&bootstrapper, &request("join", "system:node:a")).await;
    let seconds = world.until("the request is signed", 5, |world| certificate(world, "join").is_some()).await;
    assert_eq!(seconds, 0, "the request is signed without delay");
    assert_eq!(
        world.requests(),
        [
            "patch certificatesigningrequests/approval join 200",
            "patch certificatesigningrequests/status join 200"
        ]
    );

    // The server accepts the certificate as the identity of that node.
    let pem = certificate(&world, "join").expect("signed");
    let service = world.server.service_with_client_cert(&pem).expect("a certificate");
    let as_node = Client::new(service, "default");
    let node: Node = serde_json::from_value(json!({ "metadata": { "name": "a" } })).expect("a node");
    Api::<Node>::all(as_node.clone()).create(&PostParams::default(), &node).await.expect("registered");

    file(&as_node, &request("renew", "system:node:a")).await;
    world.until("the renewal is signed", 5, |world| certificate(world, "renew").is_some()).await;
    assert_usurping_is_refused(&as_node).await;
    world.pass(3601).await;
    let refused = Api::<Node>::all(as_node).get("a").await;
    assert!(refused.is_err(), "the certificate expires after the requested hour");
}

#[tokio::test(start_paused = true)]
async fn an_approved_request_is_signed_unless_it_is_no_node_request() {
    let mut world = world_with_roles().await;
    let person = world.client_as("person", &["people"]);
    file(&person, &request("good", "system:node:a")).await;
    file(&person, &request("bad", "admin")).await;
    world.pass(60).await;
    assert_eq!(world.requests(), Vec::<String>::new());

    let api: Api<CertificateSigningRequest> = Api::all(world.client.clone());
    for name in ["good", "bad"] {
        let mut approved = api.get(name).await.expect("there");
        let condition =
            json!([{ "type": "Approved", "status": "True", "reason": "Me", "message": "I know them" }]);
        approved.status.get_or_insert_default().conditions =
            serde_json::from_value(condition).expect("conditions");
        api.replace_subresource("approval", name, &PostParams::default(), &approved).await.expect("approved");
    }
    world.until("the good one is signed", 5, |world| certificate(world, "good").is_some()).await;
    let failed = |world: &World| {
        let request = world.get(CSRS, "bad").expect("there");
        let conditions = request["status"]["conditions"].as_array().cloned().unwrap_or_default();
        conditions.iter().any(|condition| {
            condition["type"] == "Failed" && condition["message"].to_string().contains("common name")
        })
    };
    world.until("the bad request has the condition Failed", 5, failed).await;
    assert_eq!(certificate(&world, "bad"), None);
}

#[tokio::test(start_paused = true)]
async fn old_requests_are_deleted() {
    let mut world = world_with_roles().await;
    bind(&world, "system:certificates.k8s.io:certificatesigningrequests:nodeclient", "system:bootstrappers")
        .await;
    bind(&world, "system:certificates.k8s.io:certificatesigningrequests:selfnodeclient", "system:nodes")
        .await;
    let bootstrapper = world.client_as("system:bootstrap:abcdef", &["system:bootstrappers"]);
    file(&bootstrapper, &request("join", "system:node:a")).await;
    file(&bootstrapper, &request("pending", "admin")).await;
    world.pass(3590).await;
    assert!(world.exists(CSRS, "join") && world.exists(CSRS, "pending"));
    world
        .until("the settled request is deleted after an hour", 15, |world| !world.exists(CSRS, "join"))
        .await;
    world.pass(22 * 3600).await;
    assert!(world.exists(CSRS, "pending"));
    world
        .until("the pending request is deleted after a day", 3700, |world| !world.exists(CSRS, "pending"))
        .await;
}
