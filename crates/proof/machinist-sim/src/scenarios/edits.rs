//! Scenarios with a user who edits what the processes write.

use machinist_api::constants::labels;

use super::heal::first_running;
use super::life::{settled, start_with};
use crate::world::{MachineView, MachineWorld, Outcome, User, ensure};

const WORKERS: u32 = 3;
/// The phases that the user writes to running Machines.
const PHASES: [&str; 3] = ["", "Pending", "Unknown"];

/// A user overwrites the status of all objects, and removes the labels with the names of the Nodes.
/// All of that is derived again from the cloud and the Nodes, and no Machine is replaced.
pub async fn edited(world: &dyn MachineWorld) -> Outcome {
    let user = start_with(world, WORKERS).await?;
    let view = world.look().await?;
    world.begin("a user overwrites the status of all objects, and removes labels of Machines");
    for (machine, phase) in view.machines().zip(PHASES) {
        user.overwrite_phase(machine.name(), phase).await?;
        user.remove_label(machine.name(), labels::NODE).await?;
    }
    user.overwrite_counts().await?;
    let view = world.until("the status to be right again", |view| settled(view, WORKERS)).await?;
    let ever = view.ledger.ever().len();
    ensure(ever == WORKERS as usize || !world.keeps_machines(), || {
        format!("{ever} instances were ever made, expected {WORKERS}")
    })
}

/// A user writes the provider id of a younger Machine into an older one, and deletes the older. The
/// Node of the younger one stays as it is, and the older one waits until its id is right again.
pub async fn exchanged_id(world: &dyn MachineWorld) -> Outcome {
    let user = start_with(world, WORKERS).await?;
    let view = world.look().await?;
    let mut machines: Vec<_> = view.machines().collect();
    machines.sort_by_key(|machine| (machine.created(), machine.uid()));
    let (older, younger) = (machines[0], machines[machines.len() - 1]);
    world
        .begin("a user writes the provider id of a younger Machine into an older one, and deletes the older");
    user.write_provider_id(older.name(), younger.provider_id()).await?;
    user.delete_machine(older.name()).await?;
    let waits = |view: &MachineView| match view.machine(older.name()) {
        None => Err("the older Machine is gone".to_owned()),
        Some(machine) if machine.operation_text().contains("Deletion is blocked") => Ok(()),
        Some(machine) => Err(format!("its deletion says: {}", machine.operation_text())),
    };
    let view = world.until("the deletion to wait for the user", waits).await?;
    let node = view.node(younger.node_label()).filter(|node| !node.is_cordoned() && !node.is_deleting());
    ensure(node.is_some_and(|node| node.machine_label() == younger.name()), || {
        format!("Node {} of the younger Machine was changed", younger.node_label())
    })?;
    world.begin("the user corrects the provider id");
    user.write_provider_id(older.name(), older.provider_id()).await?;
    let view = world.until("the deployment to settle", |view| settled(view, WORKERS)).await?;
    let is_kept = view.machine(younger.name()).is_some_and(|kept| kept.uid() == younger.uid());
    ensure(is_kept || !world.keeps_machines(), || format!("Machine {} was replaced", younger.name()))
}

/// A user deletes the bootstrap tokens while instances boot. The Machines that cannot join are
/// replaced.
pub async fn lost_tokens(world: &dyn MachineWorld) -> Outcome {
    let user = User::of(world);
    user.create_class("c").await?;
    world.begin("the user creates a deployment of 3, and deletes the bootstrap tokens");
    user.create_workers(WORKERS).await?;
    let boots = |view: &MachineView| match view.ledger.ever() {
        [] => Err("no instance exists yet".to_owned()),
        _ => Ok(()),
    };
    world.until("the first instance to exist", boots).await?;
    user.delete_tokens().await?;
    let view = world.until("the deployment to settle", |view| settled(view, WORKERS)).await?;
    first_running(&view).map(drop)
}
