//! Tests of instances that are initialized after their creation.

use machinist_cloud_sim::{CallOutcome, Code, Fault, FaultRule, Operation};

use super::*;

/// Applies the deployment with a class whose instances need an initialization.
async fn apply(world: &World) {
    world.apply(0).await;
    let classes: Api<MachineClass> = Api::namespaced(world.user.clone(), NAMESPACE);
    let patch = Patch::Merge(json!({"providerSpec": {"initialize": true}}));
    classes.patch("c", &PatchParams::default(), &patch).await.expect("the class is accepted");
    world.scale(1).await;
}

/// The calls that may change the cloud, in order, with their outcome.
fn changes(world: &World) -> Vec<(Operation, CallOutcome)> {
    let calls = world.cloud.calls().into_iter();
    let changes = calls.filter(|call| matches!(call.operation, Operation::Ensure | Operation::Initialize));
    changes.map(|call| (call.operation, call.outcome)).collect()
}

const MADE: (Operation, CallOutcome) = (Operation::Ensure, CallOutcome::Made);
const INITIALIZED: (Operation, CallOutcome) = (Operation::Initialize, CallOutcome::Done);
const UNAVAILABLE: (Operation, CallOutcome) =
    (Operation::Initialize, CallOutcome::Refused(Code::ServiceUnavailable));

#[tokio::test(start_paused = true)]
async fn t_05_t_13_a_failed_initialization_is_repeated() {
    let world = World::new().await;
    let fault = Fault::Refuse { code: Code::ServiceUnavailable, retry_after_seconds: None };
    world.cloud.faults().add(FaultRule::once(Operation::Initialize, fault));
    let _processes = world.start();
    apply(&world).await;
    let fails = |machine: &Machine| machine.phase() == Phase::CrashLoopBackOff;
    world.until("the Machine reports it", async |w| w.machines().await.iter().any(fails)).await;
    let machine = world.machines().await.remove(0);
    assert!(machine.spec.provider_id().is_some(), "the id is recorded");
    let operation = machine.status.and_then(|status| status.last_operation).expect("an operation");
    assert!(operation.description().starts_with("Provider error: "), "{}", operation.description());
    assert!(operation.description().ends_with(". Initialize VM Instance"), "{}", operation.description());
    assert_eq!(operation.error_code.as_deref(), Some("Unavailable"));
    world.until_running(1).await;
    assert_eq!(changes(&world), [MADE, UNAVAILABLE, INITIALIZED]);
}

/// The first process ends between the creation and the initialization.
#[tokio::test(start_paused = true)]
async fn another_process_initializes_a_recorded_instance() {
    let world = World::new().await;
    let lost = Fault::Refuse { code: Code::ServiceUnavailable, retry_after_seconds: Some(3600) };
    world.cloud.faults().add(FaultRule::once(Operation::Initialize, lost));
    let processes = world.start();
    apply(&world).await;
    world.until("the call was made", async |w| changes(w).len() == 2).await;
    drop(processes);
    let _processes = world.start();
    world.until_running(1).await;
    assert_eq!(changes(&world), [MADE, UNAVAILABLE, INITIALIZED]);
}

#[tokio::test(start_paused = true)]
async fn the_duration_of_an_initialization_is_measured() {
    let world = World::new().await;
    let slow = Fault::Delay { by: Duration::from_millis(500) };
    world.cloud.faults().add(FaultRule::once(Operation::Initialize, slow));
    let (machine_controller, _manager) = world.start();
    apply(&world).await;
    world.until_running(1).await;
    let metrics = machine_controller.inspector().metrics();
    let of_call = |(name, _): &&(String, f64)| name.starts_with("mcm_machine_initialize_duration_seconds{");
    let (name, seconds) = metrics.iter().find(of_call).expect("the gauge has a value");
    assert!(name.contains("machine_deployment=\"w\""), "{name}");
    assert_eq!(*seconds, 1.0, "rounded, as in Go");
    let of_all =
        |(name, _): &&(String, f64)| name.starts_with("machinist_machine_initialize_duration_seconds_sum{");
    let (_, sum) = metrics.iter().find(of_all).expect("the histogram has a value");
    assert!((0.5..0.6).contains(sum), "{sum}");
}
