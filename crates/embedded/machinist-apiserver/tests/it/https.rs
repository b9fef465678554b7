//! The server over HTTPS: its files and the authentication of clients.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use k8s_openapi::api::core::v1::{Namespace, Node, Secret};
use kube::api::{Api, ListParams, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use machinist_apiserver::{Config, Identity, Server};
use serde_json::json;

async fn client(kubeconfig: &Path, change: impl FnOnce(&mut Kubeconfig)) -> kube::Client {
    let mut parsed = Kubeconfig::read_from(kubeconfig).expect("a kubeconfig");
    change(&mut parsed);
    let config =
        kube::Config::from_custom_kubeconfig(parsed, &KubeConfigOptions::default()).await.expect("a config");
    kube::Client::try_from(config).expect("a client")
}

async fn code_of(client: kube::Client) -> u16 {
    match Api::<Namespace>::all(client).list(&ListParams::default()).await {
        Ok(_) => 200,
        Err(kube::Error::Api(status)) => status.code,
        Err(other) => panic!("no answer: {other}"),
    }
}

#[tokio::test]
async fn the_kubeconfig_works_and_secrets_are_private() {
    let server = Server::new(Config::default());
    let folder = tempfile::tempdir().expect("a folder");
    let loopback = "127.0.0.1:0".parse().expect("an address");
    let serving = server.serve(loopback, folder.path()).await.expect("served");
    for private in ["kubeconfig", "ca.key"] {
        let mode = folder.path().join(private).metadata().expect("the file").permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{private}");
    }
    assert_eq!(code_of(client(&serving.kubeconfig, |_| {}).await).await, 200);
    let taken = server.serve(serving.address, folder.path()).await.expect_err("the port is in use");
    assert_eq!(taken.to_string(), format!("cannot listen on {}", serving.address));
    serving.shutdown().await;
}

#[tokio::test]
async fn an_unauthenticated_client_gets_401() {
    let server = Server::new(Config::default());
    let folder = tempfile::tempdir().expect("a folder");
    let serving =
        server.serve("127.0.0.1:0".parse().expect("an address"), folder.path()).await.expect("served");
    let nobody = client(&serving.kubeconfig, |k| {
        let user = k.auth_infos[0].auth_info.as_mut().expect("a user");
        (user.client_certificate_data, user.client_key_data) = (None, None);
    });
    assert_eq!(code_of(nobody.await).await, 401);
    let stranger =
        machinist_apiserver::CertificateAuthority::generate(server.clock().now()).expect("another CA");
    let forged =
        stranger.issue_client("kubernetes-admin", "system:masters", server.clock().now()).expect("issued");
    let forger = client(&serving.kubeconfig, |k| {
        use base64::Engine as _;
        let base64 = |text: &str| base64::engine::general_purpose::STANDARD.encode(text);
        let user = k.auth_infos[0].auth_info.as_mut().expect("a user");
        user.client_certificate_data = Some(base64(&forged.certificate_pem));
        user.client_key_data = Some(base64(&forged.key_pem).into());
    });
    assert_eq!(code_of(forger.await).await, 401);
}

#[tokio::test(start_paused = true)]
async fn bootstrap_tokens_work_until_they_expire() {
    let epoch = "2026-01-01T00:00:00Z".parse().expect("a time");
    let clock = std::sync::Arc::new(machinist_apiserver::TokioClock::starting_at(epoch));
    let server = Server::new(Config { clock, ..Config::default() });
    let admin = kube::Client::new(server.service_as(Identity::admin()), "default");
    let secrets: Api<Secret> = Api::namespaced(admin, "kube-system");
    let secret: Secret = serde_json::from_value(json!({
        "metadata": {"name": "bootstrap-token-abcdef"}, "type": "bootstrap.kubernetes.io/token",
        "stringData": {
            "token-id": "abcdef", "token-secret": "0123456789abcdef", "usage-bootstrap-authentication": "true",
            "expiration": "2026-01-01T00:20:00Z", "auth-extra-groups": "system:bootstrappers:machines"
        }
    }))
    .expect("a secret");
    secrets.create(&PostParams::default(), &secret).await.expect("created");
    let mut audit = server.audit();
    let with = |token: &str| kube::Client::new(server.service_with_bearer(token), "default");
    assert_eq!(code_of(with("abcdef.0123456789abcdef")).await, 200);
    assert_eq!(audit.drain()[0].user, "system:bootstrap:abcdef");
    assert_eq!(code_of(with("abcdef.0123456789abcdeX")).await, 401);
    assert_eq!(code_of(with("fedcba.0123456789abcdef")).await, 401);
    assert_eq!(code_of(kube::Client::new(server.service_anonymous(), "default")).await, 401);
    tokio::time::advance(std::time::Duration::from_secs(20 * 60)).await;
    assert_eq!(code_of(with("abcdef.0123456789abcdef")).await, 401);
}

#[tokio::test(start_paused = true)]
async fn a_client_certificate_names_user_and_group() {
    let server = Server::new(Config::default());
    let ca = server.ca().expect("a CA");
    let issued = ca.issue_client("system:node:n1", "system:nodes", server.clock().now()).expect("issued");
    let service = server.service_with_client_cert(&issued.certificate_pem).expect("a certificate");
    let mut audit = server.audit();
    let nodes: Api<Node> = Api::all(kube::Client::new(service, "default"));
    let node: Node = serde_json::from_value(json!({"metadata": {"name": "n1"}})).expect("a node");
    nodes.create(&PostParams::default(), &node).await.expect("created");
    let record = audit.drain().remove(0);
    assert_eq!(
        (record.user.as_str(), record.verb.as_str(), record.name.as_str()),
        ("system:node:n1", "create", "n1")
    );
}
