//! Tests of driver calls: their shared limits, and the check before a queued call begins.

use machinist_cloud_sim::{Code, Fault, FaultRule, Operation};
use machinist_core::MAX_RETRY_AFTER;

use super::*;

/// Creates a class and a Secret, both with this name. The credential in the Secret has this token.
async fn make_class(world: &World, name: &str, token: &str) {
    let secrets: Api<Secret> = Api::namespaced(world.user.clone(), NAMESPACE);
    let secret = json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": {"name": name},
        "stringData": {"userData": "name: <<MACHINE_NAME>>", "token": token},
    });
    secrets.create(&PostParams::default(), &parse(secret)).await.expect("the Secret is accepted");
    let classes: Api<MachineClass> = Api::namespaced(world.user.clone(), NAMESPACE);
    let class = json!({
        "apiVersion": "machine.sapcloud.io/v1alpha1", "kind": "MachineClass", "metadata": {"name": name},
        "provider": "sim", "providerSpec": {"size": "small"}, "secretRef": {"name": name, "namespace": NAMESPACE},
    });
    classes.create(&PostParams::default(), &parse(class)).await.expect("the class is accepted");
}

/// Makes the cloud throttle the next `ensure`.
fn throttle_once(world: &World, retry_after_seconds: u64) {
    let fault = Fault::Refuse { code: Code::RateLimited, retry_after_seconds: Some(retry_after_seconds) };
    world.cloud.faults().add(FaultRule::once(Operation::Ensure, fault));
}

#[tokio::test(start_paused = true)]
async fn no_instance_is_created_if_the_machine_is_deleted_in_queue() {
    let world = World::new().await;
    world.cloud.configure(|settings| {
        settings.latency = Duration::from_secs(15);
        settings.call_bound = Duration::from_secs(20);
    });
    let _processes = world.start_with(|options| options.calls_per_account = 1);
    make_class(&world, "c", "t").await;
    world.make_machine_of("first", "c").await;
    tokio::time::sleep(Duration::from_secs(2)).await;
    let machines = world.make_machine_of("second", "c").await;
    tokio::time::sleep(Duration::from_secs(2)).await;
    // A user deletes the Machine while its call waits for the only slot.
    machines.delete("second", &DeleteParams::default()).await.expect("deleted");
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(machines.get_opt("second").await.expect("an answer").is_none());
    tokio::time::sleep(Duration::from_secs(120)).await;
    let ever: Vec<_> = world.cloud.ledger().ever().iter().map(|instance| instance.name.to_string()).collect();
    assert_eq!(ever, ["first"]);
}

#[tokio::test(start_paused = true)]
async fn a_throttled_answer_pauses_all_secrets_of_one_account() {
    let world = World::new().await;
    let (machine_controller, _manager) = world.start();
    for class in ["a", "b"] {
        make_class(&world, class, "one-account").await;
    }
    make_class(&world, "c", "another-account").await;
    // The cloud throttles once, for a minute.
    throttle_once(&world, 60);
    world.make_machine_of("m-a", "a").await;
    tokio::time::sleep(Duration::from_secs(5)).await;
    world.make_machine_of("m-b", "b").await;
    world.make_machine_of("m-c", "c").await;
    tokio::time::sleep(Duration::from_secs(40)).await;
    let made = |world: &World| -> Vec<_> {
        world.cloud.ledger().ever().iter().map(|instance| instance.name.to_string()).collect()
    };
    assert_eq!(made(&world), ["m-c"], "another account is not paused");
    let key = Key::Machine(ObjectKey::new(NAMESPACE, "m-b"));
    let why = machine_controller.inspector().why(&key).expect("the machine has a decision").why;
    assert_eq!(why.reason.code(), "AccountPaused", "{why}");
    tokio::time::sleep(Duration::from_secs(40)).await;
    assert_eq!(made(&world).len(), 3);
}

#[tokio::test(start_paused = true)]
async fn a_huge_retry_after_is_ignored() {
    let world = World::new().await;
    let _processes = world.start();
    make_class(&world, "c", "t").await;
    throttle_once(&world, 999_999);
    world.make_machine_of("m", "c").await;
    tokio::time::sleep(MAX_RETRY_AFTER + Duration::from_secs(60)).await;
    assert_eq!(world.cloud.alive(), 1);
}

