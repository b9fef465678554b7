//! The lanes that use the stand-in for the Hetzner Cloud API with official clients: the Python
//! client, the Go library, and the `hcloud` command.
//!
//! Each client creates, lists, changes and deletes servers, networks, routes and load balancers,
//! and compares the replies and the errors. Each prints one line per call. A client that cannot be
//! had here is skipped, with the reason.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use serde::Deserialize;

use super::ending::Ending;
use super::python;
use crate::control_plane::pause;
use crate::go_modules::{self, why_no_go};
use crate::workspace::{cargo, ensure_success, output_of};

/// Version of the Go library. Newer ones need a newer Go.
const GO_LIBRARY: (&str, &str) = ("github.com/hetznercloud/hcloud-go/v2", "v2.49.0");

/// The module of the command, if the computer has no `hcloud`.
const COMMAND_PACKAGE: &str = "github.com/hetznercloud/cli/cmd/hcloud@latest";

/// Version of the Python client.
const PYTHON_CLIENT: &str = "hcloud==2.27.0";

/// The official Python client.
pub(super) fn python() -> Result<Ending> {
    let folder = tempfile::tempdir()?;
    let python = match python::install(folder.path(), &[PYTHON_CLIENT]) {
        Ok(programs) => programs.join("python"),
        Err(error) => return Ok(Ending::Skipped(format!("{error:#}"))),
    };
    let script = folder.path().join("session.py");
    fs::write(&script, include_str!("hcloud/session.py"))?;
    let standin = StandIn::start()?;
    ensure_success(Command::new(&python).arg(&script).env("HCLOUD_ENDPOINT", &standin.endpoint))?;
    Ok(Ending::Passed)
}

/// The official Go library.
pub(super) fn go() -> Result<Ending> {
    let (module, version) = GO_LIBRARY;
    if let Some(missing) = why_no_go() {
        return Ok(Ending::Skipped(missing));
    }
    if let Err(error) = go_modules::provide(module, version, go_modules::Source::CacheOrProxy) {
        return Ok(Ending::Skipped(format!("{error:#}")));
    }
    let folder = tempfile::tempdir()?;
    let go_mod = format!("module machinist.invalid/hcloud\n\ngo 1.25.0\n\nrequire {module} {version}\n");
    fs::write(folder.path().join("go.mod"), go_mod)?;
    fs::write(folder.path().join("main.go"), include_str!("hcloud/main.go"))?;
    let program = folder.path().join("check");
    let mut build = Command::new("go");
    build.current_dir(folder.path()).env("GOFLAGS", "-mod=mod -buildvcs=false").env("GOWORK", "off");
    ensure_success(build.args(["build", "-o"]).arg(&program).arg("."))?;
    let standin = StandIn::start()?;
    ensure_success(Command::new(&program).env("HCLOUD_ENDPOINT", &standin.endpoint))?;
    Ok(Ending::Passed)
}

/// The `hcloud` command: an installed one, or one built from its Go module.
pub(super) fn command() -> Result<Ending> {
    let folder = tempfile::tempdir()?;
    let program = match find_command(folder.path()) {
        Ok(program) => program,
        Err(error) => return Ok(Ending::Skipped(format!("{error:#}"))),
    };
    let standin = StandIn::start()?;
    let user = User { program, endpoint: standin.endpoint.clone(), home: folder.path().to_owned() };
    user.session()?;
    Ok(Ending::Passed)
}

fn find_command(folder: &Path) -> Result<PathBuf> {
    if Command::new("hcloud").arg("version").output().is_ok() {
        return Ok("hcloud".into());
    }
    if let Some(missing) = why_no_go() {
        bail!("no hcloud command, and {missing}");
    }
    let mut install = Command::new("go");
    install.current_dir(folder).env("GOFLAGS", "-buildvcs=false").env("GOWORK", "off").env("GOBIN", folder);
    output_of(install.args(["install", COMMAND_PACKAGE])).context("no hcloud command")?;
    Ok(folder.join("hcloud"))
}

/// The stand-in as a process, until it is dropped.
struct StandIn {
    process: Child,
    endpoint: String,
}

