//! Scenarios in which an API server gives no answer for two hours.

use std::time::Duration;

use super::life::{settled, start_with};
use super::orphans::{OLD_AFTER, have_workers, instance_of, workers};
use crate::actor::Side;
use crate::sight::SeenObject;
use crate::world::{MachineView, MachineWorld, Outcome, ScenarioError, ensure};

const WORKERS: u32 = 3;
/// Longer than every timeout of a Machine, and than an orphan needs to be collected.
const SILENCE: Duration = Duration::from_secs(2 * 3600);
/// The time between the last look and the end of the silence.
const RESERVE: Duration = Duration::from_secs(60);

/// The API server of the Machines gives no answer.
pub async fn silent_control(world: &dyn MachineWorld) -> Outcome {
    silent(world, Side::Control).await
}

/// The API server of the Nodes gives no answer.
pub async fn silent_target(world: &dyn MachineWorld) -> Outcome {
    silent(world, Side::Target).await
}

/// An API server becomes silent when a Machine is Unknown and an instance has lost its Machine. The
/// Node of the Unknown Machine recovers at once. Until the server answers, no Machine fails, and
/// the orphan stays. Then the Machine runs as before, and the orphan is collected.
async fn silent(world: &dyn MachineWorld, side: Side) -> Outcome {
    let user = start_with(world, WORKERS).await?;
    tokio::time::sleep(OLD_AFTER).await;
    let view = world.look().await?;
    let running = workers(&view);
    let [(lost, lost_node), (dark, _), ..] = running.as_slice() else {
        return Err(ScenarioError::new("expected three workers that run"));
    };
    let (orphan, stopped) = (instance_of(&view, lost)?, instance_of(&view, dark)?);
    let uid = view.machine(dark).map(|machine| machine.uid().to_owned());
    world.begin(&format!("an instance is orphaned, another one stops, and the {side} server is silent"));
    user.erase_machine(lost).await?;
    user.delete_node(lost_node).await?;
    world.until("the lost Machine to be replaced", |view| have_workers(view, WORKERS)).await?;
    world.cloud().power_off(&stopped.id).map_err(|refusal| ScenarioError(refusal.to_string()))?;
    let is_unknown = |view: &MachineView| match view.machine(dark).map(SeenObject::phase) {
        Some("Unknown") => Ok(()),
        phase => Err(format!("{dark} has phase {phase:?}")),
    };
    world.until("the Machine to be Unknown", is_unknown).await?;
    world.silence(side, SILENCE)?;
    world.cloud().power_on(&stopped.id).map_err(|refusal| ScenarioError(refusal.to_string()))?;
    tokio::time::sleep(SILENCE - RESERVE).await;
    let view = world.look().await?;
    if world.keeps_machines() {
        let is_lost = |machine: &SeenObject<'_>| machine.phase() == "Failed" || machine.is_deleting();
        ensure(!view.machines().any(|machine| is_lost(&machine)), || {
            format!("a Machine was given up while the {side} server was silent\n{view}")
        })?;
    }
    ensure(view.ledger.alive().any(|entry| entry.id == orphan.id), || {
        format!("the orphan was deleted while the {side} server was silent")
    })?;
    let view = world.until("the orphan to be collected", |view| settled(view, WORKERS)).await?;
    let is_same = view.machine(dark).map(|machine| machine.uid().to_owned()) == uid;
    ensure(is_same || !world.keeps_machines(), || format!("{dark} was replaced although its Node recovered"))
}
