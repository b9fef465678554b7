//! The lane of the Docker provider for Cluster API.
//!
//! Everything is real: the Docker daemon of Debian, nodes with systemd, containerd and kubelet, the
//! management cluster, and the controllers of Cluster API with their webhooks. The lane drives a
//! Cluster through its life with clusterctl and kubectl, as a user does.
//!
//! The outer process builds what is missing, and starts this program again in namespaces of its own
//! ([`super::enclosure`]). The inner process starts the daemon ([`crate::docker`]), the management
//! cluster ([`management`]) and the provider ([`provider`]), and runs the [`scenario`]. At its end
//! a Cluster moves to a second management cluster.

mod clusterctl;
mod management;
mod provider;
mod scenario;

use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::control_plane::processes::{Afterwards, Processes};
use crate::control_plane::{Audit, ControlPlane, ControllerManagers, Durability, Options, Roles};
use crate::docker::{Daemon, Tools};
use crate::envtest::Assets;
use crate::go_programs::CLUSTERCTL;
use crate::node_image::NodeImages;
use crate::workspace;

use self::clusterctl::Clusterctl;
use self::management::{Stack, WebhookCertificate};
use self::scenario::Lane;
use super::enclosure::{self, Enclosed};
use super::ending::Ending;

pub(super) use clusterctl::check as check_clusterctl;

/// Far longer than the lane takes on two cores, also while a compiler runs.
const LANE_WITHIN: Duration = Duration::from_secs(60 * 60);

/// Path of a program `machinist` to use, instead of compiling it.
const PROGRAM_VARIABLE: &str = "MACHINIST_CAPI_PROGRAM";

/// Distance between the ports of two management clusters.
const PORTS_OF_A_STACK: u16 = 1000;

/// Start of the names of folders and cgroups.
const PREFIX: &str = "machinist-capi-";

#[derive(clap::Args)]
pub(crate) struct InsideArgs {
    /// Folder of all files of the lane
    #[arg(long)]
    folder: PathBuf,

    /// The program `machinist`
    #[arg(long)]
    program: PathBuf,

    /// The part of the life of a Cluster
    #[arg(long)]
    plan: Plan,
}

/// The part of the life of a Cluster that a lane plays.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Plan {
    /// From its creation to its deletion, with one restart of the engine of each kind.
    WholeLife,
    /// Restarts of the engine, five of each kind.
    Restarts,
}

/// Runs the lane.
pub(super) fn check(plan: Plan) -> Result<Ending> {
    if let Some(reason) = reason_it_cannot_run() {
        return Ok(Ending::Skipped(reason));
    }
    let tools = match Tools::provide() {
        Ok(tools) => tools,
        Err(error) => return Ok(Ending::Skipped(format!("no Docker daemon: {error:#}"))),
    };
    for provider in &management::PROVIDERS {
        provider.program.provide()?;
    }
    CLUSTERCTL.provide()?;
    NodeImages::provide(&Assets::provide()?, &tools)?;
    let program = match std::env::var_os(PROGRAM_VARIABLE) {
        Some(program) => program.into(),
        None => PathBuf::from(workspace::program()?.get_program()),
    };

    let plan = match plan {
        Plan::WholeLife => "whole-life",
        Plan::Restarts => "restarts",
    };
    let arguments = ["--program".as_ref(), program.as_os_str(), "--plan".as_ref(), plan.as_ref()];
    let enclosed =
        Enclosed { prefix: PREFIX, command: "capi-inside", arguments: &arguments, within: LANE_WITHIN };
    enclosed.run(&tools)?;
    Ok(Ending::Passed)
}

/// Returns why this computer cannot run the lane; `None` if it may.
fn reason_it_cannot_run() -> Option<String> {
    let programs = management::PROVIDERS.iter().map(|provider| &provider.program).chain([&CLUSTERCTL]);
    enclosure::reason_it_cannot_be_had()
        .or_else(Assets::reason_they_cannot_be_had)
        .or_else(|| programs.into_iter().find_map(|program| program.reason_it_cannot_be_had()))
        .or_else(NodeImages::reason_they_cannot_be_had)
}

