//! Machines whose Nodes join while the controllers cannot see them.

use std::time::Duration;

use anyhow::Result;
use machinist_api::Phase;
use serde_json::json;

use crate::world::World;

/// Longer than the scenario needs until the API server is away.
const BOOT: u64 = 20;
/// Work goes on this soon after the end of an outage. The limit leaves room for a busy computer.
const GOES_ON_WITHIN: Duration = Duration::from_secs(30);

/// The Machines that boot.
pub(crate) struct Booting {
    live: usize,
}

/// Adds two workers, and returns while their instances boot.
pub(crate) async fn start(world: &mut World) -> Result<Booting> {
    world.set_cloud(json!({"bootSeconds": BOOT})).await?;
    world.scale(5).await?;
    world
        .until("five live Machines, of which two or more boot", async |w| {
            let live = w.live().await?;
            let phases = |phase: Phase| live.iter().filter(|machine| machine.phase() == phase).count();
            Ok(live.len() == 5 && phases(Phase::Running) + phases(Phase::Pending) == 5)
        })
        .await?;
    Ok(Booting { live: 5 })
}

/// After an outage, the Machines whose Nodes joined meanwhile become Running soon.
pub(crate) async fn end(world: &mut World, booting: Booting) -> Result<()> {
    world
        .until_within(GOES_ON_WITHIN, "the Machines that joined meanwhile are Running", async |w| {
            w.are_running(booting.live).await
        })
        .await?;
    world.set_cloud(json!({"bootSeconds": 0})).await
}
