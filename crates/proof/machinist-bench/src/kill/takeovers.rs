//! Restarts of both controllers when nothing is left to do, to see whether a program undoes what
//! the other one wrote.

use std::time::Duration;

use anyhow::{Result, anyhow, ensure};

use super::controllers::KilledControllers;
use super::notice::tell;
use super::options::Args;
use crate::progress::{until, until_quiet_for};
use crate::requests::Program;

/// Both controllers must hold their Leases again within this time.
const LEADS_WITHIN: Duration = Duration::from_secs(60);
const LOOK_EVERY: Duration = Duration::from_millis(50);
const QUIET: Duration = Duration::from_secs(5);
const QUIET_WITHIN: Duration = Duration::from_secs(60);
/// Controllers to restart, one step after another. With two programs, four steps let every pair of
/// programs run.
const STEPS: [&[Program]; 4] = [
    &[Program::MachineController, Program::Manager],
    &[Program::MachineController],
    &[Program::MachineController, Program::Manager],
    &[Program::MachineController],
];

/// Number of writes after each restart.
#[derive(Debug)]
pub(super) struct Takeovers {
    /// Writes of the first lap: a program may complete what the other one does not know.
    first: u32,
    /// Writes of the second lap, in which every pair of programs has run before.
    second: u32,
    restarts: usize,
}

/// Restarts the controllers in two laps, and counts their writes without Events and Leases.
pub(super) async fn count_writes(controllers: &mut KilledControllers, args: &Args) -> Result<Takeovers> {
    let steps = if args.other.is_some() { &STEPS[..] } else { &STEPS[..1] };
    until_quiet(controllers).await?;
    let mut laps = [0, 0];
    for writes in &mut laps {
        for step in steps {
            for program in *step {
                controllers.restart(*program).await?;
            }
            let written = until_quiet(controllers).await?;
            tell(&format!("took over by {}: {written} writes", controllers.running_programs()));
            *writes += written;
        }
    }
    Ok(Takeovers { first: laps[0], second: laps[1], restarts: steps.len() })
}

/// Waits until both controllers lead and write nothing; returns the number of their writes.
async fn until_quiet(controllers: &mut KilledControllers) -> Result<u32> {
    let mut written = 0;
    let both_lead = async || {
        controllers.revive()?;
        written += writes(controllers)?;
        Ok(controllers.both_lead())
    };
    let in_time = until(LEADS_WITHIN, LOOK_EVERY, both_lead).await;
    in_time.map_err(|_elapsed| anyhow!("a controller does not get its Lease within {LEADS_WITHIN:?}"))??;
    let is_quiet = until_quiet_for(QUIET, QUIET_WITHIN, || {
        let more = writes(controllers)?;
        written += more;
        Ok(more != 0)
    });
    ensure!(is_quiet.await?, "the controllers still write after {QUIET_WITHIN:?}");
    Ok(written)
}

fn writes(controllers: &mut KilledControllers) -> Result<u32> {
    let mut written = 0;
    for event in controllers.take_events()? {
        controllers.note(&event);
        if event.counts() {
            tell(&format!("  {event}"));
            written += 1;
        }
    }
    Ok(written)
}

impl Takeovers {
    pub(super) fn claims(&self) -> Vec<(String, bool)> {
        let Self { first, second, restarts } = self;
        vec![(
            format!(
                "{restarts} more restarts wrote {first} times, and the same restarts once more {second} times"
            ),
            *second == 0,
        )]
    }
}
