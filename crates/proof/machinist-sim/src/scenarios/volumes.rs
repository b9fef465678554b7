//! Scenarios with pods whose volumes must move to another Node. The scenario acts as attacher and
//! as scheduler.

use std::time::Duration;

use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim, Pod};
use k8s_openapi::api::storage::v1::VolumeAttachment;
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use machinist_driver_sim::CSI_DRIVER;
use serde_json::{Value, json};

use super::drain::no_force;
use super::heal::pod_is_ready;
use super::life::{settled, start_with};
use crate::world::{MachineView, MachineWorld, NAMESPACE, Outcome, ScenarioError, ensure};

/// The pod with the volume, and the pod that takes its place.
const FIRST: &str = "db-0";
const NEXT: &str = "db-1";
/// Prefix of the table of VolumeAttachments in the trace.
const ATTACHMENTS: &str = "volumeattachments";
/// Less than each timeout of a drain for volumes.
const MEANWHILE: Duration = Duration::from_secs(15);

/// A Machine is deleted while a pod on it uses a volume. The instance stays until the volume is
/// attached to the other Node.
pub async fn volumes(world: &dyn MachineWorld) -> Outcome {
    let user = start_with(world, 2).await?;
    let view = world.look().await?;
    let names: Vec<(String, String)> =
        view.running().map(|machine| (machine.name().to_owned(), machine.node_label().to_owned())).collect();
    let [(victim, node), (_, other_node)] = names.as_slice() else {
        return Err(ScenarioError::new(format!("expected two running Machines, found {}", names.len())));
    };
    let storage = Storage { world };
    storage.create_volume().await?;
    storage.attach(node).await?;
    storage.create_pod(FIRST, node).await?;
    world.until("the pod to be ready", |view| pod_is_ready(view, FIRST)).await?;
    world.begin("the user deletes a Machine whose pod has a volume");
    user.delete_machine(victim).await?;
    let has_left = |view: &MachineView| match view.pod(FIRST) {
        None => Ok(()),
        Some(_) => Err("the pod with the volume still exists".to_owned()),
    };
    world.until("the pod to leave", has_left).await?;
    stays(world, victim, "its volume is attached").await?;
    storage.create_pod(NEXT, other_node).await?;
    let lists = lists_of_attachments(world);
    storage.detach(node).await?;
    let stayed = stays(world, victim, "its volume is not attached to another Node").await;
    // A process that was restarted does not know that the volume was attached to the Node.
    if lists_of_attachments(world) == lists {
        stayed?;
    }
    storage.attach(other_node).await?;
    let gone = |view: &MachineView| match view.machine(victim) {
        None => settled(view, 2),
        Some(_) => Err(format!("{victim} still exists")),
    };
    world.until("the Machine to be replaced", gone).await?;
    no_force(world)
}

/// How often a process has listed the VolumeAttachments: once at each start.
fn lists_of_attachments(world: &dyn MachineWorld) -> usize {
    let answers = world.answers().into_iter();
    answers.filter(|answer| answer.verb == "list" && answer.about.table.starts_with(ATTACHMENTS)).count()
}

/// Checks that the instance of a Machine is kept for a while. After long faults, a timeout may have
/// passed.
async fn stays(world: &dyn MachineWorld, machine: &str, because: &str) -> Outcome {
    if !world.is_prompt() {
        return Ok(());
    }
    tokio::time::sleep(MEANWHILE).await;
    let view = world.look().await?;
    let is_alive = view.ledger.alive().any(|entry| entry.name.as_str() == machine);
    ensure(is_alive, || format!("the instance of {machine} was deleted although {because}"))
}

/// The claim, the volume and its attachments.
struct Storage<'w> {
    world: &'w dyn MachineWorld,
}

impl Storage<'_> {
    async fn create_volume(&self) -> Outcome {
        let claim = json!({
            "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "data"},
            "spec": {"accessModes": ["ReadWriteOnce"], "volumeName": "data", "storageClassName": "",
                     "resources": {"requests": {"storage": "1Gi"}}},
        });
        let claims: Api<PersistentVolumeClaim> = Api::namespaced(self.world.target(), NAMESPACE);
        claims.create(&PostParams::default(), &parse(claim)?).await?;
        let volume = json!({
            "apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": "data"},
            "spec": {"accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1Gi"},
                     "claimRef": {"namespace": NAMESPACE, "name": "data"},
                     "csi": {"driver": CSI_DRIVER, "volumeHandle": "vol-1"}},
        });
        let volumes: Api<PersistentVolume> = Api::all(self.world.target());
        volumes.create(&PostParams::default(), &parse(volume)?).await?;
        Ok(())
    }

    async fn create_pod(&self, name: &str, node: &str) -> Outcome {
        let pod = json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": {"app": "db"}},
            "spec": {
                "nodeName": node, "terminationGracePeriodSeconds": 5, "automountServiceAccountToken": false,
                "containers": [{"name": "c", "image": "registry.example/app"}],
                "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}],
            },
        });
        let pods: Api<Pod> = Api::namespaced(self.world.target(), NAMESPACE);
        pods.create(&PostParams::default(), &parse(pod)?).await?;
        Ok(())
    }

    async fn attach(&self, node: &str) -> Outcome {
        let attachment = json!({
            "apiVersion": "storage.k8s.io/v1", "kind": "VolumeAttachment", "metadata": {"name": format!("va-{node}")},
            "spec": {"attacher": CSI_DRIVER, "nodeName": node, "source": {"persistentVolumeName": "data"}},
        });
        self.attachments().create(&PostParams::default(), &parse(attachment)?).await?;
        let attached = Patch::Merge(json!({"status": {"attached": true}}));
        let name = format!("va-{node}");
        self.attachments().patch_status(&name, &PatchParams::default(), &attached).await?;
        Ok(())
    }

    /// Deletes the attachment. A drain that was ended by force may have deleted it before.
    async fn detach(&self, node: &str) -> Outcome {
        match self.attachments().delete(&format!("va-{node}"), &DeleteParams::default()).await {
            Ok(_) => Ok(()),
            Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    fn attachments(&self) -> Api<VolumeAttachment> {
        Api::all(self.world.target())
    }
}

fn parse<T: serde::de::DeserializeOwned>(value: Value) -> Result<T, ScenarioError> {
    serde_json::from_value(value).map_err(|error| ScenarioError(error.to_string()))
}
