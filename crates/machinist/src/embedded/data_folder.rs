//! The folder of `--data-dir`, as far as every command that keeps an API server there does the same with it.
//!
//! ```text
//! lock            while a process has the folder
//! state.redb      the API server's objects
//! ca.crt, ca.key, tokens.key      what it signs with; made after the state
//! kubeconfig      written at each start
//! api-server.json made before the state by `machinist api-server`: the folder is no folder of `machinist up`
//! ```
//!
//! `up` and `api-server` do not share a folder. The controllers of `up` would act on machine objects that other controllers have; and
//! without `up` there is no cloud behind its Nodes, so that they would be taken for lost.

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
/// The mark of `machinist api-server`.
pub(crate) const API_SERVER_FILE: &str = "api-server.json";
/// Made by the API server after its state: where one of them is, there was a state.
pub(crate) const KEY_FILES: [&str; 3] = ["ca.crt", "ca.key", "tokens.key"];
pub(crate) const KUBECONFIG_FILE: &str = "kubeconfig";
/// What a file is called until it is whole.
const UNFINISHED: &str = ".new";
/// What a new file system has in its first folder.
const LOST_AND_FOUND: &str = "lost+found";

/// A command that keeps an API server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Command {
    /// `machinist up`.
    Up,
    /// `machinist api-server`.
    ApiServer,
}

impl Command {
    /// Its name on the command line.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Up => "up",
            Self::ApiServer => "api-server",
        }
    }
}

/// Refuses a folder that has other things than the `names` of ours: it may be a user's home. Nothing is refused once one of the
/// files that are ours alone, `unmistakable`, is there.
///
/// # Errors
/// Names one of the other things, and says what helps.
pub(crate) fn refuse_that_of_others(
    path: &Path,
    unmistakable: &[&str],
    names: &[&str],
) -> anyhow::Result<()> {
    if !files(path, unmistakable).is_empty() {
        return Ok(());
    }
    // A folder that cannot be listed is told by the function that opens it.
    let Ok(entries) = fs::read_dir(path) else { return Ok(()) };
    // A start that was killed early leaves a lock, and so do many other programs.
    let has_lock = !files(path, &[LOCK_FILE]).is_empty();
    let is_ours = |name: &str| has_lock && names.contains(&name.strip_suffix(UNFINISHED).unwrap_or(name));
    let mut found = entries.flatten().map(|entry| entry.file_name());
    let other = found.find(|name| name != LOST_AND_FOUND && !name.to_str().is_some_and(is_ours));
    let Some(other) = other else { return Ok(()) };
    let path = path.display();
    bail!(
        "--data-dir {path}: expected a new or empty folder, or one that an earlier run left; this one holds other things, such as \
         {}. Nothing was changed. Name a folder of its own, for example {path}/machinist",
        other.display()
    );
}

/// Those of the names that are there.
pub(crate) fn files<'n>(folder: &Path, names: &[&'n str]) -> Vec<&'n str> {
    // A link that leads nowhere is there, too.
    names.iter().filter(|name| fs::symlink_metadata(folder.join(name)).is_ok()).copied().collect()
}

/// `a, b and c`.
pub(crate) fn enumerated(names: &[&str]) -> String {
    match names.split_last() {
        Some((last, others)) if !others.is_empty() => format!("{} and {last}", others.join(", ")),
        Some(_) | None => names.concat(),
    }
}

/// `a, b and c, which belong to it, are there`, of files without the state that they were made after.
pub(crate) fn told_of_left_over(there: &[&str]) -> String {
    let verb = if there.len() == 1 { "is" } else { "are" };
    format!("{}, which belong to it, {verb} there", enumerated(there))
}

/// Where the API server of an earlier run listened, as its kubeconfig says: a copy of that kubeconfig should reach this one, too.
pub(crate) fn address(data_dir: &Path) -> Option<SocketAddr> {
    let kubeconfig = Kubeconfig::read_from(data_dir.join(KUBECONFIG_FILE)).ok()?;
    let server = kubeconfig.clusters.first()?.cluster.as_ref()?.server.clone()?;
    server.strip_prefix("https://")?.parse().ok()
}

/// That kubeconfigs of earlier runs may not reach this one, if that is so.
pub(crate) fn told_of_lost_kubeconfig(data_dir: &Path) -> Option<String> {
    let file = data_dir.join(KUBECONFIG_FILE);
    address(data_dir).is_none().then(|| {
        format!(
            "{} is missing or damaged, and is written again: the API server may have another address than before",
            file.display()
        )
    })
}

/// Why the API server cannot go on with a folder, and what helps.
pub(crate) fn refusal(command: Command, folder: &Path, error: StorageError) -> anyhow::Error {
    let flag = format!("--data-dir {}", folder.display());
    match error {
        StorageError::Io { .. } => {
            anyhow::Error::new(error).context(format!("{flag}: expected a folder that can be written"))
        }
        StorageError::InUse { .. } => anyhow::Error::new(error).context(flag),
        StorageError::Newer { .. } => {
            let error = output::one_line(&error.into());
            anyhow::anyhow!("{flag}: {error}; nothing was changed")
        }
        StorageError::Foreign { .. }
        | StorageError::Damaged { .. }
        | StorageError::Missing { .. }
        | StorageError::Certificates { .. } => {
            let error = output::one_line(&error.into());
            anyhow::anyhow!(
                "{flag}: {error}. Nothing was changed. Bring the file back from a copy of the folder; or start anew by moving the folder \
                 away: {}",
                set_aside(folder)
            )
        }
        StorageError::Failed { .. } => failure(command, folder, error),
    }
}

/// The API server cannot write any more. What helps?
pub(crate) fn failure(command: Command, folder: &Path, error: StorageError) -> anyhow::Error {
    let error = output::one_line(&error.into());
    anyhow::anyhow!(
        "--data-dir {}: {error}. Everything that was answered is kept, nothing else was. When it can be written again, start again: \
         machinist {} --data-dir {}",
        folder.display(),
        command.name(),
        in_shell(folder)
    )
}
