//! The lane that runs the same kubectl commands against the real server and `machinist up`, and
//! compares the output.
//!
//! The commands are in `corpus/kubectl/session.txt` of `machinist-apiserver`. Ages, times,
//! uids and revisions are replaced by placeholders, and column widths are normalized. All other
//! output and the exit codes must be equal.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use crate::components;
use crate::control_plane::{ControlPlane, pause, pipe_into};
use crate::workspace::{self, root};

const SESSION: &str = "crates/proof/machinist-conformance/corpus/kubectl";
const DEADLINE: Duration = Duration::from_secs(60);
const LOOK_EVERY: Duration = Duration::from_millis(50);

pub(super) fn check(control_plane: &mut ControlPlane) -> Result<()> {
    let program = workspace::program()?;
    let crds = components::printed(Path::new(program.get_program()), "all")?;
    pipe_into(control_plane.target().kubectl().args(["apply", "-f", "-"]), &crds)?;
    let text = std::fs::read_to_string(root().join(SESSION).join("session.txt"))?;
    let folder = tempfile::tempdir()?;
    let programs =
        control_plane.kubectl().parent().context("the path of kubectl has no parent folder")?.to_owned();
    let real = Terminal::new(folder.path(), "real", control_plane.target().kubeconfig(), &programs)?;
    let up = Up::start(program, &folder.path().join("up.kubeconfig"))?;
    let ours = Terminal::new(folder.path(), "ours", &up.kubeconfig, &programs)?;

    let (mut commands, mut differing) = (0, 0);
    for command in Typed::all(&text) {
        let (theirs, ours) = (real.run(command.line)?, ours.run(command.line)?);
        commands += 1;
        let is_same = theirs.code == ours.code && (command.only_code || theirs.text == ours.text);
        if is_same {
            continue;
        }
        differing += 1;
        println!("DIFFERS {}", command.line);
        for (who, said) in [("real", theirs), ("ours", ours)] {
            println!("  {who}, exit code {}:", said.code);
            said.text.lines().for_each(|line| println!("    {line}"));
        }
    }
    println!("{commands} commands, {} with the same output", commands - differing);
    ensure!(differing == 0, "{differing} commands differ");
    Ok(())
}

/// One command of the session.
struct Typed<'a> {
    line: &'a str,
    /// Whether only the exit code is compared because the output always differs; the line above
    /// gives the reason.
    only_code: bool,
}

impl<'a> Typed<'a> {
    fn all(session: &'a str) -> Vec<Self> {
        let mut all = Vec::new();
        let mut only_code = false;
        for line in session.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#')) {
            if line.starts_with('~') {
                only_code = true;
                continue;
            }
            all.push(Typed { line, only_code });
            only_code = false;
        }
        all
    }
}

/// Environment of the commands: one cluster, and a separate home folder, so that the user's files
/// are neither read nor written.
struct Terminal {
    home: PathBuf,
    kubeconfig: PathBuf,
    path: std::ffi::OsString,
}

/// Output and exit code of a command.
struct Said {
    code: i32,
    text: String,
}

impl Terminal {
    fn new(folder: &Path, name: &str, kubeconfig: &Path, programs: &Path) -> Result<Self> {
        let home = folder.join(name);
        std::fs::create_dir(&home)?;
        let mut path = std::ffi::OsString::from(programs);
        path.push(":");
        path.push(std::env::var_os("PATH").unwrap_or_default());
        Ok(Terminal { home, kubeconfig: kubeconfig.to_owned(), path })
    }

    fn run(&self, line: &str) -> Result<Said> {
        let output = Command::new("sh")
            .args(["-c", &format!("({line}) 2>&1")])
            .current_dir(root().join(SESSION))
            .env("PATH", &self.path)
            .env("HOME", &self.home)
            .env("KUBECONFIG", &self.kubeconfig)
            .stdin(Stdio::null())
            .output()
            .with_context(|| format!("cannot run `{line}`"))?;
        let text = canonical(&String::from_utf8_lossy(&output.stdout));
        Ok(Said { code: output.status.code().unwrap_or(-1), text })
    }
}

/// A running `machinist up` without machines. Dropping the value stops it.
struct Up {
    process: Child,
    kubeconfig: PathBuf,
}

