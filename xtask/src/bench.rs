//! `cargo xtask bench`: measurements in the profile `dist`, usually on real clusters.
//!
//! `machinist-bench` does the work, with the async runtime and the Kubernetes client that this
//! crate does not have. This task and [`crate::kill`] build it, start the clusters, and pass their
//! description in [`CLUSTERS_VARIABLE`], as for test targets.

use std::path::PathBuf;
use std::process::Command;

use anyhow::Result;
use clap::ValueEnum;

use crate::control_plane::{
    Audit, CLUSTERS_VARIABLE, ControlPlane, ControllerManagers, Durability, Options, Roles,
};
use crate::envtest::Assets;
use crate::workspace::{cargo, dist_folder, ensure_success, profile_folder};

#[derive(clap::Args)]
pub(crate) struct BenchArgs {
    #[command(subcommand)]
    what: Bench,
}

#[derive(clap::Subcommand)]
enum Bench {
    /// Scale from 0 to N machines and back with an instant cloud; report machines per second,
    /// requests per machine, conflicts and memory
    Scale(ScaleArgs),
    /// Initialise N Nodes with the cloud controller manager; report its writes per Node, and its
    /// calls and writes of an idle hour
    Ccm(CcmArgs),
    /// Provision N machines with the Docker provider of Cluster API and an engine in memory; report
    /// machines per second beside the limit of the engine, writes per machine and memory
    Capi(CapiArgs),
    /// Compare the embedded API server, in memory and with a data directory, with kube-apiserver
    /// and etcd, using one mix of requests
    Apiserver(ApiserverArgs),
}

#[derive(clap::Args)]
struct CcmArgs {
    /// Number of Nodes
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..))]
    nodes: u32,

    /// Text for people, or one JSON object
    #[arg(long, short, value_enum, default_value_t = Output::Text)]
    output: Output,
}

#[derive(clap::Args)]
struct CapiArgs {
    /// Number of machines
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..))]
    machines: u32,

    /// Text for people, or one JSON object
    #[arg(long, short, value_enum, default_value_t = Output::Text)]
    output: Output,
}

#[derive(clap::Args)]
struct ApiserverArgs {
    /// Duration of each measurement
    #[arg(long, value_name = "SECONDS", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    seconds: u32,

    /// Number of objects for the measurements of memory and restart
    #[arg(long, value_name = "N", default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(1..))]
    objects: u32,

    /// Leave out kube-apiserver; the output then has no ratios
    #[arg(long)]
    embedded_only: bool,

    /// Text for people, or one JSON object
    #[arg(long, short, value_enum, default_value_t = Output::Text)]
    output: Output,
}

#[derive(clap::Args)]
struct ScaleArgs {
    /// Number of machines
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..))]
    machines: u32,

    /// The embedded API server, or kube-apiserver with etcd
    #[arg(long, value_enum, default_value_t = Api::Embedded)]
    api: Api,

    /// Text for people, or one JSON object
    #[arg(long, short, value_enum, default_value_t = Output::Text)]
    output: Output,

    /// Keep the logs of the controllers in this directory (only with the real API server, where
    /// they are processes)
    #[arg(long, value_name = "DIR")]
    logs: Option<PathBuf>,

    /// Measure requests and CPU time of the controllers for this time, while all machines run and
    /// nothing changes (only with the real API server)
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u32).range(1..))]
    idle: Option<u32>,

    /// Restart both controllers while all machines run; report when they decide again, and compare
    /// it with the lists that they need (only with the real API server)
    #[arg(long)]
    restart: bool,

    /// Stop and kill the leaders while all machines run; report when the standbys decide (only with
    /// the real API server)
    #[arg(long)]
    leader_change: bool,

    /// Play Nodes with one POST each, without the other fields and writes of a kubelet, and without
    /// pods
    #[arg(long)]
    plain_nodes: bool,

    /// Number of pods on each Node, except with --plain-nodes
    #[arg(long, value_name = "N", default_value_t = 10)]
    pods: u32,

    /// Cargo profile of the measured programs. Only figures of the default count
    #[arg(long, value_name = "PROFILE", default_value = DIST)]
    profile: String,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Api {
    Embedded,
    Real,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Output {
    Text,
    Json,
}

impl Output {
    fn name(self) -> &'static str {
        match self {
            Output::Text => "text",
            Output::Json => "json",
        }
    }
}

