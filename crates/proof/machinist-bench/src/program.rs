//! Runs the `machinist` program as operators do: one process per job.

use std::fs::{File, OpenOptions};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use jiff::Timestamp;
use machinist_kube::{Clock, SystemClock};
use tempfile::TempDir;
use tokio::process::{Child, Command};

use crate::loopback;
use crate::objects::NAMESPACE;
use crate::pair::Pair;

/// Number of log lines that an error shows.
const LOG_TAIL_LINES: usize = 12;

/// A process may finish its calls in flight before it exits.
const STOPS_WITHIN: Duration = Duration::from_secs(90);

/// USER_HZ of Linux, which is 100 on every architecture that we build for.
const TICKS_PER_SECOND: f64 = 100.0;

/// Starts jobs of the program, each with a log in one folder.
pub(crate) struct Programs {
    pub(crate) folder: PathBuf,
    machinist: PathBuf,
    /// A program of another version, which takes turns with the first one.
    other: Option<PathBuf>,
    _temporary: Option<TempDir>,
}

/// A command line that can be started several times.
#[derive(Debug, Clone)]
struct CommandLine {
    /// Path of the program.
    program: PathBuf,
    /// Path of the program of the next start.
    next: PathBuf,
    job: String,
    arguments: Vec<String>,
    /// File for standard output and error; every start appends to it.
    log: PathBuf,
}

/// A running process. Dropping it kills the process.
pub(crate) struct Process {
    command: CommandLine,
    child: Child,
    started: Timestamp,
}

/// A controller, and the address of its port.
pub(crate) struct StartedController {
    pub(crate) process: Process,
    pub(crate) address: SocketAddr,
}

impl Programs {
    /// Without a folder for the logs, they are in a temporary one.
    pub(crate) fn new(machinist: PathBuf, logs: Option<&Path>) -> Result<Self> {
        let temporary = if logs.is_none() { Some(tempfile::tempdir()?) } else { None };
        let folder = logs.or(temporary.as_ref().map(TempDir::path)).context("a folder")?.to_owned();
        std::fs::create_dir_all(&folder).with_context(|| format!("cannot create {}", folder.display()))?;
        Ok(Self { folder, machinist, other: None, _temporary: temporary })
    }

    /// Lets each restart of a process change between the first program and this one.
    pub(crate) fn with_other(self, other: Option<PathBuf>) -> Self {
        Self { other, ..self }
    }

    /// Starts both controllers, each on a free port. The suffix is for the names of their logs, and
    /// `cloud` are the arguments that only the machine controller has.
    ///
    /// # Errors
    /// When no port is free, or a program cannot be started.
    pub(crate) fn start_controllers(
        &self,
        suffix: &str,
        arguments: &[String],
        cloud: &[String],
    ) -> Result<Pair<StartedController>> {
        let start = |job: &str, own: &[String]| -> Result<StartedController> {
            let address = loopback::free_address()?;
            let common = [
                format!("--namespace={NAMESPACE}"),
                format!("--address={}", address.ip()),
                format!("--port={}", address.port()),
            ];
            let process = self.start(job, suffix, [&common[..], arguments, own].concat())?;
            Ok(StartedController { process, address })
        };
        Ok(Pair {
            machine_controller: start("machine-controller", cloud)?,
            manager: start("machine-controller-manager", &[])?,
        })
    }

    /// Starts a process. Its log is named after the job, with the suffix.
    ///
    /// # Errors
    /// When the program cannot be started or the log cannot be written.
    pub(crate) fn start(&self, job: &str, suffix: &str, arguments: Vec<String>) -> Result<Process> {
        let log = self.folder.join(format!("{job}{suffix}.log"));
        File::create(&log).with_context(|| format!("cannot write {}", log.display()))?;
        let program = self.machinist.clone();
        let next = self.other.as_ref().unwrap_or(&program).clone();
        CommandLine { program, next, job: job.to_owned(), arguments, log }.start()
    }
}

impl CommandLine {
    /// Starts the process.
    ///
    /// # Errors
    /// When the program cannot be started or the log cannot be written.
    fn start(&self) -> Result<Process> {
        let log = OpenOptions::new()
            .create(true)
            .append(true)
            .open(&self.log)
            .with_context(|| format!("cannot write {}", self.log.display()))?;
        let started = SystemClock.now();
        let child = Command::new(&self.program)
            .arg(&self.job)
            .args(&self.arguments)
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .kill_on_drop(true)
            .spawn()
            .with_context(|| format!("cannot start {}", self.program.display()))?;
        Ok(Process { command: self.clone(), child, started })
    }
}

impl Process {
    /// Process id; absent once the process has exited.
    pub(crate) fn id(&self) -> Option<u32> {
        self.child.id()
    }

    pub(crate) fn started(&self) -> Timestamp {
        self.started
    }

    /// Kills the process with SIGKILL, and waits until it has exited.
    ///
    /// # Errors
    /// When the process had already exited.
    pub(crate) async fn kill(&mut self) -> Result<()> {
        self.ensure_alive()?;
        self.child.kill().await.with_context(|| format!("cannot kill {}", self.what()))
    }

