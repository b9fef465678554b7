//! Machines whose Nodes join while the controllers cannot see them.

use std::time::Duration;

use anyhow::Result;
use machinist_api::Phase;
use serde_json::json;

use crate::proxy::Fault;
use crate::world::World;

/// Longer than the scenario needs until the API server is away.
const BOOT: u64 = 20;
/// Work goes on this soon after the end of an outage. The limit leaves room for a busy computer.
const RESUMES_WITHIN: Duration = Duration::from_secs(30);
/// A machine whose request has no answer tries again after this time at the latest.
const MACHINE_TRIES_AGAIN: Duration = Duration::from_secs(70);

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

/// After an outage, the Machines whose Nodes joined meanwhile become Running soon. While the API
/// server is suspended, no Node can join: the machines do so when it goes on.
pub(crate) async fn end(world: &mut World, booting: Booting, fault: Fault) -> Result<()> {
    let within = match fault {
        Fault::Refuse | Fault::Hang => RESUMES_WITHIN,
        Fault::Suspend => MACHINE_TRIES_AGAIN + RESUMES_WITHIN,
    };
    world
        .until_within(within, "the Machines that joined meanwhile are Running", async |w| {
            w.are_running(booting.live).await
        })
        .await?;
    world.set_cloud(json!({"bootSeconds": 0})).await
}
