//! Errors of an API server: permissions, silence, and settings that are wrong.

use std::sync::Arc;

use kube::api::PostParams;
use kube::{Api, Client};
use machinist_apiserver::Authorization;
use machinist_driver::Provider as _;
use machinist_driver_local::{ControlCluster, LocalOptions, LocalProvider, client_options};
use machinist_instance::{Credential, ErrorKind, InstanceSpec, Place, Scope};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::cluster::{
    Cluster, ELSEWHERE, NAMESPACE, class, delete, ensure, found, id, instance_spec, key, recorded, unrecorded,
};
use crate::pipe::{Fault, Pipe};

const PAGE: &str = include_str!("../../../../../docs/src/clouds/local.md");

async fn create<K>(client: Client, object: Value)
where
    K: kube::Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>
        + serde::Serialize
        + DeserializeOwned
        + Clone
        + std::fmt::Debug,
{
    let object: K = serde_json::from_value(object).expect("an object");
    Api::<K>::namespaced(client, NAMESPACE).create(&PostParams::default(), &object).await.expect("created");
}

/// The Role of the page of the book, and a binding of it.
async fn grant(cluster: &Cluster, user: &str) {
    use k8s_openapi::api::rbac::v1::{Role, RoleBinding};
    let (_, block) = PAGE.split_once("kind: Role\n").expect("a Role");
    let (role, _) = block.split_once("```").expect("the Role ends");
    let role = format!("apiVersion: rbac.authorization.k8s.io/v1\nkind: Role\n{role}");
    let mut role: Value = serde_saphyr::from_str(&role).expect("YAML");
    role["metadata"]["namespace"] = json!(NAMESPACE);
    let name = role["metadata"]["name"].clone();
    create::<Role>(cluster.client(), role).await;
    let binding = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding", "metadata": {"name": "b"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": name},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user}],
    });
    create::<RoleBinding>(cluster.client(), binding).await;
}

#[tokio::test(start_paused = true)]
async fn without_permissions_every_call_is_denied() {
    let cluster = Cluster::with(Authorization::Rbac).await;
    ensure(&*cluster.driver(), &instance_spec("a")).await.expect("created by another user");
    let driver = cluster.driver_as("stranger");
    let kinds = [
        ensure(&*driver, &instance_spec("b")).await.map(drop),
        driver.instances().find(&recorded("a")).await.map(drop),
        driver.instances().find(&unrecorded("a")).await.map(drop),
        driver.instances().list(&Scope::Visible).await.map(drop),
        delete(&*driver, &recorded("a"), &key("uid-a")).await,
    ];
    for result in kinds {
        let error = result.expect_err("not permitted");
        assert_eq!(error.kind, ErrorKind::Denied);
        assert!(error.message.contains("User \"stranger\" cannot"), "{error}");
    }
    assert_eq!(cluster.names("pods"), ["machine-a"]);
}

#[tokio::test(start_paused = true)]
async fn the_role_of_the_book_permits_every_call() {
    let cluster = Cluster::with(Authorization::Rbac).await;
    grant(&cluster, "machinist").await;
    let driver = cluster.driver_as("machinist");
    ensure(&*driver, &instance_spec("a")).await.expect("created");
    ensure(&*driver, &instance_spec("a")).await.expect("the same");
    cluster.until_running("machine-a").await;
    found(&*driver, &unrecorded("a")).await;
    driver.instances().list(&Scope::Ours("default".to_owned())).await.expect("listed");
    let calls = driver.initialization().expect("a driver with initialization");
    calls.initialize(&id("a"), &key("uid-a"), &class()).await.expect("initialized");
    driver.instances().rekey(&id("a"), &key("uid-a"), &key("uid-b")).await.expect("rekeyed");
    let which = machinist_instance::InstanceRef { key: Some(key("uid-b")), ..recorded("a") };
    delete(&*driver, &which, &key("uid-b")).await.expect("deleted");
    cluster.until_absent("machine-a").await;
    delete(&*driver, &which, &key("uid-b")).await.expect("parts are deleted");
    assert_eq!(cluster.objects().map(|names| names.len()), [0, 0, 0]);
}

