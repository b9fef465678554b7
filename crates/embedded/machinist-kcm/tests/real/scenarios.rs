//! Scenarios that must give the same result with our controllers and with kube-controller-manager.

use std::time::Duration;

use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, DeleteParams, DynamicObject, EvictParams, Patch, PatchParams, PostParams};
use kube::{Client, Config as ClientConfig};
use serde_json::{Value, json};

use crate::cluster::Cluster as Real;
use crate::objects::{SCALED, config_map, node, owner, pod, ready, request, scaled_definition};

pub(crate) async fn collects_garbage(real: &Real) {
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
    real.until("ConfigMap", "default", "or-below", |map| {
        map.is_some_and(|map| map.metadata.owner_references.is_none())
    })
    .await;
}

pub(crate) async fn serves_budgets(real: &Real) {
    real.create("Node", "", node("n", "True")).await;
    for name in ["p1", "p2"] {
        real.create("Pod", "default", pod(name, "n")).await;
        let patch = Patch::Merge(json!({ "status": ready() }));
        real.api("Pod", "default").patch_status(name, &Default::default(), &patch).await.expect("ready");
    }
    const BUDGET: &str = "policy/v1/PodDisruptionBudget";
    let budget = json!({
        "apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": { "name": "web" },
        "spec": { "minAvailable": 1, "selector": { "matchLabels": { "app": "web" } } },
    });
    real.create(BUDGET, "default", budget).await;
    let allowed = |count: i64| {
        move |budget: Option<&DynamicObject>| {
            budget.is_some_and(|budget| {
                budget.data["status"]["disruptionsAllowed"] == count
                    && budget.data["status"]["observedGeneration"] == 1
            })
        }
    };
    real.until(BUDGET, "default", "web", allowed(1)).await;
    let pods: Api<Pod> = Api::namespaced(real.client.clone(), "default");
    pods.evict("p1", &EvictParams::default()).await.expect("granted");
    let refused = pods.evict("p2", &EvictParams::default()).await;
    assert!(matches!(&refused, Err(kube::Error::Api(status)) if status.code == 429), "{refused:?}");
    real.until(BUDGET, "default", "web", |budget| {
        budget.is_some_and(|budget| {
            budget.data["status"]["currentHealthy"] == 1
                && budget.data["status"].get("disruptedPods").is_none()
        })
    })
    .await;
}

pub(crate) async fn signs(real: &Real) {
    let kubeconfig = kube::config::Kubeconfig::read_from(&real.kubeconfig).expect("a kubeconfig");
    let mut config =
        ClientConfig::from_custom_kubeconfig(kubeconfig, &Default::default()).await.expect("a config");
    config.auth_info.impersonate = Some("system:bootstrap:abcdef".to_owned());
    config.auth_info.impersonate_groups =
        Some(vec!["system:bootstrappers".to_owned(), "system:masters".to_owned()]);
    let bootstrapper = Client::try_from(config).expect("a client");
    let api: Api<CertificateSigningRequest> = Api::all(bootstrapper);
    api.create(&PostParams::default(), &request("join", "system:node:a")).await.expect("filed");
    const CSR: &str = "certificates.k8s.io/v1/CertificateSigningRequest";
    real.until(CSR, "", "join", |request| {
        request.is_some_and(|request| request.data["status"]["certificate"].is_string())
    })
    .await;
}

pub(crate) async fn finds_lost_nodes(real: &Real) {
    // This is the only node. If all nodes are lost, kube-controller-manager evicts no Pods, so both
    // have only the NoSchedule taint in common.
    let is_unreachable =
        |taint: &Value| taint["key"] == "node.kubernetes.io/unreachable" && taint["effect"] == "NoSchedule";
    real.until("Node", "", "n", |node| {
        node.is_some_and(|node| {
            node.data["spec"]["taints"].as_array().is_some_and(|all| all.iter().any(is_unreachable))
        })
    })
    .await;
    real.until("Pod", "default", "p2", |pod| {
        pod.is_some_and(|pod| {
            pod.data["status"]["conditions"].as_array().is_some_and(|all| {
                all.iter().any(|condition| condition["type"] == "Ready" && condition["status"] == "False")
            })
        })
    })
    .await;
    real.api("Node", "").delete("n", &DeleteParams::default()).await.expect("deleted");
    real.until_gone("Pod", "default", "p2").await;
    real.until_gone("Pod", "default", "p1").await;
}

pub(crate) async fn clears_tokens(real: &Real) {
    let soon = machinist_kube::SystemClock::shared().now() + Duration::from_secs(3);
    real.create("Secret", "kube-system", json!({
        "apiVersion": "v1", "kind": "Secret", "type": "bootstrap.kubernetes.io/token",
        "metadata": { "name": "bootstrap-token-aaaaaa" }, "stringData": { "expiration": soon.to_string() },
    }))
    .await;
    real.until_gone("Secret", "kube-system", "bootstrap-token-aaaaaa").await;
}

