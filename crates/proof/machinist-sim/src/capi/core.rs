//! The others of a world of Cluster API, as far as a provider needs them. They meet no faults.
//!
//! - The core controllers adopt the infrastructure of Clusters and Machines, copy endpoint and
//!   provider ids, and delete the infrastructure of deleted objects.
//! - The bootstrap provider creates the Secret of each Machine: of a worker as soon as the control
//!   plane serves.
//! - The kubelet of each bootstrapped container registers its Node.
//! - A person fulfils each request that arrived by mail.

use std::sync::Arc;
use std::time::Duration;

use kube::Api;
use kube::api::{ApiResource, DeleteParams, DynamicObject, Patch, PatchParams, PostParams};
use kube::core::GroupVersionKind;
use machinist_api::capi::constants::{
    CLOUD_TAINT, CLUSTER_NAME_LABEL, CONTROL_PLANE_LABEL, SECRET_TYPE, SENT_AT_ANNOTATION,
};
use machinist_apiserver::{Object, Server};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::tables::{CLUSTERS, MACHINES, MAILGUN_CLUSTERS, MAILGUN_MACHINES};
use crate::seed::Seed;
use crate::sight::{DOCKER_CLUSTERS, DOCKER_MACHINES};
use crate::sight::{NODES, SECRETS, SeenObject};
use crate::stage::{ScenarioStage, client};
use crate::world::{NAMESPACE, Outcome, ScenarioError};

/// The group of the core kinds.
pub(super) const CORE: &str = "cluster.x-k8s.io";
/// The group of the kinds of providers.
pub(super) const INFRASTRUCTURE: &str = "infrastructure.cluster.x-k8s.io";
/// The finalizer of the core controllers. Users create Clusters and Machines with it.
pub(super) const FINALIZER: &str = "core.cluster.x-k8s.io";
/// A kubelet registers its Node after a part of this time.
const NODE_WITHIN: Duration = Duration::from_secs(20);
/// A Machine with a Node is drained for so long.
const DRAINED_AFTER: jiff::SignedDuration = jiff::SignedDuration::from_secs(4);
/// Shortest and longest time between two rounds.
const ROUND_EVERY: (Duration, Duration) = (Duration::from_millis(250), Duration::from_secs(5));

/// A client for the objects of all kinds.
#[derive(Clone)]
pub struct Objects(kube::Client);

impl Objects {
    /// A client of a server, under that name.
    pub fn new(server: &Server, agent: &str) -> Self {
        Self(client(server, agent))
    }

    /// The requests about one kind.
    pub fn api(&self, kind: &str) -> Api<DynamicObject> {
        let (group, version) = match kind {
            "Cluster" | "Machine" => (CORE, "v1beta2"),
            "Secret" | "Node" => ("", "v1"),
            _ => (INFRASTRUCTURE, "v1beta2"),
        };
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind));
        match kind {
            "Node" => Api::all_with(self.0.clone(), &resource),
            _ => Api::namespaced_with(self.0.clone(), NAMESPACE, &resource),
        }
    }

    /// Creates an object.
    ///
    /// # Errors
    /// When the server refuses it.
    pub async fn create(&self, kind: &str, metadata: Value, content: Value) -> Outcome {
        let api = self.api(kind);
        let mut object = content;
        object["metadata"] = metadata;
        let object: DynamicObject = serde_json::from_value(object)
            .map_err(|error| ScenarioError(format!("cannot parse a built-in manifest: {error}")))?;
        api.create(&PostParams::default(), &object).await?;
        Ok(())
    }

    /// Merges a patch into an object.
    ///
    /// # Errors
    /// When the server refuses it.
    pub async fn merge(&self, kind: &str, name: &str, patch: Value) -> Outcome {
        self.api(kind).patch(name, &PatchParams::default(), &Patch::Merge(patch)).await?;
        Ok(())
    }

    /// Merges a patch into the status of an object.
    ///
    /// # Errors
    /// When the server refuses it.
    pub async fn merge_status(&self, kind: &str, name: &str, status: Value) -> Outcome {
        let patch = Patch::Merge(json!({"status": status}));
        self.api(kind).patch_status(name, &PatchParams::default(), &patch).await?;
        Ok(())
    }

    /// Begins the deletion of an object.
    ///
    /// # Errors
    /// When the server refuses it.
    pub async fn delete(&self, kind: &str, name: &str) -> Outcome {
        self.api(kind).delete(name, &DeleteParams::default()).await?;
        Ok(())
    }
}

/// Returns the kind with its version, as objects and references name it.
pub(super) fn typed(kind: &str) -> Value {
    let group = if matches!(kind, "Cluster" | "Machine") { CORE } else { INFRASTRUCTURE };
    json!({"apiVersion": format!("{group}/v1beta2"), "kind": kind})
}

