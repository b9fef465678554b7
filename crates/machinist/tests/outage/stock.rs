//! Nodes become unhealthy while the cloud can create nothing.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use kube::api::{Patch, PatchParams};
use machinist_api::{Machine, Phase};
use serde_json::{Value, json};

use crate::world::{WORKERS, World, name_of};

/// The instances that are switched off, of this many.
const VICTIMS: usize = 3;
const WORKERS_HERE: u32 = 4;
/// Longer than a Node needs to become unhealthy, and its Machine to be given up.
const GIVEN_UP_WITHIN: Duration = Duration::from_secs(180);
/// Several times the health timeout: the other Machines would be given up in that time.
const UNDISTURBED: Duration = Duration::from_secs(120);

/// Of the Machines whose Nodes became unhealthy, one is given up. Its replacement cannot be
/// created, so the others stay, and `why` says so. When the instances run again, they are the same
/// Machines.
pub(crate) async fn exhausted(world: &mut World) -> Result<()> {
    world.scale(WORKERS_HERE).await?;
    let count = VICTIMS + 1;
    world.until("four workers", async |w| w.are_running(count).await).await?;
    let (live, deleted) = (world.live().await?, world.deleted().await?);
    set_health_timeout(world, json!("20s")).await?;
    world
        .until("all Machines have the health timeout", async |w| {
            let has_timeout = |machine: &Machine| machine.spec.configuration.health_timeout().is_some();
            Ok(w.live().await?.iter().all(has_timeout))
        })
        .await?;
    world.set_cloud(json!({"quota": 1})).await?;
    let victims = &live[..VICTIMS];
    for machine in victims {
        world.power("off", instance_of(machine)?).await?;
    }
    world
        .until_within(GIVEN_UP_WITHIN, "one Machine is given up", async |w| {
            Ok(w.deleted().await? == deleted + 1)
        })
        .await?;
    world
        .always(UNDISTURBED, "no other Machine is given up", async |w| {
            let failed = w.live().await?.iter().filter(|machine| machine.phase() == Phase::Failed).count();
            Ok(w.deleted().await? == deleted + 1 && failed == 0)
        })
        .await?;
    let left = world.live().await?;
    let waiting = left.iter().find(|machine| machine.phase() == Phase::Unknown);
    let waiting = name_of(waiting.context("a Machine is Unknown")?);
    let why = world.why(&format!("machine/{waiting}")).await?;
    ensure!(why.contains("cannot be created"), "why does not name the replacement: {why}");
    world.set_cloud(json!({"quota": null})).await?;
    for machine in victims {
        if world.machines().get_opt(&name_of(machine)).await?.is_some() {
            world.power("on", instance_of(machine)?).await?;
        }
    }
    world.until("all Machines are Running", async |w| w.are_running(count).await).await?;
    ensure!(world.deleted().await? == deleted + 1, "another instance was deleted");
    set_health_timeout(world, Value::Null).await?;
    world.scale(3).await?;
    world.until("three workers", async |w| w.are_running(3).await).await
}

fn instance_of(machine: &Machine) -> Result<&str> {
    machine.spec.provider_id().context("the Machine records an instance")
}

async fn set_health_timeout(world: &World, timeout: Value) -> Result<()> {
    let patch = json!({"spec": {"template": {"spec": {"healthTimeout": timeout}}}});
    world.deployments().patch(WORKERS, &PatchParams::default(), &Patch::Merge(patch)).await?;
    Ok(())
}
