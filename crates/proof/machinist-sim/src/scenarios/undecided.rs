//! A user whose requests follow each other faster than they can be carried out, and one who deletes
//! a Machine without regard to its Node.

use std::ops::Range;
use std::time::Duration;

use super::heal::first_running;
use super::life::{settled, start_with, wait_for_long_faults};
use super::rollout::all_of_class;
use crate::sight::{Item, SeenObject};
use crate::world::{MachineView, MachineWorld, Outcome, User};

/// The user scales and changes the class again and again, without waiting for the effects.
pub async fn undecided(world: &dyn MachineWorld) -> Outcome {
    const CLASSES: [&str; 3] = ["c", "d", "e"];
    const REQUESTS: usize = 10;
    const PAUSE: Range<Duration> = Duration::from_secs(3)..Duration::from_secs(50);
    const MOST: u64 = 6;
    let user = start_with(world, 3).await?;
    for class in CLASSES {
        user.create_class(class).await?;
    }
    world.begin("the user scales and changes the class again and again");
    wait_for_long_faults(world).await;
    let mut stream = world.seed().stream("undecided user");
    for _ in 0..REQUESTS {
        tokio::time::sleep(stream.within(PAUSE)).await;
        match stream.pick(&CLASSES).filter(|_| stream.happens(400)) {
            Some(class) => user.roll_workers_to(class).await?,
            None => user.scale_workers(u32::try_from(1 + stream.below(MOST)).unwrap_or(1)).await?,
        }
    }
    user.roll_workers_to("d").await?;
    user.scale_workers(3).await?;
    world.until("three workers of the last class", |view| all_of_class(view, "d")).await?;
    Ok(())
}

/// The user gives each Machine half a minute for its creation. Each author of a MachineDeployment
/// may do so.
pub async fn short_creation_timeout(world: &dyn MachineWorld) -> Outcome {
    const SHORT: Duration = Duration::from_secs(30);
    let user = User::of(world).with_creation_timeout(SHORT);
    user.create_class("c").await?;
    world.begin("the user creates a deployment of 2 with a short creation timeout");
    user.create_workers(2).await?;
    world.until("the deployment to settle", |view| settled(view, 2)).await?;
    Ok(())
}

/// The user deletes a Machine with the label that needs no answer from the API server of the Nodes,
/// as Gardener does with all Machines of a Worker that is deleted.
pub async fn force_deletion(world: &dyn MachineWorld) -> Outcome {
    let user = start_with(world, 3).await?;
    let view = world.look().await?;
    let victim = first_running(&view)?;
    let (victim, uid, instance) =
        (victim.name().to_owned(), victim.uid().to_owned(), victim.provider_id().to_owned());
    world.begin("the user deletes a Machine with the label force-deletion");
    wait_for_long_faults(world).await;
    user.force_deletion_of(&victim).await?;
    // Its replacement may get the same name.
    let is_gone = |view: &MachineView| match view.machine(&victim).filter(|machine| machine.uid() == uid) {
        None => Ok(()),
        Some(_) => Err(format!("{victim} still exists")),
    };
    let view = world.until("the Machine to be deleted", is_gone).await?;
    // An Event names what is left in a cluster that did not answer. The user deletes it.
    let is_left = |node: &SeenObject<'_>| node.provider_id() == instance;
    for node in view.nodes.iter().map(Item::seen).filter(is_left) {
        user.delete_node(node.name()).await?;
    }
    world.until("the Machine to be replaced", |view| settled(view, 3)).await?;
    Ok(())
}
