//! The clouds of the lanes, and the client that prepares and lists them.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::compare::{Inventory, Marks};
use crate::control_plane::processes::{Afterwards, Processes};
use crate::ports;
use crate::real::aws::{MOTO, Moto, Proxy};
use crate::real::openstack::{Programs as OpenStackPrograms, Services};
use crate::real::python;
use crate::workspace::output_of;

/// The client. It uses no code of a driver.
const SCRIPT: &str = include_str!("observer.py");

/// The token of the stand-in for Hetzner Cloud, as the client knows it.
const HCLOUD_TOKEN: &str = "takeover";

/// The keys of AWS in the Secret that the client describes.
const AWS_KEYS: (&str, &str) = ("AKIAIOSFODNN7EXAMPLE", "not-checked");

/// Seconds after which a token of OpenStack expires: longer than the lane takes, because Go's side
/// logs in for each call, and the lane `openstack` tests how our driver renews it.
const TOKEN_SECONDS: u32 = 3600;

const CLOUD_STARTS_WITHIN: Duration = Duration::from_secs(30);

/// A cloud that the lanes use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::real) enum Kind {
    Hcloud,
    Aws,
    /// The same behind a proxy, which adds client tokens, delays and faults.
    AwsBehindProxy,
    OpenStack,
}

impl Kind {
    /// The name of the provider, for our flag and for Go's machine controller.
    pub(in crate::real) fn name(self) -> &'static str {
        match self {
            Self::Hcloud => "hcloud",
            Self::Aws | Self::AwsBehindProxy => "aws",
            Self::OpenStack => "openstack",
        }
    }
}

/// The programs of a cloud, and the Python of its client.
pub(in crate::real) struct Tools {
    kind: Kind,
    python: PathBuf,
    openstack: Option<OpenStackPrograms>,
}

impl Tools {
    /// Finds or installs what a cloud needs.
    ///
    /// # Errors
    /// If this computer cannot have it. The lane is then skipped.
    pub(in crate::real) fn provide(kind: Kind, folder: &Path) -> Result<Self> {
        let (python, openstack) = match kind {
            Kind::Hcloud => {
                output_of(Command::new("python3").arg("--version")).context("no Python")?;
                (PathBuf::from("python3"), None)
            }
            // It includes boto3.
            Kind::Aws | Kind::AwsBehindProxy => (python::install(folder, &[MOTO])?.join("python"), None),
            Kind::OpenStack => {
                let programs = OpenStackPrograms::provide()?;
                (PathBuf::from(programs.python().get_program()), Some(programs))
            }
        };
        Ok(Self { kind, python, openstack })
    }
}

/// The settings that the objects of a deployment need. The cloud has everything that the settings
/// name.
#[derive(Debug, Deserialize)]
pub(in crate::real) struct Prepared {
    /// The field `provider` of the classes.
    pub(in crate::real) provider: String,
    /// The `providerSpec` before and after the rollout.
    pub(in crate::real) classes: [Value; 2],
    /// The types of instances of the two classes.
    pub(in crate::real) types: [String; 2],
    pub(in crate::real) secret: BTreeMap<String, String>,
    /// The marks that instances and their parts must have, by their kind.
    pub(in crate::real) marks: BTreeMap<String, Marks>,
}

/// A running cloud. A drop ends it.
pub(in crate::real) struct Cloud {
    pub(in crate::real) kind: Kind,
    /// Variables of both machine controllers.
    pub(in crate::real) environment: Vec<(&'static str, String)>,
    pub(in crate::real) counterpart: Counterpart,
    client: Client,
}

/// The server of the API. It runs as long as the value exists.
pub(in crate::real) enum Counterpart {
    Standin { url: String, _processes: Processes },
    Moto { _moto: Moto },
    Proxied { proxy: Proxy, _moto: Moto },
    OpenStack { services: Services },
}

impl Cloud {
    /// Starts a cloud. Its logs are in the folder.
    pub(in crate::real) fn start(tools: &Tools, machinist: &Path, folder: &Path) -> Result<Self> {
        let kind = tools.kind;
        let (counterpart, environment, described) = match kind {
            Kind::Hcloud => {
                let (processes, url) = start_standin(machinist, folder)?;
                let environment = vec![("HCLOUD_ENDPOINT", format!("{url}/v1"))];
                (Counterpart::Standin { url: url.clone(), _processes: processes }, environment, url)
            }
            Kind::Aws => {
                let moto = Moto::start(&tools.python.with_file_name("moto_server"))?;
                let url = moto.endpoint.clone();
                let environment = vec![("AWS_ENDPOINT_URL", url.clone())];
                (Counterpart::Moto { _moto: moto }, environment, url)
            }
            Kind::AwsBehindProxy => {
                let moto = Moto::start(&tools.python.with_file_name("moto_server"))?;
                let proxy = Proxy::start(&moto, AWS_KEYS)?;
                let environment = vec![("AWS_ENDPOINT_URL", proxy.endpoint.clone())];
                // The client lists moto itself, which shows every instance.
                let url = moto.endpoint.clone();
                (Counterpart::Proxied { proxy, _moto: moto }, environment, url)
            }
            Kind::OpenStack => {
                let programs = tools.openstack.as_ref().context("the programs were provided")?;
                let services = Services::start(programs, TOKEN_SECONDS)?;
                // The Secret of the class has the URL.
                let described = services.description().to_string_lossy().into_owned();
                (Counterpart::OpenStack { services }, Vec::new(), described)
            }
        };
        let client = Client::start(&tools.python, folder, &[kind.name(), &described])?;
        Ok(Self { kind, environment, client, counterpart })
    }

    pub(in crate::real) fn prepare(&mut self) -> Result<Prepared> {
        self.client.ask("prepare")
    }

    pub(in crate::real) fn list(&mut self) -> Result<Inventory> {
        self.client.ask("list")
    }
}

/// Starts the stand-in for Hetzner Cloud. Returns its URL.
fn start_standin(machinist: &Path, folder: &Path) -> Result<(Processes, String)> {
    let port = ports::free()?;
    let mut processes = Processes::new(folder, Afterwards::Keep)?;
    let mut standin = Command::new(machinist);
    standin.args(["stand-in", "hcloud", "--token", HCLOUD_TOKEN]);
    standin.args(["--listen", &format!("127.0.0.1:{port}")]);
    processes.spawn("stand-in", standin, folder.join("stand-in.log"))?;
    processes.await_port(port, CLOUD_STARTS_WITHIN)?;
    Ok((processes, format!("http://127.0.0.1:{port}")))
}

/// The client as a process. It ends when its standard input closes.
struct Client {
    process: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Client {
    fn start(python: &Path, folder: &Path, arguments: &[&str]) -> Result<Self> {
        let script = folder.join("observer.py");
        fs::write(&script, SCRIPT).with_context(|| format!("cannot write {}", script.display()))?;
        let mut process = Command::new(python)
            .arg(&script)
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .context("cannot start the client of the cloud")?;
        let input = process.stdin.take().context("the input of the client is a pipe")?;
        let output = process.stdout.take().context("the output of the client is a pipe")?;
        Ok(Self { process, input, output: BufReader::new(output) })
    }

    /// Sends a command, and parses its answer.
    fn ask<T: DeserializeOwned>(&mut self, command: &str) -> Result<T> {
        writeln!(self.input, "{command}")
            .and_then(|()| self.input.flush())
            .context("the client has ended")?;
        let mut line = String::new();
        self.output.read_line(&mut line)?;
        serde_json::from_str(&line)
            .with_context(|| format!("the client of the cloud answered {:?} to {command}", line.trim()))
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
