//! The same controllers beside a real kube-apiserver that no kube-controller-manager serves.

use std::time::Duration;

use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, ApiResource, DeleteParams, DynamicObject, EvictParams, GroupVersionKind, PostParams};
use kube::{Client, Config as ClientConfig};
use machinist_kcm::{CaPair, Config};
use machinist_kube::{ClientOptions, KubeconfigSource, connect};
use serde_json::{Value, json};

use crate::certificates::request;
use crate::world::{config_map, node, owner, pod};

/// Generous: the server is real, and so is time.
const WITHIN: Duration = Duration::from_secs(30);

struct Real {
    client: Client,
}

impl Real {
    fn api(&self, kind: &str, namespace: &str) -> Api<DynamicObject> {
        let (api_version, kind) = kind.rsplit_once('/').unwrap_or(("v1", kind));
        let (group, version) = api_version.rsplit_once('/').unwrap_or(("", api_version));
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind));
        match namespace {
            "" => Api::all_with(self.client.clone(), &resource),
            namespace => Api::namespaced_with(self.client.clone(), namespace, &resource),
        }
    }

    async fn create(&self, kind: &str, namespace: &str, object: Value) -> String {
        let object: DynamicObject = serde_json::from_value(object).expect("an object");
        let made = self.api(kind, namespace).create(&PostParams::default(), &object).await.expect("created");
        made.metadata.uid.expect("the server gives a UID")
    }

    async fn until(
        &self,
        kind: &str,
        namespace: &str,
        name: &str,
        holds: impl Fn(Option<&DynamicObject>) -> bool,
    ) {
        let api = self.api(kind, namespace);
        let mut last = None;
        let attempt = async {
            loop {
                last = api.get_opt(name).await.expect("read");
                if holds(last.as_ref()) {
                    return;
                }
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        };
        let done = tokio::time::timeout(WITHIN, attempt).await;
        assert!(done.is_ok(), "{kind} {name} within {WITHIN:?}: {last:#?}");
    }

    async fn until_gone(&self, kind: &str, namespace: &str, name: &str) {
        self.until(kind, namespace, name, |object| object.is_none()).await;
    }
}

fn variable(name: &str) -> String {
    std::env::var(name).unwrap_or_else(|_| panic!("{name} is to name a file"))
}

fn text(name: &str) -> String {
    std::fs::read_to_string(variable(name)).expect("readable")
}

#[tokio::test]
#[ignore = "needs an empty kube-apiserver without kube-controller-manager, as REAL_KUBECONFIG, REAL_CA and REAL_CA_KEY name it"]
async fn everything_works_beside_a_real_server() {
    let source = KubeconfigSource::File(variable("REAL_KUBECONFIG").into());
    let client = connect(&source, &ClientOptions::new("kcm")).await.expect("a client");
    let mut config = Config::default();
    config.ca = Some(CaPair::from_pem(&text("REAL_CA"), &text("REAL_CA_KEY")).expect("an authority"));
    config.node_monitor_grace = Duration::from_secs(4);
    config.node_monitor_period = Duration::from_secs(1);
    config.missing_node_quarantine = Duration::from_secs(3);
    let controllers = tokio::spawn(machinist_kcm::run(client.clone(), config));
    let real = Real { client };
    real.create("ServiceAccount", "default", json!({ "metadata": { "name": "default" } })).await;

    collects_garbage(&real).await;
    serves_budgets(&real).await;
    signs(&real).await;
    finds_lost_nodes(&real).await;
    clears_tokens(&real).await;
    assert!(!controllers.is_finished());
    controllers.abort();
}

async fn collects_garbage(real: &Real) {
    for (name, params) in [("bg", DeleteParams::background()), ("fg", DeleteParams::foreground())] {
        let uid = real.create("ConfigMap", "default", config_map(name, &[])).await;
        let mut of_it = owner("v1", "ConfigMap", name, &uid);
        of_it["blockOwnerDeletion"] = json!(true);
        let below = format!("{name}-below");
        real.create("ConfigMap", "default", config_map(&below, &[of_it])).await;
        real.api("ConfigMap", "default").delete(name, &params).await.expect("deleted");
        real.until_gone("ConfigMap", "default", &below).await;
        real.until_gone("ConfigMap", "default", name).await;
    }
    let uid = real.create("ConfigMap", "default", config_map("or", &[])).await;
    real.create("ConfigMap", "default", config_map("or-below", &[owner("v1", "ConfigMap", "or", &uid)]))
        .await;
    real.api("ConfigMap", "default").delete("or", &DeleteParams::orphan()).await.expect("deleted");
    real.until_gone("ConfigMap", "default", "or").await;
    real.until("ConfigMap", "default", "or-below", |it| {
        it.is_some_and(|it| it.metadata.owner_references.is_none())
    })
    .await;
}