/// Runs the part of the lane that is in namespaces of its own.
pub(crate) fn inside(args: &InsideArgs) -> Result<()> {
    enclosure::prepare(&args.folder)?;
    let outcome = run_in_namespaces(args);
    if outcome.is_err() {
        enclosure::keep_logs(&args.folder)?;
    }
    outcome
}

fn run_in_namespaces(args: &InsideArgs) -> Result<()> {
    let started = Instant::now();
    let (assets, tools) = (Assets::provide()?, Tools::provide()?);
    let images = NodeImages::provide(&assets, &tools)?;
    let group = args.folder.file_name().context("the folder of the lane has a name")?.to_string_lossy();
    let mut processes = Processes::new(&args.folder, Afterwards::Keep)?;
    let docker = Daemon::start(&tools, &mut processes, &args.folder.join("docker"), &group)?;
    println!("the Docker daemon is up after {:.1?}", started.elapsed());

    let options = Options {
        roles: Roles::OneClusterEach,
        controller_managers: ControllerManagers::All,
        audit: Audit::Off,
        durability: Durability::None,
        folder: Some(args.folder.join("clusters")),
        ..Options::default()
    };
    let mut control_plane = ControlPlane::start(&assets, &options)?;
    images.import(&docker, &provider::node_image(), provider::BALANCER_IMAGE)?;
    println!("clusters and images are ready after {:.1?}", started.elapsed());
    let certificate = WebhookCertificate::create(args.folder.join("certificate"))?;
    let inner = Inner { args, docker: &docker, certificate: &certificate };
    inner.run(&control_plane, &mut processes)?;
    println!("the lane took {:.0?}", started.elapsed());
    control_plane.ensure_alive()
}

/// The parts that both management clusters use.
struct Inner<'a> {
    args: &'a InsideArgs,
    docker: &'a Daemon,
    certificate: &'a WebhookCertificate,
}

impl Inner<'_> {
    fn run(&self, clusters: &ControlPlane, processes: &mut Processes) -> Result<()> {
        let stack = |name, cluster, port_offset| Stack {
            name,
            cluster,
            certificate: self.certificate,
            port_offset,
            folder: &self.args.folder,
        };
        let first = stack("first", clusters.control(), 0);
        let second = stack("second", clusters.target(), PORTS_OF_A_STACK);
        let clusterctl = Clusterctl::new(first.cluster, &self.args.folder, &self.args.program)?;
        let lane = |cluster| Lane { cluster, docker: self.docker, clusterctl: &clusterctl };

        self.start(&first, processes)?;
        let outcome = match self.args.plan {
            Plan::Restarts => lane(first.cluster).restart_often(),
            Plan::WholeLife => lane(first.cluster).run().and_then(|()| {
                self.start(&second, processes)?;
                lane(first.cluster).move_to(&lane(second.cluster))
            }),
        };
        let ended = processes.ended()?;
        if outcome.is_err() {
            lane(first.cluster).print_state();
            lane(second.cluster).print_state();
            eprintln!("{}", processes.log_tails());
        }
        outcome?;
        match ended {
            None => Ok(()),
            Some(ended) => bail!("{} ended ({}):\n{}", ended.name, ended.status, ended.log_tail),
        }
    }

    /// Starts the controllers of Cluster API and the provider for a management cluster.
    fn start(&self, stack: &Stack, processes: &mut Processes) -> Result<()> {
        let started = Instant::now();
        management::start(stack, processes)?;
        provider::start(stack, processes, self.docker, &self.args.program)?;
        println!("the {} management cluster has its controllers after {:.1?}", stack.name, started.elapsed());
        Ok(())
    }
}
