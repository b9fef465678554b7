//! Provisions N DockerMachines with the Docker provider of Cluster API, and compares its rate with
//! the limit of the engine.
//!
//! ```text
//! the calls of N machines, directly -> the engine's limit
//! Cluster -> N DockerMachines -> provisioned -> bootstrapped -> quiet -> report
//! ```
//!
//! API server, workload cluster, engine and provider are in this process, in real time. The engine
//! is in memory ([`machinist_standin_docker`]): its calls take as long as on a workstation,
//! and it performs only some at the same time. The limit is measured in the same run: one client
//! sends the calls of all machines as soon as the engine accepts them, and waits for nothing else.
//!
//! The benchmark acts as the core controllers of Cluster API and as the kubelets. Machines,
//! bootstrap Secrets and Nodes exist before the first DockerMachine. So the time of a machine
//! begins with its DockerMachine and contains only the provider, the API server and the engine.
//!
//! Writes to workload clusters are reported, but separately: each of these clusters has its own
//! API server, so they do not add up on one.

mod containers;
mod core;
mod limit;
mod report;

use std::time::Duration;

use anyhow::{Context, Result};

use self::containers::MeasuredContainers;
pub use self::report::CapiReport;
use self::report::Figures;
use crate::program::resident_mb;
use crate::progress;
use crate::report::Format;
use crate::requests::{per, round};

/// Options of `machinist-bench capi`.
#[derive(Debug, Clone, clap::Args)]
pub struct Args {
    /// Number of machines
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..))]
    machines: u32,

    /// Output format: text for people, or one JSON object
    #[arg(long, short, value_enum, default_value_t = Format::Text)]
    output: Format,
}

/// Maximum duration of the measurement, in addition to the time per machine.
const PATIENCE: Duration = Duration::from_secs(60);
/// Four times the time per machine at the engine's limit.
const PATIENCE_PER_MACHINE: Duration = Duration::from_millis(450);

/// Runs the benchmark.
///
/// # Errors
/// When an object cannot be created, or the machines are not bootstrapped in time.
pub async fn run(args: &Args) -> Result<CapiReport> {
    let machines = args.machines;
    let direct = limit::measure(machines).await.context("the limit of the engine")?;

    let mut measured = MeasuredContainers::new().await?;
    progress::until_ready("provider", || measured.provider.is_ready()).await?;
    let cluster = core::set_up(&measured.core, &measured.kubelets, machines).await?;
    measured.until_quiet().await?;
    measured.take_requests();
    let before = resident_mb("self")?;

    let within = PATIENCE + PATIENCE_PER_MACHINE * machines;
    let provisioned = tokio::time::timeout(within, measured.provision(&cluster)).await;
    let provisioned = provisioned.with_context(|| measured.explain())??;
    let is_quiet = measured.until_quiet().await?;
    let resident = resident_mb("self")?;
    let requests = measured.take_requests();
    let percentile = |percent| {
        let wait = crate::report::percentile(&provisioned.waits, percent);
        u64::try_from(wait.as_millis()).unwrap_or(u64::MAX)
    };
    Ok(CapiReport {
        format: args.output,
        figures: Figures {
            machines,
            per_second: round(f64::from(machines) / provisioned.took.as_secs_f64()),
            engine_limit_per_second: round(f64::from(machines) / direct.took.as_secs_f64()),
            provisioned_p50_ms: percentile(50),
            provisioned_p99_ms: percentile(99),
            writes_per_machine: per(requests.writes.objects(), machines),
            resident_mb: round(resident),
            reads_per_machine: per(requests.reads.all(), machines),
        },
        growth_mb: round((resident - before) * 1000.0 / f64::from(machines)),
        calls_per_machine: per(measured.engine_calls(), machines),
        direct_calls_per_machine: per(direct.calls, machines),
        requests,
        is_quiet,
    })
}
