//! Scenarios with instances that die without a request.

use machinist_api::constants::annotations;
use machinist_instance::ProviderId;

use super::life::{settled, start_with};
use crate::sight::SeenObject;
use crate::world::user::WORKERS;
use crate::world::{MachineView, MachineWorld, Outcome, ScenarioError, ensure};

/// One instance dies. Its Machine is replaced, and no other.
pub async fn heal(world: &dyn MachineWorld) -> Outcome {
    let _ = start_with(world, 3).await?;
    world.begin("one instance dies");
    kill_first(world, 1).await?;
    healed(world, 1).await
}

/// The same with a pod on the dead Node, where no kubelet can end the pod. A user may preserve the
/// Machine for a while.
pub async fn heal_with_a_pod(world: &dyn MachineWorld) -> Outcome {
    let user = start_with(world, 3).await?;
    let view = world.look().await?;
    let victim = first_running(&view)?;
    user.create_pod("p", "a", victim.node_label()).await?;
    let name = victim.name().to_owned();
    world.until("the pod to be ready", |view| pod_is_ready(view, "p")).await?;
    world.begin("the instance of a Node with a pod dies");
    if world.workload().preserves {
        user.preserve(&name, annotations::PRESERVE_WHEN_FAILED).await?;
    }
    kill_first(world, 1).await?;
    if world.workload().preserves {
        world.until("the Machine to be preserved and its Node drained", |view| is_kept(view, &name)).await?;
        user.preserve(&name, annotations::PRESERVE_FALSE).await?;
    }
    healed(world, 1).await?;
    let view = world.look().await?;
    let lost = view.pod("p").is_some_and(|pod| view.node(pod.text("/spec/nodeName")).is_some());
    ensure(!lost, || "the pod is still on the dead Node".to_owned())
}

/// Two of three instances die at once. Their Machines are replaced one after the other.
pub async fn heal_many(world: &dyn MachineWorld) -> Outcome {
    let _ = start_with(world, 3).await?;
    world.begin("two of three instances die at once");
    kill_first(world, 2).await?;
    healed(world, 2).await
}

pub(super) async fn kill_first(world: &dyn MachineWorld, count: usize) -> Outcome {
    let view = world.look().await?;
    for machine in view.running().take(count) {
        let id =
            ProviderId::parse(machine.provider_id()).map_err(|error| ScenarioError(error.to_string()))?;
        world.cloud().kill(&id).map_err(|refusal| ScenarioError(refusal.to_string()))?;
    }
    Ok(())
}

pub(super) async fn healed(world: &dyn MachineWorld, died: usize) -> Outcome {
    let view = world.until("the workers to be three again", |view| settled(view, 3)).await?;
    let ever = view.ledger.ever().iter().filter(|entry| entry.name.as_str().starts_with(WORKERS)).count();
    // Under all faults, a healthy Machine is never replaced, and a dead one only once.
    let replaced = ever - 3;
    ensure(died == replaced || !world.keeps_machines(), || {
        format!("{replaced} workers were replaced, and {died} died")
    })
}

/// Whether the Machine has failed, has an expiry, and its Node has no pod `p`.
pub(super) fn is_kept(view: &MachineView, name: &str) -> Result<(), String> {
    let machine = view.machine(name).filter(|machine| !machine.is_deleting());
    let Some(machine) = machine else { return Err(format!("{name} is not preserved")) };
    if machine.time("/status/currentStatus/preserveExpiryTime").is_none() {
        return Err(format!("{name} has no expiry"));
    }
    let node = view.node(machine.node_label()).map_or("", |node| node.condition("Preserved"));
    if node == "True" { Ok(()) } else { Err(format!("the Node of {name} is not drained")) }
}

pub(super) fn first_running(view: &MachineView) -> Result<SeenObject<'_>, ScenarioError> {
    view.running().next().ok_or_else(|| ScenarioError::new("no worker is running"))
}

pub(super) fn pod_is_ready(view: &MachineView, name: &str) -> Result<(), String> {
    match view.pod(name) {
        Some(pod) if pod.condition("Ready") == "True" => Ok(()),
        Some(_) => Err(format!("pod {name} is not ready")),
        None => Err(format!("pod {name} does not exist")),
    }
}
