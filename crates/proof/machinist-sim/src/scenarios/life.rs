//! Scenarios for creating, scaling and deleting.

use std::time::Duration;

use crate::world::user::WORKERS;
use crate::world::{MachineWorld, Outcome, User, ensure};

/// Creates one Machine and waits until it is Running.
pub async fn create_one(world: &dyn MachineWorld) -> Outcome {
    create(world, 1).await
}

/// Creates eight Machines at once.
pub async fn burst(world: &dyn MachineWorld) -> Outcome {
    create(world, 8).await
}

async fn create(world: &dyn MachineWorld, replicas: u32) -> Outcome {
    let user = User::of(world);
    user.create_class("c").await?;
    world.begin(&format!("the user creates a deployment of {replicas}"));
    user.create_workers(replicas).await?;
    let view = world.until("the deployment to settle", |view| settled(view, replicas)).await?;
    let ever = view.ledger.ever().len();
    ensure(ever == replicas as usize || !world.keeps_machines(), || {
        format!("{ever} instances were ever made, expected {replicas}")
    })
}

/// Deletes a deployment of one running Machine.
pub async fn delete_one(world: &dyn MachineWorld) -> Outcome {
    delete_all(world, 1).await
}

/// Deletes a deployment of three running Machines.
pub async fn delete(world: &dyn MachineWorld) -> Outcome {
    delete_all(world, 3).await
}

async fn delete_all(world: &dyn MachineWorld, replicas: u32) -> Outcome {
    let user = start_with(world, replicas).await?;
    world.begin("the user deletes the deployment");
    wait_for_long_faults(world).await;
    user.delete_workers().await?;
    world.until("all objects to be deleted", |view| view.is_empty()).await?;
    Ok(())
}

/// Deletes a deployment and leaves its set and Machines, then deletes the set in the same way.
pub async fn orphan(world: &dyn MachineWorld) -> Outcome {
    let user = start_with(world, 3).await?;
    world.begin("the user deletes the deployment with --cascade=orphan, and then its set");
    user.orphan_workers().await?;
    let is_gone = |view: &crate::world::MachineView| match view.deployment(WORKERS) {
        None => Ok(()),
        Some(_) => Err("the deployment still exists".to_owned()),
    };
    let view = world.until("the deployment to be deleted", is_gone).await?;
    ensure(view.sets.len() == 1, || format!("{} sets are left, expected 1", view.sets.len()))?;
    user.orphan_sets().await?;
    let are_gone = |view: &crate::world::MachineView| match view.sets.len() {
        0 => Ok(()),
        left => Err(format!("{left} sets still exist")),
    };
    let view = world.until("the set to be deleted", are_gone).await?;
    let left = view.machines().filter(|machine| !machine.is_deleting()).count();
    ensure(left == 3 || !world.keeps_machines(), || format!("{left} Machines are left, expected 3"))
}

/// Deletes a deployment while its instances are being created: some are requested, some exist, none
/// is recorded yet.
pub async fn delete_while_creating(world: &dyn MachineWorld) -> Outcome {
    let user = User::of(world);
    user.create_class("c").await?;
    world.begin("the user creates a deployment of 3, and deletes it when the first instance exists");
    user.create_workers(3).await?;
    let exists = |view: &crate::world::MachineView| match view.ledger.ever() {
        [] => Err("no instance exists yet".to_owned()),
        _ => Ok(()),
    };
    world.until("the first instance to exist", exists).await?;
    user.delete_workers().await?;
    world.until("all objects to be deleted", |view| view.is_empty()).await?;
    Ok(())
}

/// Scales to 2, 5 and 1, and waits each time.
pub async fn scale(world: &dyn MachineWorld) -> Outcome {
    let user = start_with(world, 2).await?;
    world.begin("the user scales from 2 to 5 and to 1");
    for replicas in [5, 1] {
        wait_for_long_faults(world).await;
        user.scale_workers(replicas).await?;
        world.until(&format!("{replicas} workers"), |view| settled(view, replicas)).await?;
    }
    let ever = world.look().await?.ledger.ever().len();
    ensure(ever == 5 || !world.keeps_machines(), || format!("{ever} instances were ever made, expected 5"))
}

/// Scales to 1, 3, 2 and 4 without waiting for the Machines.
pub async fn flap(world: &dyn MachineWorld) -> Outcome {
    let user = start_with(world, 1).await?;
    world.begin("the user scales from 1 to 3, to 2 and to 4 without waiting");
    for replicas in [3, 2, 4] {
        user.scale_workers(replicas).await?;
        // Wait for a change, so that the next scaling meets the effects of this one.
        world.changed().await;
    }
    world.until("4 workers", |view| settled(view, 4)).await?;
    Ok(())
}

/// Lets most long faults begin before the user acts.
pub(super) async fn wait_for_long_faults(world: &dyn MachineWorld) {
    /// Most of them begin within this time.
    const BEGIN_WITHIN: Duration = Duration::from_secs(3 * 60);
    if !world.is_prompt() {
        tokio::time::sleep(BEGIN_WITHIN).await;
    }
}

/// Creates a deployment and waits until it has settled.
pub(super) async fn start_with(
    world: &dyn MachineWorld,
    replicas: u32,
) -> Result<User<'_>, crate::world::ScenarioError> {
    let user = User::of(world);
    user.create_class("c").await?;
    user.create_workers(replicas).await?;
    world.until("the deployment to settle", |view| settled(view, replicas)).await?;
    Ok(user)
}

/// Whether the workers have settled and every bootstrap token is deleted.
pub(super) fn settled(view: &crate::world::MachineView, replicas: u32) -> Result<(), String> {
    view.has_settled(WORKERS, replicas)?;
    match view.tokens.first() {
        None => Ok(()),
        Some(token) => Err(format!("token {} still exists", token.seen().name())),
    }
}
