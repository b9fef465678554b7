//! Tests of preserved Machines, with real requests to the embedded server.

use k8s_openapi::api::core::v1::Pod;

use super::drain::why;
use super::*;

const PRESERVE: &str = "node.machine.sapcloud.io/preserve";
const TAINT: &str = "node.machine.sapcloud.io/preserved";
const SCALE_DOWN_DISABLED: &str = "cluster-autoscaler.kubernetes.io/scale-down-disabled";
/// A little less than the health timeout.
const HEALTH_TIMEOUT: Duration = Duration::from_secs(590);
/// Longer than two Machines of a deployment need to fail, one after the other.
const FAILS_WITHIN: Duration = Duration::from_secs(3600);
const DAY: Duration = Duration::from_secs(24 * 3600);

/// Starts a deployment with Machines that run. Returns their names, which are also the names of
/// their Nodes.
async fn running(world: &World, count: u32) -> ((Running, Running), Vec<String>) {
    let processes = world.start();
    world.apply(count).await;
    world.until_running(usize::try_from(count).expect("few")).await;
    let names = world.machines().await.into_iter().filter_map(|machine| machine.metadata.name);
    (processes, names.collect())
}

impl World {
    fn all_nodes(&self) -> Api<Node> {
        Api::all(self.user.clone())
    }

    async fn node(&self, name: &str) -> Node {
        self.all_nodes().get(name).await.expect("the Node exists")
    }

    async fn machine(&self, name: &str) -> Machine {
        let machines: Api<Machine> = Api::namespaced(self.user.clone(), NAMESPACE);
        machines.get(name).await.expect("the Machine exists")
    }

    async fn node_asks(&self, name: &str, value: Value) {
        let wish = Patch::Merge(json!({"metadata": {"annotations": {PRESERVE: value}}}));
        self.all_nodes().patch(name, &PatchParams::default(), &wish).await.expect("annotated");
    }

    async fn machine_asks(&self, name: &str, value: Value) {
        let machines: Api<Machine> = Api::namespaced(self.user.clone(), NAMESPACE);
        let wish = Patch::Merge(json!({"metadata": {"annotations": {PRESERVE: value}}}));
        machines.patch(name, &PatchParams::default(), &wish).await.expect("annotated");
    }

    /// The kubelet stops, and the Machine is marked as Failed.
    async fn fail(&self, name: &str) {
        self.ready(name, json!({"type": "Ready", "status": "False"})).await;
        tokio::time::sleep(HEALTH_TIMEOUT).await;
        let name = name.to_owned();
        self.until("the Machine has failed", async |w| {
            let machines = w.machines().await;
            let gone = !machines.iter().any(|machine| machine.metadata.name.as_ref() == Some(&name));
            gone || w.machine(&name).await.phase() == Phase::Failed
        })
        .await;
    }

    async fn pods(&self) -> Vec<String> {
        let pods: Api<Pod> = Api::namespaced(self.user.clone(), NAMESPACE);
        let all = pods.list(&ListParams::default()).await.expect("a list").items;
        all.into_iter().filter_map(|pod| pod.metadata.name).collect()
    }
}

fn expiry(machine: &Machine) -> Option<jiff::Timestamp> {
    let current = machine.status.as_ref()?.current_status.as_ref()?;
    current.preserve_expiry_time.as_ref().map(|time| time.0)
}

fn annotation<'n>(node: &'n Node, key: &str) -> Option<&'n str> {
    node.metadata.annotations.as_ref()?.get(key).map(String::as_str)
}

fn is_tainted(node: &Node) -> bool {
    let taints = node.spec.as_ref().and_then(|spec| spec.taints.as_ref());
    taints.is_some_and(|taints| taints.iter().any(|taint| taint.key == TAINT && taint.time_added.is_some()))
}

/// The status and the message of the condition `Preserved`.
fn condition(node: &Node) -> Option<(String, String)> {
    let conditions = node.status.as_ref()?.conditions.as_ref()?;
    let condition = conditions.iter().find(|condition| condition.type_ == "Preserved")?;
    Some((condition.status.clone(), condition.message.clone().unwrap_or_default()))
}