/// No answer is not an answer: neither a presence nor an absence.
#[tokio::test(start_paused = true)]
async fn a_silent_server_says_nothing_about_an_instance() {
    let cluster = Cluster::new().await;
    let driver = cluster.driver();
    ensure(&*driver, &instance_spec("a")).await.expect("created");
    for fault in [Fault::Silence, Fault::Unreachable, Fault::LateEffect(std::time::Duration::ZERO)] {
        cluster.pipe.once("GET pods", fault.clone());
        let error = driver.instances().find(&recorded("a")).await.expect_err("no answer");
        assert_eq!(error.kind, ErrorKind::Unavailable, "{fault:?}: {error}");
        cluster.pipe.once("GET pods", fault);
        let error = driver.instances().list(&Scope::Visible).await.expect_err("no answer");
        assert_eq!(error.kind, ErrorKind::Unavailable, "{error}");
    }
    // A write that was not answered may have an effect, and a write that was not sent has none.
    for (fault, kind) in
        [(Fault::Silence, ErrorKind::Ambiguous), (Fault::Unreachable, ErrorKind::Unavailable)]
    {
        cluster.pipe.once("POST pods", fault);
        let error = ensure(&*driver, &instance_spec("b")).await.expect_err("no answer");
        assert_eq!(error.kind, kind, "{error}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_404_of_something_else_is_no_absence() {
    let cluster = Cluster::new().await;
    let page =
        json!({"kind": "Status", "status": "Failure", "code": 404, "reason": "NotFound", "message": "page"});
    cluster.pipe.refuse("", page);
    let driver = cluster.driver();
    let error = driver.instances().find(&recorded("a")).await.expect_err("no answer about the pod");
    assert_eq!(error.kind, ErrorKind::Unavailable, "{error}");
    let error = delete(&*driver, &recorded("a"), &key("uid-a")).await.expect_err("not deleted");
    assert_eq!(error.kind, ErrorKind::Unavailable, "{error}");
}

#[tokio::test(start_paused = true)]
async fn a_missing_namespace_names_the_field() {
    let cluster = Cluster::new().await;
    let credential = crate::cluster::credential(crate::cluster::ONE, "admin");
    let mut class = class();
    class["namespace"] = json!("nowhere");
    let place = cluster.provider.place(&class).expect("a place");
    let account = cluster.provider.account(&credential, &place);
    let driver = cluster.provider.open(&account, &credential, &place).expect("opened");
    let spec = InstanceSpec { provider_spec: class, ..instance_spec("a") };
    let error = ensure(&*driver, &spec).await.expect_err("no namespace");
    assert_eq!(error.kind, ErrorKind::InvalidSpec);
    let expected = "providerSpec.namespace: expected a namespace that exists, got \"nowhere\"";
    assert_eq!(error.message, expected);
}

/// Without a kubeconfig, the pods are in the control cluster.
#[tokio::test(start_paused = true)]
async fn a_class_without_a_kubeconfig_uses_the_control_cluster() {
    let cluster = Cluster::new().await;
    let pipe = Pipe::to(cluster.server.clone());
    let control = |address: &str| {
        let client = pipe.client(machinist_apiserver::Identity::admin(), &client_options());
        let control = Some(ControlCluster { address: address.to_owned(), client, ends_with_process: false });
        LocalProvider::new(LocalOptions { namespace: NAMESPACE.to_owned(), control })
    };
    let (nothing, here) = (Credential::default(), Place::WHOLE);
    let one = control("https://one");
    let driver = one.open(&one.account(&nothing, &here), &nothing, &here).expect("opened");
    ensure(&*driver, &instance_spec("a")).await.expect("created");
    assert_eq!(cluster.names("pods"), ["machine-a"]);
    // The account depends on the server and on the namespace, and not on the way to write it.
    assert_eq!(one.account(&nothing, &here), one.account(&nothing, &Place::new(NAMESPACE)));
    assert_ne!(one.account(&nothing, &here), one.account(&nothing, &Place::new(ELSEWHERE)));
    assert_ne!(one.account(&nothing, &here), control("https://two").account(&nothing, &here));

    let without = Arc::new(LocalProvider::new(LocalOptions::default()));
    let driver = without.open(&without.account(&nothing, &here), &nothing, &here).expect("opened");
    let error = driver.instances().find(&recorded("a")).await.expect_err("no cluster");
    assert_eq!(error.kind, ErrorKind::Denied);
    assert!(error.message.starts_with("kubeconfig: expected"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn a_renewed_kubeconfig_opens_the_same_account() {
    let cluster = Cluster::new().await;
    let account = |user: &str| {
        let credential = crate::cluster::credential(crate::cluster::ONE, user);
        cluster.provider.account(&credential, &Place::WHOLE)
    };
    assert_eq!(account("admin"), account("renewed"));
}
