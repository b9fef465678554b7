//! Tests of drains of pods with volumes, with real requests to the embedded server. The test acts
//! as kubelet, scheduler and attacher.

use std::num::NonZeroUsize;

use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim, Pod};
use k8s_openapi::api::storage::v1::VolumeAttachment;
use machinist_driver_sim::CSI_DRIVER;

use super::drain::why;
use super::*;

impl World {
    /// Starts two Machines with these options. Returns the processes and the names of the Machines,
    /// which are also the names of their Nodes.
    async fn two_running(&self, at_once: Option<usize>) -> ((Running, Running), [String; 2]) {
        let defaults = machine::Defaults {
            volumes_at_once: at_once.and_then(NonZeroUsize::new),
            ..machine::Defaults::default()
        };
        let processes = self.start_with(|options| options.defaults = Arc::new(defaults));
        self.apply(2).await;
        self.until_running(2).await;
        let mut names = self.machines().await.into_iter().filter_map(|machine| machine.metadata.name);
        let [Some(first), Some(second)] = [names.next(), names.next()] else {
            panic!("expected two Machines")
        };
        (processes, [first, second])
    }

    /// Creates a claim and its volume.
    async fn create_volume(&self, name: &str) {
        let claims: Api<PersistentVolumeClaim> = Api::namespaced(self.user.clone(), NAMESPACE);
        let claim = json!({
            "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": name},
            "spec": {"accessModes": ["ReadWriteOnce"], "volumeName": format!("pv-{name}"),
                     "storageClassName": "", "resources": {"requests": {"storage": "1Gi"}}},
        });
        claims.create(&PostParams::default(), &parse(claim)).await.expect("the claim is accepted");
        let volumes: Api<PersistentVolume> = Api::all(self.user.clone());
        let volume = json!({
            "apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": format!("pv-{name}")},
            "spec": {"accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1Gi"},
                     "claimRef": {"namespace": NAMESPACE, "name": name},
                     "csi": {"driver": CSI_DRIVER, "volumeHandle": format!("vol-{name}")}},
        });
        volumes.create(&PostParams::default(), &parse(volume)).await.expect("the volume is accepted");
    }

    /// Binds a pod that uses the claim of this name to a Node, and attaches the volume there.
    async fn bind_with_volume(&self, pod: &str, claim: &str, node: &str) {
        let pods: Api<Pod> = Api::namespaced(self.user.clone(), NAMESPACE);
        let pod = json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": pod},
            "spec": {"nodeName": node, "automountServiceAccountToken": false,
                     "containers": [{"name": "c", "image": "registry.example/app"}],
                     "volumes": [{"name": "d", "persistentVolumeClaim": {"claimName": claim}}]},
        });
        pods.create(&PostParams::default(), &parse(pod)).await.expect("the pod is accepted");
    }

    async fn attach_volume(&self, claim: &str, node: &str) {
        let attachments: Api<VolumeAttachment> = Api::all(self.user.clone());
        let name = format!("va-{claim}-{node}");
        let attachment = json!({
            "apiVersion": "storage.k8s.io/v1", "kind": "VolumeAttachment", "metadata": {"name": name},
            "spec": {"attacher": CSI_DRIVER, "nodeName": node,
                     "source": {"persistentVolumeName": format!("pv-{claim}")}},
        });
        attachments.create(&PostParams::default(), &parse(attachment)).await.expect("accepted");
        let attached = Patch::Merge(json!({"status": {"attached": true}}));
        attachments.patch_status(&name, &PatchParams::default(), &attached).await.expect("attached");
    }

    async fn detach_volume(&self, claim: &str, node: &str) {
        let attachments: Api<VolumeAttachment> = Api::all(self.user.clone());
        let name = format!("va-{claim}-{node}");
        attachments.delete(&name, &DeleteParams::default()).await.expect("deleted");
    }

    async fn is_leaving(&self, pod: &str) -> bool {
        let pods: Api<Pod> = Api::namespaced(self.user.clone(), NAMESPACE);
        let pod = pods.get_opt(pod).await.expect("an answer");
        pod.is_none_or(|pod| pod.metadata.deletion_timestamp.is_some())
    }

    /// Acts as the kubelet: the pod has ended.
    async fn end(&self, pod: &str) {
        let pods: Api<Pod> = Api::namespaced(self.user.clone(), NAMESPACE);
        let at_once = DeleteParams::default().grace_period(0);
        pods.delete(pod, &at_once).await.expect("deleted");
    }

    /// Deletes the Machine of a Node with pod `db-0`, which uses claim `data`, until that pod has
    /// ended. The volume is still attached.
    async fn drain_pod_with_volume(&self, node: &str) {
        self.create_volume("data").await;
        self.bind_with_volume("db-0", "data", node).await;
        self.attach_volume("data", node).await;
        self.delete_machine(node).await;
        self.until("the pod is evicted", async |w| w.is_leaving("db-0").await).await;
        self.end("db-0").await;
    }

    fn runs(&self, name: &str) -> bool {
        self.cloud.ledger().alive().any(|entry| entry.name.as_str() == name)
    }
}

