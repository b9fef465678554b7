//! What the controllers cost while all machines run and nothing changes.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Result, bail};
use serde::Serialize;
use tokio::time::Instant;

use super::world::World;
use crate::requests::round;

/// Events of the way up leave at 10 a second, so they may follow long after the last other write.
const SILENT: Duration = Duration::from_secs(10);
/// Long enough for the Events of 3,000 machines.
const SILENT_WITHIN: Duration = Duration::from_secs(600);
const LOOK_EVERY: Duration = Duration::from_millis(250);

/// Requests and CPU time of both controllers while nothing changes.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct IdleFigures {
    /// Length of the measurement.
    pub seconds: f64,
    /// Number of requests of each verb and resource, without Leases. Watches count when they end.
    pub requests: BTreeMap<String, u64>,
    /// CPU time of the machine controller, in seconds.
    pub cpu_machine_controller: f64,
    /// CPU time of the manager, in seconds.
    pub cpu_manager: f64,
}

/// Waits until the controllers send nothing, and then measures for the given time.
///
/// # Errors
/// When the controllers do not stop sending, when one of them exits, or when the operating system
/// does not report its CPU time.
pub(super) async fn measure(world: &mut World, length: Duration) -> Result<IdleFigures> {
    until_silent(world).await?;
    let before = world.cpu_seconds()?;
    let began = Instant::now();
    let mut requests = BTreeMap::new();
    while began.elapsed() < length {
        tokio::select! {
            () = tokio::time::sleep(LOOK_EVERY) => {}
            ended = world.ended() => return Err(ended),
        }
        for request in world.requests.take()? {
            if request.is_controllers() && !request.is_about_leases() {
                *requests.entry(format!("{} {}", request.verb, request.resource)).or_default() += 1;
            }
        }
    }
    let after = world.cpu_seconds()?;
    Ok(IdleFigures {
        seconds: round(began.elapsed().as_secs_f64()),
        requests,
        cpu_machine_controller: round(after.0 - before.0),
        cpu_manager: round(after.1 - before.1),
    })
}

async fn until_silent(world: &mut World) -> Result<()> {
    let began = Instant::now();
    let mut last_request = Instant::now();
    while last_request.elapsed() < SILENT {
        if SILENT_WITHIN < began.elapsed() {
            bail!("the controllers still send requests after {SILENT_WITHIN:?}");
        }
        tokio::time::sleep(LOOK_EVERY).await;
        if world.requests.take()?.iter().any(|request| request.is_controllers() && !request.is_about_leases())
        {
            last_request = Instant::now();
        }
    }
    Ok(())
}
