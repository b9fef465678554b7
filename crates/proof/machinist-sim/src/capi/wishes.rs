//! The objects that users want, and the work of a person after a restore, or after another actor
//! has taken finalizers off: requests are repeated, and what lost its object is removed.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use machinist_api::capi::constants::{CLUSTER_NAME_LABEL, CONTROL_PLANE_LABEL};
use machinist_apiserver::Server;
use machinist_instance::InstanceKey;
use machinist_standin_docker::Engine;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::core::{FINALIZER, INFRASTRUCTURE, Objects, typed};
use super::engine::record;
use super::outside::By;
use super::process::ProviderKind;
use super::tables::{CLUSTERS, MACHINES, MAILGUN_CLUSTERS, MAILGUN_MACHINES};
use crate::sight::SeenObject;
use crate::sight::{DOCKER_CLUSTERS, DOCKER_MACHINES};
use crate::stage::ScenarioStage;
use crate::world::Outcome;

/// The object that a user wants under one name.
#[derive(Debug, Clone)]
pub enum Wish {
    /// A Cluster.
    Cluster,
    /// A Machine.
    Machine {
        /// Name of its Cluster.
        cluster: String,
        /// Role of the Machine.
        role: MachineRole,
    },
}

/// The role of a Machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MachineRole {
    /// A machine of the control plane.
    ControlPlane,
    /// A worker.
    Worker,
}

/// The objects that users want. Clones share the same wishes.
#[derive(Clone)]
pub struct Wishes {
    kind: ProviderKind,
    management: Server,
    user: Objects,
    wanted: Arc<Mutex<BTreeMap<String, Wish>>>,
    /// Whether a restore may undo a request, which is then repeated.
    are_repeated: bool,
}

impl Wishes {
    /// No wishes.
    pub fn new(kind: ProviderKind, management: Server, are_repeated: bool) -> Self {
        let user = Objects::new(&management, "user");
        Self { kind, management, user, wanted: Arc::default(), are_repeated }
    }

    /// Creates an object of a core kind with its infrastructure.
    ///
    /// # Errors
    /// When the server refuses an object.
    pub async fn create(&self, name: &str, wish: Wish) -> Outcome {
        self.lock().insert(name.to_owned(), wish.clone());
        match self.post_both(name, &wish).await {
            // A restore brought one of them back. The other one follows.
            Err(_) if self.are_repeated => Ok(()),
            created => created,
        }
    }

    /// Begins the deletion of an object of a core kind.
    ///
    /// # Errors
    /// When the object does not exist.
    pub async fn delete(&self, kind: &str, name: &str) -> Outcome {
        let is_of = |wish: &Wish| matches!(wish, Wish::Machine { cluster, .. } if cluster == name);
        self.lock().retain(|other, wish| other != name && !(kind == "Cluster" && is_of(wish)));
        match self.user.delete(kind, name).await {
            // A restore has lost it, and its creation was not repeated yet.
            Err(_) if self.are_repeated => Ok(()),
            deleted => deleted,
        }
    }

