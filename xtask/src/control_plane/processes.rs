//! Child processes that end with us, whatever ends us.
//!
//! A destructor does not run on Ctrl-C, on SIGTERM from a test runner, or on SIGKILL, and then an etcd and a kube-apiserver would be
//! left behind by every aborted run. So a *warden*, a shell of a few lines, holds the reading end of a pipe whose only
//! writing end is ours. It is told each child's process id; when the pipe closes, by intent or because we are gone, it kills them and
//! removes the folder. There is one way to end and it is always taken, so no signal handler is needed.
//!
//! The children and the warden have process groups of their own: a Ctrl-C in the terminal reaches us, and only us.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};

use anyhow::{Context, Result};

/// Arguments: the folder to remove, empty to remove none. A process that was killed may write a last file, hence the second try.
const WARDEN: &str = r#"
trap '' HUP INT TERM
children=
while read -r child; do children="$children $child"; done
[ -z "$children" ] || kill -KILL $children 2>/dev/null
[ -z "$1" ] || rm -rf -- "$1" 2>/dev/null || { sleep 1; rm -rf -- "$1"; }
"#;

/// How much of a log an error shows: enough for the reason, which servers print last, and not a screenful of flags.
const LOG_TAIL_LINES: usize = 12;

/// What becomes of the folder when the processes end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Afterwards {
    Remove,
    Keep,
}

pub(super) struct Processes {
    warden: Child,
    /// `None` only while we are being dropped.
    line_to_warden: Option<ChildStdin>,
    children: Vec<Running>,
}

struct Running {
    name: &'static str,
    child: Child,
    log: PathBuf,
}

/// A child that ended though it should not have.
pub(super) struct Ended {
    pub(super) name: &'static str,
    pub(super) status: ExitStatus,
    pub(super) log_tail: String,
}

impl Processes {
    pub(super) fn new(folder: &Path, afterwards: Afterwards) -> Result<Self> {
        let mut warden = Command::new("sh")
            .args(["-c", WARDEN, "warden"])
            .arg(match afterwards {
                Afterwards::Remove => folder.as_os_str(),
                Afterwards::Keep => "".as_ref(),
            })
            // Not in the folder it removes, nor in one that somebody may want to unmount.
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
    pub(super) fn spawn(&mut self, name: &'static str, mut command: Command, log: PathBuf) -> Result<()> {
        let file = File::create(&log).with_context(|| format!("cannot create {}", log.display()))?;
        let child = command
            .stdin(Stdio::null())
            .stdout(file.try_clone()?)
            .stderr(file)
            .process_group(0)
            .spawn()
            .with_context(|| format!("cannot start {name}"))?;
        let id = child.id();
        // Ours to end from here on, also when telling the warden fails.
        self.children.push(Running { name, child, log });
        let line = self.line_to_warden.as_mut().expect("the line is open until the drop");
        line.write_all(format!("{id}\n").as_bytes()).context("the warden of the processes is gone")
    }

    /// Their process ids, by name.
    pub(super) fn ids(&self) -> BTreeMap<&'static str, u32> {
        self.children.iter().map(|running| (running.name, running.child.id())).collect()
    }

    /// The first child that ended, if any did.
    pub(super) fn ended(&mut self) -> Result<Option<Ended>> {
        for Running { name, child, log } in &mut self.children {
            if let Some(status) = child.try_wait()? {
                return Ok(Some(Ended { name, status, log_tail: tail(log) }));
            }
        }
        Ok(None)
    }

    /// The end of every log, for an error about something that did not happen in time.
    pub(super) fn log_tails(&self) -> String {
        self.children.iter().map(|running| format!("\n{}:\n{}", running.name, tail(&running.log))).collect()
    }
}

impl Drop for Processes {
    fn drop(&mut self) {
        drop(self.line_to_warden.take());
        // Before the children are waited for: until then their ids belong to no one else, and the warden kills by id.
        let ended = self.warden.wait();
        for running in &mut self.children {
            if ended.is_err() {
                // Without the warden; an error here means that the child has ended already.
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
            .is_ok_and(|it| it.success())
    }

    #[test]
    fn children_and_folder_are_gone_after_the_drop() {
        let folder = tempfile::tempdir().expect("a folder").keep();
        let mut processes = Processes::new(&folder, Afterwards::Remove).expect("a warden");
        let mut command = Command::new("sleep");
        command.arg("600");
        processes.spawn("sleep", command, folder.join("log")).expect("a child");
        let id = processes.children[0].child.id();
        assert!(is_alive(id));
        assert!(processes.ended().expect("children can be asked").is_none());
        drop(processes);
        assert!(!is_alive(id));
        assert!(!folder.exists());
    }

    #[test]
    fn a_child_that_ends_is_reported_with_its_last_words() {
        let folder = tempfile::tempdir().expect("a folder");
        let mut processes = Processes::new(folder.path(), Afterwards::Keep).expect("a warden");
        let mut command = Command::new("sh");
        command.args(["-c", "echo no such flag; exit 3"]);
        processes.spawn("server", command, folder.path().join("log")).expect("a child");
        processes.children[0].child.wait().expect("it ends by itself");
        let ended = processes.ended().expect("children can be asked").expect("it has ended");
        assert_eq!(
            (ended.name, ended.status.code(), ended.log_tail.as_str()),
            ("server", Some(3), "no such flag")
        );
        drop(processes);
        assert!(folder.path().exists());
    }
}
