//! The change to a standby of each controller, when the leader stops or is killed.

use anyhow::Result;
use serde::Serialize;

use super::idle::until_silent;
use super::machines::MeasuredMachines;
use super::processes::End;
use super::provoked::{DecisionFigures, Provoked};
use crate::pair::Pair;

/// Decisions of the new leaders, in seconds since the end of the old ones.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct LeaderChangeFigures {
    /// The old leaders got SIGTERM, and released their Leases.
    pub(super) after_stop: DecisionFigures,
    /// The old leaders got SIGKILL, so their Leases had to expire.
    pub(super) after_kill: DecisionFigures,
}

/// Ends the leaders twice, with SIGTERM and with SIGKILL.
///
/// # Errors
/// When a process does not start or end, or a decision does not follow.
pub(super) async fn measure(measured: &mut MeasuredMachines, machines: u32) -> Result<LeaderChangeFigures> {
    measured.processes()?.elect().await?;
    let after_stop = change(measured, machines, End::Stop, "provoked-stop").await?;
    measured.processes()?.add_standbys("-3").await?;
    let after_kill = change(measured, machines, End::Kill, "provoked-kill").await?;
    Ok(LeaderChangeFigures { after_stop, after_kill })
}

async fn change(
    measured: &mut MeasuredMachines,
    machines: u32,
    end: End,
    name: &str,
) -> Result<DecisionFigures> {
    // A standby has filled its stores when it sends no more lists.
    until_silent(measured).await?;
    let ended = measured.processes()?.end_leaders(end).await?;
    let mut provoked = Provoked::provoke(measured, name).await?;
    provoked.until_decided(measured).await?;
    let decisions = provoked.figures(Pair { machine_controller: ended, manager: ended })?;
    provoked.clean_up(measured, machines).await?;
    Ok(decisions)
}