impl StandIn {
    fn start() -> Result<Self> {
        let mut process = Command::new(Self::build()?)
            .args(["127.0.0.1:0", "quick"])
            .stdout(Stdio::piped())
            .spawn()
            .context("cannot start the stand-in")?;
        let output = process.stdout.take().context("the output of the stand-in is a pipe")?;
        let mut standin = Self { process, endpoint: String::new() };
        BufReader::new(output).read_line(&mut standin.endpoint)?;
        standin.endpoint = standin.endpoint.trim().to_owned();
        ensure!(standin.endpoint.starts_with("http"), "the stand-in printed no endpoint");
        Ok(standin)
    }

    /// Compiles the example that serves the stand-in. All packages are selected, so that the shared
    /// crates keep their features.
    fn build() -> Result<PathBuf> {
        #[derive(Deserialize)]
        struct Compiled {
            target: Target,
            executable: Option<PathBuf>,
        }
        #[derive(Deserialize)]
        struct Target {
            name: String,
        }

        let messages = output_of(cargo().args([
            "build",
            "--example",
            "serve_hcloud",
            "--message-format=json-render-diagnostics",
        ]))?;
        let compiled = messages.lines().filter_map(|line| serde_json::from_str::<Compiled>(line).ok());
        compiled
            .filter(|compiled| compiled.target.name == "serve_hcloud")
            .find_map(|compiled| compiled.executable)
            .context("cargo does not say where it put the example `serve_hcloud`")
    }
}

impl Drop for StandIn {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// A user of the `hcloud` command.
struct User {
    program: PathBuf,
    endpoint: String,
    /// A separate home folder, so that the user's contexts are neither read nor written.
    home: PathBuf,
}

/// Far longer than any action of the stand-in takes.
const MAX_LOCK: Duration = Duration::from_secs(10);
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// More than one page of 50.
const SERVERS: usize = 53;

impl User {
    /// Every call of the session, in order.
    fn session(&self) -> Result<()> {
        let locations = self.run("location list -o noheader -o columns=name")?;
        self.expect("location list", locations.split_whitespace().count(), 6)?;
        for index in 0..SERVERS {
            let start = if index == 0 { "" } else { " --start-after-create=false" };
            self.run(&format!(
                "server create --name cli-{index} --type cx22 --image debian-12 --location fsn1 --label client=cli{start}"
            ))?;
        }
        let names = self.run("server list -o noheader -o columns=name")?;
        self.expect("server list over two pages", names.split_whitespace().count(), SERVERS)?;
        let running = self.run("server list -o noheader -o columns=name,status -l client=cli")?;
        self.expect("server list with a selector", running.matches("running").count(), 1)?;
        self.run("server add-label cli-0 role=worker")?;
        let labelled = self.run("server list -o noheader -o columns=name -l role=worker")?;
        self.expect("server add-label", labelled.trim(), "cli-0")?;
        self.run("server poweroff cli-0")?;
        let status = self.run("server describe cli-0 -o format={{.Status}}")?;
        self.expect("server poweroff", status.trim(), "off")?;
        self.run("server poweron cli-0")?;
        self.networks()?;
        self.load_balancers()?;
        self.errors()?;
        for index in 0..SERVERS {
            self.run(&format!("server delete cli-{index}"))?;
        }
        self.await_no_server()?;
        self.run("network delete cli").map(drop)
    }

    /// Waits for the deletions, because some versions of the command do not.
    fn await_no_server(&self) -> Result<()> {
        let deadline = Instant::now() + MAX_LOCK;
        loop {
            let left = self.run("server list -o noheader -o columns=name")?;
            if left.trim().is_empty() {
                return Ok(());
            }
            ensure!(Instant::now() < deadline, "`hcloud server delete`: left {}", left.trim());
            pause(LOOK_EVERY);
        }
    }

