//! The writes that do not come from the provider: the writes of the core controllers of Cluster
//! API, of a user and of kubelets.

use std::time::Duration;

use anyhow::{Context, Result};
use futures::{StreamExt as _, TryStreamExt as _, stream};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::Client;
use kube::api::{Patch, PatchParams};
use machinist_api::capi::constants::{CLOUD_TAINT, CLUSTER_NAME_LABEL, SECRET_TYPE};
use machinist_api::crd;
use serde_json::{Value, json};

use crate::objects::{self, NAMESPACE, api, create};
use crate::progress;

/// Name of the Cluster, its DockerCluster and the prefix of its machines.
pub(super) const CLUSTER: &str = "bench";
const CORE: &str = "cluster.x-k8s.io";
const INFRASTRUCTURE: &str = "infrastructure.cluster.x-k8s.io";
const VERSION: &str = "v1beta2";
/// Number of objects that are created at the same time.
const AT_ONCE: usize = 50;
const PROVISIONED_WITHIN: Duration = Duration::from_secs(60);
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// The Machines of a Cluster whose control plane runs.
pub(super) struct Cluster {
    /// Name and UID of each Machine.
    machines: Vec<(String, String)>,
}

/// Name of a machine in all its objects.
pub(super) fn name_of(number: u32) -> String {
    format!("{CLUSTER}-{number:05}")
}

/// Creates a Cluster with a running control plane and N Machines without infrastructure, and their
/// Nodes.
pub(super) async fn set_up(core: &Client, kubelets: &Client, machines: u32) -> Result<Cluster> {
    provide_cluster(core).await?;
    let all = stream::iter(0..machines).map(|number| prepare(core, kubelets, number));
    let machines = all.buffer_unordered(AT_ONCE).try_collect().await?;
    Ok(Cluster { machines })
}

impl Cluster {
    /// Number of machines.
    pub(super) fn len(&self) -> usize {
        self.machines.len()
    }

    /// Creates a DockerMachine for each Machine, as a MachineSet does.
    pub(super) async fn create_infrastructure(&self, core: &Client) -> Result<()> {
        let all = stream::iter(&self.machines).map(|(name, uid)| {
            create(
                core,
                json!({
                    "apiVersion": format!("{INFRASTRUCTURE}/{VERSION}"), "kind": "DockerMachine",
                    "metadata": {
                        "name": name, "namespace": NAMESPACE, "labels": {CLUSTER_NAME_LABEL: CLUSTER},
                        "ownerReferences": [owner("Machine", name, uid)],
                    },
                    "spec": {},
                }),
            )
        });
        all.buffer_unordered(AT_ONCE).try_for_each(|_uid| async { Ok(()) }).await
    }
}

/// Creates the kinds of Cluster API. The provider cannot watch them before.
pub(super) async fn install_kinds(core: &Client) -> Result<()> {
    let core_kinds = [core_kind("Cluster", "clusters"), core_kind("Machine", "machines")];
    objects::create_definitions(core, core_kinds.into_iter().chain(crd::docker_crds())).await
}

/// A core kind that keeps every field.
fn core_kind(kind: &str, plural: &str) -> CustomResourceDefinition {
    let free = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    objects::from_json(json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{plural}.{CORE}")},
        "spec": {
            "group": CORE, "scope": "Namespaced",
            "names": {"kind": kind, "plural": plural, "singular": kind.to_lowercase()},
            "versions": [{
                "name": VERSION, "served": true, "storage": true, "subresources": {"status": {}},
                "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": free, "status": free}}},
            }],
        },
    }))
}