#[tokio::test(start_paused = true)]
async fn an_account_that_is_not_used_for_an_hour_is_closed() {
    let world = World::new().await;
    let (machine_controller, _manager) = world.start();
    let open = || {
        let all = machine_controller.inspector().metrics();
        all.into_iter().find(|(name, _)| name == "machinist_cloud_accounts").expect("a gauge").1
    };
    for class in ["a", "b"] {
        make_class(&world, class, class).await;
        world.make_machine_of(&format!("m-{class}"), class).await;
    }
    world.until("both exist", async |w| w.cloud.alive() == 2).await;
    assert_eq!(open(), 2.0);
    let machines: Api<Machine> = Api::namespaced(world.user.clone(), NAMESPACE);
    for class in ["a", "b"] {
        machines.delete(&format!("m-{class}"), &DeleteParams::default()).await.expect("deleted");
    }
    world.until("both are deleted", async |w| w.machines().await.is_empty()).await;
    tokio::time::sleep(Duration::from_secs(3700)).await;
    assert_eq!(open(), 0.0);
}

#[tokio::test(start_paused = true)]
async fn an_instance_of_a_machine_deleted_meanwhile_is_reported() {
    let world = World::new().await;
    world.cloud.configure(|settings| {
        settings.latency = Duration::from_secs(20);
        settings.call_bound = Duration::from_secs(60);
    });
    let _processes = world.start();
    world.apply(0).await;
    let machines = world.make_machine("m").await;
    // Long enough for the call to begin.
    tokio::time::sleep(Duration::from_secs(10)).await;
    machines.delete("m", &DeleteParams::default()).await.expect("deleted");
    let freed = Patch::Merge(json!({"metadata": {"finalizers": []}}));
    machines.patch("m", &PatchParams::default(), &freed).await.expect("freed");
    tokio::time::sleep(Duration::from_secs(60)).await;
    let events = world.events("FailedCreate").await;
    let messages: Vec<_> = events.iter().filter_map(|event| event.message.as_deref()).collect();
    let expected = "was created for Machine m, which was deleted meanwhile because its finalizer was removed";
    assert!(messages.iter().any(|message| message.contains(expected)), "{messages:?}");
}

/// The deletion of each instance takes so long that lookups make up most of the calls. They must
/// not delay the deletions: all deletions end within half an hour after the earliest possible end.
#[tokio::test(start_paused = true)]
async fn two_hundred_deletions_stay_under_a_limit_of_calls() {
    const LIMIT: u32 = 3600;
    let world = World::new().await;
    world.cloud.configure(|settings| {
        settings.calls_per_hour = std::num::NonZeroU32::new(LIMIT);
        settings.delete = Duration::from_secs(45 * 60);
    });
    let (machine_controller, _manager) = world.start();
    // Twenty classes with a Secret each; all of them open one account.
    let mut machines = None;
    for number in 0..200 {
        let class = format!("c{}", number % 20);
        if number < 20 {
            make_class(&world, &class, "t").await;
        }
        machines = Some(world.make_machine_of(&format!("m{number}"), &class).await);
    }
    world.until("all exist", async |w| w.cloud.alive() == 200).await;
    let machines = machines.expect("two hundred were made");
    for number in 0..200 {
        machines.delete(&format!("m{number}"), &DeleteParams::default()).await.expect("deleted");
    }
    let (mut most, mut refused) = (0, 0);
    for _ in 0..75 {
        tokio::time::sleep(Duration::from_secs(60)).await;
        let calls = world.cloud.calls();
        let hour_ago = world.clock.now() - jiff::SignedDuration::from_hours(1);
        most = most.max(calls.iter().filter(|call| hour_ago <= call.arrived).count());
        refused += calls
            .iter()
            .filter(|call| matches!(call.outcome, machinist_cloud_sim::CallOutcome::Refused(_)))
            .count();
    }
    assert_eq!(refused, 0, "the cloud throttled no call");
    assert!(most <= LIMIT as usize, "{most} calls in an hour");
    let counts = world.cloud.call_counts();
    let count = |operation| counts.get(&operation).copied().unwrap_or_default();
    let (finds, lists) = (count(Operation::Find), count(Operation::List));
    // A lookup every 30 s would be 90 per instance, or as many as the limit allows.
    assert!(finds <= 5 * 200 && lists <= 100, "{finds} looks and {lists} lists");
    let left = machines.list(&ListParams::default()).await.expect("listed").items.len();
    assert_eq!((left, world.cloud.alive()), (0, 0), "no Machines and instances remain");
    let accounts = machine_controller.inspector().metrics();
    assert!(accounts.contains(&("machinist_cloud_accounts".to_owned(), 1.0)), "{accounts:?}");
}
