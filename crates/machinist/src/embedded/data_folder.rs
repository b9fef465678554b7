//! Checks of `--data-dir` that `up` and `api-server` share.
//!
//! ```text
//! lock                            held while a process uses the directory
//! state.redb                      the API server's objects
//! ca.crt, ca.key, tokens.key      signing keys, created after the state
//! kubeconfig                      written at each start
//! api-server.json                 marks a directory of `machinist api-server`, created before the state
//! ```
//!
//! `up` and `api-server` cannot share a directory. The controllers of `up` would act on machine
//! objects of other controllers. And `api-server` runs no cloud for the Nodes of `up`, so its
//! built-in controllers would treat them as lost.

use std::fs;
use std::net::SocketAddr;
use std::path::Path;

use anyhow::bail;
use kube::config::Kubeconfig;
use machinist_apiserver::StorageError;

use crate::output;
use crate::wiring::{in_shell, set_aside};

pub(crate) const LOCK_FILE: &str = "lock";
pub(crate) const STATE_FILE: &str = "state.redb";
/// Marks a directory of `machinist api-server`.
pub(crate) const API_SERVER_FILE: &str = "api-server.json";
/// Keys that the API server creates after its state. If one of them exists, there was a state.
pub(crate) const KEY_FILES: [&str; 3] = ["ca.crt", "ca.key", "tokens.key"];
pub(crate) const KUBECONFIG_FILE: &str = "kubeconfig";
/// Suffix of a file that is not completely written.
const UNFINISHED: &str = ".new";
/// Directory in the root of a new file system.
const LOST_AND_FOUND: &str = "lost+found";

/// A command that runs an API server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Command {
    Up,
    ApiServer,
}

impl Command {
    /// Returns the name on the command line.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Up => "up",
            Self::ApiServer => "api-server",
        }
    }
}

/// Rejects a directory with files that Machinist does not create: it may be the home of a user.
/// `names` are the files of Machinist. A directory with one of the `unmistakable` files is always
/// accepted.
///
/// # Errors
/// If there is another file. The error names it and suggests another directory.
pub(crate) fn refuse_foreign_folder(
    path: &Path,
    unmistakable: &[&str],
    names: &[&str],
) -> anyhow::Result<()> {
    if !files(path, unmistakable).is_empty() {
        return Ok(());
    }
    // The function that opens the directory reports why it cannot be listed.
    let Ok(entries) = fs::read_dir(path) else { return Ok(()) };
    // A start that was killed early leaves a lock file, and so do many other programs.
    let has_lock = !files(path, &[LOCK_FILE]).is_empty();
    let is_ours = |name: &str| has_lock && names.contains(&name.strip_suffix(UNFINISHED).unwrap_or(name));
    let mut found = entries.flatten().map(|entry| entry.file_name());
    let other = found.find(|name| name != LOST_AND_FOUND && !name.to_str().is_some_and(is_ours));
    let Some(other) = other else { return Ok(()) };
    let path = path.display();
    bail!(
        "--data-dir {path}: expected an empty directory or one of an earlier run, but this one contains other files, such as {}. \
         Nothing was changed. Name another directory, for example {path}/machinist",
        other.display()
    );
}

/// Returns the names that exist in the directory.
pub(crate) fn files<'n>(folder: &Path, names: &[&'n str]) -> Vec<&'n str> {
    // A broken symbolic link exists too.
    names.iter().filter(|name| fs::symlink_metadata(folder.join(name)).is_ok()).copied().collect()
}

/// Formats names as `a, b and c`.
pub(crate) fn enumerated(names: &[&str]) -> String {
    match names.split_last() {
        Some((last, others)) if !others.is_empty() => format!("{} and {last}", others.join(", ")),
        Some(_) | None => names.concat(),
    }
}

/// Formats `a, b and c exist`, for files that were created after a state that is missing.
pub(crate) fn left_over_notice(there: &[&str]) -> String {
    let verb = if there.len() == 1 { "exists" } else { "exist" };
    format!("{} {verb}", enumerated(there))
}

/// Returns the address of the API server in an earlier run, from its kubeconfig. Copies of that
/// kubeconfig should keep working.
pub(crate) fn address(data_dir: &Path) -> Option<SocketAddr> {
    let kubeconfig = Kubeconfig::read_from(data_dir.join(KUBECONFIG_FILE)).ok()?;
    let server = kubeconfig.clusters.first()?.cluster.as_ref()?.server.clone()?;
    server.strip_prefix("https://")?.parse().ok()
}

/// Returns a warning if the kubeconfig of an earlier run cannot be read, because its address is
/// then unknown.
pub(crate) fn lost_kubeconfig_notice(data_dir: &Path) -> Option<String> {
    let file = data_dir.join(KUBECONFIG_FILE);
    address(data_dir).is_none().then(|| {
        format!(
            "{} is missing or damaged and is written again. The API server may have a new address",
            file.display()
        )
    })
}

/// Converts an error of opening a data directory, with the reason and the fix.
pub(crate) fn refusal(command: Command, folder: &Path, error: StorageError) -> anyhow::Error {
    let flag = format!("--data-dir {}", folder.display());
    match error {
        StorageError::Io { .. } if folder.exists() && !folder.is_dir() => {
            anyhow::anyhow!("{flag}: this path exists and is not a directory. Name a directory")
        }
        StorageError::Io { .. } => {
            anyhow::Error::new(error).context(format!("{flag}: expected a writable directory"))
        }
        StorageError::InUse { .. } => anyhow::Error::new(error).context(flag),
        StorageError::Newer { .. } => {
            let error = output::one_line(&error.into());
            anyhow::anyhow!("{flag}: {error}. Nothing was changed")
        }
        StorageError::Foreign { .. }
        | StorageError::Damaged { .. }
        | StorageError::Missing { .. }
        | StorageError::Certificates { .. } => {
            let error = output::one_line(&error.into());
            anyhow::anyhow!(
                "{flag}: {error}. Nothing was changed. Restore the file from a backup, or start again by moving the directory away: {}",
                set_aside(folder)
            )
        }
        StorageError::Failed { .. } => failure(command, folder, error),
    }
}

/// Converts a failed write of the API server, with the fix.
pub(crate) fn failure(command: Command, folder: &Path, error: StorageError) -> anyhow::Error {
    let error = output::one_line(&error.into());
    anyhow::anyhow!(
        "--data-dir {}: {error}. All acknowledged writes are stored. When the directory is writable again, start again: \
         machinist {} --data-dir {}",
        folder.display(),
        command.name(),
        in_shell(folder)
    )
}
