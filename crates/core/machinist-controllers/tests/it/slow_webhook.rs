//! Tests of writes that a webhook delays for longer than their sender waits.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use http::{Method, Request, Response};
use k8s_openapi::api::coordination::v1::Lease;
use kube::client::Body;
use machinist_apiserver::{ApiService, Verb};
use machinist_kube::lease::Leadership;
use tokio::time::Instant;
use tower::{BoxError, ServiceExt as _, service_fn};

use super::*;

/// Longer than any timeout of ours.
const HANGS: Duration = Duration::from_secs(50);

/// Holds each matching write until a webhook responds, and then applies it, whether or not its
/// sender still waits.
#[derive(Clone)]
struct Holds {
    inner: ApiService,
    /// Method of the held writes.
    method: Method,
    path: &'static str,
    /// Whether writes are held now.
    is_on: Arc<AtomicBool>,
    /// Time of the webhook's response; set by the first held write.
    until: Arc<OnceLock<Instant>>,
}

impl Holds {
    async fn pass(self, request: Request<Body>) -> Result<Response<machinist_apiserver::Body>, BoxError> {
        let is_held = self.is_on.load(Ordering::Relaxed)
            && request.method() == self.method
            && request.uri().path().contains(self.path);
        let until = is_held.then(|| *self.until.get_or_init(|| Instant::now() + HANGS));
        let task = tokio::spawn(async move {
            if let Some(until) = until {
                tokio::time::sleep_until(until).await;
            }
            Ok(self.inner.oneshot(request).await?)
        });
        task.await.expect("the server does not panic")
    }
}

/// Three running Machines, and a manager with delayed writes. One of its writes is delayed when the
/// deployment is scaled down.
struct Hanging {
    world: World,
    manager: Running,
    _controller: Running,
}

impl Hanging {
    /// Delays the DELETE of a Machine.
    async fn deletion() -> Self {
        Self::start(Method::DELETE, "/machines/", 2).await
    }

    async fn start(method: Method, path: &'static str, replicas: u32) -> Self {
        let world = World::new().await;
        let provider = Arc::new(SimProvider::in_process(world.cloud.clone()));
        let clients = Clients { control: world.client("mc"), target: world.client("mc") };
        let options = MachineOptions::new(provider, "test");
        let controller = MachineController::start(clients, world.options("mc"), options, None);
        let is_on = Arc::new(AtomicBool::new(false));
        let (held, manager) = world.start_manager_with(method, path, is_on.clone());
        world.apply(3).await;
        world.until_running(3).await;
        is_on.store(true, Ordering::Relaxed);
        world.scale(replicas).await;
        world.until("the write hangs", async |_| held.get().is_some()).await;
        tokio::time::sleep(Duration::from_secs(1)).await;
        Self { world, manager, _controller: controller }
    }
}

impl World {
    /// Starts a manager whose matching writes hang while `is_on`. Returns the end of the first one.
    fn start_manager_with(
        &self,
        method: Method,
        path: &'static str,
        is_on: Arc<AtomicBool>,
    ) -> (Arc<OnceLock<Instant>>, Running) {
        self.start_leader_with(method, path, is_on, None)
    }

    fn start_leader_with(
        &self,
        method: Method,
        path: &'static str,
        is_on: Arc<AtomicBool>,
        leadership: Option<Leadership>,
    ) -> (Arc<OnceLock<Instant>>, Running) {
        let held = Arc::new(OnceLock::new());
        let holds = Holds { inner: self.service(), method, path, is_on, until: held.clone() };
        let service = service_fn(move |request| holds.clone().pass(request));
        let client = layer_client(service, &self.client_options("manager"));
        let clients = Clients { control: client.clone(), target: client };
        (held, Manager::start(clients, self.options("manager"), leadership))
    }
}

#[tokio::test(start_paused = true)]
async fn a_stopping_process_waits_for_a_delayed_delete() {
    let Hanging { world, manager, .. } = Hanging::deletion().await;
    let left = manager.drain(Duration::from_secs(120)).await;
    assert_eq!((left.calls, left.passes, left.deletes), (0, 0, 0));
    let going =
        world.machines().await.into_iter().filter(|machine| machine.metadata.deletion_timestamp.is_some());
    let there = world.machines().await.len();
    assert!(going.count() == 1 || there == 2, "the DELETE has taken effect: {there} Machines");
}

#[tokio::test(start_paused = true)]
async fn a_process_that_stops_too_early_reports_the_delete() {
    let Hanging { manager, .. } = Hanging::deletion().await;
    let left = manager.drain(Duration::from_secs(40)).await;
    assert_eq!((left.passes, left.deletes), (0, 1), "the next process must not lead at once");
}