/// Creates a Cluster, waits for its infrastructure, and says that its control plane runs.
async fn provide_cluster(core: &Client) -> Result<()> {
    let reference = |kind: &str, group: &str| json!({"apiGroup": group, "kind": kind, "name": CLUSTER});
    let metadata = json!({"name": CLUSTER, "namespace": NAMESPACE});
    let cluster = json!({
        "apiVersion": format!("{CORE}/{VERSION}"), "kind": "Cluster", "metadata": metadata,
        "spec": {
            "infrastructureRef": reference("DockerCluster", INFRASTRUCTURE),
            "controlPlaneRef": reference("KubeadmControlPlane", "controlplane.cluster.x-k8s.io"),
        },
    });
    let uid = create(core, cluster).await?;
    let infrastructure = json!({
        "apiVersion": format!("{INFRASTRUCTURE}/{VERSION}"), "kind": "DockerCluster",
        "metadata": {
            "name": CLUSTER, "namespace": NAMESPACE, "labels": {CLUSTER_NAME_LABEL: CLUSTER},
            "ownerReferences": [owner("Cluster", CLUSTER, &uid)],
        },
        "spec": {},
    });
    create(core, infrastructure).await?;
    let endpoint = endpoint(core).await?;
    let secret = json!({
        "apiVersion": "v1", "kind": "Secret", "type": SECRET_TYPE,
        "metadata": {"name": format!("{CLUSTER}-kubeconfig"), "namespace": NAMESPACE},
        "stringData": {"value": kubeconfig(&endpoint)},
    });
    create(core, secret).await?;
    let api = api(core, &format!("{CORE}/{VERSION}"), "Cluster");
    let params = PatchParams::default();
    let spec = Patch::Merge(json!({"spec": {"controlPlaneEndpoint": endpoint}}));
    api.patch(CLUSTER, &params, &spec).await.context("cannot write the endpoint of the Cluster")?;
    let done = json!({"infrastructureProvisioned": true, "controlPlaneInitialized": true});
    let status = Patch::Merge(json!({"status": {"initialization": done}}));
    api.patch_status(CLUSTER, &params, &status).await.context("cannot write the status of the Cluster")?;
    Ok(())
}

/// Returns the endpoint of the DockerCluster, when it is provisioned.
async fn endpoint(core: &Client) -> Result<Value> {
    let api = api(core, &format!("{INFRASTRUCTURE}/{VERSION}"), "DockerCluster");
    let mut endpoint = Value::Null;
    let is_provisioned = async || {
        let object = api.get(CLUSTER).await.context("cannot read the DockerCluster")?;
        endpoint = object.data["spec"]["controlPlaneEndpoint"].clone();
        Ok(object.data["status"]["initialization"]["provisioned"] == true)
    };
    let provisioned = progress::until(PROVISIONED_WITHIN, LOOK_EVERY, is_provisioned).await;
    provisioned.context("the DockerCluster was not provisioned in time")??;
    Ok(endpoint)
}

/// The workload cluster is in this process, so the kubeconfig needs no credential.
fn kubeconfig(endpoint: &Value) -> String {
    let (host, port) = (endpoint["host"].as_str().unwrap_or_default(), &endpoint["port"]);
    format!(
        "apiVersion: v1\nkind: Config\nclusters:\n- name: {CLUSTER}\n  cluster:\n    server: https://{host}:{port}\n\
         contexts:\n- name: {CLUSTER}\n  context: {{cluster: {CLUSTER}, user: {CLUSTER}}}\ncurrent-context: {CLUSTER}\n"
    )
}

/// Creates a Machine with its bootstrap data, and its Node. Returns name and UID of the Machine.
async fn prepare(core: &Client, kubelets: &Client, number: u32) -> Result<(String, String)> {
    let name = name_of(number);
    let secret = json!({
        "apiVersion": "v1", "kind": "Secret", "type": SECRET_TYPE,
        "metadata": {"name": name, "namespace": NAMESPACE}, "stringData": {"value": "#cloud-config\n"},
    });
    create(core, secret).await?;
    let machine = json!({
        "apiVersion": format!("{CORE}/{VERSION}"), "kind": "Machine",
        "metadata": {"name": name, "namespace": NAMESPACE, "labels": {CLUSTER_NAME_LABEL: CLUSTER}},
        "spec": {
            "clusterName": CLUSTER, "version": "v1.33.0", "bootstrap": {"dataSecretName": name},
            "infrastructureRef": {"apiGroup": INFRASTRUCTURE, "kind": "DockerMachine", "name": name},
        },
    });
    let uid = create(core, machine).await?;
    let node = json!({
        "apiVersion": "v1", "kind": "Node", "metadata": {"name": name},
        "spec": {"taints": [{"key": CLOUD_TAINT, "value": "true", "effect": "NoSchedule"}]},
    });
    create(kubelets, node).await?;
    Ok((name, uid))
}

fn owner(kind: &str, name: &str, uid: &str) -> Value {
    json!({"apiVersion": format!("{CORE}/{VERSION}"), "kind": kind, "name": name, "uid": uid})
}
