//! The lane of the OpenStack driver: its tests with a real control plane.
//!
//! keystone, placement, glance, nova, neutron and cinder run from their packages, with their usual
//! API servers, schedulers and quotas. Only the drivers at the bottom are fakes: a server has no
//! virtual machine, a port has no network interface, and a volume has no data.

mod configuration;
mod programs;
mod services;

use std::fs;
use std::io::{self, Write};
use std::time::Instant;

use anyhow::{Context, Result, ensure};

use super::ending::Ending;
use crate::control_plane::wait_for_end_of_input;
use crate::workspace::{self, output_of};
pub(super) use programs::Programs;
pub(super) use services::Services;

/// Variable with the file that describes the control plane to the tests.
const DESCRIPTION_VARIABLE: &str = "MACHINIST_OPENSTACK";

/// Long enough for a slow call of one service to another, and short enough that tokens expire while
/// the tests run.
const SHORT_TOKEN_SECONDS: u32 = 120;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Seconds after which a token expires
    #[arg(long, value_name = "SECONDS", default_value_t = 3600)]
    token_seconds: u32,
}

/// Runs `cargo xtask openstack`: a control plane until standard input closes. The first line of
/// output is the JSON that the tests read from a file.
pub(crate) fn run(args: &Args) -> Result<()> {
    let started = Instant::now();
    let services = Services::start(&Programs::provide()?, args.token_seconds)?;
    let description = services.description();
    let text = fs::read_to_string(&description)?;
    println!("{}", text.trim());
    io::stdout().flush()?;
    eprintln!("ready after {:.0?}; {DESCRIPTION_VARIABLE}={}", started.elapsed(), description.display());
    wait_for_end_of_input()
}

/// Runs the tests of the driver that need a control plane.
pub(super) fn check() -> Result<Ending> {
    let programs = match Programs::provide() {
        Ok(programs) => programs,
        Err(error) => return Ok(Ending::Skipped(format!("{error:#}"))),
    };
    let packages = workspace::packages()?;
    let package = packages.iter().find(|package| package.name == "machinist-driver-openstack");
    // Before the control plane runs: it would slow the compiler down.
    let mut tests = workspace::test_target(package.context("package not found in the workspace")?, "it")?;
    // One after another: each of them counts the servers of the project.
    tests.args(["real::", "--nocapture", "--test-threads=1"]);
    let started = Instant::now();
    let mut services = Services::start(&programs, SHORT_TOKEN_SECONDS)?;
    println!("the control plane is ready after {:.0?}", started.elapsed());
    let outcome = run_tests(&mut services, tests);
    if outcome.is_err() {
        services.keep_logs()?;
    }
    outcome.map(|()| Ending::Passed)
}

fn run_tests(services: &mut Services, mut tests: std::process::Command) -> Result<()> {
    let description = services.description();
    // A test can only be trusted if its counterpart is right.
    print!("{}", services.client(&["check".as_ref(), &description])?);
    let output = output_of(tests.env(DESCRIPTION_VARIABLE, &description))?;
    println!("{output}");
    // A filter that selects no test succeeds, too.
    ensure!(!output.contains(" 0 passed"), "no test of the driver needs a counterpart");
    services.ensure_alive()?;
    let left = services.client(&["left".as_ref(), &description])?;
    ensure!(left.trim().is_empty(), "after the tests, the project has:\n{}", left.trim());
    Ok(())
}
