//! The lane of the AWS driver: its tests with moto, a server that decodes the requests of EC2, IAM
//! and STS with the API definitions of AWS. The driver did not write its counterpart.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use super::hcloud_clients::Ending;
use super::python;
use crate::control_plane::pause;
use crate::ports;
use crate::workspace::{self, output_of};

/// The server, with the services that the tests use.
pub(super) const MOTO: &str = "moto[ec2,iam,sts,server]==5.2.5";

/// Variable with the URL of the server.
const ENDPOINT_VARIABLE: &str = "MACHINIST_AWS_ENDPOINT";

/// The server loads the definitions of all services first.
const STARTS_WITHIN: Duration = Duration::from_secs(60);
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// Runs the tests of the driver that need a counterpart.
pub(super) fn check() -> Result<Ending> {
    let folder = tempfile::tempdir()?;
    let programs = match python::install(folder.path(), &[MOTO]) {
        Ok(programs) => programs,
        Err(error) => return Ok(Ending::Skipped(format!("{error:#}"))),
    };
    let moto = Moto::start(&programs.join("moto_server"))?;
    let mut tests = workspace::test_target(
        workspace::packages()?
            .iter()
            .find(|package| package.name == "machinist-driver-aws")
            .context("package not found in the workspace")?,
        "it",
    )?;
    let output = output_of(tests.args(["real::", "--nocapture"]).env(ENDPOINT_VARIABLE, &moto.endpoint))?;
    println!("{output}");
    // A filter that selects no test succeeds, too.
    ensure!(!output.contains(" 0 passed"), "no test of the driver needs a counterpart");
    Ok(Ending::Passed)
}

/// The server as a process, until it is dropped.
pub(super) struct Moto {
    process: Child,
    pub(super) endpoint: String,
}

impl Moto {
    pub(super) fn start(program: &Path) -> Result<Self> {
        // The server cannot choose a port, so the system chooses one that was free just now.
        let port = ports::free()?;
        let process = Command::new(program)
            .args(["-H", "127.0.0.1", "-p", &port.to_string()])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .context("cannot start moto")?;
        let mut moto = Self { process, endpoint: format!("http://127.0.0.1:{port}") };
        let deadline = Instant::now() + STARTS_WITHIN;
        while !ports::listens(port) {
            ensure!(moto.process.try_wait()?.is_none(), "moto ended before it listened");
            ensure!(Instant::now() < deadline, "moto does not listen after {STARTS_WITHIN:?}");
            pause(LOOK_EVERY);
        }
        Ok(moto)
    }
}

impl Drop for Moto {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
