//! The user: the same requests in every world, from a client that meets no faults.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Node, Pod, Secret};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::Api;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams, PropagationPolicy};
use machinist_api::constants::{annotations, finalizers, labels};
use machinist_api::{Machine, MachineClass, MachineDeployment, MachineSet};
use machinist_core::orphan::NAMESPACE_TAG;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::{MachineWorld, NAMESPACE, Outcome, ScenarioError, Workload};
use crate::sight::{CLUSTER, OTHER_NAMESPACE};

/// The name of the deployment in most scenarios.
pub const WORKERS: &str = "w";
/// The annotation of a deployment that names Machines to delete.
pub const CHOSEN: &str = "node.machine.sapcloud.io/trigger-deletion-by-mcm";
/// The finalizer of another actor.
pub const HELD: &str = "example.com/hold";
/// The name of the Secret that all classes refer to.
const SECRET: &str = "s";

/// UID of a Machine of another installation.
const UID_OF_ANOTHER: &str = "8c1f0a52-5d0e-4c39-9a3f-111111111111";

/// User data of the instances, in the format that `machinist_node_sim` reads.
const USER_DATA: &str = "#cloud-config
write_files:
- path: /var/lib/bootstrap-token
  content: <<BOOTSTRAP_TOKEN>>
- path: /etc/machine-name
  content: <<MACHINE_NAME>>
";

/// A user with kubectl.
#[derive(Clone, Copy)]
pub struct User<'w> {
    world: &'w dyn MachineWorld,
    creation_timeout: Option<Duration>,
}

impl<'w> User<'w> {
    /// The user of a world.
    pub fn of(world: &'w dyn MachineWorld) -> Self {
        Self { world, creation_timeout: None }
    }

    /// A user whose Machines have that creation timeout.
    pub fn with_creation_timeout(self, timeout: Duration) -> Self {
        Self { creation_timeout: Some(timeout), ..self }
    }

    /// Creates the Secret and a class of that name.
    pub async fn create_class(self, name: &str) -> Outcome {
        let secret = json!({
            "apiVersion": "v1", "kind": "Secret", "metadata": {"name": SECRET}, "stringData": {"userData": USER_DATA},
        });
        unless_there(self.secrets().create(&PostParams::default(), &parse(secret)?).await)?;
        let boot = self.world.pace().boot.as_secs();
        let class = json!({
            "apiVersion": "machine.sapcloud.io/v1alpha1", "kind": "MachineClass", "metadata": {"name": name},
            "provider": "sim", "providerSpec": {"instanceType": "m5.large", "bootSeconds": boot},
            "secretRef": {"name": SECRET, "namespace": NAMESPACE},
        });
        unless_there(self.classes().create(&PostParams::default(), &parse(class)?).await)
    }

    /// Sets the cloud's token in the Secret, or removes it.
    pub async fn set_token(self, token: Option<&str>) -> Outcome {
        let token = token.map(|token| STANDARD.encode(token));
        let patch = Patch::Merge(json!({"data": {"token": token}}));
        self.secrets().patch(SECRET, &PatchParams::default(), &patch).await?;
        Ok(())
    }

    /// Sets the region of the class of the workers, or removes it.
    pub async fn set_region(self, region: Option<&str>) -> Outcome {
        let patch = Patch::Merge(json!({"providerSpec": {"region": region}}));
        self.classes().patch("c", &PatchParams::default(), &patch).await?;
        Ok(())
    }

    /// Sets the zone of the class of the workers.
    pub async fn set_zone(self, zone: &str) -> Outcome {
        let patch = Patch::Merge(json!({"providerSpec": {"zone": zone}}));
        self.classes().patch("c", &PatchParams::default(), &patch).await?;
        Ok(())
    }

    /// Lets each instance of the class of the workers need an initialization.
    pub async fn initialize_instances(self) -> Outcome {
        let patch = Patch::Merge(json!({"providerSpec": {"initialize": true}}));
        self.classes().patch("c", &PatchParams::default(), &patch).await?;
        Ok(())
    }

    /// Deletes all Machines, sets and deployments despite their finalizers, as the loss of their
    /// server would.
    pub async fn erase_machine_objects(self) -> Outcome {
        erase(&self.machines()).await?;
        erase(&self.sets()).await?;
        erase(&self.deployments()).await
    }

    /// Deletes the deployment despite its finalizers.
    pub async fn erase_workers(self) -> Outcome {
        erase_one(&self.deployments(), WORKERS).await
    }

