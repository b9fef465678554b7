//! Child processes that end with this process, even if it is killed.
//!
//! A destructor does not run on Ctrl-C, on SIGTERM from a test runner, or on SIGKILL. Every aborted
//! run would then leave an etcd and a kube-apiserver behind. So a *warden*, a shell script of a few
//! lines, holds the reading end of a pipe, and only this process holds the writing end. The warden
//! receives each child's process id. When the pipe closes, on purpose or because this process has
//! ended, the warden kills the process groups of the children, and removes the folder. Every run
//! ends this way, so no signal handler is needed.
//!
//! The children and the warden have their own process groups: Ctrl-C in the terminal reaches only
//! this process.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use super::pause;
use crate::ports;

/// Argument: the folder to remove, or empty for none. A killed process may write a last file, so
/// the removal is tried twice.
const WARDEN: &str = r#"
trap '' HUP INT TERM
children=
while read -r child; do children="$children $child"; done
for child in $children; do kill -KILL "-$child" 2>/dev/null; done
[ -z "$1" ] || rm -rf -- "$1" 2>/dev/null || { sleep 1; rm -rf -- "$1"; }
"#;

/// Number of log lines in an error: enough for the reason, which servers print last, without a
/// screenful of flags.
const LOG_TAIL_LINES: usize = 12;

/// Time between two looks whether a child has ended, or whether it listens.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// Whether the folder is removed when the processes end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Afterwards {
    Remove,
    Keep,
}

pub(crate) struct Processes {
    warden: Child,
    /// `None` only during the drop.
    line_to_warden: Option<ChildStdin>,
    children: Vec<Running>,
}

struct Running {
    name: &'static str,
    child: Child,
    log: PathBuf,
}

/// A child that ended unexpectedly.
pub(crate) struct Ended {
    pub(crate) name: &'static str,
    pub(crate) status: ExitStatus,
    pub(crate) log_tail: String,
}

impl Processes {
    pub(crate) fn new(folder: &Path, afterwards: Afterwards) -> Result<Self> {
        let mut warden = Command::new("sh")
            .args(["-c", WARDEN, "warden"])
            .arg(match afterwards {
                Afterwards::Remove => folder.as_os_str(),
                Afterwards::Keep => "".as_ref(),
            })
            // Neither in the folder that it removes, nor in a folder that a user may want to
            // unmount.
            .current_dir("/")
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .process_group(0)
            .spawn()
            .context("cannot start `sh`")?;
        let line_to_warden = warden.stdin.take();
        Ok(Self { warden, line_to_warden, children: Vec::new() })
    }

    /// Starts a child with its output in the file `log`.
    pub(crate) fn spawn(&mut self, name: &'static str, mut command: Command, log: PathBuf) -> Result<()> {
        let file = File::create(&log).with_context(|| format!("cannot create {}", log.display()))?;
        let child = command
            .stdin(Stdio::null())
            .stdout(file.try_clone()?)
            .stderr(file)
            .process_group(0)
            .spawn()
            .with_context(|| format!("cannot start {name}"))?;
        self.watch(name, child, log)
    }

    /// Starts a child that prints to our standard output and error.
    pub(crate) fn spawn_with_our_output(&mut self, name: &'static str, mut command: Command) -> Result<()> {
        let child = command
            .stdin(Stdio::null())
            .process_group(0)
            .spawn()
            .with_context(|| format!("cannot start {name}"))?;
        self.watch(name, child, PathBuf::new())
    }

    /// Remembers a child, and passes its id to the warden.
    fn watch(&mut self, name: &'static str, child: Child, log: PathBuf) -> Result<()> {
        let id = child.id();
        // From here on the drop kills this child, also if the write to the warden fails.
        self.children.push(Running { name, child, log });
        let line = self.line_to_warden.as_mut().expect("the pipe is open until the drop");
        line.write_all(format!("{id}\n").as_bytes()).context("the warden of the processes has ended")
    }

