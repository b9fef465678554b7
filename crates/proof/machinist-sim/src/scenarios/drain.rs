//! Scenarios with pods that must leave before their Node is deleted.

use std::time::Duration;

use jiff::Timestamp;

use super::heal::{first_running, pod_is_ready};
use super::life::{settled, start_with};
use crate::actor::TestedProcess;
use crate::lab::AnswerRecord;
use crate::sight::PODS;
use crate::world::workload::TENANT;
use crate::world::{MachineView, MachineWorld, Outcome, ScenarioError, ensure};

/// Maximum duration of a drain after a budget allows a disruption: the next attempt to evict, the
/// pod's grace period, and the time to notice each.
const DRAIN_TAKES: Duration = Duration::from_secs(45);

/// A Machine is deleted while a budget protects a Ready pod on it. The pod stays until a second pod
/// is ready.
pub async fn drain(world: &dyn MachineWorld) -> Outcome {
    let user = start_with(world, 2).await?;
    let view = world.look().await?;
    let names: Vec<(String, String)> =
        view.running().map(|machine| (machine.name().to_owned(), machine.node_label().to_owned())).collect();
    let [(victim, node), (_, other_node)] = names.as_slice() else {
        return Err(ScenarioError::new("expected two workers that run"));
    };
    let uid = view.machine(victim).map(|machine| machine.uid().to_owned()).unwrap_or_default();
    user.create_budget("a").await?;
    user.create_pod("held", "a", node).await?;
    world.until("the pod to be ready", |view| pod_is_ready(view, "held")).await?;
    world.begin("the user deletes a Machine whose pod is held by a budget");
    user.delete_machine(victim).await?;
    let refused = |_: &MachineView| {
        if evictions(world).any(|answer| answer.code == 429) {
            Ok(())
        } else {
            Err("no eviction was answered 429".to_owned())
        }
    };
    let view = world.until("the budget to block the eviction of the pod", refused).await?;
    ensure(view.pod("held").is_some_and(|pod| !pod.is_deleting()), || {
        "the pod was deleted against its budget".to_owned()
    })?;
    user.create_pod("second", "a", other_node).await?;
    world.until("the second pod to be ready", |view| pod_is_ready(view, "second")).await?;
    let allowed = world.now();
    let has_left = |view: &MachineView| match (view.pod("held"), view.machine(victim)) {
        (None, _) => Ok(()),
        (Some(_), _) => Err("the protected pod still exists".to_owned()),
    };
    world.until("the pod to leave", has_left).await?;
    if world.is_prompt() {
        ensure_in_time(allowed, world.now())?;
    }
    // A manager that restarts may use the name again.
    let gone = |view: &MachineView| match view.machine(victim) {
        Some(machine) if machine.uid() == uid => Err(format!("{victim} still exists")),
        Some(_) | None => settled(view, 2),
    };
    world.until("the Machine to be replaced", gone).await?;
    no_force(world)
}

/// Twelve pods without a budget are evicted at once.
pub async fn drain_of_a_crowd(world: &dyn MachineWorld) -> Outcome {
    let user = start_with(world, 1).await?;
    let view = world.look().await?;
    let machine = first_running(&view)?;
    let (victim, node) = (machine.name().to_owned(), machine.node_label().to_owned());
    let pods: Vec<String> = (0..12).map(|number| format!("p{number}")).collect();
    for pod in &pods {
        user.create_pod(pod, "a", &node).await?;
    }
    let all_ready = |view: &MachineView| pods.iter().try_for_each(|pod| pod_is_ready(view, pod));
    world.until("the pods to be ready", all_ready).await?;
    world.begin("the user deletes a Machine with twelve pods");
    user.delete_machine(&victim).await?;
    let gone = |view: &MachineView| match (view.machine(&victim), view.pods.len()) {
        (None, 0) => settled(view, 1),
        (_, left) => Err(format!("{left} pods still exist")),
    };
    world.until("the Machine to be replaced", gone).await?;
    no_force(world)
}

fn ensure_in_time(allowed: Timestamp, left: Timestamp) -> Outcome {
    let took = Duration::try_from(left.duration_since(allowed)).unwrap_or_default();
    ensure(took <= DRAIN_TAKES, || format!("the pod was evicted {took:?} after its budget allowed it"))
}

pub(super) fn evictions(world: &dyn MachineWorld) -> impl Iterator<Item = AnswerRecord> {
    let answers = world.answers().into_iter();
    answers.filter(|answer| answer.about.table == PODS && answer.about.subresource == "eviction")
}

/// Checks that the machine controller deleted no pod directly: it evicted all of them. During long
/// faults the drain timeout may pass.
pub(super) fn no_force(world: &dyn MachineWorld) -> Outcome {
    if !world.is_prompt() {
        return Ok(());
    }
    let by_force = |answer: &AnswerRecord| {
        let is_tenant = answer.about.name.starts_with(TENANT);
        let is_ours = answer.process == TestedProcess::MachineController && !is_tenant;
        is_ours && answer.about.table == PODS && answer.verb == "delete"
    };
    match world.answers().into_iter().find(by_force) {
        None => Ok(()),
        Some(answer) => Err(ScenarioError(format!("{} was deleted by force at {}", answer.about, answer.at))),
    }
}
