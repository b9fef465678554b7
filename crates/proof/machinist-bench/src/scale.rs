//! Scales from 0 to N machines and back, and counts the requests.
//!
//! ```text
//! start -> raw writes (real server only) -> controllers -> 0 -> N Running -> quiet -> idle (with
//! --idle) -> N -> 0 -> quiet -> report
//! ```
//!
//! The cloud is instant and joining is thin: the benchmark posts one Node per instance, and renews
//! no Lease. So it measures only the controllers and the API server. A phase is timed until its
//! state is reached, and counted until no controller writes, so that late writes are
//! included.

mod idle;
mod join;
mod raw_writes;
mod report;
mod world;

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result};
use clap::ValueEnum;
use tokio::time::Instant;

pub use self::idle::IdleFigures;
pub use self::report::{Figures, PhaseFigures, Resident, ScaleReport};
use crate::cluster_state::{ClusterState, Counts};
use crate::objects;
use crate::progress;
use crate::report::Format;
use crate::requests::RequestTally;
use world::World;

/// Options of `machinist-bench scale`.
#[derive(Debug, Clone, clap::Args)]
pub struct Args {
    /// Number of machines
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..))]
    machines: u32,

    /// The API server to measure
    #[arg(long, value_enum)]
    api: ApiServer,

    /// Path of the `machinist` program; the real lane runs both controllers as separate processes
    #[arg(long, value_name = "FILE", required_if_eq("api", "real"))]
    machinist: Option<PathBuf>,

    /// Measure requests and CPU time of the controllers for this time, while all machines run and
    /// nothing changes; only with the real API server
    #[arg(long, value_name = "SECONDS", requires = "machinist")]
    idle: Option<u32>,

    /// Store the programs' logs in this folder
    #[arg(long, value_name = "DIR")]
    logs: Option<PathBuf>,

    /// Output format: text for people, or one JSON object
    #[arg(long, short, value_enum, default_value_t = Format::Text)]
    output: Format,
}

/// The API server to measure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ApiServer {
    /// The embedded API server, in this process, together with both controllers.
    Embedded,
    /// kube-apiserver and etcd, as `MACHINIST_REAL_CLUSTERS` describes them.
    Real,
}

/// Maximum duration of a phase, in addition to the time per machine.
const PATIENCE: Duration = Duration::from_secs(60);
/// Four times the time per machine of Go MCM.
const PATIENCE_PER_MACHINE: Duration = Duration::from_millis(450);

/// Runs the benchmark.
///
/// # Errors
/// When a program cannot be started, or a phase does not reach its state.
pub async fn run(args: &Args) -> Result<ScaleReport> {
    let mut world = match args.api {
        ApiServer::Embedded => World::embedded().await?,
        ApiServer::Real => {
            let machinist = args.machinist.clone().context("--machinist is missing")?;
            World::real(machinist, args.logs.as_deref()).await?
        }
    };
    objects::apply(&world.client, 0).await?;
    let mut state = ClusterState::follow(world.client.clone(), world.client.clone());
    count_until_quiet(&mut world, &mut RequestTally::default()).await?;

    let machines = args.machines;
    let up = phase(&mut world, &mut state, machines, machines, "all Machines to run", |counts| {
        counts.running() == machines
    })
    .await?;
    let resident = world.resident()?;
    let idle = match args.idle {
        Some(seconds) => Some(idle::measure(&mut world, Duration::from_secs(seconds.into())).await?),
        None => None,
    };
    let down = phase(&mut world, &mut state, 0, machines, "all Machines and Nodes to be deleted", |counts| {
        counts.machines == 0 && counts.nodes == 0
    })
    .await?;
    Ok(ScaleReport {
        api: world.description.clone(),
        format: args.output,
        figures: Figures {
            machines,
            up: up.figures(machines),
            down: down.figures(machines),
            instances_ever: world.cloud.ledger().ever().len(),
            resident_mb: resident,
            idle,
            raw_writes_per_second: world.raw_writes_per_second,
        },
        instances_alive: world.cloud.alive(),
        up: up.tally,
        down: down.tally,
        is_quiet: up.is_quiet && down.is_quiet,
    })
}

/// Measurements of one direction.
struct Phase {
    took: Duration,
    tally: RequestTally,
    is_quiet: bool,
}

impl Phase {
    fn figures(&self, machines: u32) -> PhaseFigures {
        PhaseFigures {
            seconds: crate::requests::round(self.took.as_secs_f64()),
            writes: self.tally.writes(machines),
            reads: self.tally.reads(machines),
            conflicts: self.tally.conflicts().len(),
        }
    }
}

async fn phase(
    world: &mut World,
    state: &mut ClusterState,
    replicas: u32,
    machines: u32,
    what: &str,
    is_reached: impl Fn(&Counts) -> bool,
) -> Result<Phase> {
    let mut tally = RequestTally::default();
    let began = Instant::now();
    objects::scale(&world.client, replicas).await?;
    let within = PATIENCE + PATIENCE_PER_MACHINE * machines;
    let reached = tokio::select! {
        reached = state.until(what, within, is_reached) => reached,
        ended = world.ended() => Err(ended),
    };
    let took = began.elapsed();
    reached.with_context(|| world.explain())?;
    let is_quiet = count_until_quiet(world, &mut tally).await?;
    Ok(Phase { took, tally, is_quiet })
}

/// Counts requests until no object except Events has been written for a while; returns false if
/// that never happens.
async fn count_until_quiet(world: &mut World, tally: &mut RequestTally) -> Result<bool> {
    progress::until_quiet(|| {
        let mut has_written = false;
        for request in world.requests.take()? {
            has_written |= request.is_controllers() && request.is_write() && !request.is_about_events();
            tally.add(request);
        }
        Ok(has_written)
    })
    .await
}
