//! Drains whose time runs out while the process cannot see, and machines that join meanwhile.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use kube::api::DeleteParams;
use machinist_api::Phase;

use crate::joins;
use crate::proxy::Fault;
use crate::world::{DRAIN_TIMEOUT, World, name_of, node_of};

const POD: &str = "held";

/// A drain is held by a budget, and two machines boot, when the API server of the Nodes goes away
/// for longer than all timeouts. Nothing is deleted, no Machine fails, and the explanation is the
/// outage. Afterwards, all of it ends as if the outage had taken no time.
pub(crate) async fn during(world: &mut World, fault: Fault, length: Duration) -> Result<()> {
    let first = world.live().await?.into_iter().next().context("a worker")?;
    let (machine, node) = (name_of(&first), node_of(&first)?);
    world.create_held_pod(POD, &node).await?;
    let deleted = world.deleted().await?;
    world.machines().delete(&machine, &DeleteParams::default()).await?;
    world
        .until("the Node is cordoned", async |w| {
            Ok(w.nodes().get(&node).await?.spec.is_some_and(|spec| spec.unschedulable == Some(true)))
        })
        .await?;
    let booting = joins::start(world).await?;

    world.proxy.set(Some(fault))?;
    let began = Instant::now();
    let is_unharmed = async |w: &World| {
        ensure!(w.deleted().await? == deleted, "an instance was deleted");
        let failed = w.live().await?.into_iter().find(|machine| machine.phase() == Phase::Failed);
        ensure!(
            failed.is_none(),
            "Machine {} failed",
            failed.map(|machine| name_of(&machine)).unwrap_or_default()
        );
        Ok(true)
    };
    world.always(length.saturating_sub(Duration::from_secs(20)), "nothing is lost", is_unharmed).await?;
    explained(world, &machine).await?;
    world.always(length.saturating_sub(began.elapsed()), "nothing is lost", is_unharmed).await?;
    world.proxy.set(None)?;
    ensure!(world.is_pod_untouched(POD).await?, "the pod was deleted during the outage");

    joins::end(world, booting, fault).await?;
    // The rest of the drain timeout passes, and then the drain ends by force.
    world
        .until_within(DRAIN_TIMEOUT + Duration::from_secs(60), "the Machine is deleted", async |w| {
            Ok(w.machines().get_opt(&machine).await?.is_none())
        })
        .await?;
    ensure!(world.deleted().await? == deleted + 1, "other instances were deleted, too");
    clean_up(world).await
}

/// `why`, `/readyz` and the status name the outage.
async fn explained(world: &World, machine: &str) -> Result<()> {
    let why = world.why(&format!("machine/{machine}")).await?;
    ensure!(why.contains("API server"), "why does not name the outage: {why}");
    let (status, ready) = world.get("/readyz").await?;
    ensure!(status == 200 && ready.contains("API server"), "/readyz: {status} {ready}");
    Ok(())
}

/// The controllers are away for longer than the drain timeout. Afterwards, the pod is evicted
/// politely before anything is forced: its budget allows the eviction by now.
pub(crate) async fn after_a_stop(world: &mut World) -> Result<()> {
    let first = world.live().await?.into_iter().next().context("a worker")?;
    let (machine, node) = (name_of(&first), node_of(&first)?);
    world.create_held_pod(POD, &node).await?;
    world.kill_controllers()?;
    world.machines().delete(&machine, &DeleteParams::default()).await?;
    tokio::time::sleep(DRAIN_TIMEOUT + Duration::from_secs(5)).await;
    world.delete_budget(POD).await?;
    world.start_controllers()?;
    // A pod that is deleted by force has no grace period, so it is never seen while it ends.
    world
        .until("the pod is evicted with its grace period", async |w| {
            let pod = w.pods().get_opt(POD).await?.context("the pod was deleted without an eviction")?;
            let grace = pod.metadata.deletion_grace_period_seconds;
            ensure!(grace != Some(0), "the pod was deleted by force, without an attempt to evict it");
            Ok(grace.is_some())
        })
        .await?;
    world
        .until("the Machine is deleted", async |w| Ok(w.machines().get_opt(&machine).await?.is_none()))
        .await?;
    world.until("three workers", async |w| w.are_running(3).await).await
}

async fn clean_up(world: &mut World) -> Result<()> {
    world.delete_budget(POD).await?;
    world.until("the pod is deleted", async |w| Ok(w.pods().get_opt(POD).await?.is_none())).await?;
    world.scale(3).await?;
    world.until("three workers", async |w| w.are_running(3).await).await
}
