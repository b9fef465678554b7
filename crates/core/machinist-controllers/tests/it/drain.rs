//! Tests of the checks before an instance is deleted, and of preserved Machines, with real requests
//! to the embedded server.

use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::storage::v1::VolumeAttachment;
use machinist_controllers::mcm::Inspector;

use super::*;

/// Starts a deployment with one running Machine. Returns the name of the Machine, which is also the
/// name of its Node.
async fn one_running(world: &World) -> ((Running, Running), String) {
    let processes = world.start();
    world.apply(1).await;
    world.until_running(1).await;
    let name = world.machines().await.remove(0).metadata.name.expect("a name");
    (processes, name)
}

pub(super) fn why(inspector: &Inspector, machine: &str) -> String {
    let key = Key::Machine(ObjectKey::new(NAMESPACE, machine));
    inspector.why(&key).map(|record| record.why.to_string()).unwrap_or_default()
}

impl World {
    fn nodes(&self) -> Api<Node> {
        Api::all(self.user.clone())
    }

    fn attachments(&self) -> Api<VolumeAttachment> {
        Api::all(self.user.clone())
    }

    /// Attaches a volume to a Node. The attachment is deleted only after `detach`.
    async fn attach(&self, name: &str, node: &str) {
        let attachment = json!({
            "apiVersion": "storage.k8s.io/v1", "kind": "VolumeAttachment",
            "metadata": {"name": name, "finalizers": ["external-attacher/csi-example"]},
            "spec": {"attacher": "csi.example", "nodeName": node, "source": {"persistentVolumeName": "pv-1"}},
        });
        let made = self.attachments().create(&PostParams::default(), &parse(attachment)).await;
        made.expect("the attachment is accepted");
    }

    /// Removes the attachment, as an attacher does after it has detached the volume.
    async fn detach(&self, name: &str) {
        let attachments = self.attachments();
        let bare = Patch::Merge(json!({"metadata": {"finalizers": null}}));
        attachments.patch(name, &PatchParams::default(), &bare).await.expect("patched");
        let deleted = attachments.delete(name, &DeleteParams::default()).await;
        assert!(deleted.is_ok() || attachments.get_opt(name).await.expect("an answer").is_none());
    }

    pub(super) async fn bind_pod(&self, name: &str, node: &str) {
        let pods: Api<Pod> = Api::namespaced(self.user.clone(), NAMESPACE);
        let pod = json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name},
            "spec": {"nodeName": node, "automountServiceAccountToken": false,
                     "containers": [{"name": "c", "image": "registry.example/app"}]},
        });
        pods.create(&PostParams::default(), &parse(pod)).await.expect("the pod is accepted");
    }

    pub(super) async fn ready(&self, node: &str, condition: Value) {
        let status = Patch::Strategic(json!({"status": {"conditions": [condition]}}));
        let patched = self.nodes().patch_status(node, &PatchParams::default(), &status).await;
        patched.expect("the status is accepted");
    }

    pub(super) async fn says(&self, marker: &str) -> bool {
        let machines = self.machines().await;
        let operations =
            machines.iter().filter_map(|machine| machine.status.as_ref()?.last_operation.as_ref());
        operations.into_iter().any(|operation| operation.description().contains(marker))
    }
}

#[tokio::test(start_paused = true)]
async fn a_normal_drain_waits_for_volumes_to_be_detached() {
    let world = World::new().await;
    let ((controller, _manager), name) = one_running(&world).await;
    world.attach("va-1", &name).await;
    world.deployments().delete("w", &DeleteParams::default()).await.expect("deleted");
    tokio::time::sleep(Duration::from_secs(100)).await;
    assert_eq!(world.cloud.alive(), 1, "the instance stays while the volume is attached");
    let message = why(&controller.inspector(), &name);
    assert!(message.contains("VolumeAttachment va-1"), "{message}");
    world.detach("va-1").await;
    world.until("the instance is deleted", async |w| w.cloud.alive() == 0).await;
    assert!(!world.says("Delete Volume Attachments").await, "no attachment was deleted");
}

/// A volume may belong to a pod of a DaemonSet, which a drain does not evict.
#[tokio::test(start_paused = true)]
async fn a_normal_drain_waits_for_volumes_only_for_a_while() {
    let world = World::new().await;
    let (_processes, name) = one_running(&world).await;
    world.attach("va-1", &name).await;
    world.deployments().delete("w", &DeleteParams::default()).await.expect("deleted");
    tokio::time::sleep(Duration::from_secs(110)).await;
    assert_eq!(world.cloud.alive(), 1, "the drain waits for the volume");
    tokio::time::sleep(Duration::from_secs(30)).await;
    assert_eq!(world.cloud.alive(), 0, "the wait is limited");
    let [event] = world.events("VolumesLeft").await.try_into().expect("one Event");
    assert!(event.message.unwrap_or_default().contains("VolumeAttachment va-1"));
}

