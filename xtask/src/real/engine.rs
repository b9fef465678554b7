//! The lane of the Docker driver: a test target with a Docker engine of its own.
//!
//! The engine is the daemon of [`crate::docker`] in namespaces of its own ([`super::enclosure`]).
//! The tests get real nodes and a real HAProxy from [`crate::node_image`].

use std::ffi::OsStr;
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use super::enclosure::{self, Enclosed};
use super::ending::Ending;
use crate::control_plane::processes::{Afterwards, Processes};
use crate::docker::{Daemon, Tools};
use crate::envtest::Assets;
use crate::node_image::NodeImages;
use crate::workspace::{self, Package, ensure_success, output_of};

/// Variables of the tests: the engine, and images that it has.
const HOST_VARIABLE: &str = "MACHINIST_DOCKER_HOST";
/// Variable with the file that has the process id of the engine. Without it, no test restarts the
/// engine: the tests may not have started it.
const PID_FILE_VARIABLE: &str = "MACHINIST_DOCKER_PID_FILE";
/// Variable with the number of restarts of each kind.
const RESTARTS_VARIABLE: &str = "MACHINIST_DOCKER_RESTARTS";
const NODE_IMAGE_VARIABLE: &str = "MACHINIST_DOCKER_NODE_IMAGE";
const BALANCER_IMAGE_VARIABLE: &str = "MACHINIST_DOCKER_BALANCER_IMAGE";

const NODE_IMAGE: &str = "machinist.test/real-node:1";
const BALANCER_IMAGE: &str = "machinist.test/real-haproxy:1";

/// Far longer than the tests take on two cores, also while a compiler runs.
const LANE_WITHIN: Duration = Duration::from_secs(30 * 60);

/// Start of the names of folders and cgroups.
const PREFIX: &str = "machinist-engine-";

#[derive(clap::Args)]
pub(crate) struct InsideArgs {
    /// Folder of all files of the lane
    #[arg(long)]
    folder: PathBuf,

    /// The compiled test target
    #[arg(long)]
    program: PathBuf,

    /// Folder of the package of the tests
    #[arg(long)]
    package: PathBuf,

    /// Number of restarts of each kind that a test plays
    #[arg(long)]
    restarts: u32,

    /// Arguments for the test target
    #[arg(last = true)]
    test_arguments: Vec<String>,
}

/// Runs a test target with an engine.
pub(super) fn check(package: &str, target: &str, restarts: u32, test_arguments: &[String]) -> Result<Ending> {
    if let Some(reason) = reason_it_cannot_run() {
        return Ok(Ending::Skipped(reason));
    }
    let tools = match Tools::provide() {
        Ok(tools) => tools,
        Err(error) => return Ok(Ending::Skipped(format!("no Docker daemon: {error:#}"))),
    };
    NodeImages::provide(&Assets::provide()?, &tools)?;
    let packages = workspace::packages()?;
    let package: &Package = packages
        .iter()
        .find(|candidate| candidate.name == package)
        .context("package not found in the workspace")?;
    let tests = workspace::test_target(package, target)?;
    let folder = package.manifest_path.parent().context("the manifest path has a parent folder")?;

    let mut arguments: Vec<&OsStr> =
        vec!["--program".as_ref(), tests.get_program(), "--package".as_ref(), folder.as_os_str()];
    let restarts = restarts.to_string();
    arguments.extend(["--restarts", &restarts, "--"].map(AsRef::<OsStr>::as_ref));
    arguments.extend(test_arguments.iter().map(AsRef::<OsStr>::as_ref));
    let enclosed =
        Enclosed { prefix: PREFIX, command: "engine-inside", arguments: &arguments, within: LANE_WITHIN };
    enclosed.run(&tools)?;
    Ok(Ending::Passed)
}

/// Returns why this computer cannot run the lane; `None` if it may.
fn reason_it_cannot_run() -> Option<String> {
    enclosure::reason_it_cannot_be_had()
        .or_else(Assets::reason_they_cannot_be_had)
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
    let tools = Tools::provide()?;
    let images = NodeImages::provide(&Assets::provide()?, &tools)?;
    let group = args.folder.file_name().context("the folder of the lane has a name")?.to_string_lossy();
    let mut processes = Processes::new(&args.folder, Afterwards::Keep)?;
    let docker = Daemon::start(&tools, &mut processes, &args.folder.join("docker"), &group)?;
    images.import(&docker, NODE_IMAGE, BALANCER_IMAGE)?;
    println!("the Docker daemon has its images after {:.1?}", started.elapsed());
    ensure_success(&mut tests(args, &tools, &docker)?)?;
    println!("the tests ended after {:.0?}", started.elapsed());
    nothing_is_left(&docker)
}

/// Returns the command that runs the tests.
fn tests(args: &InsideArgs, tools: &Tools, docker: &Daemon) -> Result<Command> {
    let mut command = Command::new(&args.program);
    command.current_dir(&args.package).env("CARGO_MANIFEST_DIR", &args.package);
    // The tests run `docker`, and make images of `busybox`.
    command.env("PATH", tools.search_path()?);
    command.env(HOST_VARIABLE, docker.host()).env(PID_FILE_VARIABLE, docker.pid_file());
    command.env(RESTARTS_VARIABLE, args.restarts.to_string());
    command.env(NODE_IMAGE_VARIABLE, NODE_IMAGE).env(BALANCER_IMAGE_VARIABLE, BALANCER_IMAGE);
    command.args(&args.test_arguments);
    Ok(command)
}

/// Checks that the deletion of containers leaves no container and no volume.
fn nothing_is_left(docker: &Daemon) -> Result<()> {
    for listing in
        [&["ps", "--all", "--format", "{{.Names}}"][..], &["volume", "ls", "--format", "{{.Name}}"]]
    {
        let left = output_of(docker.docker()?.args(listing))?;
        ensure!(left.trim().is_empty(), "after the tests, `docker {}` shows {}", listing[0], left.trim());
    }
    Ok(())
}