pub(crate) const BENCH: &str = "machinist-bench";
pub(crate) const MACHINIST: &str = "machinist";
/// The profile of production.
const DIST: &str = "dist";

pub(crate) fn bench(args: &BenchArgs) -> Result<()> {
    match &args.what {
        Bench::Scale(args) => scale(args),
        Bench::Ccm(args) => ccm(args),
        Bench::Capi(args) => capi(args),
        Bench::Apiserver(args) => apiserver(args),
    }
}

fn ccm(args: &CcmArgs) -> Result<()> {
    build(&[BENCH])?;
    let mut command = Command::new(dist_folder()?.join(BENCH));
    ensure_success(command.args(["ccm", "--nodes", &args.nodes.to_string(), "--output", args.output.name()]))
}

fn capi(args: &CapiArgs) -> Result<()> {
    build(&[BENCH])?;
    let mut command = Command::new(dist_folder()?.join(BENCH));
    let machines = args.machines.to_string();
    ensure_success(command.args(["capi", "--machines", &machines, "--output", args.output.name()]))
}

fn apiserver(args: &ApiserverArgs) -> Result<()> {
    build(&[BENCH])?;
    let mut command = Command::new(dist_folder()?.join(BENCH));
    command.args([
        "apiserver",
        "--seconds",
        &args.seconds.to_string(),
        "--objects",
        &args.objects.to_string(),
    ]);
    command.args(["--output", args.output.name()]);
    if args.embedded_only {
        return ensure_success(command.arg("--embedded-only"));
    }
    // As in production, and as our server with a data directory: etcd syncs to disk. No audit log
    // is written.
    let options = Options {
        roles: Roles::OneClusterForBoth,
        controller_managers: ControllerManagers::None,
        durability: Durability::Fsync,
        audit: Audit::Off,
        ..Options::default()
    };
    with_clusters(command, &options)
}

fn scale(args: &ScaleArgs) -> Result<()> {
    let programs = profile_folder(&args.profile)?;
    let mut command = Command::new(programs.join(BENCH));
    command.args(["scale", "--machines", &args.machines.to_string(), "--pods", &args.pods.to_string()]);
    command.args(["--output", args.output.name()]);
    if let Some(folder) = &args.logs {
        command.arg("--logs").arg(folder);
    }
    if let Some(seconds) = args.idle {
        command.args(["--idle", &seconds.to_string()]);
    }
    let switches = [
        ("--restart", args.restart),
        ("--leader-change", args.leader_change),
        ("--plain-nodes", args.plain_nodes),
    ];
    command.args(switches.iter().filter(|(_, is_on)| *is_on).map(|(name, _)| name));
    match args.api {
        Api::Embedded => {
            build_in(&args.profile, &[BENCH])?;
            ensure_success(command.args(["--api", "embedded"]))
        }
        Api::Real => {
            build_in(&args.profile, &[BENCH, MACHINIST])?;
            command.args(["--api", "real", "--machinist"]).arg(programs.join(MACHINIST));
            // One cluster, so that R is the rate of the measured server itself; it syncs to disk,
            // as in production.
            let options = Options {
                roles: Roles::OneClusterForBoth,
                controller_managers: ControllerManagers::None,
                durability: Durability::Fsync,
                audit: Audit::Metadata,
                ..Options::default()
            };
            with_clusters(command, &options)
        }
    }
}

/// Builds before any cluster runs, because the compiler would slow it down.
pub(crate) fn build(packages: &[&str]) -> Result<()> {
    build_in(DIST, packages)
}

fn build_in(profile: &str, packages: &[&str]) -> Result<()> {
    let mut command = cargo();
    command.args(["build", "--profile", profile]);
    for package in packages {
        command.args(["--package", package]);
    }
    ensure_success(&mut command)
}

/// Runs a command with running clusters.
pub(crate) fn with_clusters(mut command: Command, options: &Options) -> Result<()> {
    let assets = Assets::provide()?;
    let mut control_plane = ControlPlane::start(&assets, options)?;
    let clusters = serde_json::to_string(&control_plane.describe())?;
    ensure_success(command.env(CLUSTERS_VARIABLE, clusters))?;
    control_plane.ensure_alive()
}
