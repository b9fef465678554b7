//! `cargo xtask kill`: kills the controllers at work, on real clusters.
//!
//! `machinist-bench` does the work. The task builds it and the program, if asked also the program
//! of an earlier commit, and starts the clusters.

use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result};
use clap::ValueEnum;

use crate::bench::{BENCH, MACHINIST, build, with_clusters};
use crate::control_plane::{Audit, ControllerManagers, Durability, Options, Roles};
use crate::workspace::{cargo, dist_folder, ensure_success, output_of, root, target};

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Work during which the controllers are killed
    #[arg(long, value_enum, default_value_t = Work::Scale)]
    work: Work,

    /// Number of machines [default: 50 for scale, starting from 3; 10 for rollout and drain]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(4..))]
    machines: Option<u32>,

    /// Number of points at which a controller is killed; with scale in each direction
    #[arg(long, value_name = "K", default_value_t = 20)]
    points: u32,

    /// Seed for the choice of points and controllers
    #[arg(long, default_value_t = 1)]
    seed: u64,

    /// Path of another machinist program: after each kill, the controller restarts with the program
    /// that it did not run before
    #[arg(long, value_name = "FILE", conflicts_with = "since")]
    other: Option<PathBuf>,

    /// Build the program of this commit in a worktree below the build folder, and use it as --other
    #[arg(long, value_name = "COMMIT")]
    since: Option<String>,

    /// Keep the logs of the programs and the cloud's ledger in this directory
    #[arg(long, value_name = "DIR")]
    logs: Option<PathBuf>,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Work {
    /// Scale up, and down to 0
    Scale,
    /// Roll out new templates, and bring former ones back
    Rollout,
    /// Delete machines with pods that a PodDisruptionBudget protects
    Drain,
}

impl Work {
    fn name(self) -> &'static str {
        match self {
            Work::Scale => "scale",
            Work::Rollout => "rollout",
            Work::Drain => "drain",
        }
    }
}

/// The default of Kubernetes. Nodes renew their Leases every ten seconds, as kubelets do. With the
/// short grace of the other scenarios, healthy Nodes would become Unknown.
const NODE_GRACE: Duration = Duration::from_secs(50);
/// Number of digits of a commit's hash in the names of folders.
const HASH_DIGITS: usize = 12;

/// Runs `cargo xtask kill`.
pub(crate) fn run(args: &Args) -> Result<()> {
    let other = match &args.since {
        Some(commit) => Some(program_of(commit)?),
        None => args.other.clone(),
    };
    build(&[BENCH, MACHINIST])?;
    let mut command = Command::new(dist_folder()?.join(BENCH));
    command.args(["kill", "--work", args.work.name(), "--points", &args.points.to_string()]);
    command.args(["--seed", &args.seed.to_string(), "--machinist"]).arg(dist_folder()?.join(MACHINIST));
    if let Some(machines) = args.machines {
        command.args(["--machines", &machines.to_string()]);
    }
    if let Some(program) = other {
        command.arg("--other").arg(program);
    }
    if let Some(folder) = &args.logs {
        command.arg("--logs").arg(folder);
    }
    // Machines really join this cluster, with certificates that its controller manager signs.
    let options = Options {
        roles: Roles::OneClusterEach,
        controller_managers: ControllerManagers::Target,
        node_grace: NODE_GRACE,
        durability: Durability::None,
        audit: Audit::Metadata,
        ..Options::default()
    };
    with_clusters(command, &options)
}

/// Builds the program of a commit, and returns its path.
///
/// The commit has a build folder of its own, because Cargo takes a crate in one worktree for the
/// same crate in another one. Its profile is `release`, which every commit has.
fn program_of(commit: &str) -> Result<PathBuf> {
    let git = || {
        let mut git = Command::new("git");
        git.current_dir(root());
        git
    };
    let hash = output_of(git().args(["rev-parse", "--verify", &format!("{commit}^{{commit}}")]))
        .with_context(|| format!("--since {commit}: expected a commit of this repository"))?;
    let hash = hash.trim();
    let folder = target()?.join("since").join(hash.get(..HASH_DIGITS).unwrap_or(hash));
    let source = folder.join("source");
    if !source.exists() {
        // Forced, because Git may remember a worktree that was removed with the build folder.
        output_of(git().args(["worktree", "add", "--force", "--detach"]).arg(&source).arg(hash))?;
    }
    let built = folder.join("target");
    let mut command = cargo();
    command.args(["build", "--release", "--package", MACHINIST, "--target-dir"]).arg(&built);
    ensure_success(command.current_dir(&source))?;
    Ok(built.join("release").join(MACHINIST))
}
