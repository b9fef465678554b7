//! Plays the core controllers of Cluster API: owner references, and the copies of fields.

use serde_json::{Value, json};

use super::{NAMESPACE, World};

impl World {
    /// Performs one round of the core controllers.
    pub(super) async fn core_round(&self) {
        for cluster in self.list("Cluster").await {
            self.adopt_cluster(&cluster).await;
        }
        for machine in self.list("Machine").await {
            self.adopt_machine(&machine).await;
        }
    }

    /// Lets providers and core controllers work for a time.
    pub(super) async fn run_for(&self, seconds: u64) {
        for _ in 0..seconds {
            self.core_round().await;
            super::pass(1).await;
        }
    }

    async fn list(&self, kind: &str) -> Vec<Value> {
        let all = self.api(kind).list(&kube::api::ListParams::default()).await.expect("a list");
        all.items.into_iter().map(|object| serde_json::to_value(object).expect("JSON")).collect()
    }

    async fn adopt_cluster(&self, cluster: &Value) {
        let reference = &cluster["spec"]["infrastructureRef"];
        let (Some(kind), Some(name)) = (reference["kind"].as_str(), reference["name"].as_str()) else {
            return;
        };
        let infrastructure = self.get(kind, name).await;
        if infrastructure.is_null() {
            return;
        }
        self.own(kind, &infrastructure, "Cluster", cluster, name_of(cluster)).await;
        // The endpoint is copied only when the infrastructure is provisioned.
        if infrastructure["status"]["initialization"]["provisioned"] == true {
            let name = name_of(cluster);
            let endpoint = infrastructure["spec"]["controlPlaneEndpoint"].clone();
            self.merge("Cluster", name, json!({"spec": {"controlPlaneEndpoint": endpoint}})).await;
            let done =
                json!({"initialization": {"infrastructureProvisioned": true}, "infrastructureReady": true});
            self.merge_status("Cluster", name, done).await;
        }
    }

    async fn adopt_machine(&self, machine: &Value) {
        let reference = &machine["spec"]["infrastructureRef"];
        let (Some(kind), Some(name)) = (reference["kind"].as_str(), reference["name"].as_str()) else {
            return;
        };
        let infrastructure = self.get(kind, name).await;
        if infrastructure.is_null() {
            return;
        }
        let cluster = machine["spec"]["clusterName"].as_str().unwrap_or_default();
        self.own(kind, &infrastructure, "Machine", machine, cluster).await;
        let id = infrastructure["spec"]["providerID"].as_str();
        if let (true, Some(id)) = (infrastructure["status"]["initialization"]["provisioned"] == true, id) {
            self.merge("Machine", name_of(machine), json!({"spec": {"providerID": id}})).await;
        }
    }

    /// Sets the owner reference and the label of the Cluster.
    async fn own(&self, kind: &str, object: &Value, owner_kind: &str, owner: &Value, cluster: &str) {
        let owner = json!([{
            "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": owner_kind,
            "name": name_of(owner), "uid": owner["metadata"]["uid"],
        }]);
        if object["metadata"]["ownerReferences"] == owner
            || !object["metadata"]["deletionTimestamp"].is_null()
        {
            return;
        }
        let labels = json!({"cluster.x-k8s.io/cluster-name": cluster});
        let patch = json!({"metadata": {"ownerReferences": owner, "labels": labels}});
        self.merge(kind, name_of(object), patch).await;
    }

    /// Creates a Cluster with a DockerCluster.
    pub(super) async fn docker_cluster(&self, name: &str) {
        self.create(
            "DockerCluster",
            name,
            json!({"failureDomains": [{"name": "fd1", "controlPlane": true}]}),
        )
        .await;
        self.cluster(name, "DockerCluster").await;
    }

    /// Creates a Cluster.
    pub(super) async fn cluster(&self, name: &str, infrastructure: &str) {
        let reference = |kind: &str, group: &str| json!({"apiGroup": group, "kind": kind, "name": name, "apiVersion": format!("{group}/v1beta2")});
        let spec = json!({
            "infrastructureRef": reference(infrastructure, super::GROUP),
            "controlPlaneRef": reference("KubeadmControlPlane", "controlplane.cluster.x-k8s.io"),
        });
        self.create("Cluster", name, spec).await;
    }

    /// Creates a Machine with its infrastructure and its bootstrap data.
    pub(super) async fn machine(&self, cluster: &str, name: &str, is_control_plane: bool) {
        self.bootstrap_data(name, json!({"value": "#cloud-config\n"})).await;
        let metadata = machine_metadata(cluster, name, is_control_plane);
        self.create_with("DockerMachine", metadata.clone(), json!({})).await;
        self.create_with("Machine", metadata, machine_spec(cluster, name)).await;
    }

    /// Creates the Secret with the bootstrap data of a Machine.
    pub(super) async fn bootstrap_data(&self, name: &str, data: Value) {
        let secret = json!({
            "apiVersion": "v1", "kind": "Secret", "metadata": {"name": name},
            "type": "cluster.x-k8s.io/secret", "stringData": data,
        });
        let secrets =
            kube::Api::<k8s_openapi::api::core::v1::Secret>::namespaced(self.user.clone(), NAMESPACE);
        let secret = serde_json::from_value(secret).expect("a Secret");
        secrets.create(&Default::default(), &secret).await.expect("the Secret is accepted");
    }
}

/// Returns the metadata of a Machine and of its infrastructure.
pub(super) fn machine_metadata(cluster: &str, name: &str, is_control_plane: bool) -> Value {
    let labels = if is_control_plane {
        json!({"cluster.x-k8s.io/cluster-name": cluster, "cluster.x-k8s.io/control-plane": ""})
    } else {
        json!({"cluster.x-k8s.io/cluster-name": cluster})
    };
    json!({"name": name, "labels": labels})
}

/// Returns the spec of a Machine.
pub(super) fn machine_spec(cluster: &str, name: &str) -> Value {
    json!({
        "clusterName": cluster, "version": "v1.33.0+build", "failureDomain": "fd1",
        "bootstrap": {"dataSecretName": name},
        "infrastructureRef": {
            "apiGroup": super::GROUP, "apiVersion": "infrastructure.cluster.x-k8s.io/v1beta1",
            "kind": "DockerMachine", "name": name,
        },
    })
}

fn name_of(object: &Value) -> &str {
    object["metadata"]["name"].as_str().unwrap_or_default()
}
