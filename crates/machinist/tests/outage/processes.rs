//! The processes under test, and the simulated cloud.

use std::fs::File;
use std::io::{BufRead as _, BufReader};
use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Output, Stdio};

use anyhow::{Context, Result, bail, ensure};

/// A process, killed when it is dropped.
pub(crate) struct Process {
    child: Child,
    log: PathBuf,
    /// Stays open: the process would end if it printed to a closed pipe.
    stdout: Option<BufReader<ChildStdout>>,
}

impl Process {
    /// Starts the program with these arguments. Its log goes to a file of this name.
    pub(crate) fn start(arguments: &str, folder: &Path, name: &str) -> Result<Self> {
        Self::spawn(arguments, folder, name, Stdio::null())
    }

    /// Starts the program, and returns its first line of output that contains `part`.
    pub(crate) fn start_until(
        arguments: &str,
        folder: &Path,
        name: &str,
        part: &str,
    ) -> Result<(Self, String)> {
        let mut process = Self::spawn(arguments, folder, name, Stdio::piped())?;
        let stdout = process.child.stdout.take().context("standard output is a pipe")?;
        let stdout = process.stdout.insert(BufReader::new(stdout));
        let line = stdout.lines().find(|line| line.as_ref().map_or(true, |line| line.contains(part)));
        if let Some(line) = line.transpose()? {
            return Ok((process, line));
        }
        bail!("{name} ended without a line with {part:?}: {}", process.log())
    }

    fn spawn(arguments: &str, folder: &Path, name: &str, stdout: Stdio) -> Result<Self> {
        let log = folder.join(format!("{name}.log"));
        // A restarted process continues the log.
        let stderr = File::options().create(true).append(true).open(&log)?;
        let child = machinist(arguments)
            .stdin(Stdio::null())
            .stdout(stdout)
            .stderr(stderr)
            .spawn()
            .with_context(|| format!("cannot start {name}"))?;
        Ok(Self { child, log, stdout: None })
    }

    /// Kills the process without a chance to clean up.
    pub(crate) fn kill(&mut self) -> Result<()> {
        self.child.kill()?;
        self.child.wait()?;
        Ok(())
    }

    /// Returns an error if the process has ended.
    pub(crate) fn ensure_alive(&mut self) -> Result<()> {
        let status = self.child.try_wait()?;
        ensure!(status.is_none(), "a process ended: {}", self.log());
        Ok(())
    }

    /// The end of the log.
    pub(crate) fn log(&self) -> String {
        let log = std::fs::read_to_string(&self.log).unwrap_or_default();
        let mut last: Vec<&str> = log.lines().rev().take(60).collect();
        last.reverse();
        last.join("\n")
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // The process may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Creates a command from a command line, split at spaces.
fn machinist(arguments: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_machinist"));
    command.args(arguments.split_whitespace()).env_remove("KUBECONFIG");
    command
}

/// Runs the program to its end, and returns its output and error output.
pub(crate) async fn run(arguments: &str) -> Result<String> {
    let mut command = machinist(arguments);
    let Output { stdout, stderr, .. } = tokio::task::spawn_blocking(move || command.output()).await??;
    Ok(format!("{}{}", String::from_utf8_lossy(&stdout), String::from_utf8_lossy(&stderr)))
}

/// Returns a port that was free a moment ago.
pub(crate) fn free_port() -> Result<u16> {
    Ok(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port())
}