impl Up {
    fn start(mut program: Command, kubeconfig: &Path) -> Result<Self> {
        let manifest = root().join(SESSION).join("nothing.yaml");
        let mut process = program
            .args(["up", "--manifest"])
            .arg(manifest)
            .arg("--kubeconfig-out")
            .arg(kubeconfig)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .context("cannot start machinist up")?;
        // The output is read to its end, because the program would block on a full pipe.
        let output = process.stdout.take().context("the output of machinist up is a pipe")?;
        std::thread::spawn(move || BufReader::new(output).lines().for_each(drop));
        let mut up = Up { process, kubeconfig: kubeconfig.to_owned() };
        let began = Instant::now();
        while !kubeconfig.exists() {
            ensure!(up.process.try_wait()?.is_none(), "machinist up ended before it wrote its kubeconfig");
            ensure!(began.elapsed() < DEADLINE, "machinist up wrote no kubeconfig in time");
            pause(LOOK_EVERY);
        }
        Ok(up)
    }
}

impl Drop for Up {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Replaces all text that differs between two equal clusters.
fn canonical(text: &str) -> String {
    let mut canonical = String::new();
    let mut after_revision = false;
    for line in text.lines() {
        let indentation = line.len() - line.trim_start().len();
        canonical.push_str(&line[..indentation]);
        let mut rest = line[indentation..].trim_end();
        while !rest.is_empty() {
            let is_of_word = |c: char| c.is_ascii_alphanumeric() || matches!(c, ':' | '-' | '.');
            let end = rest.find(|c| !is_of_word(c)).unwrap_or(rest.len());
            if end == 0 {
                let spaces = rest.len() - rest.trim_start_matches(' ').len();
                // The width of a column depends on its widest cell, for instance an age.
                let (shown, taken) = match (spaces, rest.chars().next()) {
                    (0, Some(other)) => (other.to_string(), other.len_utf8()),
                    (1, _) => (" ".to_owned(), 1),
                    (many, _) => ("  ".to_owned(), many),
                };
                canonical.push_str(&shown);
                rest = &rest[taken..];
                continue;
            }
            let word = &rest[..end];
            canonical.push_str(stand_in(word, after_revision).unwrap_or(word));
            // Matches the spelling in YAML and in `describe`.
            after_revision = word.starts_with("resourceVersion") || canonical.ends_with("Resource Version:");
            rest = &rest[end..];
        }
        canonical.push('\n');
    }
    canonical
}

/// Returns the placeholder for a word that differs between clusters.
fn stand_in(word: &str, after_revision: bool) -> Option<&'static str> {
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    let is_uid = || {
        let parts: Vec<&str> = word.split('-').collect();
        parts.iter().map(|part| part.len()).eq([8, 4, 4, 4, 12])
            && word.bytes().all(|b| b == b'-' || b.is_ascii_hexdigit())
    };
    let is_time = || {
        let shape = |b: u8| if b.is_ascii_digit() { b'0' } else { b };
        word.len() >= 20
            && word.bytes().take(19).map(shape).eq(*b"0000-00-00T00:00:00")
            && word.ends_with('Z')
    };
    let is_age = || {
        let mut parts = word.split_inclusive(|c: char| !c.is_ascii_digit());
        parts.all(|part| {
            let (number, unit) = part.split_at(part.len() - 1);
            digits(number) && matches!(unit, "s" | "m" | "h" | "d" | "y")
        })
    };
    match () {
        () if after_revision && digits(word) => Some("<revision>"),
        () if is_uid() => Some("<uid>"),
        () if is_time() => Some("<time>"),
        () if is_age() => Some("<age>"),
        () => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_text_that_differs_between_clusters_is_replaced() {
        let said = "NAME   AGE\none    3m20s\n  uid: 0b1c2d3e-1111-2222-3333-0123456789ab\n  resourceVersion: \"123\"\n  at: \"2026-01-02T03:04:05Z\" 123 5 v1\n";
        let expected = "NAME  AGE\none  <age>\n  uid: <uid>\n  resourceVersion: \"<revision>\"\n  at: \"<time>\" 123 5 v1\n";
        assert_eq!(canonical(said), expected);
    }

    #[test]
    fn a_reason_applies_to_one_command() {
        let typed: Vec<(&str, bool)> = Typed::all("# x\na\n~ why\nb\nc")
            .into_iter()
            .map(|typed| (typed.line, typed.only_code))
            .collect();
        assert_eq!(typed, [("a", false), ("b", true), ("c", false)]);
    }
}
