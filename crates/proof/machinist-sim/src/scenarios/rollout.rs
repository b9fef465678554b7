//! Scenarios that replace Machines by others of another class.

use super::life::{settled, start_with, wait_for_long_faults};
use crate::faults::LongKind;
use crate::world::{MachineView, MachineWorld, Outcome, User, ensure};

/// Three Machines of one class are replaced by three of another: one by one, or all at once.
pub async fn roll(world: &dyn MachineWorld) -> Outcome {
    let user = start_with(world, 3).await?;
    user.create_class("d").await?;
    world.begin("the user changes the class of the deployment of 3");
    choose_strategy(world, user).await?;
    rank_amid_outage(world, user).await?;
    user.roll_workers_to("d").await?;
    let view = world.until("all workers to be of the new class", |view| all_of_class(view, "d")).await?;
    let ever = view.ledger.ever().len();
    ensure(ever == 6 || !world.keeps_machines(), || {
        format!("{ever} instances were ever made, expected 6 for a rollout of 3")
    })
}

/// The class changes again when the first new Machine has joined.
pub async fn change_of_mind(world: &dyn MachineWorld) -> Outcome {
    let user = start_with(world, 3).await?;
    user.create_class("d").await?;
    user.create_class("e").await?;
    world.begin("the user changes the class of the deployment of 3, and again midway");
    choose_strategy(world, user).await?;
    rank_amid_outage(world, user).await?;
    user.roll_workers_to("d").await?;
    let one_of_new = |view: &MachineView| {
        if view.running().any(|machine| machine.text("/spec/class/name") == "d") {
            Ok(())
        } else {
            Err("no worker of the new class runs".to_owned())
        }
    };
    world.until("the first worker of the new class", one_of_new).await?;
    user.roll_workers_to("e").await?;
    world.until("all workers to be of the newest class", |view| all_of_class(view, "e")).await?;
    Ok(())
}

/// Gives the deployment the strategy that the workload draws.
async fn choose_strategy(world: &dyn MachineWorld, user: User<'_>) -> Outcome {
    if world.workload().recreates { user.recreate_workers().await } else { Ok(()) }
}

/// If a zone loses power, ranks a Machine that may be available among others that are not, and lets
/// that begin.
async fn rank_amid_outage(world: &dyn MachineWorld, user: User<'_>) -> Outcome {
    if !world.long_faults().iter().any(|fault| fault.kind == LongKind::ZoneOut) {
        return Ok(());
    }
    let view = world.look().await?;
    if let Some(name) = view.running().map(|machine| machine.name().to_owned()).max() {
        user.rank_first(&name).await?;
    }
    wait_for_long_faults(world).await;
    Ok(())
}

pub(super) fn all_of_class(view: &MachineView, class: &str) -> Result<(), String> {
    settled(view, 3)?;
    match view.machines().find(|machine| machine.text("/spec/class/name") != class) {
        None => Ok(()),
        Some(old) => Err(format!("{} is still of class {}", old.name(), old.text("/spec/class/name"))),
    }
}