#[tokio::test(start_paused = true)]
async fn a_forced_drain_deletes_attachments_and_waits_for_them() {
    let world = World::new().await;
    let (_processes, name) = one_running(&world).await;
    world.attach("va-1", &name).await;
    world.attach("va-2", "another-node").await;
    let force = Patch::Merge(json!({"metadata": {"labels": {"force-deletion": "true"}}}));
    let machines: Api<Machine> = Api::namespaced(world.user.clone(), NAMESPACE);
    machines.patch(&name, &PatchParams::default(), &force).await.expect("labelled");
    world.deployments().delete("w", &DeleteParams::default()).await.expect("deleted");
    tokio::time::sleep(Duration::from_secs(30)).await;
    let attachment = world.attachments().get("va-1").await.expect("the finalizer keeps the attachment");
    assert!(attachment.metadata.deletion_timestamp.is_some(), "the attachment is being deleted");
    assert!(world.says("Delete Volume Attachments").await);
    assert_eq!(world.cloud.alive(), 1, "the instance stays while the volume is attached");
    let other = world.attachments().get("va-2").await.expect("the other attachment exists");
    assert!(other.metadata.deletion_timestamp.is_none(), "an attachment of another Node stays");

    world.detach("va-1").await;
    world.until("the instance is deleted", async |w| w.cloud.alive() == 0).await;
}

#[tokio::test(start_paused = true)]
async fn a_forced_drain_waits_for_attachments_only_for_a_while() {
    let world = World::new().await;
    let (_processes, name) = one_running(&world).await;
    world.attach("va-1", &name).await;
    let force = Patch::Merge(json!({"metadata": {"labels": {"force-deletion": "true"}}}));
    let machines: Api<Machine> = Api::namespaced(world.user.clone(), NAMESPACE);
    machines.patch(&name, &PatchParams::default(), &force).await.expect("labelled");
    world.deployments().delete("w", &DeleteParams::default()).await.expect("deleted");
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(world.cloud.alive(), 1, "the drain waits for the attachment");
    tokio::time::sleep(Duration::from_secs(120)).await;
    assert_eq!(world.cloud.alive(), 0, "the wait is limited");
}

/// Makes the kubelet of a Node silent, with a condition that has no times.
async fn silent(world: &World, node: &str, renewed: Option<jiff::Timestamp>) {
    if let Some(renewed) = renewed {
        let leases: Api<Lease> = Api::namespaced(world.user.clone(), "kube-node-lease");
        let lease = json!({
            "apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": node},
            "spec": {"holderIdentity": node, "renewTime": format!("{renewed:.6}")},
        });
        leases.create(&PostParams::default(), &parse(lease)).await.expect("the Lease is accepted");
    }
    world.ready(node, json!({"type": "Ready", "status": "Unknown", "lastTransitionTime": null})).await;
}

#[tokio::test(start_paused = true)]
async fn a_silent_node_without_a_lease_is_not_waited_for() {
    let world = World::new().await;
    let (_processes, name) = one_running(&world).await;
    world.bind_pod("p", &name).await;
    silent(&world, &name, None).await;
    world.deployments().delete("w", &DeleteParams::default()).await.expect("deleted");
    tokio::time::sleep(Duration::from_secs(20)).await;
    assert_eq!(world.cloud.alive(), 0, "the instance is deleted without waiting for a kubelet");
}

#[tokio::test(start_paused = true)]
async fn a_silent_node_with_a_recent_lease_has_five_minutes() {
    let world = World::new().await;
    let (_processes, name) = one_running(&world).await;
    world.bind_pod("p", &name).await;
    silent(&world, &name, Some(world.clock.now())).await;
    world.deployments().delete("w", &DeleteParams::default()).await.expect("deleted");
    tokio::time::sleep(Duration::from_secs(280)).await;
    assert_eq!(world.cloud.alive(), 1, "the instance stays while the kubelet may return");
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(world.cloud.alive(), 0, "the instance is deleted after five minutes");
}

#[tokio::test(start_paused = true)]
async fn a_failed_machine_is_preserved_while_its_node_asks_for_it() {
    let world = World::new().await;
    let ((controller, manager), name) = one_running(&world).await;
    let wish = |value: Value| {
        Patch::Merge(json!({"metadata": {"annotations": {"node.machine.sapcloud.io/preserve": value}}}))
    };
    let params = PatchParams::default();
    world.nodes().patch(&name, &params, &wish(json!("when-failed"))).await.expect("annotated");
    // The Node becomes unhealthy, and the health timeout ends.
    world.ready(&name, json!({"type": "Ready", "status": "False"})).await;
    tokio::time::sleep(Duration::from_secs(3600)).await;
    let machine = world.machines().await.remove(0);
    assert_eq!(machine.metadata.name.as_deref(), Some(name.as_str()));
    assert_eq!(machine.phase(), Phase::Failed);
    assert_eq!(world.cloud.ledger().ever().len(), 1, "no replacement was created");
    let message = why(&controller.inspector(), &name);
    assert!(message.contains("has failed and is preserved until"), "{message}");
    drop(manager);
    let manager = Manager::start(
        Clients { control: world.client("manager"), target: world.client("manager") },
        world.options("manager"),
        None,
    );
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(world.machines().await.len(), 1, "a restarted manager preserves the machine, too");

    world.nodes().patch(&name, &params, &wish(Value::Null)).await.expect("annotated");
    tokio::time::sleep(Duration::from_secs(60)).await;
    // Compared by UID: a manager that was started in between may use the same name again.
    let left = world.machines().await;
    let is_left = left.iter().any(|other| other.metadata.uid == machine.metadata.uid);
    assert!(!is_left, "the machine is replaced: {}", why(&controller.inspector(), &name));
    drop(manager);
}
