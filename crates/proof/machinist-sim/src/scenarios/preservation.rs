//! A scenario with a failed Machine that is preserved until its expiry.

use std::time::Duration;

use machinist_api::constants::annotations;

use super::heal::{first_running, healed, is_kept, kill_first};
use super::life::start_with;
use crate::world::{MachineView, MachineWorld, Outcome, ScenarioError, ensure};

/// How long a failed Machine is preserved.
const KEPT_FOR: Duration = Duration::from_secs(30 * 60);
/// The time between the last look at the preserved Machine and its expiry.
const RESERVE: Duration = Duration::from_secs(60);

/// A user preserves a Machine in case it fails, and its instance dies. The Machine stays until the
/// preservation expires, and is replaced then.
pub async fn preserved(world: &dyn MachineWorld) -> Outcome {
    let user = start_with(world, 3).await?;
    user.preserve_workers_for(KEPT_FOR).await?;
    let have_timeout = |view: &MachineView| {
        let mut without =
            view.machines().filter(|machine| machine.text("/spec/machinePreserveTimeout").is_empty());
        without.next().map_or(Ok(()), |machine| Err(format!("{} has no timeout", machine.name())))
    };
    let view = world.until("the Machines to have the timeout", have_timeout).await?;
    let victim = first_running(&view)?;
    let (name, uid) = (victim.name().to_owned(), victim.uid().to_owned());
    world.begin("the user preserves a Machine in case it fails, and its instance dies");
    user.preserve(&name, annotations::PRESERVE_WHEN_FAILED).await?;
    kill_first(world, 1).await?;
    let view = world.until("the Machine to be preserved", |view| is_kept(view, &name)).await?;
    let expiry =
        view.machine(&name).and_then(|machine| machine.time("/status/currentStatus/preserveExpiryTime"));
    let expiry = expiry.ok_or(ScenarioError::new("the preserved Machine has an expiry"))?;
    let left = Duration::try_from(expiry.duration_since(world.now())).unwrap_or_default();
    tokio::time::sleep(left.saturating_sub(RESERVE)).await;
    let view = world.look().await?;
    let stays = view.machine(&name).is_some_and(|machine| machine.uid() == uid && !machine.is_deleting());
    ensure(stays || !world.keeps_machines(), || format!("{name} was deleted before {expiry}"))?;
    healed(world, 1).await
}
