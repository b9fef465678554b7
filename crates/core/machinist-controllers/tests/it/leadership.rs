//! Tests of a process with a Lease: calls of any duration may begin, and the process waits for them
//! before it releases the Lease.

use k8s_openapi::api::coordination::v1::Lease;
use machinist_kube::lease::{Elector, Leadership, LeaseOptions};
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::*;

/// Longer than the default duration of a Lease.
const LATENCY: Duration = Duration::from_secs(40);
const CALL_BOUND: Duration = Duration::from_secs(60);

pub(crate) fn elector(world: &World) -> (Elector, Leadership) {
    let lease = LeaseOptions::new(NAMESPACE, "machine-controller", "one");
    Elector::new(world.client("elector"), lease, world.clock.clone())
}

async fn world_with_a_slow_cloud() -> World {
    let world = World::new().await;
    world.cloud.configure(|settings| {
        settings.latency = LATENCY;
        settings.call_bound = CALL_BOUND;
    });
    world
}

fn start(world: &World, leadership: Leadership) -> Running {
    let provider = Arc::new(SimProvider::in_process(world.cloud.clone()));
    let clients =
        Clients { control: world.client("machine-controller"), target: world.client("machine-controller") };
    let options = world.options("machine-controller");
    MachineController::start(clients, options, MachineOptions::new(provider, "test"), Some(leadership))
}

async fn holder(world: &World) -> Option<String> {
    let leases: Api<Lease> = Api::namespaced(world.user.clone(), NAMESPACE);
    let lease = leases.get("machine-controller").await.expect("the Lease");
    lease.spec.and_then(|spec| spec.holder_identity).filter(|holder| !holder.is_empty())
}