    /// Deletes one Machine despite its finalizers.
    pub async fn erase_machine(self, name: &str) -> Outcome {
        erase_one(&self.machines(), name).await
    }

    /// Creates the deployment [`WORKERS`] of class `c`; usually with maxSurge 1 and maxUnavailable
    /// 0.
    pub async fn create_workers(self, replicas: u32) -> Outcome {
        let Workload { max_surge, max_unavailable, .. } = self.world.workload();
        let limits = json!({"maxSurge": max_surge, "maxUnavailable": max_unavailable});
        let deployment = json!({
            "apiVersion": "machine.sapcloud.io/v1alpha1", "kind": "MachineDeployment", "metadata": {"name": WORKERS},
            "spec": {
                "replicas": replicas,
                "selector": {"matchLabels": {"name": WORKERS}},
                "strategy": {"type": "RollingUpdate", "rollingUpdate": limits},
                "template": self.template_of_workers(),
            },
        });
        self.deployments().create(&PostParams::default(), &parse(deployment)?).await?;
        Ok(())
    }

    /// Creates a set that [`WORKERS`] adopts, and that adopts Machines with its label.
    pub async fn create_set_of_workers(self, name: &str, replicas: u32) -> Outcome {
        let set = json!({
            "apiVersion": "machine.sapcloud.io/v1alpha1", "kind": "MachineSet",
            "metadata": {"name": name, "labels": {"name": WORKERS}},
            "spec": {
                "replicas": replicas,
                "selector": {"matchLabels": {"name": WORKERS}},
                "template": self.template_of_workers(),
            },
        });
        self.sets().create(&PostParams::default(), &parse(set)?).await?;
        Ok(())
    }

    /// Creates a Machine as the set of [`WORKERS`] would, but without an owner.
    pub async fn create_worker_without_owner(self, name: &str) -> Outcome {
        let template = self.template_of_workers();
        let machine = json!({
            "apiVersion": "machine.sapcloud.io/v1alpha1", "kind": "Machine",
            "metadata": {"name": name, "labels": template["metadata"]["labels"]},
            "spec": template["spec"],
        });
        self.machines().create(&PostParams::default(), &parse(machine)?).await?;
        Ok(())
    }

    /// Creates a Machine that a set with this selector adopts and deletes first, and that stays
    /// until [`Self::release`].
    pub async fn create_held_worker(self, name: &str, labels: &Value) -> Outcome {
        let annotations = json!({(annotations::MACHINE_PRIORITY): "1"});
        let machine = json!({
            "apiVersion": "machine.sapcloud.io/v1alpha1", "kind": "Machine",
            "metadata": {"name": name, "labels": labels, "annotations": annotations, "finalizers": [HELD]},
            "spec": self.template_of_workers()["spec"],
        });
        self.machines().create(&PostParams::default(), &parse(machine)?).await?;
        Ok(())
    }

    /// Removes the finalizer of another actor from a Machine that has no other finalizer.
    pub async fn release(self, name: &str) -> Outcome {
        let patch = json!({"metadata": {"finalizers": null}});
        self.machines().patch(name, &PatchParams::default(), &Patch::Merge(patch)).await?;
        Ok(())
    }

    fn template_of_workers(self) -> Value {
        let workload = self.world.workload();
        let health = workload.health_timeout.unwrap_or(self.world.pace().health_timeout);
        let mut template = json!({
            "metadata": {"labels": {"name": WORKERS}},
            "spec": {
                "class": {"kind": "MachineClass", "name": "c"},
                "healthTimeout": go_duration(health),
                "nodeTemplate": {"metadata": {"labels": {"pool": WORKERS}}},
            },
        });
        for (field, timeout) in self.timeouts() {
            template["spec"][field] = json!(timeout);
        }
        template
    }

    /// The timeouts of a Machine in the world's workload.
    fn timeouts(self) -> Vec<(&'static str, String)> {
        let workload = self.world.workload();
        let creation_timeout = self.creation_timeout.or(workload.creation_timeout);
        let own = [("drainTimeout", workload.drain_timeout), ("creationTimeout", creation_timeout)];
        own.into_iter().filter_map(|(field, timeout)| Some((field, go_duration(timeout?)))).collect()
    }

    /// Changes the number of workers.
    pub async fn scale_workers(self, replicas: u32) -> Outcome {
        self.patch_workers(json!({"spec": {"replicas": replicas}})).await
    }