/// Checks the objects that a namespace gets, its conditions while finalizers block it, and its
/// deletion. Returns the values that must be the same in every cluster.
pub(crate) async fn ends_namespaces(real: &Real) -> Value {
    const NAMESPACE: &str = "ending";
    real.create("apiextensions.k8s.io/v1/CustomResourceDefinition", "", scaled_definition()).await;
    real.until_listed(SCALED).await;
    let named =
        |name: &str, finalizers: &[&str]| json!({ "metadata": { "name": name, "finalizers": finalizers } });
    real.create("Namespace", "", named(NAMESPACE, &[])).await;
    real.until("ServiceAccount", NAMESPACE, "default", |account| account.is_some()).await;
    real.until("ConfigMap", NAMESPACE, "kube-root-ca.crt", |map| map.is_some()).await;
    let given = real.api("ConfigMap", NAMESPACE).get("kube-root-ca.crt").await.expect("the ConfigMap exists");
    let of_kind = |kind: &str, object: Value| {
        let (api_version, kind) = kind.rsplit_once('/').unwrap_or(("v1", kind));
        let mut object = object;
        object["apiVersion"] = json!(api_version);
        object["kind"] = json!(kind);
        object
    };
    real.create("ConfigMap", NAMESPACE, of_kind("ConfigMap", named("plain", &[]))).await;
    real.create("Secret", NAMESPACE, of_kind("Secret", named("held", &["a.b/secret"]))).await;
    real.create(SCALED, NAMESPACE, of_kind(SCALED, named("held", &["a.b/set"]))).await;
    real.api("Namespace", "").delete(NAMESPACE, &DeleteParams::default()).await.expect("deleted");
    let says_remaining = |namespace: Option<&DynamicObject>| {
        let conditions = namespace
            .and_then(|namespace| namespace.data["status"]["conditions"].as_array().cloned())
            .unwrap_or_default();
        conditions.iter().any(|condition| {
            condition["type"] == "NamespaceContentRemaining" && condition["status"] == "True"
        })
    };
    real.until("Namespace", "", NAMESPACE, says_remaining).await;
    real.until_gone("ConfigMap", NAMESPACE, "plain").await;
    let going = real.api("Namespace", "").get(NAMESPACE).await.expect("the namespace stays");
    let refused = {
        let object: DynamicObject =
            serde_json::from_value(of_kind("ConfigMap", named("late", &[]))).expect("an object");
        real.api("ConfigMap", NAMESPACE).create(&PostParams::default(), &object).await
    };
    let refused = match refused {
        Err(kube::Error::Api(status)) => json!([status.code, status.message]),
        other => panic!("a namespace that is being deleted accepted {other:?}"),
    };
    for (kind, name) in [("Secret", "held"), (SCALED, "held")] {
        let patch = Patch::Merge(json!({ "metadata": { "finalizers": null } }));
        real.api(kind, NAMESPACE)
            .patch(name, &PatchParams::default(), &patch)
            .await
            .expect("the finalizers are removed");
    }
    real.until_gone("Namespace", "", NAMESPACE).await;
    json!({
        "annotations": given.metadata.annotations, "keys": given.data["data"].as_object().map(|data| data.keys().collect::<Vec<_>>()),
        "conditions": without_times(&going.data["status"]["conditions"]), "phase": going.data["status"]["phase"],
        "refused": refused,
    })
}

/// Returns conditions by type, without their times.
fn without_times(conditions: &Value) -> Value {
    let mut conditions = conditions.as_array().cloned().unwrap_or_default();
    for condition in &mut conditions {
        condition.as_object_mut().expect("a condition").remove("lastTransitionTime");
    }
    conditions.sort_by_key(|condition| condition["type"].to_string());
    Value::Array(conditions)
}

/// Checks that a namespace is deleted although its Pod is bound to a Node that does not exist.
pub(crate) async fn ends_namespaces_with_lost_pods(real: &Real) {
    const NAMESPACE: &str = "lost";
    real.create("Namespace", "", json!({ "metadata": { "name": NAMESPACE } })).await;
    real.until("ServiceAccount", NAMESPACE, "default", |account| account.is_some()).await;
    let mut lost = pod("p", "nowhere");
    lost["metadata"]["namespace"] = json!(NAMESPACE);
    real.create("Pod", NAMESPACE, lost).await;
    real.api("Namespace", "").delete(NAMESPACE, &DeleteParams::default()).await.expect("deleted");
    real.until_gone("Namespace", "", NAMESPACE).await;
}