#[tokio::test(start_paused = true)]
async fn a_call_may_take_longer_than_a_lease_lasts() {
    let world = world_with_a_slow_cloud().await;
    let (elector, leadership) = elector(&world);
    tokio::spawn(elector.run(std::future::pending()));
    leadership.acquired().await.expect("the Lease is free");
    let _controller = start(&world, leadership);
    world.apply(0).await;
    world.make_machine("m").await;
    world.until("the instance exists", async |w| w.cloud.alive() == 1).await;
    assert_eq!(world.cloud.ledger().ever().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn the_lease_is_released_after_the_last_call() {
    let world = world_with_a_slow_cloud().await;
    let (elector, leadership) = elector(&world);
    let (stop, stopped) = oneshot::channel::<()>();
    let (drained, is_drained) = oneshot::channel::<()>();
    let ends = |signal: oneshot::Receiver<()>| async move { drop(signal.await) };
    let election = tokio::spawn(elector.run_and_drain(ends(stopped), ends(is_drained), 2 * CALL_BOUND));
    leadership.acquired().await.expect("the Lease is free");
    let controller = start(&world, leadership);
    world.apply(0).await;
    world.make_machine("first").await;
    tokio::time::sleep(Duration::from_secs(10)).await;
    assert_eq!(world.cloud.alive(), 0, "the call is in flight");

    // As the program does when it is stopped.
    let asked = Instant::now();
    stop.send(()).expect("the elector receives the signal");
    // Once the drain begins, no further work begins.
    let (left, _) = tokio::join!(biased; controller.drain(CALL_BOUND), world.make_machine("second"));
    assert_eq!((left.calls, left.passes), (0, 0));
    assert!(Duration::from_secs(15) < left.waited, "longer than a Lease lasts: {left:?}");
    assert_eq!(world.cloud.alive(), 1, "the call has had its effect");
    assert_eq!(holder(&world).await.as_deref(), Some("one"), "the Lease was renewed meanwhile");
    drop(controller);
    drained.send(()).expect("the elector receives the signal");
    election.await.expect("no panic");
    assert_eq!(holder(&world).await, None);
    assert!(asked.elapsed() < CALL_BOUND);
    tokio::time::sleep(2 * CALL_BOUND).await;
    assert_eq!(world.cloud.ledger().ever().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_ends_at_its_limit_and_reports_open_work() {
    let world = world_with_a_slow_cloud().await;
    let controller = start(&world, Leadership::unopposed());
    world.apply(0).await;
    world.make_machine("m").await;
    tokio::time::sleep(Duration::from_secs(10)).await;
    let bound = Duration::from_secs(20);
    let left = controller.drain(bound).await;
    assert_eq!((left.calls, left.passes), (1, 0));
    assert_eq!(left.waited.as_secs(), bound.as_secs());
}

/// The previous leader died without releasing its Lease. Its last write may be delayed by a
/// webhook, and may delete the Machine that it had selected for the same limit.
#[tokio::test(start_paused = true)]
async fn a_successor_waits_for_late_writes_before_it_deletes() {
    let world = World::new().await;
    let processes = world.start();
    world.apply(3).await;
    world.until_running(3).await;
    let (machine_controller, manager) = processes;
    drop(manager);
    let leases: Api<Lease> = Api::namespaced(world.user.clone(), NAMESPACE);
    let lease = |holder: &str| {
        parse(json!({
            "apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "machine-controller"},
            "spec": {"holderIdentity": holder, "leaseDurationSeconds": 15},
        }))
    };
    leases.create(&PostParams::default(), &lease("dead")).await.expect("the Lease is accepted");
    scale_down_as_successor(&world).await;
    drop(machine_controller);
}

/// A user has deleted the Lease of a leader that hangs, and another process starts.
#[tokio::test(start_paused = true)]
async fn without_a_lease_the_objects_show_a_former_leader() {
    let world = World::new().await;
    let (machine_controller, manager) = world.start();
    world.apply(3).await;
    world.until_running(3).await;
    drop(manager);
    scale_down_as_successor(&world).await;
    drop(machine_controller);
}

/// Scales three Machines to two, starts a manager that takes over, and checks that it waits a
/// minute.
async fn scale_down_as_successor(world: &World) {
    world.scale(2).await;
    let (elector, leadership) = elector(world);
    tokio::spawn(elector.run(std::future::pending()));
    leadership.acquired().await.expect("no other process holds the Lease");
    let clients = Clients { control: world.client("manager"), target: world.client("manager") };
    let manager = Manager::start(clients, world.options("manager"), Some(leadership));
    tokio::time::sleep(Duration::from_secs(55)).await;
    assert_eq!(running(world).await, 3, "nothing is deleted yet");
    let key = Key::Deployment(ObjectKey::new(NAMESPACE, "w"));
    let why = manager.inspector().why(&key).expect("the set has a decision").why;
    assert_eq!(why.reason.code(), "PredecessorCalls", "{why}");
    tokio::time::sleep(Duration::from_secs(20)).await;
    assert_eq!(running(world).await, 2);
}

/// Operators read this line after each takeover. It must not promise more than the process keeps:
/// the deletion that a user asks for begins at once.
#[tokio::test(start_paused = true)]
async fn the_log_of_a_successor_names_what_waits_a_minute() {
    for is_released in [false, true] {
        let world = World::new().await;
        let processes = world.start();
        world.apply(3).await;
        world.until_running(3).await;
        drop(processes);
        let leases: Api<Lease> = Api::namespaced(world.user.clone(), NAMESPACE);
        let holder = if is_released { "" } else { "dead" };
        let lease = json!({
            "apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "machine-controller"},
            "spec": {"holderIdentity": holder, "leaseDurationSeconds": 15},
        });
        leases.create(&PostParams::default(), &parse(lease)).await.expect("the Lease is accepted");
        let (logged, _guard) = logs::capture();
        let (elector, leadership) = elector(&world);
        tokio::spawn(elector.run(std::future::pending()));
        leadership.acquired().await.expect("the Lease is free or expires");
        let lines = logged.lines_with("deletions that depend on a count of objects wait a minute");
        assert_eq!(lines.len(), usize::from(!is_released), "{lines:#?}");

        let clients = Clients { control: world.client("manager"), target: world.client("manager") };
        let _manager = Manager::start(clients, world.options("manager"), Some(leadership.clone()));
        let _controller = start(&world, leadership);
        let led = Instant::now();
        let name = world.machines().await.remove(0).metadata.name.expect("a name");
        world.scale(1).await;
        world.delete_machine(&name).await;
        let is_gone =
            |all: &[Machine]| all.iter().all(|machine| machine.metadata.name.as_deref() != Some(&name));
        world.until("the chosen Machine is deleted", async |w| is_gone(&w.machines().await)).await;
        assert!(led.elapsed() < Duration::from_secs(30), "a user asked for it: {:?}", led.elapsed());
        world.until("the surplus is deleted", async |w| w.cloud.alive() == 1).await;
        let waited = Duration::from_secs(60) <= led.elapsed();
        assert_eq!(waited, !is_released, "a count of objects decides: {:?}", led.elapsed());
    }
}

/// As with a process that is stopped by a debugger and continues after its Lease has expired.
#[tokio::test(start_paused = true)]
async fn a_process_that_lost_its_lease_writes_nothing() {
    let world = World::new().await;
    let (elector, leadership) = elector(&world);
    let (stop, stopped) = oneshot::channel::<()>();
    tokio::spawn(elector.run(async move { drop(stopped.await) }));
    leadership.acquired().await.expect("the Lease is free");
    let _controller = start(&world, leadership);
    world.apply(0).await;
    world.make_machine("first").await;
    world.until("the instance exists", async |w| w.cloud.alive() == 1).await;
    stop.send(()).expect("the elector receives the signal");
    tokio::time::sleep(Duration::from_secs(1)).await;
    let mut requests = world.server.audit();
    world.make_machine("second").await;
    tokio::time::sleep(Duration::from_secs(120)).await;
    let is_write = |request: &Arc<machinist_apiserver::AuditRecord>| {
        request.user_agent == "machine-controller" && request.is_write()
    };
    assert_eq!(requests.drain().into_iter().filter(is_write).count(), 0);
    assert_eq!(world.cloud.alive(), 1, "no instance is created");
}
