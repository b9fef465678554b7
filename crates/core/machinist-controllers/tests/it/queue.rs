//! Tests of calls that wait for long in the queue of their account: waiting is not the fault of the
//! machine.

use std::num::NonZeroU32;

use machinist_cloud_sim::{Code, Fault, FaultRule, Operation};

use super::*;

fn limit(world: &World, calls_per_hour: u32) {
    world.cloud.configure(|settings| settings.calls_per_hour = NonZeroU32::new(calls_per_hour));
}

fn with_creation_timeout(seconds: u64) -> impl FnOnce(&mut MachineOptions) {
    move |options| {
        let defaults = Arc::make_mut(&mut options.defaults);
        defaults.creation_timeout = Duration::from_secs(seconds);
    }
}

/// The number of instances that ever existed.
fn ever(world: &World) -> usize {
    world.cloud.ledger().ever().len()
}

/// The last instances are created long after the creation timeout of their Machines. The token of
/// each is made when its call begins.
#[tokio::test(start_paused = true)]
async fn a_scale_up_at_the_limit_of_calls_destroys_no_instance() {
    scale_up(420, 1000).await;
}

/// The limit of Hetzner Cloud.
#[tokio::test(start_paused = true)]
#[ignore = "takes minutes; .ci/run --all plays it"]
async fn a_scale_up_of_5000_converges_at_the_limit_of_calls() {
    scale_up(5000, 3600).await;
}

/// Creates Machines, which need one call each, at a limit of calls. The driver makes a tenth of the
/// calls of an hour at once, and the others evenly, so that no hour has more.
async fn scale_up(machines: u32, calls_per_hour: u32) {
    let world = World::new().await;
    limit(&world, calls_per_hour);
    let _processes = world.start_with(with_creation_timeout(300));
    world.apply(machines).await;
    let burst = calls_per_hour / 10;
    let needed = u64::from(machines - burst) * 3600 / u64::from(calls_per_hour - burst);
    assert!(600 < needed, "the last Machines wait longer than their timeout");
    // A boot, and a few calls that are not about one Machine.
    let at_most = needed + needed / 50 + 60;
    let (expected, mut seconds) = (usize::try_from(machines).expect("a small number"), 0);
    let mut joined = BTreeSet::new();
    // Asking thousands of Machines takes long, so they are asked when all have joined.
    while joined.len() < expected || running(&world).await < expected {
        tokio::time::sleep(Duration::from_secs(20)).await;
        world.join_all_but(&mut joined).await;
        seconds += 20;
        let (alive, ever) = (world.cloud.alive(), ever(&world));
        let calls = world.cloud.call_counts();
        assert!(
            seconds <= at_most,
            "{alive} instances exist, {ever} ever existed, after {seconds} s: {calls:?}"
        );
    }
    assert_eq!(
        (world.cloud.alive(), ever(&world), world.machines().await.len()),
        (expected, expected, expected)
    );
}

#[tokio::test(start_paused = true)]
async fn a_deletion_does_not_wait_behind_creations() {
    let world = World::new().await;
    // The first 36 calls may be made at once, then one in 11 seconds.
    limit(&world, 360);
    let _processes = world.start();
    world.apply(0).await;
    let machines = world.make_machine("first").await;
    world.until("it exists", async |w| w.cloud.alive() == 1).await;
    for number in 0..90 {
        world.make_machine(&format!("m{number}")).await;
    }
    tokio::time::sleep(Duration::from_secs(30)).await;
    let waiting = 91 - world.cloud.alive();
    assert!(50 < waiting, "{waiting} creations wait in the queue");
    machines.delete("first", &DeleteParams::default()).await.expect("deleted");
    // A deletion needs a call to delete and a lookup.
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert!(machines.get_opt("first").await.expect("an answer").is_none());
    // A Machine whose call is in the queue needs no call.
    let before = world.cloud.calls().len();
    machines.delete("m89", &DeleteParams::default()).await.expect("deleted");
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert!(machines.get_opt("m89").await.expect("an answer").is_none());
    assert!(world.cloud.calls().len() <= before + 1, "only the next creation was called");
}

#[tokio::test(start_paused = true)]
async fn a_token_is_made_when_its_call_begins() {
    let world = World::new().await;
    world.cloud.configure(|settings| {
        settings.latency = Duration::from_secs(30);
        settings.call_bound = Duration::from_secs(40);
    });
    let (machine_controller, _manager) = world.start_with(|options| options.calls_per_account = 1);
    world.apply(3).await;
    tokio::time::sleep(Duration::from_secs(10)).await;
    let tokens: Api<Secret> = Api::namespaced(world.user.clone(), "kube-system");
    let made = async || tokens.list(&ListParams::default()).await.expect("a list").items.len();
    assert_eq!(made().await, 1);
    let whys = machine_controller.inspector().whys();
    let queued = whys.iter().filter(|(_, record)| record.why.reason.code() == "Queued").count();
    assert_eq!(queued, 2);
    tokio::time::sleep(Duration::from_secs(30)).await;
    assert_eq!(made().await, 2);
}

/// All deletions have evidence at once, and one of them is called in eleven seconds: longer than a
/// permit is valid.
#[tokio::test(start_paused = true)]
async fn deletions_at_the_limit_of_calls_end() {
    let world = World::new().await;
    limit(&world, 360);
    let _processes = world.start();
    world.apply(12).await;
    world.until_running(12).await;
    world.deployments().delete("w", &DeleteParams::default()).await.expect("deleted");
    world.until("nothing is left", async |w| w.machines().await.is_empty() && w.cloud.alive() == 0).await;
    assert_eq!(ever(&world), 12);
}

/// Another program uses up the calls of the account. Pauses are not the fault of the machine, and
/// no call is made that changes no decision.
#[tokio::test(start_paused = true)]
async fn a_budget_of_calls_that_is_used_up_destroys_nothing() {
    let world = World::new().await;
    let _processes = world.start_with(with_creation_timeout(120));
    tokio::time::sleep(Duration::from_secs(60)).await;
    let fault = Fault::Refuse { code: Code::RateLimited, retry_after_seconds: Some(60) };
    for operation in [Operation::Ensure, Operation::Find] {
        world.cloud.faults().add(FaultRule::always(operation, fault.clone()));
    }
    world.apply(20).await;
    tokio::time::sleep(Duration::from_secs(900)).await;
    let names = async || -> Vec<_> {
        world.machines().await.into_iter().map(|machine| machine.metadata.name).collect()
    };
    let before = names().await;
    assert_eq!(before.len(), 20);
    world.cloud.faults().clear();
    world.until_running(20).await;
    assert_eq!(names().await, before, "no Machine was replaced");
    let finds = world.cloud.call_counts().get(&Operation::Find).copied().unwrap_or_default();
    assert_eq!(finds, 0);
}