    /// Changes the number of workers and chooses one Machine to delete, as the cluster-autoscaler
    /// does.
    pub async fn scale_workers_without(self, chosen: &str, replicas: u32) -> Outcome {
        let now = Timestamp::from_second(self.world.now().as_second()).unwrap_or(self.world.now());
        let annotations = json!({
            CHOSEN: format!("{chosen}~{now}"),
            "machine.sapcloud.io/last-deployment-replica-change-by-scaler-time": now.to_string(),
        });
        self.patch_workers(json!({"metadata": {"annotations": annotations}, "spec": {"replicas": replicas}}))
            .await
    }

    /// Changes the class of the workers, which starts a rollout.
    pub async fn roll_workers_to(self, class: &str) -> Outcome {
        self.patch_workers(json!({"spec": {"template": {"spec": {"class": {"name": class}}}}})).await
    }

    /// Gives the deployment the strategy `Recreate`.
    pub async fn recreate_workers(self) -> Outcome {
        let strategy = json!({"type": "Recreate", "rollingUpdate": null});
        self.patch_workers(json!({"spec": {"strategy": strategy}})).await
    }

    /// Gives the deployment the strategy `InPlaceUpdate`, with one Machine at a time and a long
    /// time for the repair of a failed update.
    pub async fn update_workers_in_place(self, orchestration: &str) -> Outcome {
        let in_place = json!({"maxSurge": 0, "maxUnavailable": 1, "orchestrationType": orchestration});
        let strategy = json!({"type": "InPlaceUpdate", "rollingUpdate": null, "inPlaceUpdate": in_place});
        let template = json!({"spec": {"healthTimeout": "30m"}});
        self.patch_workers(json!({"spec": {"strategy": strategy, "template": template}})).await
    }

    /// Adds a label to the template of the workers, which starts a rollout.
    pub async fn label_template_of_workers(self, key: &str, value: &str) -> Outcome {
        self.patch_workers(json!({"spec": {"template": {"metadata": {"labels": {key: value}}}}})).await
    }

    /// Sets how long a failed Machine is preserved.
    pub async fn preserve_workers_for(self, timeout: Duration) -> Outcome {
        let spec = json!({"machinePreserveTimeout": go_duration(timeout)});
        self.patch_workers(json!({"spec": {"template": {"spec": spec}}})).await
    }

    /// Deletes the deployment.
    pub async fn delete_workers(self) -> Outcome {
        self.deployments().delete(WORKERS, &DeleteParams::default()).await?;
        Ok(())
    }

    /// Deletes the deployment and leaves its sets, as `kubectl delete --cascade=orphan` does.
    pub async fn orphan_workers(self) -> Outcome {
        self.deployments().delete(WORKERS, &orphaning()).await?;
        Ok(())
    }

    /// Deletes all sets and leaves their Machines.
    pub async fn orphan_sets(self) -> Outcome {
        let sets = self.sets();
        for set in sets.list(&ListParams::default()).await? {
            sets.delete(&set.metadata.name.unwrap_or_default(), &orphaning()).await?;
        }
        Ok(())
    }

    async fn patch_workers(self, patch: Value) -> Outcome {
        self.deployments().patch(WORKERS, &PatchParams::default(), &Patch::Merge(patch)).await?;
        Ok(())
    }

    /// Creates a Machine without a set.
    pub async fn create_machine(self, name: &str) -> Outcome {
        let mut machine = json!({
            "apiVersion": "machine.sapcloud.io/v1alpha1", "kind": "Machine", "metadata": {"name": name},
            "spec": {"class": {"kind": "MachineClass", "name": "c"}},
        });
        for (field, timeout) in self.timeouts() {
            machine["spec"][field] = json!(timeout);
        }
        self.machines().create(&PostParams::default(), &parse(machine)?).await?;
        Ok(())
    }

    /// Deletes a Machine.
    pub async fn delete_machine(self, name: &str) -> Outcome {
        self.machines().delete(name, &DeleteParams::default()).await?;
        Ok(())
    }

    /// Deletes a Machine by force: with the label, and then as usual.
    pub async fn force_deletion_of(self, name: &str) -> Outcome {
        let patch = json!({"metadata": {"labels": {(labels::FORCE_DELETION): "True"}}});
        self.machines().patch(name, &PatchParams::default(), &Patch::Merge(patch)).await?;
        self.delete_machine(name).await
    }

    /// Lets a Machine be deleted before the others of its set, as the cluster-autoscaler does.
    pub async fn rank_first(self, name: &str) -> Outcome {
        let patch = json!({"metadata": {"annotations": {(annotations::MACHINE_PRIORITY): "1"}}});
        self.machines().patch(name, &PatchParams::default(), &Patch::Merge(patch)).await?;
        Ok(())
    }

