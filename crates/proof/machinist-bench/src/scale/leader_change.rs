//! The change to a standby of each controller, when the leader stops or is killed.

use anyhow::Result;
use serde::Serialize;

use super::idle::until_silent;
use super::processes::End;
use super::provoked::{DecisionFigures, Provoked};
use super::world::World;
use crate::cluster_state::ClusterState;

/// Decisions of the new leaders, in seconds since the end of the old ones.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct LeaderChangeFigures {
    /// The old leaders got SIGTERM, and released their Leases.
    pub after_stop: DecisionFigures,
    /// The old leaders got SIGKILL, so their Leases had to expire.
    pub after_kill: DecisionFigures,
}

/// Ends the leaders twice, with SIGTERM and with SIGKILL.
///
/// # Errors
/// When a process does not start or end, or a decision does not follow.
pub(super) async fn measure(
    world: &mut World,
    state: &mut ClusterState,
    machines: u32,
) -> Result<LeaderChangeFigures> {
    world.processes()?.elect().await?;
    let after_stop = change(world, state, machines, End::Stop, "provoked-stop").await?;
    world.processes()?.add_standbys("-3").await?;
    let after_kill = change(world, state, machines, End::Kill, "provoked-kill").await?;
    Ok(LeaderChangeFigures { after_stop, after_kill })
}

async fn change(
    world: &mut World,
    state: &mut ClusterState,
    machines: u32,
    end: End,
    name: &str,
) -> Result<DecisionFigures> {
    // A standby has filled its stores when it sends no more lists.
    until_silent(world).await?;
    let ended = world.processes()?.end_leaders(end).await?;
    let mut provoked = Provoked::provoke(world, name).await?;
    provoked.until_decided(world).await?;
    let decisions = provoked.figures(ended, ended)?;
    provoked.clean_up(world, state, machines).await?;
    Ok(decisions)
}
