//! Scales from 0 to N machines and back, and counts the requests.
//!
//! ```text
//! start -> raw writes, limit (real server only) -> controllers -> 0 -> N Running -> quiet -> pods
//!       -> idle (with --idle) -> restart (--restart) -> leader change (--leader-change) -> N -> 0
//!       -> quiet -> report
//! ```
//!
//! The cloud is instant and joining is thin: the benchmark posts one Node per instance, patches its
//! status twice as a kubelet does, and renews no Lease. So it measures only the controllers and the
//! API server. A phase is timed until its state is reached, and counted until no controller writes,
//! so that late writes are included. The pods follow when all machines run, so that they do not
//! compete with the way up.

mod goals;
mod idle;
mod join;
mod leader_change;
mod limit;
mod lists;
mod machines;
mod node;
mod processes;
mod provoked;
mod raw_writes;
mod report;
mod restart;
mod warnings;

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result};
use clap::ValueEnum;
use tokio::time::Instant;

use self::machines::{MeasuredMachines, NodeSettings};
use self::node::Content;
pub use self::report::ScaleReport;
use self::report::{Figures, PhaseFigures};
use crate::cluster_state::Counts;
use crate::objects;
use crate::progress;
use crate::report::Format;
use crate::requests::{RequestTally, round};

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

    /// Measure how soon both controllers decide after a restart with all machines; only with the
    /// real API server
    #[arg(long, requires = "machinist")]
    restart: bool,

    /// Measure how soon the standbys decide after the end of the leaders; only with the real API
    /// server
    #[arg(long, requires = "machinist")]
    leader_change: bool,

    /// Play Nodes with one POST each, without the other fields and writes of a kubelet, and without
    /// pods
    #[arg(long)]
    plain_nodes: bool,

    /// Number of pods on each Node, except with --plain-nodes
    #[arg(long, default_value_t = 10)]
    pods: u32,

    /// Store the programs' logs in this folder
    #[arg(long, value_name = "DIR")]
    logs: Option<PathBuf>,

    /// Output format: text for people, or one JSON object
    #[arg(long, short, value_enum, default_value_t = Format::Text)]
    output: Format,
}

/// The API server to measure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum ApiServer {
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
    let nodes = if args.plain_nodes {
        NodeSettings { content: Content::Plain, pods: 0 }
    } else {
        NodeSettings { content: Content::Full, pods: args.pods }
    };
    let mut measured = match args.api {
        ApiServer::Embedded => MeasuredMachines::embedded(nodes).await?,
        ApiServer::Real => {
            let machinist = args.machinist.clone().context("--machinist is missing")?;
            MeasuredMachines::real(machinist, args.logs.as_deref(), nodes).await?
        }
    };
    objects::apply(&measured.client, 0).await?;
    count_until_quiet(&mut measured, &mut RequestTally::default()).await?;
    let empty = measured.resident()?;

    let machines = args.machines;
    let up = phase(&mut measured, machines, machines, "all Machines to run", |counts| {
        counts.running() == machines
    })
    .await?;
    measured.fill_nodes().await?;
    count_until_quiet(&mut measured, &mut RequestTally::default()).await?;
    let resident = measured.resident()?;
    let idle = match args.idle {
        Some(seconds) => Some(idle::measure(&mut measured, Duration::from_secs(seconds.into())).await?),
        None => None,
    };
    let restart = if args.restart { Some(restart::measure(&mut measured, machines).await?) } else { None };
    let leader_change =
        if args.leader_change { Some(leader_change::measure(&mut measured, machines).await?) } else { None };
    let down = phase(&mut measured, 0, machines, "all Machines and Nodes to be deleted", |counts| {
        counts.machines == 0 && counts.nodes == 0
    })
    .await?;
    Ok(ScaleReport {
        api: measured.description.clone(),
        format: args.output,
        content: nodes.content,
        figures: Figures {
            machines,
            pods_per_node: nodes.pods,
            up: up.figures(machines),
            down: down.figures(machines),
            instances_ever: measured.cloud.ledger().ever().len(),
            instances_provoked: provoked::INSTANCES
                * (usize::from(args.restart) + 2 * usize::from(args.leader_change)),
            empty_mb: empty,
            resident_mb: resident,
            warnings: measured.warnings()?,
            idle,
            restart,
            leader_change,
            raw_writes_per_second: measured.raw_writes_per_second,
            limit_per_second: measured.limit_per_second,
        },
        instances_alive: measured.cloud.alive(),
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
            seconds: round(self.took.as_secs_f64()),
            writes: self.tally.writes(machines),
            reads: self.tally.reads(machines),
            conflicts: self.tally.conflicts().len(),
        }
    }
}

async fn phase(
    measured: &mut MeasuredMachines,
    replicas: u32,
    machines: u32,
    what: &str,
    is_reached: impl Fn(&Counts) -> bool,
) -> Result<Phase> {
    let mut tally = RequestTally::default();
    let began = Instant::now();
    objects::scale(&measured.client, replicas).await?;
    let within = PATIENCE + PATIENCE_PER_MACHINE * machines;
    let reached = measured.until(what, within, is_reached).await;
    let took = began.elapsed();
    reached.with_context(|| measured.explain())?;
    let is_quiet = count_until_quiet(measured, &mut tally).await?;
    Ok(Phase { took, tally, is_quiet })
}

/// Counts requests until no object except Events and Leases has been written for a while; returns
/// false if that never happens.
async fn count_until_quiet(measured: &mut MeasuredMachines, tally: &mut RequestTally) -> Result<bool> {
    progress::until_quiet(|| {
        let mut has_written = false;
        for request in measured.requests.take()? {
            has_written |= request.is_controllers_write();
            tally.add(request);
        }
        Ok(has_written)
    })
    .await
}