    /// Stops the process with SIGTERM, and waits until it has exited.
    ///
    /// # Errors
    /// When the process had already exited, or does not exit in time.
    pub(crate) async fn stop(&mut self) -> Result<()> {
        self.ensure_alive()?;
        let id = self.running_id()?;
        let sent = Command::new("kill").args(["-TERM", &id.to_string()]).status().await;
        ensure!(sent.context("cannot run `kill`")?.success(), "cannot stop {}", self.what());
        let ended = tokio::time::timeout(STOPS_WITHIN, self.child.wait()).await;
        ended.with_context(|| format!("{} did not stop within {STOPS_WITHIN:?}", self.what()))??;
        Ok(())
    }

    /// Restarts the process after a [`Self::kill`], with the program that is next.
    ///
    /// # Errors
    /// Same as [`CommandLine::start`].
    pub(crate) fn restart(&mut self) -> Result<()> {
        std::mem::swap(&mut self.command.program, &mut self.command.next);
        *self = self.command.start()?;
        Ok(())
    }

    /// Path of the program that runs.
    pub(crate) fn program(&self) -> &Path {
        &self.command.program
    }

    /// Waits until a GET of the URL returns 200.
    ///
    /// # Errors
    /// When the process has exited, or does not answer in time.
    pub(crate) async fn until_ok(&mut self, url: &str) -> Result<()> {
        let answered = loopback::until_ok(url).await;
        self.ensure_alive()?;
        answered
    }

    /// Fails if the process has exited.
    ///
    /// # Errors
    /// When the process has exited: with the end of its log.
    pub(crate) fn ensure_alive(&mut self) -> Result<()> {
        match self.child.try_wait()? {
            None => Ok(()),
            Some(status) => bail!("{} ended ({status}):\n{}", self.what(), tail(&self.command.log)),
        }
    }

    /// Restarts the process if it has exited because it lost its Lease, as Kubernetes would.
    /// Returns whether it did.
    ///
    /// # Errors
    /// When the process has exited for any other reason: with the end of its log.
    pub(crate) fn revive(&mut self) -> Result<bool> {
        if self.child.try_wait()?.is_none() {
            return Ok(false);
        }
        let log = tail(&self.command.log);
        if !log.lines().last().is_some_and(|line| line.contains("leadership was lost")) {
            self.ensure_alive()?;
        }
        self.restart()?;
        Ok(true)
    }

    /// Resident memory of the process in megabytes.
    ///
    /// # Errors
    /// When the process has exited, or the operating system does not report the memory.
    pub(crate) fn resident_mb(&self) -> Result<f64> {
        resident_mb(&self.running_id()?.to_string())
    }

    /// CPU time of the process since its start, in seconds, in user mode and in the kernel.
    ///
    /// # Errors
    /// When the process has exited, or the operating system does not report the time.
    pub(crate) fn cpu_seconds(&self) -> Result<f64> {
        let path = format!("/proc/{}/stat", self.running_id()?);
        let text = std::fs::read_to_string(&path).with_context(|| format!("cannot read {path}"))?;
        cpu_ticks(&text)
            .map(|ticks| ticks / TICKS_PER_SECOND)
            .with_context(|| format!("{path} has no value for the CPU time"))
    }

    fn running_id(&self) -> Result<u32> {
        self.id().with_context(|| format!("{} has ended", self.what()))
    }

    fn what(&self) -> String {
        format!("`machinist {}`", self.command.job)
    }
}

/// Resident memory of a process, or of `self`, in megabytes.
///
/// # Errors
/// When the operating system does not report the memory.
pub(crate) fn resident_mb(process: &str) -> Result<f64> {
    let path = format!("/proc/{process}/status");
    let text = std::fs::read_to_string(&path).with_context(|| format!("cannot read {path}"))?;
    let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kilobytes: f64 = line
        .and_then(|line| line.trim().strip_suffix(" kB")?.trim().parse().ok())
        .with_context(|| format!("{path} has no value for the resident memory"))?;
    Ok(kilobytes / 1024.0)
}

/// Fields `utime` and `stime` of `/proc/PID/stat`, added up. The second field is the program's name
/// in parentheses, which may contain spaces, so the fields are counted from the last parenthesis.
fn cpu_ticks(stat: &str) -> Option<f64> {
    let (_, fields) = stat.rsplit_once(") ")?;
    let mut fields = fields.split(' ').skip(11);
    let user: f64 = fields.next()?.parse().ok()?;
    let kernel: f64 = fields.next()?.parse().ok()?;
    Some(user + kernel)
}

fn tail(log: &Path) -> String {
    let text = std::fs::read(log).map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
    let text = text.unwrap_or_default();
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(LOG_TAIL_LINES)..].join("\n")
}

#[cfg(test)]
mod tests {
    use super::cpu_ticks;

    #[test]
    fn cpu_time_is_read_after_the_name() {
        let stat = "7 (a (b) c) S 1 7 7 0 -1 4194560 900 0 0 0 12 30 0 0 20 0 3 0 100 1000 200";
        assert_eq!(cpu_ticks(stat), Some(42.0));
        assert_eq!(cpu_ticks("7 (name) S 1"), None);
    }
}