#[tokio::test(start_paused = true)]
async fn a_delayed_delete_counts_until_its_outcome_is_known() {
    let Hanging { world, manager, _controller } = Hanging::deletion().await;
    // The deletion order changes: a Machine that was not selected before is now the first to be
    // deleted.
    let machines: Api<Machine> = Api::namespaced(world.user.clone(), NAMESPACE);
    // Of equal Machines, the last by name is deleted first.
    let other = world
        .machines()
        .await
        .iter()
        .filter_map(|machine| machine.metadata.name.clone())
        .min()
        .expect("three");
    let first =
        Patch::Merge(json!({"metadata": {"annotations": {"machinepriority.machine.sapcloud.io": "1"}}}));
    machines.patch(&other, &PatchParams::default(), &first).await.expect("patched");
    let set = world.machines().await.remove(0).metadata.owner_references.expect("an owner").remove(0).name;
    let key = Key::Set(ObjectKey::new(NAMESPACE, set));
    let mut named = false;
    for _ in 0..120 {
        tokio::time::sleep(Duration::from_secs(1)).await;
        let why = manager.inspector().why(&key).expect("the set has a decision").why;
        named |= why.reason.code() == "WriteUnsettled";
    }
    let left: Vec<_> =
        world.machines().await.into_iter().filter_map(|machine| machine.metadata.name).collect();
    assert!(left.len() == 2 && left.contains(&other), "one Machine is deleted, and no other: {left:?}");
    assert_eq!(world.cloud.ledger().ever().len(), 3, "no Machine had to be replaced");
    assert!(named, "`why` names the wait");
}

/// A DELETE that was decided a minute ago is not sent again: the deployment may want the Machine
/// now.
#[tokio::test(start_paused = true)]
async fn a_lost_delete_is_not_repeated_after_a_minute() {
    let world = World::new().await;
    let provider = Arc::new(SimProvider::in_process(world.cloud.clone()));
    let clients = Clients { control: world.client("mc"), target: world.client("mc") };
    let _controller =
        MachineController::start(clients, world.options("mc"), MachineOptions::new(provider, "test"), None);
    let is_on = Arc::new(AtomicBool::new(false));
    let (held, manager) = world.start_manager_with(Method::DELETE, "/machines/", is_on.clone());
    held.set(Instant::now() + Duration::from_secs(86_400)).expect("no write was held before");
    world.apply(3).await;
    world.until_running(3).await;
    is_on.store(true, Ordering::Relaxed);
    world.scale(2).await;
    tokio::time::sleep(Duration::from_secs(80)).await;
    let whys = manager.inspector().whys();
    assert!(whys.iter().any(|(_, record)| record.why.reason.code() == "WriteUnsettled"), "{whys:?}");
    world.scale(3).await;
    tokio::time::sleep(Duration::from_secs(30)).await;
    is_on.store(false, Ordering::Relaxed);
    tokio::time::sleep(Duration::from_secs(120)).await;
    assert_eq!(world.cloud.ledger().ever().len(), 3, "no Machine was deleted and made again");
    let going =
        world.machines().await.into_iter().filter(|machine| machine.metadata.deletion_timestamp.is_some());
    assert_eq!(going.count(), 0);
    world.scale(4).await;
    world.until_running(4).await;
}

/// The process loses its Lease while the first DELETEs of a large scale-down hang.
#[tokio::test(start_paused = true)]
async fn a_process_that_lost_its_lease_does_not_finish_its_batch() {
    let world = World::new().await;
    let (elector, leadership) = leadership::elector(&world);
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    tokio::spawn(elector.run(async move { drop(stopped.await) }));
    leadership.acquired().await.expect("the Lease is free");
    let is_on = Arc::new(AtomicBool::new(true));
    let (held, _manager) = world.start_leader_with(Method::DELETE, "/machines/", is_on, Some(leadership));
    world.apply(60).await;
    world.until("all exist", async |w| w.machines().await.len() == 60).await;
    let mut requests = world.server.audit();
    world.scale(0).await;
    world.until("a DELETE hangs", async |_| held.get().is_some()).await;
    stop.send(()).expect("the elector receives the signal");
    tokio::time::sleep(Duration::from_secs(300)).await;
    let deletes = requests
        .drain()
        .into_iter()
        .filter(|request| request.user_agent == "manager" && request.verb == Verb::Delete);
    let names: std::collections::BTreeSet<String> = deletes.map(|request| request.name.clone()).collect();
    assert!((1..=16).contains(&names.len()), "{} Machines", names.len());
}

