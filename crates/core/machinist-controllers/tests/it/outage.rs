//! Tests of an API server that is away for minutes: the work goes on as soon as it answers again.

use super::gate::{Link, Switch};
use super::*;

/// Starts both processes. Only the manager is behind the link.
fn start(world: &World) -> ((Running, Running), Switch) {
    let link = Switch::new();
    let cut = link.client(world, "manager");
    let machine = MachineOptions::new(Arc::new(SimProvider::in_process(world.cloud.clone())), "test");
    let name = "machine-controller";
    let clients = Clients { control: world.client(name), target: world.client(name) };
    let controller = MachineController::start(clients, world.options(name), machine, None);
    let clients = Clients { control: cut.clone(), target: cut };
    let manager = Manager::start(clients, world.options("manager"), None);
    ((controller, manager), link)
}

#[tokio::test(start_paused = true)]
async fn work_goes_on_seconds_after_the_server_is_back() {
    for outage in [170, 320] {
        let world = World::new().await;
        let ((_controller, manager), link) = start(&world);
        world.apply(1).await;
        world.until_running(1).await;
        tokio::time::sleep(Duration::from_secs(60)).await;
        link.set(Link::Reset);
        world.scale(4).await;
        tokio::time::sleep(Duration::from_secs(outage)).await;
        let whys = manager.inspector().whys();
        let (_, waits) = whys
            .iter()
            .find(|(_, record)| record.why.reason.code() == "WriteUnsettled")
            .expect("the outcome of a write is unknown");
        let again = waits.why.deadline.as_ref().expect("the reason names the next try");
        assert!(world.clock.now() <= again.at, "{}", waits.why);
        link.set(Link::Up);
        tokio::time::sleep(Duration::from_secs(5)).await;
        assert_eq!(world.machines().await.len(), 4, "after {outage} s");
    }
}

/// The refusal of each attempt changes the facts about the outage, and wakes the Machine. Neither
/// may shorten the pause.
#[tokio::test(start_paused = true)]
async fn a_refused_token_is_created_again_after_pauses() {
    let world = World::new().await;
    let link = Switch::new();
    let name = "machine-controller";
    let machine = MachineOptions::new(Arc::new(SimProvider::in_process(world.cloud.clone())), "test");
    let clients = Clients { control: world.client(name), target: link.client(&world, name) };
    let _controller = MachineController::start(clients, world.options(name), machine, None);
    let clients = Clients { control: world.client("manager"), target: world.client("manager") };
    let _manager = Manager::start(clients, world.options("manager"), None);
    tokio::time::sleep(Duration::from_secs(60)).await;
    link.set(Link::Refused);
    world.apply(1).await;
    tokio::time::sleep(Duration::from_secs(300)).await;
    let writes = link.refused_writes();
    // The slot of the call expires meanwhile, and a new one begins the pauses again.
    assert!((10..=150).contains(&writes), "{writes} writes in five minutes");
    link.set(Link::Up);
    tokio::time::sleep(Duration::from_secs(6)).await;
    assert_eq!(world.cloud.alive(), 1);
}

/// A running Machine is up to date until its Node lacks a label that cannot be written.
#[tokio::test(start_paused = true)]
async fn a_write_without_an_answer_is_a_reason() {
    let world = World::new().await;
    let link = Switch::new();
    let name = "machine-controller";
    let machine = MachineOptions::new(Arc::new(SimProvider::in_process(world.cloud.clone())), "test");
    let clients = Clients { control: world.client(name), target: link.client(&world, name) };
    let controller = MachineController::start(clients, world.options(name), machine, None);
    let clients = Clients { control: world.client("manager"), target: world.client("manager") };
    let _manager = Manager::start(clients, world.options("manager"), None);
    world.apply(1).await;
    world.until_running(1).await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    let machine = world.machines().await.remove(0).metadata.name.expect("a name");
    let key = Key::Machine(ObjectKey::new(NAMESPACE, &machine));
    let code = || controller.inspector().why(&key).expect("a decision").why.reason.code();
    assert_eq!(code(), "Settled");
    link.set(Link::Refused);
    let labelled = json!({"metadata": {"labels": {"pool": "a"}}});
    let change = json!({"spec": {"template": {"spec": {"nodeTemplate": labelled}}}});
    let params = PatchParams::default();
    world.deployments().patch("w", &params, &Patch::Merge(change)).await.expect("patched");
    tokio::time::sleep(Duration::from_secs(20)).await;
    assert_eq!(code(), "Writing");
    link.set(Link::Up);
    tokio::time::sleep(Duration::from_secs(20)).await;
    assert_eq!(code(), "Settled");
}