    /// Returns the process ids by name.
    pub(crate) fn ids(&self) -> BTreeMap<&'static str, u32> {
        self.children.iter().map(|running| (running.name, running.child.id())).collect()
    }

    /// Returns the first child that has ended, if any.
    pub(crate) fn ended(&mut self) -> Result<Option<Ended>> {
        for Running { name, child, log } in &mut self.children {
            if let Some(status) = child.try_wait()? {
                return Ok(Some(Ended { name, status, log_tail: tail(log) }));
            }
        }
        Ok(None)
    }

    /// Sends SIGTERM to every child, and waits until all have ended.
    ///
    /// # Errors
    /// If a child is still there after that time.
    pub(crate) fn terminate(&mut self, within: Duration) -> Result<Vec<Ended>> {
        for running in &self.children {
            // A child that has ended already is fine. Its id is not reused before it is waited for.
            let _ = Command::new("kill").args(["-TERM", &running.child.id().to_string()]).output()?;
        }
        let deadline = Instant::now() + within;
        let mut ended = Vec::new();
        for Running { name, child, log } in &mut self.children {
            let status = loop {
                if let Some(status) = child.try_wait()? {
                    break status;
                }
                ensure!(Instant::now() < deadline, "{name} did not end in {within:?}:\n{}", tail(log));
                pause(LOOK_EVERY);
            };
            ended.push(Ended { name, status, log_tail: tail(log) });
        }
        Ok(ended)
    }

    /// Waits until a server listens at a port.
    ///
    /// # Errors
    /// If none does within this time, with the end of every log.
    pub(crate) fn await_port(&self, port: u16, within: Duration) -> Result<()> {
        let deadline = Instant::now() + within;
        while !ports::listens(port) {
            ensure!(
                Instant::now() < deadline,
                "no server listens at port {port} after {within:?}:{}",
                self.log_tails()
            );
            pause(LOOK_EVERY);
        }
        Ok(())
    }

    /// Returns the end of every log, for an error about a timeout.
    pub(crate) fn log_tails(&self) -> String {
        self.children.iter().map(|running| format!("\n{}:\n{}", running.name, tail(&running.log))).collect()
    }
}

impl Drop for Processes {
    fn drop(&mut self) {
        drop(self.line_to_warden.take());
        // The warden kills by id, so it has to end before the children are waited for: until then
        // the ids of children that were not waited for are not reused.
        let ended = self.warden.wait();
        for running in &mut self.children {
            if ended.is_err() {
                // The fallback without the warden. An error here means that the child has ended
                // already.
                let _ = running.child.kill();
            }
            let _ = running.child.wait();
        }
    }
}

fn tail(log: &Path) -> String {
    let text =
        std::fs::read(log).map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).unwrap_or_default();
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(LOG_TAIL_LINES)..].join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_alive(id: u32) -> bool {
        Command::new("kill")
            .args(["-0", &id.to_string()])
            .stderr(Stdio::null())
            .status()
            .is_ok_and(|status| status.success())
    }

    #[test]
    fn the_drop_kills_the_children_and_removes_the_folder() {
        let folder = tempfile::tempdir().expect("a folder").keep();
        let mut processes = Processes::new(&folder, Afterwards::Remove).expect("a warden");
        let mut command = Command::new("sleep");
        command.arg("600");
        processes.spawn("sleep", command, folder.join("log")).expect("a child");
        let id = processes.children[0].child.id();
        assert!(is_alive(id));
        assert!(processes.ended().expect("the state of children is readable").is_none());
        drop(processes);
        assert!(!is_alive(id));
        assert!(!folder.exists());
    }

    #[test]
    fn a_child_that_ends_is_reported_with_its_log() {
        let folder = tempfile::tempdir().expect("a folder");
        let mut processes = Processes::new(folder.path(), Afterwards::Keep).expect("a warden");
        let mut command = Command::new("sh");
        command.args(["-c", "echo no such flag; exit 3"]);
        processes.spawn("server", command, folder.path().join("log")).expect("a child");
        processes.children[0].child.wait().expect("the child exits");
        let ended =
            processes.ended().expect("the state of children is readable").expect("the child has ended");
        assert_eq!(
            (ended.name, ended.status.code(), ended.log_tail.as_str()),
            ("server", Some(3), "no such flag")
        );
        drop(processes);
        assert!(folder.path().exists());
    }
}
