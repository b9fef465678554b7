//! Tests with an API server of the target cluster that rejects requests or stops to answer.

use http::Method;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use machinist_controllers::mcm::Inspector;

use super::drain::why;
use super::gate::{Link, Switch};
use super::*;

/// A running Machine whose Node has a pod, with a cut-off connection to the API server of the
/// target cluster.
struct Split {
    world: World,
    link: Switch,
    controller: Option<Running>,
    _manager: Running,
    name: String,
}

/// The drain timeout of these tests.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(300);

impl Split {
    async fn new() -> Self {
        let world = World::new().await;
        let link = Switch::new();
        let controller = start_behind(&world, &link);
        let clients = Clients { control: world.client("manager"), target: world.client("manager") };
        let manager = Manager::start(clients, world.options("manager"), None);
        world.apply(1).await;
        world.until_running(1).await;
        let name = world.machines().await.remove(0).metadata.name.expect("a name");
        world.bind_pod("p", &name).await;
        Self { world, link, controller: Some(controller), _manager: manager, name }
    }

    /// Forbids the eviction of all pods.
    async fn forbid(&self) {
        let budgets: Api<PodDisruptionBudget> = Api::namespaced(self.world.user.clone(), NAMESPACE);
        let budget = json!({
            "apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "b"},
            "spec": {"maxUnavailable": 0, "selector": {}},
        });
        budgets.create(&PostParams::default(), &parse(budget)).await.expect("the budget is accepted");
        // A budget protects only pods that run.
        let pods: Api<Pod> = Api::namespaced(self.world.user.clone(), NAMESPACE);
        let runs =
            json!({"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}});
        let params = PatchParams::default();
        pods.patch_status("p", &params, &Patch::Strategic(runs)).await.expect("the status is accepted");
    }

    async fn delete(&self) {
        self.world.deployments().delete("w", &DeleteParams::default()).await.expect("deleted");
    }

    /// Sets the label `force-deletion`.
    async fn give_up(&self) {
        let force = Patch::Merge(json!({"metadata": {"labels": {"force-deletion": "true"}}}));
        let machines: Api<Machine> = Api::namespaced(self.world.user.clone(), NAMESPACE);
        machines.patch(&self.name, &PatchParams::default(), &force).await.expect("labelled");
    }

    fn cut(&self, link: Link) {
        self.link.set(link);
    }

    fn inspector(&self) -> Inspector {
        self.controller.as_ref().expect("the controller runs").inspector()
    }

    fn why(&self) -> String {
        why(&self.inspector(), &self.name)
    }

    /// Starts another process with an empty memory.
    fn restart(&mut self) {
        self.controller = None;
        self.controller = Some(start_behind(&self.world, &self.link));
    }

    async fn has_pod(&self) -> bool {
        let pods: Api<Pod> = Api::namespaced(self.world.user.clone(), NAMESPACE);
        pods.get_opt("p").await.expect("an answer").is_some()
    }

    async fn until_deleted(&self) {
        self.world.until("the instance is deleted", async |w| w.cloud.alive() == 0).await;
        self.world.until("the machine is deleted", async |w| w.machines().await.is_empty()).await;
    }
}

/// Starts a machine controller with a connection that can be cut.
fn start_behind(world: &World, link: &Switch) -> Running {
    let name = "machine-controller";
    let clients = Clients { control: world.client(name), target: link.client(world, name) };
    let mut options = MachineOptions::new(Arc::new(SimProvider::in_process(world.cloud.clone())), "test");
    options.defaults = Arc::new(machine::Defaults { drain_timeout: DRAIN_TIMEOUT, ..Default::default() });
    MachineController::start(clients, world.options(name), options, None)
}

/// Lets a drain that a budget blocks run into its timeout while the API server of the target
/// cluster does not answer.
async fn cut_off_during_a_blocked_drain(link: Link) {
    let split = Split::new().await;
    split.forbid().await;
    split.delete().await;
    split.world.until("the drain is blocked", async |w| w.says("Drain is blocked").await).await;
    split.cut(link);
    tokio::time::sleep(DRAIN_TIMEOUT * 4).await;
    assert_eq!(split.world.cloud.alive(), 1, "the instance stays: {}", split.why());
    assert!(split.has_pod().await);
    let text = split.why();
    assert!(text.contains("the API server of the target cluster has not answered since 2027-"), "{text}");
    assert!(split.world.says("the API server of the target cluster has not answered").await);

    split.cut(Link::Up);
    split.until_deleted().await;
    assert!(!split.has_pod().await, "the pod was deleted first");
    let [event] = split.world.events("DrainForced").await.try_into().expect("one Event");
    let message = event.message.unwrap_or_default();
    // The drain timeout leaves out the outage, and so does the patience with rejected evictions.
    assert_eq!(
        message,
        "The drain ended by force: the drain timed out. Pods deleted without grace: default/p"
    );
}

#[tokio::test(start_paused = true)]
async fn a_refusing_target_keeps_the_instance_past_the_timeout() {
    cut_off_during_a_blocked_drain(Link::Refused).await;
}

#[tokio::test(start_paused = true)]
async fn a_hanging_target_keeps_the_instance_past_the_timeout() {
    cut_off_during_a_blocked_drain(Link::Hanging).await;
}

/// Sets the label `force-deletion` while the API server of the target cluster never answers again.
async fn forced_without_target(link: Link, begins_before: bool, restarts: bool) {
    let mut split = Split::new().await;
    if begins_before {
        split.forbid().await;
        split.delete().await;
        split.world.until("the drain is blocked", async |w| w.says("Drain is blocked").await).await;
        split.cut(link);
    } else {
        split.cut(link);
        split.delete().await;
    }
    tokio::time::sleep(Duration::from_secs(100)).await;
    assert_eq!(split.world.cloud.alive(), 1, "the instance stays: {}", split.why());
    if restarts {
        split.restart();
        tokio::time::sleep(Duration::from_secs(100)).await;
        assert_eq!(split.world.cloud.alive(), 1, "an empty memory proves nothing");
    }
    split.give_up().await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    let left = split.world.machines().await;
    assert_eq!((split.world.cloud.alive(), left.len()), (0, 0), "{}: {left:#?}", split.why());
    let [event] = split.world.events("TargetSilent").await.try_into().expect("one Event");
    let message = event.message.unwrap_or_default();
    assert!(
        message.starts_with(&format!("May be left in the target cluster: Node {}", split.name)),
        "{message}"
    );
    assert!(split.has_pod().await, "the target cluster was not reached");
}

#[tokio::test(start_paused = true)]
async fn the_label_works_during_a_drain_without_the_target() {
    for link in [Link::Refused, Link::Hanging] {
        forced_without_target(link, true, false).await;
    }
}

/// The first write to the Node is never answered.
#[tokio::test(start_paused = true)]
async fn the_label_works_with_an_open_write_to_the_target() {
    for link in [Link::Refused, Link::Hanging] {
        forced_without_target(link, false, false).await;
    }
}

#[tokio::test(start_paused = true)]
async fn the_label_works_in_a_process_that_never_sees_the_target() {
    for link in [Link::Refused, Link::Hanging] {
        forced_without_target(link, true, true).await;
        forced_without_target(link, false, true).await;
    }
}

/// A user revokes the credential for the target cluster while the process runs.
#[tokio::test(start_paused = true)]
async fn the_label_works_with_a_credential_that_was_revoked() {
    for code in [401, 403] {
        let split = Split::new().await;
        split.forbid().await;
        split.delete().await;
        split.world.until("the drain is blocked", async |w| w.says("Drain is blocked").await).await;
        split.cut(Link::Denied(code));
        tokio::time::sleep(Duration::from_secs(100)).await;
        assert_eq!(split.world.cloud.alive(), 1, "the instance stays: {}", split.why());
        split.give_up().await;
        tokio::time::sleep(Duration::from_secs(240)).await;
        let left = split.world.machines().await;
        assert_eq!((split.world.cloud.alive(), left.len()), (0, 0), "{}: {left:#?}", split.why());
        let [event] = split.world.events("TargetSilent").await.try_into().expect("one Event");
        let message = event.message.unwrap_or_default();
        let left = format!("May be left in the target cluster: Node {}", split.name);
        assert!(message.starts_with(&left) && message.contains("says no"), "{message}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_server_error_is_no_answer_about_a_pod() {
    let split = Split::new().await;
    split.forbid().await;
    split.cut(Link::Rejects { method: &Method::DELETE, path: "/pods/", code: 500 });
    split.delete().await;
    tokio::time::sleep(DRAIN_TIMEOUT * 2).await;
    assert_eq!(split.world.cloud.alive(), 1, "the instance stays: {}", split.why());
    let message = split.why();
    assert!(
        message.contains("rejects the deletion of pod default/p: webhook pods.example.com says no"),
        "{message}"
    );
    split.cut(Link::Up);
    split.until_deleted().await;
}

/// The list of all pods takes long in a large cluster, and only drains need it.
#[tokio::test(start_paused = true)]
async fn only_drains_wait_for_the_list_of_pods() {
    for (path, missing) in
        [("/pods", "pods missing"), ("/poddisruptionbudgets", "poddisruptionbudgets missing")]
    {
        let mut split = Split::new().await;
        split.cut(Link::Rejects { method: &Method::GET, path, code: 500 });
        split.restart();
        split.world.scale(2).await;
        split.world.until_running(2).await;
        split.world.scale(0).await;
        tokio::time::sleep(DRAIN_TIMEOUT * 2).await;
        assert_eq!(split.world.cloud.alive(), 2, "the instances stay: {}", split.why());
        assert!(split.has_pod().await);
        let not_ready = split.inspector().not_ready().unwrap_or_default();
        assert!(not_ready.contains(missing), "{not_ready}");
        let why = split.why();
        assert!(why.contains("reading all watched kinds for the first time"), "{why}");
        split.cut(Link::Up);
        split.world.until("the Machine without pods is gone", async |w| w.cloud.alive() == 1).await;
        tokio::time::sleep(DRAIN_TIMEOUT / 2).await;
        assert_eq!(split.world.cloud.alive(), 1, "no drain was under way before: {}", split.why());
        split.until_deleted().await;
        assert!(!split.has_pod().await);
    }
}

/// Otherwise each Machine that fails would be replaced, and none of them could be deleted.
#[tokio::test(start_paused = true)]
async fn without_pods_nothing_is_created_after_ten_minutes() {
    let mut split = Split::new().await;
    split.cut(Link::Rejects { method: &Method::GET, path: "/pods", code: 500 });
    split.restart();
    tokio::time::sleep(Duration::from_secs(601)).await;
    split.world.scale(2).await;
    tokio::time::sleep(DRAIN_TIMEOUT).await;
    assert_eq!(split.world.cloud.alive(), 1);
    split.cut(Link::Up);
    split.world.until_running(2).await;
}

#[tokio::test(start_paused = true)]
async fn a_rejected_eviction_is_reported_until_the_drain_is_forced() {
    for code in [403, 500] {
        let split = Split::new().await;
        split.cut(Link::Rejects { method: &Method::POST, path: "/eviction", code });
        split.delete().await;
        let text = "the API server rejects the eviction of pod default/p: webhook pods.example.com says no";
        split.world.until("the status has the rejection", async |w| w.says(text).await).await;
        let message = split.why();
        assert!(message.contains(text), "{message}");
        let events = split.world.events("DrainBlocked").await;
        assert!(
            events.iter().any(|event| event.message.as_deref().unwrap_or_default().contains(text)),
            "{events:#?}"
        );
        split.until_deleted().await;
        assert_eq!(split.world.events("DrainForced").await.len(), 1);
    }
}