/// The set deletes Machines as soon as this PATCH takes effect, so the PATCH counts as pending as
/// long as it may still arrive.
#[tokio::test(start_paused = true)]
async fn a_delayed_patch_counts_until_it_can_no_longer_apply() {
    let Hanging { world, manager, _controller } = Hanging::start(Method::PATCH, "/machinesets/", 1).await;
    let key = Key::Deployment(ObjectKey::new(NAMESPACE, "w"));
    tokio::time::sleep(Duration::from_secs(25)).await;
    let why = manager.inspector().why(&key).expect("the deployment has a decision").why;
    assert_eq!(why.reason.code(), "WriteUnsettled", "{why}");
    let left = manager.drain(Duration::from_secs(5)).await;
    assert_eq!(left.deletes, 1, "the next process must not lead at once");
    drop(world);
}

/// Changes the template while a write that lets a set grow hangs, and returns the highest number of
/// Machines that the specs of the sets name until three minutes later.
async fn most_after_a_change(world: &World) -> i32 {
    // The read of the outcome, after the timeout of the client, does not show the write.
    tokio::time::sleep(Duration::from_secs(25)).await;
    let template = json!({"metadata": {"labels": {"name": "w", "version": "2"}}});
    let change = Patch::Merge(json!({"spec": {"template": template}}));
    world.deployments().patch("w", &PatchParams::default(), &change).await.expect("changed");
    let sets: Api<MachineSet> = Api::namespaced(world.user.clone(), NAMESPACE);
    let mut most = 0;
    for _ in 0..180 {
        tokio::time::sleep(Duration::from_secs(1)).await;
        world.join().await;
        let all = sets.list(&ListParams::default()).await.expect("a list").items;
        most = most.max(all.iter().map(|set| set.spec.replicas()).sum());
    }
    let all = sets.list(&ListParams::default()).await.expect("a list").items;
    assert_eq!(all.len(), 2, "the deployment goes on");
    most
}

#[tokio::test(start_paused = true)]
async fn a_delayed_post_of_a_set_leads_to_no_second_set_of_full_size() {
    let world = World::new().await;
    let is_on = Arc::new(AtomicBool::new(true));
    let (held, manager) = world.start_manager_with(Method::POST, "/machinesets", is_on);
    let clients = Clients { control: world.client("mc"), target: world.client("mc") };
    let provider = Arc::new(SimProvider::in_process(world.cloud.clone()));
    let options = MachineOptions::new(provider, "test");
    let _controller = MachineController::start(clients, world.options("mc"), options, None);
    world.apply(3).await;
    world.until("the write hangs", async |_| held.get().is_some()).await;
    assert_eq!(most_after_a_change(&world).await, 4, "three, and one more for the rollout");
    world.until("three of the new template run", async |w| running(w).await == 3).await;
    assert!(manager.drain(Duration::from_secs(10)).await.may_hand_over());
}

#[tokio::test(start_paused = true)]
async fn a_process_with_a_delayed_post_of_a_set_hands_nothing_over() {
    let world = World::new().await;
    let is_on = Arc::new(AtomicBool::new(true));
    let (held, manager) = world.start_manager_with(Method::POST, "/machinesets", is_on);
    world.apply(3).await;
    world.until("the write hangs", async |_| held.get().is_some()).await;
    // The request has no answer by then.
    let left = manager.drain(Duration::from_secs(40)).await;
    assert_eq!((left.passes, left.deletes), (0, 0));
    assert!(!left.may_hand_over(), "the successor would make a second set: {left:?}");
}

#[tokio::test(start_paused = true)]
async fn beside_a_delayed_patch_of_a_set_no_other_set_grows() {
    let Hanging { world, manager, _controller } = Hanging::start(Method::PATCH, "/machinesets/", 6).await;
    assert_eq!(most_after_a_change(&world).await, 7, "six, and one more for the rollout");
    drop(manager);
}

/// A deployment whose only set has lost its owner, while the adoption of that set hangs.
struct Adopting {
    world: World,
    manager: Option<Running>,
    sets: Api<MachineSet>,
    set: String,
    /// Whether further writes hang.
    is_on: Arc<AtomicBool>,
    _controller: Running,
}

