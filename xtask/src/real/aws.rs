//! The lane of the AWS driver. moto is a server that decodes the requests of EC2, IAM and STS with
//! the API definitions of AWS, and `machinist-proxy-aws` in front of it adds what moto lacks:
//! signatures, client tokens, delays and faults. First boto3 tests the proxy, then the driver uses
//! both. The driver wrote neither of its counterparts.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use super::ending::Ending;
use super::python;
use crate::control_plane::pause;
use crate::ports;
use crate::workspace::{self, ensure_success, output_of};

/// The server, with the services that the tests use. It includes boto3.
pub(super) const MOTO: &str = "moto[ec2,iam,sts,server]==5.2.5";

/// The name of our program in front of the server.
const PROXY: &str = "machinist-proxy-aws";

/// Variable with the URL of the proxy.
const ENDPOINT_VARIABLE: &str = "MACHINIST_AWS_ENDPOINT";

/// The access key and the secret key of boto3.
const KEYS: (&str, &str) = ("AKIALANE", "secret-of-the-lane");

/// The server loads the definitions of all services first.
const STARTS_WITHIN: Duration = Duration::from_secs(60);
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// Runs boto3 and the tests of the driver that need a counterpart.
pub(super) fn check() -> Result<Ending> {
    let folder = tempfile::tempdir()?;
    let programs = match python::install(folder.path(), &[MOTO]) {
        Ok(programs) => programs,
        Err(error) => return Ok(Ending::Skipped(format!("{error:#}"))),
    };
    let script = folder.path().join("client.py");
    fs::write(&script, include_str!("aws/client.py"))?;
    let moto = Moto::start(&programs.join("moto_server"))?;
    let proxy = Proxy::start(&moto, KEYS)?;
    let mut client = Command::new(programs.join("python"));
    client.arg(&script).args([&proxy.endpoint, KEYS.0, KEYS.1]);
    ensure_success(&mut client).context("boto3 and the proxy")?;

    let mut tests = workspace::test_target(
        workspace::packages()?
            .iter()
            .find(|package| package.name == "machinist-driver-aws")
            .context("package not found in the workspace")?,
        "it",
    )?;
    let output = output_of(tests.args(["real::", "--nocapture"]).env(ENDPOINT_VARIABLE, &proxy.endpoint))?;
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
        // The server cannot choose a port, so the system chooses a port that was free just now.
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

/// The proxy as a process, until it is dropped.
pub(super) struct Proxy {
    process: Child,
    pub(super) endpoint: String,
}

impl Proxy {
    /// Compiles and starts the proxy. It accepts one access key with its secret key.
    pub(super) fn start(moto: &Moto, (access_key, secret_key): (&str, &str)) -> Result<Self> {
        let mut process = workspace::program_named(PROXY)?
            .args(["--backend", &moto.endpoint, "--key", &format!("{access_key}={secret_key}")])
            .stdout(Stdio::piped())
            .spawn()
            .with_context(|| format!("cannot start {PROXY}"))?;
        let output = process.stdout.take().context("the output of the proxy is a pipe")?;
        let mut proxy = Self { process, endpoint: String::new() };
        BufReader::new(output).read_line(&mut proxy.endpoint)?;
        proxy.endpoint = proxy.endpoint.trim().to_owned();
        ensure!(proxy.endpoint.starts_with("http"), "{PROXY} printed no URL");
        Ok(proxy)
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
