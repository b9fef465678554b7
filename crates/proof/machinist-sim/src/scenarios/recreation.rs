//! A scenario with a deployment that is created again while objects of the old one exist.

use std::collections::BTreeSet;

use super::life::{settled, start_with};
use crate::sight::SeenObject;
use crate::world::user::WORKERS as NAME;
use crate::world::{MachineView, MachineWorld, Outcome};

const WORKERS: u32 = 3;

/// A user removes the deployment despite its finalizers, and creates it again at once. The old set
/// names an owner with another UID: the garbage collector deletes it with its Machines, and the new
/// deployment creates its own.
pub async fn recreated(world: &dyn MachineWorld) -> Outcome {
    let user = start_with(world, WORKERS).await?;
    let view = world.look().await?;
    let old: BTreeSet<String> = view.machines().map(|machine| machine.uid().to_owned()).collect();
    world.begin("the user removes the deployment despite its finalizers, and creates it again");
    user.erase_workers().await?;
    let is_gone = |view: &MachineView| match view.deployment(NAME) {
        None => Ok(()),
        Some(_) => Err("the deployment still exists".to_owned()),
    };
    world.until("the deployment to be deleted", is_gone).await?;
    user.create_workers(WORKERS).await?;
    let are_new = |view: &MachineView| {
        let is_old = |machine: &SeenObject<'_>| old.contains(machine.uid());
        match view.machines().find(is_old) {
            None => settled(view, WORKERS),
            Some(machine) => Err(format!("the old Machine {} still exists", machine.name())),
        }
    };
    world.until("3 workers of the new deployment", are_new).await?;
    Ok(())
}