impl Adopting {
    async fn start() -> Self {
        let world = World::new().await;
        let clients = Clients { control: world.client("mc"), target: world.client("mc") };
        let options = MachineOptions::new(Arc::new(SimProvider::in_process(world.cloud.clone())), "test");
        let controller = MachineController::start(clients, world.options("mc"), options, None);
        let is_on = Arc::new(AtomicBool::new(false));
        let (held, manager) = world.start_manager_with(Method::PATCH, "/machinesets/", is_on.clone());
        world.apply(1).await;
        world.until_running(1).await;
        let sets: Api<MachineSet> = Api::namespaced(world.user.clone(), NAMESPACE);
        let found = sets.list(&ListParams::default()).await.expect("a list").items.remove(0);
        let set = found.metadata.name.expect("a name");
        is_on.store(true, Ordering::Relaxed);
        let free = Patch::Merge(json!({"metadata": {"ownerReferences": null}}));
        sets.patch(&set, &PatchParams::default(), &free).await.expect("released");
        world.until("the adoption hangs", async |_| held.get().is_some()).await;
        Self { world, manager: Some(manager), sets, set, is_on, _controller: controller }
    }

    /// Deletes the deployment without its sets. The garbage collector finds no set that it has to
    /// release, and removes its finalizer.
    async fn orphan(&self) {
        let deployments = self.world.deployments();
        deployments.delete("w", &DeleteParams::orphan()).await.expect("deleted");
        let mut finalizers = deployments.get("w").await.expect("it exists").metadata.finalizers;
        finalizers.iter_mut().for_each(|all| all.retain(|finalizer| finalizer != "orphan"));
        let collected = Patch::Merge(json!({"metadata": {"finalizers": finalizers}}));
        deployments.patch("w", &PatchParams::default(), &collected).await.expect("patched");
    }

    /// Checks that the deployment is gone, and that nothing else is.
    async fn assert_set_stays(&self) {
        let deployment = self.world.deployments().get_opt("w").await.expect("an answer");
        assert!(deployment.is_none(), "the deployment is gone");
        let set = self.sets.get(&self.set).await.expect("the set stays").metadata;
        assert_eq!((set.owner_references, set.deletion_timestamp.is_some()), (None, false));
        assert_eq!(running(&self.world).await, 1);
    }
}

/// An adoption takes effect after a user has deleted the deployment without its sets.
#[tokio::test(start_paused = true)]
async fn a_late_adoption_gives_no_owner_that_is_gone() {
    let scene = Adopting::start().await;
    scene.orphan().await;
    tokio::time::sleep(HANGS * 3).await;
    scene.assert_set_stays().await;
    let [event] = scene.world.events("ReleasedLateChild").await.try_into().expect("one Event");
    assert!(event.message.unwrap_or_default().starts_with(&format!("Released MachineSet {}", scene.set)));
}

/// The leader that sent the adoption dies, and the next one knows nothing of it.
#[tokio::test(start_paused = true)]
async fn a_late_adoption_of_a_dead_leader_deletes_no_set() {
    let mut scene = Adopting::start().await;
    scene.manager.take();
    let lease = json!({
        "apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "machine-controller"},
        "spec": {"holderIdentity": "dead", "leaseDurationSeconds": 15},
    });
    let leases: Api<Lease> = Api::namespaced(scene.world.user.clone(), NAMESPACE);
    leases.create(&PostParams::default(), &parse(lease)).await.expect("the Lease is accepted");
    scene.orphan().await;
    let (elector, leadership) = leadership::elector(&scene.world);
    tokio::spawn(elector.run(std::future::pending()));
    leadership.acquired().await.expect("the Lease expires");
    let clients = Clients { control: scene.world.client("manager"), target: scene.world.client("manager") };
    scene.manager = Some(Manager::start(clients, scene.world.options("manager"), Some(leadership)));
    tokio::time::sleep(HANGS * 3).await;
    scene.assert_set_stays().await;
}

/// The adoption took effect, although it had no answer. Then a user deletes the deployment.
#[tokio::test(start_paused = true)]
async fn an_adoption_that_took_effect_keeps_no_set() {
    let scene = Adopting::start().await;
    let is_owned = async |_: &World| {
        scene.sets.get(&scene.set).await.expect("the set").metadata.owner_references.is_some()
    };
    scene.world.until("the adoption takes effect", is_owned).await;
    scene.is_on.store(false, Ordering::Relaxed);
    scene.world.deployments().delete("w", &DeleteParams::background()).await.expect("deleted");
    scene
        .world
        .until("the set is gone", async |_| {
            scene.sets.get_opt(&scene.set).await.expect("an answer").is_none()
        })
        .await;
    scene.world.until("the instance is deleted", async |w| w.cloud.alive() == 0).await;
}

#[tokio::test(start_paused = true)]
async fn a_stopping_process_waits_for_a_delayed_adoption() {
    let mut scene = Adopting::start().await;
    // The client gives up after 20 s.
    tokio::time::sleep(Duration::from_secs(25)).await;
    let left = scene.manager.take().expect("it runs").drain(Duration::from_secs(5)).await;
    assert_eq!(left.late, 1, "the next process must not lead at once");
}
