//! Permissions, tested through clients.

use std::sync::Arc;
use std::time::Duration;

use http::{Method, Request};
use http_body_util::Full;
use k8s_openapi::api::authentication::v1::{TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::{ConfigMap, Node, Secret, ServiceAccount};
use k8s_openapi::api::rbac::v1::{ClusterRole, RoleBinding};
use kube::Client;
use kube::api::{Api, DeleteParams, ListParams, PostParams};
use machinist_apiserver::{ApiService, Authorization, Config, Identity, Server, TokenKey, TokioClock};
use serde_json::json;
use tower::Service as _;

fn server() -> Server {
    let epoch = "2026-01-01T00:00:00Z".parse().expect("a time");
    let clock = Arc::new(TokioClock::starting_at(epoch));
    Server::new(Config { clock, authorization: Authorization::Rbac, ..Config::default() })
}

fn admin(server: &Server) -> Client {
    Client::new(server.service_as(Identity::admin()), "default")
}

fn code<T: std::fmt::Debug>(result: Result<T, kube::Error>) -> u16 {
    match result {
        Ok(_) => 200,
        Err(kube::Error::Api(status)) => status.code,
        Err(other) => panic!("{other}"),
    }
}

async fn token(server: &Server, seconds: i64) -> String {
    let accounts: Api<ServiceAccount> = Api::default_namespaced(admin(server));
    let spec = TokenRequestSpec { expiration_seconds: Some(seconds), ..TokenRequestSpec::default() };
    let request = TokenRequest { spec, ..TokenRequest::default() };
    let answer = accounts.create_token_request("default", &PostParams::default(), &request).await;
    answer.expect("a token").status.expect("a status").token
}

async fn let_accounts_view(server: &Server) {
    let bindings: Api<RoleBinding> = Api::default_namespaced(admin(server));
    let binding = json!({
        "metadata": {"name": "view"}, "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "view"},
        "subjects": [{"kind": "ServiceAccount", "name": "default", "namespace": "default"}],
    });
    let binding: RoleBinding = serde_json::from_value(binding).expect("a binding");
    bindings.create(&PostParams::default(), &binding).await.expect("bound");
}

#[tokio::test(start_paused = true)]
async fn a_token_works_until_it_expires_with_its_roles_only() {
    let server = server();
    let_accounts_view(&server).await;
    let client = Client::new(server.service_with_bearer(&token(&server, 600).await), "default");
    let maps: Api<ConfigMap> = Api::default_namespaced(client.clone());
    let secrets: Api<Secret> = Api::default_namespaced(client.clone());
    assert_eq!(code(maps.list(&ListParams::default()).await), 200);
    assert_eq!(code(secrets.list(&ListParams::default()).await), 403);
    assert_eq!(code(Api::<ConfigMap>::all(client).list(&ListParams::default()).await), 403);
    tokio::time::advance(Duration::from_secs(599)).await;
    assert_eq!(code(maps.list(&ListParams::default()).await), 200);
    tokio::time::advance(Duration::from_secs(1)).await;
    assert_eq!(code(maps.list(&ListParams::default()).await), 401);
}

#[tokio::test(start_paused = true)]
async fn a_token_ends_with_its_account_even_if_recreated() {
    let server = server();
    let_accounts_view(&server).await;
    let client = Client::new(server.service_with_bearer(&token(&server, 3600).await), "default");
    let maps: Api<ConfigMap> = Api::default_namespaced(client);
    assert_eq!(code(maps.list(&ListParams::default()).await), 200);
    let accounts: Api<ServiceAccount> = Api::default_namespaced(admin(&server));
    accounts.delete("default", &DeleteParams::default()).await.expect("deleted");
    assert_eq!(code(maps.list(&ListParams::default()).await), 401);
    let again: ServiceAccount =
        serde_json::from_value(json!({"metadata": {"name": "default"}})).expect("an account");
    accounts.create(&PostParams::default(), &again).await.expect("created");
    assert_eq!(code(maps.list(&ListParams::default()).await), 401);
}

#[tokio::test(start_paused = true)]
async fn a_token_survives_a_restart_only_with_its_key() {
    let (key, other) = (TokenKey::generate().expect("a key"), TokenKey::generate().expect("a key"));
    let with = |key: &TokenKey| {
        let ids = Arc::new(machinist_apiserver::SeededIds::new(1));
        Server::new(Config { ids, token_key: Some(key.clone()), ..Config::default() })
    };
    let made = token(&with(&key), 3600).await;
    // The same seed creates the same account.
    let asks = async |server: Server| {
        let client = Client::new(server.service_with_bearer(&made), "default");
        code(Api::<ConfigMap>::default_namespaced(client).list(&ListParams::default()).await)
    };
    assert_eq!(asks(with(&key)).await, 200);
    assert_eq!(asks(with(&other)).await, 401);
}

#[tokio::test(start_paused = true)]
async fn a_node_certificate_works_only_for_its_own_node() {
    let server = server();
    let nodes: Api<Node> = Api::all(admin(&server));
    for name in ["a", "b"] {
        let node: Node = serde_json::from_value(json!({"metadata": {"name": name}})).expect("a node");
        nodes.create(&PostParams::default(), &node).await.expect("created");
    }
    let ca = server.ca().expect("a CA");
    let issued = ca.issue_client("system:node:a", "system:nodes", server.clock().now()).expect("issued");
    let service = server.service_with_client_cert(&issued.certificate_pem).expect("a certificate");
    let client = Client::new(service, "default");
    let nodes: Api<Node> = Api::all(client.clone());
    assert_eq!(code(nodes.get("a").await), 200);
    assert_eq!(code(nodes.get("b").await), 403);
    assert_eq!(code(nodes.list(&ListParams::default()).await), 403);
    assert_eq!(code(nodes.delete("a", &DeleteParams::default()).await), 403);
    assert_eq!(code(Api::<Secret>::all(client).list(&ListParams::default()).await), 403);
}

#[tokio::test(start_paused = true)]
async fn without_rbac_every_authenticated_user_has_all_permissions() {
    let server = Server::new(Config::default());
    let jane = Client::new(server.service_as(Identity::new("jane", [""; 0])), "default");
    assert_eq!(code(Api::<Secret>::all(jane.clone()).list(&ListParams::default()).await), 200);
    let roles = Api::<ClusterRole>::all(jane).list(&ListParams::default()).await.expect("served");
    assert!(roles.items.is_empty());
}

async fn ask(service: &ApiService, method: Method, path: &str, headers: &[(&str, &str)]) -> u16 {
    let mut request = Request::builder().method(method).uri(path);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let request = request.body(Full::new(bytes::Bytes::new())).expect("a request");
    service.clone().call(request).await.expect("an answer").status().as_u16()
}

#[tokio::test(start_paused = true)]
async fn audit_records_name_user_and_impersonated_user() {
    let server = server();
    let mut audit = server.audit();
    let path = "/api/v1/namespaces/default/secrets/s";
    assert_eq!(ask(&server.service_anonymous(), Method::GET, path, &[]).await, 401);
    let jane = server.service_as(Identity::new("jane", [""; 0]));
    assert_eq!(ask(&jane, Method::DELETE, path, &[]).await, 403);
    let admin = server.service_as(Identity::admin());
    assert_eq!(ask(&admin, Method::PUT, path, &[("Impersonate-User", "bob")]).await, 403);
    let told: Vec<String> = audit
        .drain()
        .iter()
        .map(|record| {
            let as_whom = record.impersonated.as_deref().unwrap_or("-");
            format!(
                "{}|{as_whom}|{} {} {}/{} {}",
                record.user, record.verb, record.resource, record.namespace, record.name, record.code
            )
        })
        .collect();
    assert_eq!(
        told,
        [
            "|-|get secrets default/s 401",
            "jane|-|delete secrets default/s 403",
            "kubernetes-admin|bob|update secrets default/s 403",
        ]
    );
}
