//! Scenarios with Machines that the cluster-autoscaler chooses.

use super::life::{settled, start_with, wait_for_long_faults};
use crate::world::user::{CHOSEN, WORKERS};
use crate::world::{MachineView, MachineWorld, Outcome, ScenarioError, ensure};

/// The autoscaler chooses one of three Machines and reduces the replicas by one. That Machine is
/// deleted, and no other.
pub async fn scale_by_choice(world: &dyn MachineWorld) -> Outcome {
    let user = start_with(world, 3).await?;
    let view = world.look().await?;
    // Of Machines of the same age, the last by name would be deleted first.
    let chosen = view.running().map(|machine| machine.name().to_owned()).min();
    let chosen = chosen.ok_or(ScenarioError::new("no worker is running"))?;
    world.begin("the autoscaler chooses a Machine and scales from 3 to 2");
    wait_for_long_faults(world).await;
    user.scale_workers_without(&chosen, 2).await?;
    let is_done = |view: &MachineView| {
        settled(view, 2)?;
        let named =
            view.deployment(WORKERS).map(|deployment| deployment.annotation(CHOSEN)).unwrap_or_default();
        if named.is_empty() { Ok(()) } else { Err(format!("{named} is still named")) }
    };
    let view = world.until("the chosen Machine to be deleted", is_done).await?;
    ensure(view.machine(&chosen).is_none(), || format!("the chosen Machine {chosen} still exists"))?;
    let ever = view.ledger.ever().len();
    ensure(ever == 3 || !world.keeps_machines(), || format!("{ever} instances were ever made, expected 3"))
}