async fn seconds(count: u64) {
    tokio::time::sleep(Duration::from_secs(count)).await;
}

#[tokio::test(start_paused = true)]
async fn a_drain_waits_until_a_volume_is_on_another_node() {
    let world = World::new().await;
    let ((controller, _manager), [node, other]) = world.two_running(None).await;
    world.drain_pod_with_volume(&node).await;
    world.bind_with_volume("db-1", "data", &other).await;
    seconds(60).await;
    assert!(world.runs(&node), "the volume is attached");
    world.detach_volume("data", &node).await;
    seconds(60).await;
    assert!(world.runs(&node), "the volume is not attached to another Node");
    let message = why(&controller.inspector(), &node);
    assert!(message.contains("PersistentVolume pv-data of claim default/data, volume vol-data"), "{message}");
    assert!(world.says("waiting for a volume to be attached to another Node").await, "the status says so");
    world.attach_volume("data", &other).await;
    seconds(5).await;
    assert!(!world.runs(&node), "nothing is waited for: {}", why(&controller.inspector(), &node));
    assert!(world.events("VolumesLeft").await.is_empty());
}

#[tokio::test(start_paused = true)]
async fn the_wait_for_another_node_is_limited() {
    let world = World::new().await;
    let (_processes, [node, other]) = world.two_running(None).await;
    world.drain_pod_with_volume(&node).await;
    world.bind_with_volume("db-1", "data", &other).await;
    world.detach_volume("data", &node).await;
    seconds(85).await;
    assert!(world.runs(&node), "the reattach timeout has not passed");
    seconds(15).await;
    assert!(!world.runs(&node), "the reattach timeout has passed");
}

/// The volume of a deleted claim is never attached again.
#[tokio::test(start_paused = true)]
async fn a_volume_whose_claim_is_deleted_is_not_expected() {
    let world = World::new().await;
    let ((controller, _manager), [node, _other]) = world.two_running(None).await;
    world.drain_pod_with_volume(&node).await;
    let claims: Api<PersistentVolumeClaim> = Api::namespaced(world.user.clone(), NAMESPACE);
    claims.delete("data", &DeleteParams::default()).await.expect("the claim is being deleted");
    world.detach_volume("data", &node).await;
    seconds(5).await;
    assert!(!world.runs(&node), "nothing is waited for: {}", why(&controller.inspector(), &node));
}

#[tokio::test(start_paused = true)]
async fn one_at_a_time_the_next_pod_waits_for_its_turn() {
    let world = World::new().await;
    let ((controller, manager), [node, other]) = world.two_running(Some(1)).await;
    for (pod, claim) in [("db-0", "a"), ("db-1", "b")] {
        world.create_volume(claim).await;
        world.bind_with_volume(pod, claim, &node).await;
        world.attach_volume(claim, &node).await;
    }
    world.delete_machine(&node).await;
    world.until("one pod is evicted", async |w| w.is_leaving("db-0").await).await;
    world.end("db-0").await;
    world.bind_with_volume("next-0", "a", &other).await;
    world.detach_volume("a", &node).await;
    seconds(60).await;
    assert!(!world.is_leaving("db-1").await, "the volume of the first pod is not attached yet");
    let message = why(&controller.inspector(), &node);
    assert!(message.contains("waiting to evict 1 pod with volumes until PersistentVolume pv-a"), "{message}");
    world.attach_volume("a", &other).await;
    seconds(2).await;
    assert!(world.is_leaving("db-1").await, "it is the turn of the second pod");
    drop((controller, manager));
}

/// The pods leave one after the other within seconds. The drain follows without a pause.
#[tokio::test(start_paused = true)]
async fn forty_pods_with_volumes_leave_together() {
    let world = World::new().await;
    let ((controller, _manager), [node, other]) = world.two_running(None).await;
    let claims: Vec<String> = (0..40).map(|number| format!("c{number}")).collect();
    for claim in &claims {
        world.create_volume(claim).await;
        world.bind_with_volume(&format!("old-{claim}"), claim, &node).await;
        world.attach_volume(claim, &node).await;
    }
    world.delete_machine(&node).await;
    seconds(5).await;
    for claim in &claims {
        assert!(world.is_leaving(&format!("old-{claim}")).await, "the pod of {claim} is evicted");
    }
    let a_moment = Duration::from_millis(50);
    for claim in &claims {
        world.end(&format!("old-{claim}")).await;
        world.bind_with_volume(&format!("new-{claim}"), claim, &other).await;
        tokio::time::sleep(a_moment).await;
    }
    for claim in &claims {
        world.detach_volume(claim, &node).await;
        tokio::time::sleep(a_moment).await;
    }
    for claim in &claims {
        assert!(world.runs(&node), "the volume of {claim} is not on another Node");
        world.attach_volume(claim, &other).await;
        tokio::time::sleep(a_moment).await;
    }
    seconds(2).await;
    assert!(!world.runs(&node), "all volumes are attached: {}", why(&controller.inspector(), &node));
}
