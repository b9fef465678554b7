//! The cost of the controllers while all machines run and nothing changes.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Result, ensure};
use serde::Serialize;
use tokio::time::Instant;

use super::machines::MeasuredMachines;
use crate::progress::{COUNT_EVERY, until_quiet_for};
use crate::requests::{AnsweredRequest, round};

/// Events of the way up leave at 10 a second, so they may follow long after the last other write.
const SILENT: Duration = Duration::from_secs(10);
/// Long enough for the Events of 3,000 machines.
const SILENT_WITHIN: Duration = Duration::from_secs(600);

/// Requests and CPU time of both controllers while nothing changes.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct IdleFigures {
    /// Length of the measurement.
    pub(super) seconds: f64,
    /// Number of requests of each verb and resource, without Leases. Watches count when they end.
    pub(super) requests: BTreeMap<String, u64>,
    /// CPU time of the machine controller, in seconds.
    pub(super) cpu_machine_controller: f64,
    /// CPU time of the manager, in seconds.
    pub(super) cpu_manager: f64,
}

/// Waits until the controllers send nothing, and then measures for the given time.
///
/// # Errors
/// When the controllers do not stop sending, when one of them exits, or when the operating system
/// does not report its CPU time.
pub(super) async fn measure(measured: &mut MeasuredMachines, length: Duration) -> Result<IdleFigures> {
    until_silent(measured).await?;
    let before = measured.cpu_seconds()?;
    let began = Instant::now();
    let mut requests = BTreeMap::new();
    while began.elapsed() < length {
        tokio::select! {
            () = tokio::time::sleep(COUNT_EVERY) => {}
            ended = measured.ended() => return Err(ended),
        }
        for request in measured.requests.take()? {
            if is_counted(&request) {
                *requests.entry(format!("{} {}", request.verb, request.resource)).or_default() += 1;
            }
        }
    }
    let after = measured.cpu_seconds()?;
    Ok(IdleFigures {
        seconds: round(began.elapsed().as_secs_f64()),
        requests,
        cpu_machine_controller: round(after.machine_controller - before.machine_controller),
        cpu_manager: round(after.manager - before.manager),
    })
}

/// Waits until the controllers send nothing, except about Leases.
///
/// # Errors
/// When they do not stop sending.
pub(super) async fn until_silent(measured: &mut MeasuredMachines) -> Result<()> {
    let is_silent =
        until_quiet_for(SILENT, SILENT_WITHIN, || Ok(measured.requests.take()?.iter().any(is_counted)))
            .await?;
    ensure!(is_silent, "the controllers still send requests after {SILENT_WITHIN:?}");
    Ok(())
}

fn is_counted(request: &AnsweredRequest) -> bool {
    request.is_controllers() && !request.is_about_leases()
}