    fn networks(&self) -> Result<()> {
        self.run("network create --name cli --ip-range 10.0.0.0/8")?;
        self.run("network add-subnet cli --type cloud --network-zone eu-central --ip-range 10.0.0.0/24")?;
        self.run("server attach-to-network cli-0 --network cli")?;
        self.run("network add-route cli --destination 10.244.0.0/24 --gateway 10.0.0.2")?;
        let shown = self.run("network describe cli")?;
        self.expect("network add-route", shown.contains("10.244.0.0/24"), true)?;
        self.refused(
            "network add-route cli --destination 10.244.0.0/24 --gateway 10.0.0.2",
            "invalid_input",
        )?;
        self.run("network remove-route cli --destination 10.244.0.0/24 --gateway 10.0.0.2")?;
        let shown = self.run("network describe cli")?;
        self.expect("network remove-route", shown.contains("10.244.0.0/24"), false)
    }

    fn load_balancers(&self) -> Result<()> {
        self.run("load-balancer create --name cli --type lb11 --location fsn1")?;
        self.run("load-balancer attach-to-network cli --network cli")?;
        self.run("load-balancer add-service cli --protocol tcp --listen-port 80 --destination-port 30080")?;
        self.refused(
            "load-balancer add-service cli --protocol tcp --listen-port 80 --destination-port 30080",
            "source_port_already_used",
        )?;
        self.run("load-balancer add-target cli --server cli-0 --use-private-ip")?;
        self.refused("load-balancer add-target cli --server cli-0", "target_already_defined")?;
        let shown = self.run("load-balancer describe cli")?;
        self.expect("load-balancer describe", shown.contains("30080") && shown.contains("cli-0"), true)?;
        self.run("load-balancer change-algorithm cli --algorithm-type least_connections")?;
        self.run("load-balancer update-service cli --listen-port 80 --destination-port 30090")?;
        self.run("load-balancer remove-target cli --server cli-0")?;
        self.run("load-balancer delete-service cli --listen-port 80")?;
        self.run("load-balancer detach-from-network cli --network cli")?;
        self.run("load-balancer enable-protection cli delete")?;
        self.refused("load-balancer delete cli", "protected")?;
        self.run("load-balancer disable-protection cli delete")?;
        self.run("load-balancer delete cli").map(drop)
    }

    fn errors(&self) -> Result<()> {
        self.refused("server create --name cli-0 --type cx22 --image debian-12", "uniqueness_error")?;
        self.refused("server describe nothing", "not found")?;
        self.refused_with("read-only", "server poweroff cli-0", "token_readonly")?;
        self.refused_with("other", "server describe cli-0", "not found")?;
        self.refused_with("unknown", "server list", "unauthorized")
    }

    /// Runs a command that must succeed, and returns its output. Some commands do not wait for
    /// their action, so the next one may find the resource locked, and is repeated.
    fn run(&self, line: &str) -> Result<String> {
        let deadline = Instant::now() + MAX_LOCK;
        loop {
            match output_of(&mut self.command("stand-in", line)) {
                Ok(output) => {
                    println!("ok hcloud {line}");
                    return Ok(output);
                }
                Err(error) if error.to_string().contains("(locked)") && Instant::now() < deadline => {
                    pause(LOOK_EVERY);
                }
                Err(error) => return Err(error),
            }
        }
    }

    fn refused(&self, line: &str, expected: &str) -> Result<()> {
        self.refused_with("stand-in", line, expected)
    }

    /// Runs a command with a token; the command must fail with that text.
    fn refused_with(&self, token: &str, line: &str, expected: &str) -> Result<()> {
        let output = self.command(token, line).output()?;
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        ensure!(!output.status.success(), "`hcloud {line}` succeeded; expected the error {expected}");
        ensure!(said.contains(expected), "`hcloud {line}`: expected the error {expected}, got {said}");
        println!("ok hcloud {line}: refused with {expected}");
        Ok(())
    }

    fn expect<T: PartialEq + std::fmt::Debug>(&self, call: &str, actual: T, expected: T) -> Result<()> {
        ensure!(actual == expected, "`hcloud {call}`: expected {expected:?}, got {actual:?}");
        Ok(())
    }

    fn command(&self, token: &str, line: &str) -> Command {
        let mut command = Command::new(&self.program);
        command.args(line.split_whitespace()).env("HCLOUD_ENDPOINT", &self.endpoint);
        command.env("HCLOUD_TOKEN", token).env("HOME", &self.home).env_remove("HCLOUD_CONTEXT");
        command
    }
}