/// The others of a world.
pub struct CoreActors {
    /// Where the others wait for changes.
    pub stage: Arc<ScenarioStage>,
    /// The management cluster.
    pub management: Server,
    /// The workload cluster.
    pub workload: Server,
    /// The seed of the random draws.
    pub seed: Seed,
}

impl CoreActors {
    /// Runs forever.
    pub async fn run(self) {
        let (core, kubelets) =
            (Objects::new(&self.management, "core"), Objects::new(&self.workload, "kubelet"));
        let (least, most) = ROUND_EVERY;
        loop {
            let began = Instant::now();
            // A change during the round, or soon after it, is not missed.
            let changed = self.stage.next_change();
            let round = Round { others: &self, core: &core, kubelets: &kubelets };
            // An object may change in this instant. The next round looks again.
            let _ = round.clusters().await;
            let _ = round.machines().await;
            let _ = round.nodes().await;
            let _ = round.requests().await;
            tokio::time::sleep_until(began + least).await;
            let _ = tokio::time::timeout(most, changed).await;
        }
    }
}

struct Round<'o> {
    others: &'o CoreActors,
    core: &'o Objects,
    kubelets: &'o Objects,
}

impl Round<'_> {
    fn all(&self, table: &str) -> Vec<Arc<Object>> {
        self.others.management.snapshot(table)
    }

    fn find(&self, table: &str, name: &str) -> Option<Arc<Object>> {
        self.all(table).into_iter().find(|object| SeenObject(object.value()).name() == name)
    }

    fn nodes_now(&self) -> Vec<Arc<Object>> {
        self.others.workload.snapshot(NODES)
    }

    async fn clusters(&self) -> Outcome {
        for cluster in self.all(CLUSTERS) {
            let cluster = SeenObject(cluster.value());
            if cluster.is_deleting() {
                self.delete_cluster(cluster).await?;
            } else {
                self.adopt_cluster(cluster).await?;
            }
        }
        Ok(())
    }

    async fn adopt_cluster(&self, cluster: SeenObject<'_>) -> Outcome {
        let name = cluster.name();
        let Some((kind, object)) = self.infrastructure(cluster) else { return Ok(()) };
        let infrastructure = SeenObject(object.value());
        self.adopt(kind, infrastructure, "Cluster", cluster, name).await?;
        let is_provisioned = is_provisioned(infrastructure);
        let was_provisioned = initialization(cluster, "infrastructureProvisioned");
        if is_provisioned && !was_provisioned {
            let endpoint = infrastructure.0.pointer("/spec/controlPlaneEndpoint").cloned();
            let spec = json!({"spec": {"controlPlaneEndpoint": endpoint.unwrap_or_default()}});
            self.core.merge("Cluster", name, spec).await?;
            let done =
                json!({"initialization": {"infrastructureProvisioned": true}, "infrastructureReady": true});
            self.core.merge_status("Cluster", name, done).await?;
            self.kubeconfig(infrastructure, name).await?;
        }
        let serves = || {
            let nodes = self.nodes_now();
            let mut machines = self.all(MACHINES).into_iter();
            machines.any(|machine| {
                let machine = SeenObject(machine.value());
                let is_of_person = machine.text("/spec/infrastructureRef/kind") == "MailgunMachine";
                let has_node = nodes.iter().any(|node| SeenObject(node.value()).name() == machine.name());
                let is_up = has_node || (is_of_person && !machine.provider_id().is_empty());
                is_control_plane(machine) && machine.text("/spec/clusterName") == name && is_up
            })
        };
        if was_provisioned && !initialization(cluster, "controlPlaneInitialized") && serves() {
            let done = json!({
                "initialization": {"infrastructureProvisioned": true, "controlPlaneInitialized": true},
                "infrastructureReady": true,
                "conditions": [{
                    "type": "ControlPlaneInitialized", "status": "True", "reason": "Initialized",
                    "lastTransitionTime": self.others.stage.lab().clock.time().to_string(),
                }],
            });
            self.core.merge_status("Cluster", name, done).await?;
        }
        Ok(())
    }

    async fn kubeconfig(&self, infrastructure: SeenObject<'_>, name: &str) -> Outcome {
        let host = infrastructure.text("/spec/controlPlaneEndpoint/host");
        let port = infrastructure.number("/spec/controlPlaneEndpoint/port").unwrap_or_default();
        let kubeconfig = format!(
            "apiVersion: v1\nkind: Config\nclusters:\n- name: {name}\n  cluster:\n    server: https://{host}:{port}\n\
             contexts:\n- name: {name}\n  context: {{cluster: {name}, user: {name}}}\ncurrent-context: {name}\n"
        );
        self.secret(&format!("{name}-kubeconfig"), &kubeconfig).await
    }

    async fn secret(&self, name: &str, value: &str) -> Outcome {
        if self.find(SECRETS, name).is_some() {
            return Ok(());
        }
        let secret = json!({"apiVersion": "v1", "kind": "Secret", "type": SECRET_TYPE, "stringData": {"value": value}});
        self.core.create("Secret", json!({"name": name}), secret).await
    }

    /// Deletes the Machines first, then the infrastructure, then the Cluster.
    async fn delete_cluster(&self, cluster: SeenObject<'_>) -> Outcome {
        let machines = self.all(MACHINES);
        let own: Vec<SeenObject<'_>> = machines
            .iter()
            .map(|machine| SeenObject(machine.value()))
            .filter(|machine| machine.text("/spec/clusterName") == cluster.name())
            .collect();
        for machine in own.iter().filter(|machine| !machine.is_deleting()) {
            self.core.delete("Machine", machine.name()).await?;
        }
        if !own.is_empty() {
            return Ok(());
        }
        match self.infrastructure(cluster) {
            Some((kind, object)) if !SeenObject(object.value()).is_deleting() => {
                self.core.delete(kind, SeenObject(object.value()).name()).await
            }
            Some(_) => Ok(()),
            None => {
                // A Cluster of the same name gets another address.
                let secret = format!("{}-kubeconfig", cluster.name());
                if self.find(SECRETS, &secret).is_some() {
                    self.core.delete("Secret", &secret).await?;
                }
                self.release("Cluster", cluster).await
            }
        }
    }

    async fn machines(&self) -> Outcome {
        for machine in self.all(MACHINES) {
            let machine = SeenObject(machine.value());
            if machine.is_deleting() {
                self.delete_machine(machine).await?;
            } else {
                self.adopt_machine(machine).await?;
            }
        }
        Ok(())
    }

    async fn adopt_machine(&self, machine: SeenObject<'_>) -> Outcome {
        let name = machine.name();
        let cluster = machine.text("/spec/clusterName");
        let Some(owner) = self.find(CLUSTERS, cluster) else { return Ok(()) };
        let owner = SeenObject(owner.value());
        let gate =
            if is_control_plane(machine) { "infrastructureProvisioned" } else { "controlPlaneInitialized" };
        if machine.text("/spec/bootstrap/dataSecretName").is_empty() && initialization(owner, gate) {
            let secret = format!("{name}-bootstrap");
            self.secret(&secret, "#cloud-config\n").await?;
            let named = json!({"spec": {"bootstrap": {"dataSecretName": secret}}});
            self.core.merge("Machine", name, named).await?;
        }
        let Some((kind, object)) = self.infrastructure(machine) else { return Ok(()) };
        let infrastructure = SeenObject(object.value());
        self.adopt(kind, infrastructure, "Machine", machine, cluster).await?;
        let id = infrastructure.provider_id();
        if is_provisioned(infrastructure) && machine.provider_id() != id {
            self.core.merge("Machine", name, json!({"spec": {"providerID": id}})).await?;
        }
        let nodes = self.nodes_now();
        let is_its = |node: &&Arc<Object>| !id.is_empty() && SeenObject(node.value()).provider_id() == id;
        if let Some(node) =
            nodes.iter().find(is_its).filter(|_| machine.text("/status/nodeRef/name").is_empty())
        {
            let node = SeenObject(node.value()).name();
            self.core.merge_status("Machine", name, json!({"nodeRef": {"name": node}})).await?;
        }
        Ok(())
    }

    /// Drains the Node if there is one, then deletes the infrastructure, then the Node, then the
    /// Machine.
    async fn delete_machine(&self, machine: SeenObject<'_>) -> Outcome {
        let now = self.others.stage.lab().clock.time();
        let since = machine.deleting_since().unwrap_or(now);
        let has_node = !machine.text("/status/nodeRef/name").is_empty();
        if has_node && now.duration_since(since) < DRAINED_AFTER {
            return Ok(());
        }
        match self.infrastructure(machine) {
            Some((kind, object)) if !SeenObject(object.value()).is_deleting() => {
                self.core.delete(kind, SeenObject(object.value()).name()).await
            }
            Some(_) => Ok(()),
            None => {
                let name = machine.name();
                if self.nodes_now().iter().any(|node| SeenObject(node.value()).name() == name) {
                    self.kubelets.delete("Node", name).await?;
                }
                let secret = format!("{name}-bootstrap");
                if self.find(SECRETS, &secret).is_some() {
                    self.core.delete("Secret", &secret).await?;
                }
                self.release("Machine", machine).await
            }
        }
    }

    async fn release(&self, kind: &str, object: SeenObject<'_>) -> Outcome {
        if object.has_finalizer(FINALIZER) {
            self.core.merge(kind, object.name(), json!({"metadata": {"finalizers": null}})).await
        } else {
            Ok(())
        }
    }

    /// The existing infrastructure of a Cluster or a Machine, with its kind.
    fn infrastructure(&self, owner: SeenObject<'_>) -> Option<(&'static str, Arc<Object>)> {
        let (kind, table) = match owner.text("/spec/infrastructureRef/kind") {
            "DockerCluster" => ("DockerCluster", DOCKER_CLUSTERS),
            "DockerMachine" => ("DockerMachine", DOCKER_MACHINES),
            "MailgunCluster" => ("MailgunCluster", MAILGUN_CLUSTERS),
            "MailgunMachine" => ("MailgunMachine", MAILGUN_MACHINES),
            _ => return None,
        };
        Some((kind, self.find(table, owner.text("/spec/infrastructureRef/name"))?))
    }

    /// Sets the owner reference and the label of the Cluster.
    async fn adopt(
        &self,
        kind: &str,
        object: SeenObject<'_>,
        owner_kind: &str,
        owner: SeenObject<'_>,
        cluster: &str,
    ) -> Outcome {
        let is_owned = object.text("/metadata/ownerReferences/0/uid") == owner.uid()
            && object.label(CLUSTER_NAME_LABEL) == cluster;
        if is_owned || object.is_deleting() {
            return Ok(());
        }
        let mut reference = typed(owner_kind);
        reference["name"] = json!(owner.name());
        reference["uid"] = json!(owner.uid());
        let labels = json!({CLUSTER_NAME_LABEL: cluster});
        let patch = json!({"metadata": {"ownerReferences": [reference], "labels": labels}});
        self.core.merge(kind, object.name(), patch).await
    }

    /// Registers the Nodes of bootstrapped containers.
    async fn nodes(&self) -> Outcome {
        let (lab, seed) = (self.others.stage.lab(), self.others.seed);
        let now = lab.clock.time();
        let due = |id: &str| {
            let after = seed.stream(&format!("kubelet/{id}")).within(Duration::ZERO..NODE_WITHIN);
            jiff::SignedDuration::try_from(after).unwrap_or_default()
        };
        let ready: Vec<String> = lab.history.look(|state| {
            let alive = state.outside().containers().filter(|(_, track)| track.gone.is_none());
            let bootstrapped = alive.filter_map(|(id, track)| Some((id, track, track.bootstrapped?)));
            let ready = bootstrapped.filter(|(id, _, since)| due(id) <= now.duration_since(*since));
            ready.map(|(_, track, _)| track.name.clone()).collect()
        });
        let nodes = self.nodes_now();
        for name in ready {
            if nodes.iter().any(|node| SeenObject(node.value()).name() == name) {
                continue;
            }
            let taint = json!({"key": CLOUD_TAINT, "value": "true", "effect": "NoSchedule"});
            let node = json!({"apiVersion": "v1", "kind": "Node", "spec": {"taints": [taint]}});
            self.kubelets.create("Node", json!({"name": name}), node).await?;
        }
        Ok(())
    }

    /// Fulfils the requests whose mails were sent.
    async fn requests(&self) -> Outcome {
        for cluster in self.all(MAILGUN_CLUSTERS) {
            let cluster = SeenObject(cluster.value());
            let is_open = cluster.text("/spec/controlPlaneEndpoint/host").is_empty();
            if is_open && is_asked(cluster) {
                let endpoint = json!({"host": "192.0.2.1", "port": 6443});
                let patch = json!({"spec": {"controlPlaneEndpoint": endpoint}});
                self.core.merge("MailgunCluster", cluster.name(), patch).await?;
            }
        }
        for machine in self.all(MAILGUN_MACHINES) {
            let machine = SeenObject(machine.value());
            if machine.provider_id().is_empty() && is_asked(machine) {
                let patch = json!({"spec": {"providerID": format!("person://{}", machine.name())}});
                self.core.merge("MailgunMachine", machine.name(), patch).await?;
            }
        }
        Ok(())
    }
}

/// Whether a person has the mail and the object shows it.
fn is_asked(object: SeenObject<'_>) -> bool {
    !object.annotation(SENT_AT_ANNOTATION).is_empty() && !object.is_deleting()
}

fn is_provisioned(infrastructure: SeenObject<'_>) -> bool {
    initialization(infrastructure, "provisioned")
}

fn initialization(object: SeenObject<'_>, field: &str) -> bool {
    object.0.pointer(&format!("/status/initialization/{field}")) == Some(&Value::Bool(true))
}

/// Whether a Machine or a DockerMachine belongs to the control plane.
pub(super) fn is_control_plane(object: SeenObject<'_>) -> bool {
    object.0.pointer("/metadata/labels").is_some_and(|labels| labels.get(CONTROL_PLANE_LABEL).is_some())
}