/// From the failure to the replacement.
#[tokio::test(start_paused = true)]
async fn t_103_t_106_a_failed_machine_is_kept_until_the_expiry() {
    let world = World::new().await;
    let ((controller, _manager), names) = running(&world, 1).await;
    let name = &names[0];
    world.node_asks(name, json!("when-failed")).await;
    world.bind_pod("p", name).await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    let machine = world.machine(name).await;
    assert_eq!(expiry(&machine), None, "it has not failed");
    let carried = machine.metadata.annotations.unwrap_or_default();
    assert_eq!(carried["node.machine.sapcloud.io/last-applied-node-preserve-value"], "when-failed");

    world.fail(name).await;
    tokio::time::sleep(Duration::from_secs(120)).await;
    let (machine, node) = (world.machine(name).await, world.node(name).await);
    let until = expiry(&machine).expect("an expiry");
    assert!(is_tainted(&node) && node.spec.unwrap_or_default().unschedulable != Some(true));
    assert_eq!(world.pods().await, [""; 0], "the Node is drained");
    let (status, message) = condition(&world.node(name).await).expect("a condition");
    assert_eq!(status, "True");
    assert!(message.starts_with("Preserved node drained successfully."), "{message}");
    assert_eq!(annotation(&world.node(name).await, SCALE_DOWN_DISABLED), Some("true"));
    let message = why(&controller.inspector(), name);
    assert!(message.contains("has failed and is preserved until"), "{message}");

    let left = until.duration_since(world.clock.now());
    tokio::time::sleep(Duration::try_from(left).expect("ahead") - Duration::from_secs(5)).await;
    assert_eq!(world.machine(name).await.metadata.uid, machine.metadata.uid, "it stays until the expiry");
    tokio::time::sleep(Duration::from_secs(60)).await;
    let others = world.machines().await;
    assert!(others.iter().all(|other| other.metadata.uid != machine.metadata.uid), "it is replaced");
}

/// A Machine that runs keeps its pods, and the Node of a user stays as it was.
#[tokio::test(start_paused = true)]
async fn t_102_t_104_a_running_machine_is_kept_until_false() {
    let world = World::new().await;
    let (_processes, names) = running(&world, 1).await;
    let name = &names[0];
    world.bind_pod("p", name).await;
    let cordon = Patch::Merge(json!({"spec": {"unschedulable": true}}));
    world.all_nodes().patch(name, &PatchParams::default(), &cordon).await.expect("cordoned");
    world.node_asks(name, json!("now")).await;
    world
        .until("the condition is True", async |w| {
            condition(&w.node(name).await).is_some_and(|(status, _)| status == "True")
        })
        .await;
    let node = world.node(name).await;
    assert!(!is_tainted(&node));
    assert_eq!(annotation(&node, SCALE_DOWN_DISABLED), Some("true"));
    assert!(expiry(&world.machine(name).await).is_some());
    assert_eq!(world.pods().await, ["p"]);

    world.node_asks(name, json!("false")).await;
    world.until("the expiry is removed", async |w| expiry(&w.machine(name).await).is_none()).await;
    let node = world.node(name).await;
    assert_eq!(condition(&node).map(|(status, _)| status).as_deref(), Some("False"));
    assert_eq!(annotation(&node, SCALE_DOWN_DISABLED), None);
    assert_eq!(annotation(&node, PRESERVE), Some("false"), "the wish of the user stays");
    assert_eq!(node.spec.unwrap_or_default().unschedulable, Some(true), "the cordon of the user stays");
}

/// A Machine that recovers is free again, and may be drained by the next failure.
#[tokio::test(start_paused = true)]
async fn t_105_a_machine_that_recovers_loses_the_taint() {
    let world = World::new().await;
    let (_processes, names) = running(&world, 1).await;
    let name = &names[0];
    world.machine_asks(name, json!("when-failed")).await;
    world.fail(name).await;
    world.until("the Node is drained", async |w| condition(&w.node(name).await).is_some()).await;
    world.ready(name, json!({"type": "Ready", "status": "True"})).await;
    world.until("the Machine is released", async |w| expiry(&w.machine(name).await).is_none()).await;
    let node = world.node(name).await;
    assert!(!is_tainted(&node));
    assert_eq!(annotation(&node, SCALE_DOWN_DISABLED), None);
    assert_eq!(world.machine(name).await.phase(), Phase::Running);
}

