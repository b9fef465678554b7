//! Making, scaling and deleting.

use crate::world::user::WORKERS;
use crate::world::{Outcome, User, World, ensure};

/// One Machine, from nothing to Running.
pub async fn create_one(world: &dyn World) -> Outcome {
    create(world, 1).await
}

/// Eight at once.
pub async fn burst(world: &dyn World) -> Outcome {
    create(world, 8).await
}

async fn create(world: &dyn World, replicas: u32) -> Outcome {
    let user = User::of(world);
    user.create_class("c").await?;
    world.begin(&format!("the user creates a deployment of {replicas}"));
    user.create_workers(replicas).await?;
    let view = world.until("the deployment to settle", |view| settled(view, replicas)).await?;
    let ever = view.ledger.ever().len();
    ensure(ever == replicas as usize, || format!("{ever} instances were ever made, for {replicas}"))
}

/// One Machine, from Running to nothing.
pub async fn delete_one(world: &dyn World) -> Outcome {
    delete_all(world, 1).await
}

/// Three Machines, from Running to nothing.
pub async fn delete(world: &dyn World) -> Outcome {
    delete_all(world, 3).await
}

async fn delete_all(world: &dyn World, replicas: u32) -> Outcome {
    let user = start_with(world, replicas).await?;
    world.begin("the user deletes the deployment");
    user.delete_workers().await?;
    world.until("nothing to be left", |view| view.is_empty()).await?;
    Ok(())
}

/// Deleted while instances are being made: some asked for, some made, none recorded yet.
pub async fn delete_while_creating(world: &dyn World) -> Outcome {
    let user = User::of(world);
    user.create_class("c").await?;
    world.begin("the user creates a deployment of 3, and deletes it when the first instance exists");
    user.create_workers(3).await?;
    let exists = |view: &crate::world::View| match view.ledger.ever() {
        [] => Err("no instance was made yet".to_owned()),
        _ => Ok(()),
    };
    world.until("the first instance to be made", exists).await?;
    user.delete_workers().await?;
    world.until("nothing to be left", |view| view.is_empty()).await?;
    Ok(())
}

/// Two, five, one: waiting each time.
pub async fn scale(world: &dyn World) -> Outcome {
    let user = start_with(world, 2).await?;
    world.begin("the user scales from 2 to 5 and to 1");
    for replicas in [5, 1] {
        user.scale_workers(replicas).await?;
        world.until(&format!("{replicas} workers"), |view| settled(view, replicas)).await?;
    }
    let ever = world.look().await?.ledger.ever().len();
    ensure(ever == 5, || format!("{ever} instances were ever made, and 5 were ever wanted"))
}

/// One, three, two, four: without waiting.
pub async fn flap(world: &dyn World) -> Outcome {
    let user = start_with(world, 1).await?;
    world.begin("the user scales from 1 to 3, to 2 and to 4 without waiting");
    for replicas in [3, 2, 4] {
        user.scale_workers(replicas).await?;
        // What follows the change, not the change itself, is what the next one meets.
        world.changed().await;
    }
    world.until("4 workers", |view| settled(view, 4)).await?;
    Ok(())
}

/// A world in which a deployment has settled.
pub(super) async fn start_with(world: &dyn World, replicas: u32) -> Result<User<'_>, crate::world::Trouble> {
    let user = User::of(world);
    user.create_class("c").await?;
    user.create_workers(replicas).await?;
    world.until("the deployment to settle", |view| settled(view, replicas)).await?;
    Ok(user)
}

/// The workers have settled, and no token is left.
pub(super) fn settled(view: &crate::world::View, replicas: u32) -> Result<(), String> {
    view.has_settled(WORKERS, replicas)?;
    match view.tokens.first() {
        None => Ok(()),
        Some(token) => Err(format!("{} is left", token.seen().name())),
    }
}
