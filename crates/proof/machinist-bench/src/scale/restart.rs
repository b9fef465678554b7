//! A restart of both controllers while all machines run: when they decide again, compared with the
//! lists that they need, and what they write.

use anyhow::Result;
use serde::Serialize;

use super::lists;
use super::machines::MeasuredMachines;
use super::provoked::{DecisionFigures, Provoked};
use crate::requests::round;

/// Durations after a restart. The seconds of decisions begin at the start of each process.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct RestartFigures {
    /// Time that one client takes for the lists of Machines, sets, classes and Nodes.
    pub(super) lists_seconds: f64,
    /// The same with the pods.
    pub(super) lists_with_pods_seconds: f64,
    #[serde(flatten)]
    pub(super) decisions: DecisionFigures,
}

/// Stops both controllers, provokes decisions, and starts both controllers again.
///
/// # Errors
/// When a process does not stop or start, or a decision does not follow.
pub(super) async fn measure(measured: &mut MeasuredMachines, machines: u32) -> Result<RestartFigures> {
    measured.processes()?.stop().await?;
    let lists = lists::measure(&measured.client).await?;
    let mut provoked = Provoked::provoke(measured, "provoked-restart").await?;
    measured.requests.take()?;
    measured.processes()?.start_again()?;
    provoked.until_decided(measured).await?;
    let started = measured.processes()?.leaders().map(|leader| leader.process.started());
    let decisions = provoked.figures(started)?;
    provoked.clean_up(measured, machines).await?;
    Ok(RestartFigures {
        lists_seconds: round(lists.without_pods.as_secs_f64()),
        lists_with_pods_seconds: round(lists.with_pods.as_secs_f64()),
        decisions,
    })
}