    /// Repeats lost requests forever.
    pub(super) async fn repeat(self) {
        const LOOK_EVERY: Duration = Duration::from_secs(5);
        loop {
            self.create_missing().await;
            self.delete_unwanted().await;
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }

    async fn create_missing(&self) {
        let wanted = self.lock().clone();
        for (name, wish) in &wanted {
            let (table, infrastructure) = self.tables(wish);
            let has = |table: &str| {
                let objects = self.management.snapshot(table);
                objects.iter().any(|object| SeenObject(object.value()).name() == name)
            };
            // The user of the scenario may create them in this instant.
            if !has(infrastructure) && !has(table) {
                let _ = self.post_both(name, wish).await;
            } else if !has(table) {
                let _ = self.post_owner(name, wish).await;
            } else if !has(infrastructure) {
                let _ = self.post_infrastructure(name, wish).await;
            }
        }
    }

    async fn delete_unwanted(&self) {
        let wanted = self.lock().clone();
        for (kind, table) in [("Machine", MACHINES), ("Cluster", CLUSTERS)] {
            let owners = self.management.snapshot(table);
            let owners: Vec<SeenObject<'_>> = owners.iter().map(|owner| SeenObject(owner.value())).collect();
            for owner in owners.iter().filter(|owner| !owner.is_deleting()) {
                if !wanted.contains_key(owner.name()) {
                    let _ = self.user.delete(kind, owner.name()).await;
                }
            }
            let (infrastructure, table) = self.infrastructure(kind == "Cluster");
            for object in self.management.snapshot(table) {
                let object = SeenObject(object.value());
                let is_owned = owners.iter().any(|owner| owner.name() == object.name());
                if !is_owned && !wanted.contains_key(object.name()) && !object.is_deleting() {
                    let _ = self.user.delete(infrastructure, object.name()).await;
                }
            }
        }
    }

    async fn post_both(&self, name: &str, wish: &Wish) -> Outcome {
        self.post_infrastructure(name, wish).await?;
        self.post_owner(name, wish).await
    }

    async fn post_infrastructure(&self, name: &str, wish: &Wish) -> Outcome {
        let (kind, _) = self.infrastructure(matches!(wish, Wish::Cluster));
        let spec = match (self.kind, wish) {
            (ProviderKind::Docker, Wish::Cluster) => {
                json!({"failureDomains": [{"name": "fd1", "controlPlane": true}]})
            }
            (ProviderKind::Docker, Wish::Machine { .. }) => json!({}),
            (ProviderKind::Mail, Wish::Cluster) => request(&[]),
            (ProviderKind::Mail, Wish::Machine { .. }) => request(&["ops@example.com"]),
        };
        self.post(kind, metadata(name, wish), spec).await
    }

    async fn post_owner(&self, name: &str, wish: &Wish) -> Outcome {
        let (infrastructure, _) = self.infrastructure(matches!(wish, Wish::Cluster));
        let reference = reference(INFRASTRUCTURE, infrastructure, name);
        let mut metadata = metadata(name, wish);
        metadata["finalizers"] = json!([FINALIZER]);
        match wish {
            Wish::Cluster => {
                let spec = json!({
                    "infrastructureRef": reference,
                    "controlPlaneRef": self::reference("controlplane.cluster.x-k8s.io", "KubeadmControlPlane", name),
                });
                self.post("Cluster", metadata, spec).await
            }
            Wish::Machine { cluster, .. } => {
                let spec = json!({
                    "clusterName": cluster, "version": "v1.33.0", "failureDomain": "fd1",
                    "infrastructureRef": reference,
                });
                self.post("Machine", metadata, spec).await
            }
        }
    }

    async fn post(&self, kind: &str, metadata: Value, spec: Value) -> Outcome {
        let mut object = typed(kind);
        object["spec"] = spec;
        self.user.create(kind, metadata, object).await
    }

    fn tables(&self, wish: &Wish) -> (&'static str, &'static str) {
        let is_cluster = matches!(wish, Wish::Cluster);
        let (_, infrastructure) = self.infrastructure(is_cluster);
        (if is_cluster { CLUSTERS } else { MACHINES }, infrastructure)
    }

    fn infrastructure(&self, is_of_cluster: bool) -> (&'static str, &'static str) {
        match (self.kind, is_of_cluster) {
            (ProviderKind::Docker, true) => ("DockerCluster", DOCKER_CLUSTERS),
            (ProviderKind::Docker, false) => ("DockerMachine", DOCKER_MACHINES),
            (ProviderKind::Mail, true) => ("MailgunCluster", MAILGUN_CLUSTERS),
            (ProviderKind::Mail, false) => ("MailgunMachine", MAILGUN_MACHINES),
        }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Wish>> {
        self.wanted.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn metadata(name: &str, wish: &Wish) -> Value {
    match wish {
        Wish::Cluster => json!({"name": name}),
        Wish::Machine { cluster, role } => {
            let mut labels = json!({CLUSTER_NAME_LABEL: cluster});
            if *role == MachineRole::ControlPlane {
                labels[CONTROL_PLANE_LABEL] = json!("");
            }
            json!({"name": name, "labels": labels})
        }
    }
}

fn reference(group: &str, kind: &str, name: &str) -> Value {
    // Both versions of a reference: by group, and by API version.
    json!({"apiGroup": group, "apiVersion": format!("{group}/v1beta2"), "kind": kind, "name": name})
}

fn request(recipients: &[&str]) -> Value {
    json!({
        "priority": "Urgent", "request": "A small one.", "requester": "dev@example.com", "recipients": recipients,
    })
}

/// A person who removes what lost its object to another actor or to a restore.
pub(super) struct Operator {
    pub(super) stage: Arc<ScenarioStage>,
    pub(super) management: Server,
    pub(super) workload: Server,
    pub(super) engine: Engine,
}

impl Operator {
    /// Runs forever: removes containers and load balancers whose object was lost.
    pub(super) async fn clean_up(self) {
        const LOOK_EVERY: Duration = Duration::from_secs(60);
        /// A person waits so long before something counts as left over.
        const PATIENCE: Duration = Duration::from_secs(5 * 60);
        let mut first_seen: BTreeMap<String, Instant> = BTreeMap::new();
        let lab = self.stage.lab();
        lab.plan.beginning().await;
        loop {
            tokio::time::sleep(LOOK_EVERY).await;
            let mut left_over: BTreeMap<String, Instant> = BTreeMap::new();
            let mut is_due = |what: &str| {
                let since = first_seen.get(what).copied().unwrap_or_else(Instant::now);
                left_over.insert(what.to_owned(), since);
                PATIENCE <= since.elapsed()
            };
            let (containers, balancers) = {
                let engine = self.engine.state();
                let key = |container: &machinist_standin_docker::Container| {
                    container.instance.key.as_ref().map_or("", InstanceKey::as_str).to_owned()
                };
                let containers: Vec<(String, String)> = engine
                    .containers
                    .iter()
                    .map(|(name, container)| (name.clone(), key(container)))
                    .collect();
                let balancers = engine.balancers.iter();
                let balancers: Vec<(String, String)> =
                    balancers.map(|(name, (spec, _))| (name.clone(), spec.key.as_str().to_owned())).collect();
                (containers, balancers)
            };
            for (name, key) in containers {
                if self.is_lost(DOCKER_MACHINES, &key) && is_due(&key) {
                    lab.history
                        .note(format!("the operator removes the container {name} of no DockerMachine"));
                    self.engine.state().containers.remove(&name);
                    let _ = Objects::new(&self.workload, "operator").delete("Node", &name).await;
                }
            }
            for (name, key) in balancers {
                if self.is_lost(DOCKER_CLUSTERS, &key) && is_due(&key) {
                    lab.history
                        .note(format!("the operator removes the load balancer {name} of no DockerCluster"));
                    self.engine.state().balancers.remove(&name);
                }
            }
            record(&lab.history, By::Other, &self.engine, None);
            self.stage.tell();
            first_seen = left_over;
        }
    }

    fn is_lost(&self, table: &str, key: &str) -> bool {
        let exists = self.management.snapshot(table).iter().any(|object| object.uid() == key);
        !exists && self.stage.lab().history.look(|state| state.lost_at(key).is_some())
    }
}