    /// Sets the annotation of a Machine about its preservation.
    pub async fn preserve(self, name: &str, value: &str) -> Outcome {
        let patch = json!({"metadata": {"annotations": {(annotations::PRESERVE): value}}});
        self.machines().patch(name, &PatchParams::default(), &Patch::Merge(patch)).await?;
        Ok(())
    }

    /// Overwrites the phase of a Machine.
    pub async fn overwrite_phase(self, name: &str, phase: &str) -> Outcome {
        let now = Timestamp::from_second(self.world.now().as_second()).unwrap_or(self.world.now());
        let current = json!({"phase": phase, "lastUpdateTime": now.to_string()});
        let patch = Patch::Merge(json!({"status": {"currentStatus": current}}));
        self.machines().patch_status(name, &PatchParams::default(), &patch).await?;
        Ok(())
    }

    /// Writes the provider id of a Machine.
    pub async fn write_provider_id(self, name: &str, id: &str) -> Outcome {
        let patch = Patch::Merge(json!({"spec": {"providerID": id}}));
        self.machines().patch(name, &PatchParams::default(), &patch).await?;
        Ok(())
    }

    /// Overwrites the numbers of Machines in the status of all sets and deployments.
    pub async fn overwrite_counts(self) -> Outcome {
        let counts = json!({"replicas": 9, "readyReplicas": 0, "availableReplicas": 0});
        let (patch, params) = (Patch::Merge(json!({"status": counts})), PatchParams::default());
        for set in self.sets().list(&ListParams::default()).await? {
            self.sets().patch_status(&set.metadata.name.unwrap_or_default(), &params, &patch).await?;
        }
        self.deployments().patch_status(WORKERS, &params, &patch).await?;
        Ok(())
    }

    /// Removes a label from a Machine.
    pub async fn remove_label(self, name: &str, label: &str) -> Outcome {
        let patch = Patch::Merge(json!({"metadata": {"labels": {label: null}}}));
        self.machines().patch(name, &PatchParams::default(), &patch).await?;
        Ok(())
    }

    /// Deletes all bootstrap tokens.
    pub async fn delete_tokens(self) -> Outcome {
        for token in self.tokens().list(&ListParams::default()).await? {
            let name = token.metadata.name.unwrap_or_default();
            if name.starts_with("bootstrap-token-") {
                self.tokens().delete(&name, &DeleteParams::default()).await?;
            }
        }
        Ok(())
    }

