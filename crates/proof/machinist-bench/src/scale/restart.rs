//! A restart of both controllers while all machines run: when they decide again, compared with the
//! lists that they need, and what they write.

use anyhow::Result;
use serde::Serialize;

use super::lists;
use super::provoked::{DecisionFigures, Provoked};
use super::world::World;
use crate::cluster_state::ClusterState;
use crate::requests::round;

/// Durations after a restart. The seconds of decisions begin at the start of each process.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RestartFigures {
    /// Time that one client takes for the lists of Machines, sets, classes and Nodes.
    pub lists_seconds: f64,
    /// The same with the pods.
    pub lists_with_pods_seconds: f64,
    /// The decisions.
    #[serde(flatten)]
    pub decisions: DecisionFigures,
}

/// Stops both controllers, provokes decisions, and starts both controllers again.
///
/// # Errors
/// When a process does not stop or start, or a decision does not follow.
pub(super) async fn measure(
    world: &mut World,
    state: &mut ClusterState,
    machines: u32,
) -> Result<RestartFigures> {
    world.processes()?.stop().await?;
    let lists = lists::measure(&world.client).await?;
    let mut provoked = Provoked::provoke(world, "provoked-restart").await?;
    world.requests.take()?;
    world.processes()?.start_again()?;
    provoked.until_decided(world).await?;
    let leaders = world.processes()?.leaders();
    let started = (leaders.machine_controller.process.started(), leaders.manager.process.started());
    let decisions = provoked.figures(started.0, started.1)?;
    provoked.clean_up(world, state, machines).await?;
    Ok(RestartFigures {
        lists_seconds: round(lists.without_pods.as_secs_f64()),
        lists_with_pods_seconds: round(lists.with_pods.as_secs_f64()),
        decisions,
    })
}