/// A budget blocks the drain of a Node that is alive: the pod stays, and the condition names it.
#[tokio::test(start_paused = true)]
async fn a_blocked_drain_forces_nothing_and_is_shown() {
    let world = World::new().await;
    let ((controller, _manager), names) = running(&world, 1).await;
    let name = &names[0];
    world.bind_pod("p", name).await;
    let budget = json!({
        "apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "b"},
        "spec": {"maxUnavailable": 0, "selector": {}},
    });
    let budgets: Api<k8s_openapi::api::policy::v1::PodDisruptionBudget> =
        Api::namespaced(world.user.clone(), NAMESPACE);
    budgets.create(&PostParams::default(), &parse(budget)).await.expect("the budget is accepted");
    // A budget protects only pods that run.
    let pods: Api<Pod> = Api::namespaced(world.user.clone(), NAMESPACE);
    let runs = json!({"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}});
    let params = PatchParams::default();
    pods.patch_status("p", &params, &Patch::Strategic(runs)).await.expect("the status is accepted");
    world.machine_asks(name, json!("now")).await;
    // The kubelet is alive, but the Machine fails by another condition.
    world.ready(name, json!({"type": "DiskPressure", "status": "True"})).await;
    tokio::time::sleep(HEALTH_TIMEOUT).await;
    world.until("the Machine has failed", async |w| w.machine(name).await.phase() == Phase::Failed).await;
    tokio::time::sleep(Duration::from_secs(600)).await;
    assert_eq!(world.pods().await, ["p"]);
    let (status, message) = condition(&world.node(name).await).expect("a condition");
    assert_eq!(status, "False", "{message} {}", why(&controller.inspector(), name));
    assert!(message.starts_with("Preserved node could not be drained."), "{message}");
    assert!(message.contains("PodDisruptionBudget default/b"), "{message}");
    assert!(!world.events("DrainBlocked").await.is_empty());

    let force = Patch::Merge(json!({"metadata": {"labels": {"force-drain": "True"}}}));
    let machines: Api<Machine> = Api::namespaced(world.user.clone(), NAMESPACE);
    machines.patch(name, &PatchParams::default(), &force).await.expect("labelled");
    world.until("the Node is drained", async |w| w.pods().await.is_empty()).await;
    assert_eq!(world.cloud.alive(), 1, "the instance stays");
}

/// The manager preserves as many failed Machines as the deployment allows.
#[tokio::test(start_paused = true)]
async fn t_79_failed_machines_are_preserved_automatically() {
    let world = World::new().await;
    let (_processes, names) = running(&world, 3).await;
    let most = |count: u32| Patch::Merge(json!({"spec": {"autoPreserveFailedMachineMax": count}}));
    world.deployments().patch("w", &PatchParams::default(), &most(1)).await.expect("patched");
    tokio::time::sleep(Duration::from_secs(10)).await;
    for name in &names[..2] {
        world.ready(name, json!({"type": "Ready", "status": "False"})).await;
    }
    tokio::time::sleep(FAILS_WITHIN).await;
    let kept: Vec<_> =
        world.machines().await.into_iter().filter(|machine| machine.phase() == Phase::Failed).collect();
    let [kept] = kept.as_slice() else { panic!("one failed Machine is kept: {kept:#?}") };
    let name = kept.metadata.name.clone().expect("a name");
    assert!(names[..2].contains(&name), "{name}");
    assert!(expiry(kept).is_some());
    let sets: Api<MachineSet> = Api::namespaced(world.user.clone(), NAMESPACE);
    let set = sets.list(&ListParams::default()).await.expect("a list").items.remove(0);
    assert_eq!(set.spec.auto_preserve_failed_machine_max, Some(1));
    let status = set.status.expect("a status");
    assert_eq!((status.auto_preserve_failed_machine_count, status.preserved_failed_replicas), (1, 1));
    assert_eq!(world.machines().await.len(), 3, "a preserved Machine has no replacement");

    world.deployments().patch("w", &PatchParams::default(), &most(0)).await.expect("patched");
    world
        .until("the Machine is replaced", async |w| {
            w.machines().await.iter().all(|machine| machine.metadata.uid != kept.metadata.uid)
        })
        .await;
}

/// The sets delete preserved Machines last.
#[tokio::test(start_paused = true)]
async fn a_preserved_machine_is_scaled_down_last() {
    let world = World::new().await;
    let (_processes, names) = running(&world, 3).await;
    world.machine_asks(&names[1], json!("now")).await;
    tokio::time::sleep(DAY).await;
    world.scale(1).await;
    world.until("one is left", async |w| w.machines().await.len() == 1).await;
    assert_eq!(world.machines().await[0].metadata.name.as_ref(), Some(&names[1]));
}

/// A process that takes over in the middle goes on.
#[tokio::test(start_paused = true)]
async fn a_restarted_controller_continues_the_preservation() {
    let world = World::new().await;
    let ((controller, manager), names) = running(&world, 1).await;
    let name = &names[0];
    world.machine_asks(name, json!("now")).await;
    world.bind_pod("p", name).await;
    world.fail(name).await;
    world.until("the Machine has an expiry", async |w| expiry(&w.machine(name).await).is_some()).await;
    drop((controller, manager));
    let _processes = world.start();
    world
        .until("the Node is drained", async |w| {
            let node = w.node(name).await;
            w.pods().await.is_empty() && is_tainted(&node) && condition(&node).is_some()
        })
        .await;
    assert_eq!(world.cloud.ledger().ever().len(), 1);
}
