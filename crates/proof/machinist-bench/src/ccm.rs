//! Initialises N Nodes with the cloud controller manager, and counts the requests of that and of an
//! idle hour.
//!
//! ```text
//! N servers -> N Nodes -> initialised (real time) -> pause -> quiet -> idle hour (simulated time) -> report
//! ```
//!
//! API server, stand-in for Hetzner Cloud and controllers are in this process, and their clocks
//! follow tokio's. So the same process first works in real time, for the duration, and then in
//! paused time: an hour takes as long as its work. Counts do not depend on the speed of the
//! clock. The API server counts the writes, and the stand-in counts its requests.
//!
//! The benchmark acts as the kubelets: it registers the Nodes, and renews their status every five
//! minutes, as kubelets do in an idle cluster. Renewals of Leases are left out, because the
//! controllers do not watch Leases. One controller has no work: without `HCLOUD_NETWORK` there are
//! no routes.

mod in_process;
mod kubelet;
mod nodes;
mod report;

use std::time::Duration;

use anyhow::{Context, Result};
use tokio::time::Instant;

use self::nodes::MeasuredNodes;
pub use self::report::CcmReport;
use self::report::Figures;
use crate::progress;
use crate::report::Format;
use crate::requests::{per, round};

/// Options of `machinist-bench ccm`.
#[derive(Debug, Clone, clap::Args)]
pub struct Args {
    /// Number of Nodes
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..))]
    nodes: u32,

    /// Output format: text for people, or one JSON object
    #[arg(long, short, value_enum, default_value_t = Format::Text)]
    output: Format,
}

/// Maximum real time of the initialisation, in addition to the time per Node.
const PATIENCE: Duration = Duration::from_secs(60);
const PATIENCE_PER_NODE: Duration = Duration::from_millis(100);
/// Simulated time after which the effects of the initialisation have ended: the longest period of
/// the controllers is ten minutes.
const QUIET_AFTER: Duration = Duration::from_secs(15 * 60);
const IDLE: Duration = Duration::from_secs(60 * 60);

/// Runs the benchmark.
///
/// # Errors
/// When a Node cannot be registered, or the Nodes are not initialised in time.
pub fn run(args: &Args) -> Result<CcmReport> {
    // Time can be paused in a runtime of one thread only.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.context("cannot start the Tokio runtime")?.block_on(measure(args))
}

async fn measure(args: &Args) -> Result<CcmReport> {
    let nodes = args.nodes;
    let mut measured = MeasuredNodes::new(nodes)?;
    progress::until_ready("cloud controller manager", || measured.ccm.is_ready()).await?;

    let began = Instant::now();
    let within = PATIENCE + PATIENCE_PER_NODE * nodes;
    let initialized = tokio::time::timeout(within, measured.initialize());
    initialized.await.with_context(|| measured.explain())??;
    let init_seconds = round(began.elapsed().as_secs_f64());

    tokio::time::pause();
    tokio::time::sleep(QUIET_AFTER).await;
    let of_init = measured.take_writes();
    measured.take_calls();

    tokio::time::sleep(IDLE).await;
    let (of_idle, calls) = (measured.take_writes(), measured.take_calls());
    measured.ensure_initialized()?;
    Ok(CcmReport {
        format: args.output,
        figures: Figures {
            nodes,
            init_seconds,
            writes_per_node: per(of_init.objects(), nodes),
            events_per_node: per(of_init.events(), nodes),
            cloud_calls_per_idle_hour: calls.values().sum(),
            limit_calls_per_idle_hour: report::limit(nodes),
            kube_writes_per_idle_hour: of_idle.all(),
        },
        of_init,
        of_idle,
        calls,
    })
}
