//! Options of the test, and the time that it may take.

use std::path::PathBuf;
use std::time::Duration;

use clap::ValueEnum;

/// Options of `machinist-bench kill`.
#[derive(Debug, Clone, clap::Args)]
pub struct Args {
    /// Work during which the controllers are killed
    #[arg(long, value_enum, default_value_t = Work::Scale)]
    pub(super) work: Work,

    /// Number of machines after scaling up [default: 50], or during rollouts and drains
    /// [default: 10]
    #[arg(long, value_parser = clap::value_parser!(u32).range(4..))]
    pub(super) machines: Option<u32>,

    /// Number of points at which a controller is killed, in each direction of scaling
    #[arg(long, default_value_t = 20)]
    pub(super) points: u32,

    /// Seed for the points and the killed controllers
    #[arg(long, default_value_t = 1)]
    pub(super) seed: u64,

    /// Path of the `machinist` program
    #[arg(long, value_name = "FILE")]
    pub(super) machinist: PathBuf,

    /// Path of another `machinist` program: after each kill, the controller restarts with the
    /// program that it did not run before
    #[arg(long, value_name = "FILE")]
    pub(super) other: Option<PathBuf>,

    /// Store the programs' logs and the ledger in this folder
    #[arg(long, value_name = "DIR")]
    pub(super) logs: Option<PathBuf>,
}

impl Args {
    /// The number of machines that the user asked for.
    pub(super) fn machines_or(&self, default: u32) -> u32 {
        self.machines.unwrap_or(default)
    }
}

/// Work of the controllers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum Work {
    /// Scale from 3 machines to N, and to 0
    Scale,
    /// Replace N machines by machines of new templates
    Rollout,
    /// Delete machines with pods that a PodDisruptionBudget protects
    Drain,
}

/// A killed controller acts again only when its Lease has expired, so each point may take that
/// long.
const PATIENCE_PER_POINT: Duration = Duration::from_secs(20);
/// Time for the same work without kills.
const PATIENCE: Duration = Duration::from_secs(120);

/// Time for work with this number of points.
pub(super) fn patience_for(points: u32) -> Duration {
    PATIENCE + PATIENCE_PER_POINT * points
}
