//! Scenarios with a program that changes every new Machine.

use std::time::Duration;

use machinist_api::constants::labels;
use tokio::time::Instant;

use super::life::settled;
use crate::world::{MachineView, MachineWorld, Outcome, User, ensure};

const WORKERS: u32 = 3;
/// Longer than the first five waits of the set, of 1 to 16 minutes.
const LONG: Duration = Duration::from_secs(40 * 60);
/// The longest wait of a set before it creates the next Machine.
const LONGEST_WAIT: Duration = Duration::from_secs(3600);
const PAUSE: Duration = Duration::from_secs(5);
/// The first ones, two that follow before three are lost, and one after each wait. The manager does
/// not learn of a loss if the answer is lost.
const MOST: usize = 12;

/// Another program takes a label off each new Machine that the set selects. The set loses them, and
/// soon creates one at a time, later and later. When the program has ended, the deployment gets
/// its Machines.
pub async fn relabelled(world: &dyn MachineWorld) -> Outcome {
    let user = User::of(world);
    user.create_class("c").await?;
    world.begin("the user creates a deployment of 3, and another program takes a label off each new Machine");
    user.create_workers(WORKERS).await?;
    let end = Instant::now() + LONG;
    while Instant::now() < end {
        if let Some(trouble) = world.trouble() {
            return Err(trouble);
        }
        let view = world.look().await?;
        for name in owned(&view) {
            user.remove_label(&name, labels::MACHINE_TEMPLATE_HASH).await?;
        }
        tokio::time::sleep(PAUSE).await;
    }
    let strays: Vec<String> =
        world.look().await?.machines().map(|machine| machine.name().to_owned()).collect();
    ensure(strays.len() <= MOST || !world.is_prompt(), || {
        format!("{} Machines were made, expected at most {MOST}", strays.len())
    })?;
    world.begin("the other program has ended, and the user deletes the Machines without an owner");
    for name in strays {
        user.delete_machine(&name).await?;
    }
    tokio::time::sleep(LONGEST_WAIT).await;
    world.until("the deployment to settle", |view| settled(view, WORKERS)).await?;
    Ok(())
}

fn owned(view: &MachineView) -> Vec<String> {
    let is_owned =
        |machine: &crate::sight::SeenObject<'_>| machine.owner_uid().is_some() && !machine.is_deleting();
    view.machines().filter(is_owned).map(|machine| machine.name().to_owned()).collect()
}