async fn serves_budgets(real: &Real) {
    real.create("Node", "", node("n", "True")).await;
    for name in ["p1", "p2"] {
        real.create("Pod", "default", pod(name, "n")).await;
        let ready = json!({ "status": { "phase": "Running", "conditions": [{ "type": "Ready", "status": "True" }] } });
        let patch = kube::api::Patch::Merge(ready);
        real.api("Pod", "default").patch_status(name, &Default::default(), &patch).await.expect("ready");
    }
    const BUDGET: &str = "policy/v1/PodDisruptionBudget";
    let budget = json!({
        "apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": { "name": "web" },
        "spec": { "minAvailable": 1, "selector": { "matchLabels": { "app": "web" } } },
    });
    real.create(BUDGET, "default", budget).await;
    let allowed = |count: i64| {
        move |it: Option<&DynamicObject>| {
            it.is_some_and(|it| {
                it.data["status"]["disruptionsAllowed"] == count
                    && it.data["status"]["observedGeneration"] == 1
            })
        }
    };
    real.until(BUDGET, "default", "web", allowed(1)).await;
    let pods: Api<Pod> = Api::namespaced(real.client.clone(), "default");
    pods.evict("p1", &EvictParams::default()).await.expect("granted");
    let refused = pods.evict("p2", &EvictParams::default()).await;
    assert!(matches!(&refused, Err(kube::Error::Api(status)) if status.code == 429), "{refused:?}");
    real.until(BUDGET, "default", "web", |it| {
        it.is_some_and(|it| {
            it.data["status"]["currentHealthy"] == 1 && it.data["status"].get("disruptedPods").is_none()
        })
    })
    .await;
}

async fn signs(real: &Real) {
    let kubeconfig = kube::config::Kubeconfig::read_from(variable("REAL_KUBECONFIG")).expect("a kubeconfig");
    let mut config =
        ClientConfig::from_custom_kubeconfig(kubeconfig, &Default::default()).await.expect("a config");
    config.auth_info.impersonate = Some("system:bootstrap:abcdef".to_owned());
    config.auth_info.impersonate_groups =
        Some(vec!["system:bootstrappers".to_owned(), "system:masters".to_owned()]);
    let bootstrapper = Client::try_from(config).expect("a client");
    let api: Api<CertificateSigningRequest> = Api::all(bootstrapper);
    api.create(&PostParams::default(), &request("join", "system:node:a")).await.expect("filed");
    const CSR: &str = "certificates.k8s.io/v1/CertificateSigningRequest";
    real.until(CSR, "", "join", |it| it.is_some_and(|it| it.data["status"]["certificate"].is_string())).await;
}

async fn finds_lost_nodes(real: &Real) {
    let key = |value: &Value| value["key"].as_str().unwrap_or_default().replace("node.kubernetes.io/", "");
    real.until("Node", "", "n", |it| {
        let taints = it.and_then(|it| it.data["spec"]["taints"].as_array().cloned()).unwrap_or_default();
        taints.iter().map(key).collect::<Vec<_>>() == ["unreachable", "unreachable"]
    })
    .await;
    real.until("Pod", "default", "p2", |it| {
        it.is_some_and(|it| {
            it.data["status"]["conditions"]
                .as_array()
                .is_some_and(|all| all.iter().any(|it| it["type"] == "Ready" && it["status"] == "False"))
        })
    })
    .await;
    real.api("Node", "").delete("n", &DeleteParams::default()).await.expect("deleted");
    real.until_gone("Pod", "default", "p2").await;
    real.until_gone("Pod", "default", "p1").await;
}

async fn clears_tokens(real: &Real) {
    let soon = machinist_kube::SystemClock::shared().now() + Duration::from_secs(3);
    real.create("Secret", "kube-system", json!({
        "apiVersion": "v1", "kind": "Secret", "type": "bootstrap.kubernetes.io/token",
        "metadata": { "name": "bootstrap-token-aaaaaa" }, "stringData": { "expiration": soon.to_string() },
    }))
    .await;
    real.until_gone("Secret", "kube-system", "bootstrap-token-aaaaaa").await;
}
