//! The processes under test, and the simulated cloud.

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{ChildStdout, Command, Output, Stdio};

use anyhow::{Context, Result, bail};

use crate::clusters::Process;

/// Starts the program with these arguments. Its log goes to a file of this name.
pub(crate) fn start(arguments: &str, folder: &Path, name: &str) -> Result<Process> {
    Process::start(machinist(arguments).stdout(Stdio::null()), folder, name)
}

/// A process whose output is read. It would end if it printed to a closed pipe.
pub(crate) struct Piped {
    _process: Process,
    _stdout: BufReader<ChildStdout>,
}

/// Starts the program, and returns its first line of output that contains `part`.
pub(crate) fn start_until(arguments: &str, folder: &Path, name: &str, part: &str) -> Result<(Piped, String)> {
    let mut process = Process::start(machinist(arguments).stdout(Stdio::piped()), folder, name)?;
    let stdout = process.child.stdout.take().context("standard output is a pipe")?;
    let mut stdout = BufReader::new(stdout);
    let line = (&mut stdout).lines().find(|line| line.as_ref().map_or(true, |line| line.contains(part)));
    if let Some(line) = line.transpose()? {
        return Ok((Piped { _process: process, _stdout: stdout }, line));
    }
    bail!("{name} ended without a line with {part:?}: {}", process.log())
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
