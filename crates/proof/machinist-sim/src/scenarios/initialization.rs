//! A scenario with instances that are completed after their creation.

use super::heal::{healed, kill_first};
use super::life::settled;
use crate::world::{MachineWorld, Outcome, User};

/// The class asks for an initialization of each instance. Three Machines are created, and one of
/// them is replaced.
pub async fn initialized(world: &dyn MachineWorld) -> Outcome {
    let user = User::of(world);
    user.create_class("c").await?;
    user.initialize_instances().await?;
    world.begin("the user creates a deployment of 3 with instances that need an initialization");
    user.create_workers(3).await?;
    world.until("the deployment to settle", |view| settled(view, 3)).await?;
    kill_first(world, 1).await?;
    healed(world, 1).await
}