    /// Creates a pod on a Node.
    pub async fn create_pod(self, name: &str, app: &str, node: &str) -> Result<Pod, ScenarioError> {
        let pod = json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": {"app": app}},
            "spec": {
                "nodeName": node, "terminationGracePeriodSeconds": 5, "automountServiceAccountToken": false,
                "containers": [{"name": "c", "image": "registry.example/app"}],
            },
        });
        Ok(self.pods().create(&PostParams::default(), &parse(pod)?).await?)
    }

    /// Creates a PodDisruptionBudget: at least one pod of that app stays available.
    pub async fn create_budget(self, app: &str) -> Outcome {
        let budget = json!({
            "apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": app},
            "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": app}}},
        });
        let api: Api<PodDisruptionBudget> = Api::namespaced(self.world.target(), NAMESPACE);
        api.create(&PostParams::default(), &parse(budget)?).await?;
        Ok(())
    }

    /// Creates a Node that belongs to no instance of the simulated cloud.
    pub async fn create_foreign_node(self, name: &str) -> Outcome {
        let node = json!({
            "apiVersion": "v1", "kind": "Node", "metadata": {"name": name},
            "spec": {"providerID": format!("elsewhere:///{name}")},
        });
        let api: Api<Node> = Api::all(self.world.target());
        api.create(&PostParams::default(), &parse(node)?).await?;
        Ok(())
    }

    /// Creates a Node as another installation with the same names leaves it: with the finalizer,
    /// and with its mark.
    pub async fn create_node_of_another(self, name: &str, instance: Option<&str>) -> Outcome {
        let node = json!({
            "apiVersion": "v1", "kind": "Node",
            "metadata": {
                "name": name, "annotations": marks_of_another(), "finalizers": [finalizers::NODE],
                "labels": {(labels::MACHINE_NAME): name},
            },
            "spec": {"providerID": instance},
        });
        let api: Api<Node> = Api::all(self.world.target());
        api.create(&PostParams::default(), &parse(node)?).await?;
        Ok(())
    }

    /// Creates a bootstrap token of that other installation.
    pub async fn create_token_of_another(self, id: &str) -> Outcome {
        let token = json!({
            "apiVersion": "v1", "kind": "Secret", "type": "bootstrap.kubernetes.io/token",
            "metadata": {"name": format!("bootstrap-token-{id}"), "annotations": marks_of_another()},
            "stringData": {
                "token-id": id, "token-secret": "0123456789abcdef", "usage-bootstrap-authentication": "true",
                "description": "Machine Controller Manager generated token for \"theirs-3\"",
            },
        });
        self.tokens().create(&PostParams::default(), &parse(token)?).await?;
        Ok(())
    }

    /// Deletes that token.
    pub async fn delete_token_of_another(self, id: &str) -> Outcome {
        self.tokens().delete(&format!("bootstrap-token-{id}"), &DeleteParams::default()).await?;
        Ok(())
    }

    /// Removes all finalizers from a Node.
    pub async fn release_node(self, name: &str) -> Outcome {
        let api: Api<Node> = Api::all(self.world.target());
        let patch = Patch::Merge(json!({"metadata": {"finalizers": null}}));
        api.patch(name, &PatchParams::default(), &patch).await?;
        Ok(())
    }

    /// Deletes a Node.
    pub async fn delete_node(self, name: &str) -> Outcome {
        let api: Api<Node> = Api::all(self.world.target());
        api.delete(name, &DeleteParams::default()).await?;
        Ok(())
    }

    fn tokens(self) -> Api<Secret> {
        Api::namespaced(self.world.target(), "kube-system")
    }

    fn secrets(self) -> Api<Secret> {
        Api::namespaced(self.world.control(), NAMESPACE)
    }

    fn classes(self) -> Api<MachineClass> {
        Api::namespaced(self.world.control(), NAMESPACE)
    }

    fn deployments(self) -> Api<MachineDeployment> {
        Api::namespaced(self.world.control(), NAMESPACE)
    }

    fn sets(self) -> Api<MachineSet> {
        Api::namespaced(self.world.control(), NAMESPACE)
    }

    fn machines(self) -> Api<Machine> {
        Api::namespaced(self.world.control(), NAMESPACE)
    }

    fn pods(self) -> Api<Pod> {
        Api::namespaced(self.world.target(), NAMESPACE)
    }
}

/// The annotations of a Node and a token of another installation with the same names.
fn marks_of_another() -> Value {
    json!({
        "machinist.dev/machine": format!("{CLUSTER}/{NAMESPACE}/{UID_OF_ANOTHER}"),
        "machinist.dev/machine-uid": UID_OF_ANOTHER, (NAMESPACE_TAG): OTHER_NAMESPACE,
    })
}

fn orphaning() -> DeleteParams {
    DeleteParams { propagation_policy: Some(PropagationPolicy::Orphan), ..DeleteParams::default() }
}

async fn erase<K>(objects: &Api<K>) -> Outcome
where
    K: kube::Resource + Clone + std::fmt::Debug + DeserializeOwned,
{
    for object in objects.list(&ListParams::default()).await? {
        erase_one(objects, object.meta().name.as_deref().unwrap_or_default()).await?;
    }
    Ok(())
}

async fn erase_one<K>(objects: &Api<K>, name: &str) -> Outcome
where
    K: kube::Resource + Clone + std::fmt::Debug + DeserializeOwned,
{
    let unheld = Patch::Merge(json!({"metadata": {"finalizers": null}}));
    objects.patch(name, &PatchParams::default(), &unheld).await?;
    match objects.delete(name, &DeleteParams::default()).await {
        // The garbage collector may have deleted it first.
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
        Err(error) => Err(error.into()),
        Ok(_) => Ok(()),
    }
}

/// Accepts an object that an earlier scenario left.
fn unless_there<T>(made: Result<T, kube::Error>) -> Outcome {
    match made {
        Err(kube::Error::Api(status)) if status.code == 409 => Ok(()),
        Err(error) => Err(error.into()),
        Ok(_) => Ok(()),
    }
}

fn go_duration(span: Duration) -> String {
    format!("{}s", span.as_secs())
}

fn parse<T: DeserializeOwned>(value: Value) -> Result<T, ScenarioError> {
    serde_json::from_value(value)
        .map_err(|error| ScenarioError(format!("cannot parse a built-in manifest: {error}")))
}
