//! Scenarios with Machines that were created without an owner.

use super::heal::{healed, kill_first};
use super::life::settled;
use crate::sight::SeenObject;
use crate::world::{MachineView, MachineWorld, Outcome, User};

const NAMES: [&str; 3] = ["w-a", "w-b", "w-c"];

/// Three Machines are created without owners. A set adopts them, and a deployment adopts the set.
/// Then all instances die at once, and the Machines are replaced one after the other.
pub async fn heal_after_adoption(world: &dyn MachineWorld) -> Outcome {
    let user = User::of(world);
    user.create_class("c").await?;
    for name in NAMES {
        user.create_worker_without_owner(name).await?;
    }
    world.until("the Machines without owners to run", |view| all(view, runs)).await?;
    user.create_set_of_workers("w-left", 3).await?;
    world.until("the set to adopt the Machines", |view| all(view, is_owned)).await?;
    user.create_workers(3).await?;
    world.until("the deployment to adopt the set", |view| settled(view, 3)).await?;
    world.begin("all instances of adopted Machines die at once");
    kill_first(world, 3).await?;
    healed(world, 3).await
}

fn all(view: &MachineView, test: impl Fn(SeenObject<'_>) -> Result<(), String>) -> Result<(), String> {
    NAMES.iter().try_for_each(|name| match view.machine(name) {
        Some(machine) => test(machine),
        None => Err(format!("Machine {name} does not exist")),
    })
}

fn runs(machine: SeenObject<'_>) -> Result<(), String> {
    match machine.phase() {
        "Running" => Ok(()),
        phase => Err(format!("{} has phase {phase:?}", machine.name())),
    }
}

fn is_owned(machine: SeenObject<'_>) -> Result<(), String> {
    machine.owner_uid().map(drop).ok_or_else(|| format!("{} has no owner", machine.name()))
}
