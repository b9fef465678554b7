//! The ledger of the simulated cloud in `--data-dir`, and error messages that explain how to repair
//! it.

use std::path::Path;

use machinist_cloud_sim::{Clock, Cloud, Kept, OpenError, Settings};

use super::advice::{in_shell, set_aside};

/// File name of the ledger in the data directory.
pub(crate) const LEDGER_FILE: &str = "ledger.jsonl";

/// Opens a cloud with the ledger of a directory that keeps no API server objects.
///
/// # Errors
/// If the ledger cannot be used. The error explains how to repair it.
pub(crate) fn open_ledger(folder: &Path) -> anyhow::Result<Cloud> {
    let opened = Cloud::open(folder, Settings::default(), Clock::wall());
    opened.map_err(|error| refusal(folder, error, recovery))
}

/// Reads the ledger in a folder of a data directory that also keeps API server objects. The files
/// stay unchanged until [`resume_ledger`].
///
/// # Errors
/// If the ledger cannot be used. The error explains how to repair it.
pub(crate) fn read_ledger(data_dir: &Path, folder: &Path) -> anyhow::Result<Option<Kept>> {
    Kept::read(folder).map_err(|error| refusal(data_dir, error, recovery_beside_a_state))
}

/// Opens a cloud with a ledger that was read, or with a new ledger if there was none.
///
/// # Errors
/// If the ledger cannot be used. The error explains how to repair it.
pub(crate) fn resume_ledger(folder: &Path, kept: Option<Kept>) -> anyhow::Result<Cloud> {
    let Some(kept) = kept else { return open_ledger(folder) };
    let resumed = Cloud::resume(kept, Settings::default(), Clock::wall());
    resumed.map_err(|error| refusal(folder, error, recovery_beside_a_state))
}

fn refusal(folder: &Path, error: OpenError, recovery: fn(&Path, &Path, usize) -> String) -> anyhow::Error {
    let flag = format!("--data-dir {}", folder.display());
    match &error {
        OpenError::Io { .. } if folder.exists() && !folder.is_dir() => {
            anyhow::anyhow!("{flag}: this path exists and is not a directory. Name a directory")
        }
        OpenError::Io { .. } => {
            anyhow::Error::new(error).context(format!("{flag}: expected a writable directory"))
        }
        OpenError::InUse { .. } => {
            anyhow::anyhow!("{flag}: {error}. Stop that process, or name another directory")
        }
        OpenError::Damaged { path, line, .. } => {
            let advice = recovery(folder, path, line - 1);
            anyhow::anyhow!("{flag}: {error}. Nothing was changed. {advice}")
        }
    }
}

/// Returns the advice for a damaged ledger with this many valid lines at its start.
fn recovery(folder: &Path, ledger: &Path, sound: usize) -> String {
    let start_again = start_again(folder);
    if sound == 0 {
        return start_again;
    }
    format!("To keep the records of lines 1 to {sound}, {}. {start_again}", cut(ledger, sound))
}

/// Returns the advice for a damaged ledger next to Machines. The damaged part may have recorded
/// instances of these Machines.
fn recovery_beside_a_state(folder: &Path, ledger: &Path, sound: usize) -> String {
    let start_again = start_again(folder);
    let copy = format!("Restore {LEDGER_FILE} from a backup");
    if sound == 0 {
        return format!("{copy}. {start_again}");
    }
    format!(
        "{copy}. Without a backup, you can keep lines 1 to {sound}. Records from line {} on are then lost. If Machines name instances \
         of the lost lines, the next start fails and names them. To keep the lines, {}. {start_again}",
        sound + 1,
        cut(ledger, sound)
    )
}

fn start_again(folder: &Path) -> String {
    format!("To start again without any instance, move the directory away: {}", set_aside(folder))
}

fn cut(ledger: &Path, sound: usize) -> String {
    let damaged = ledger.with_extension("jsonl.damaged");
    let (ledger, damaged) = (in_shell(ledger), in_shell(&damaged));
    format!("copy the file and truncate it: cp {ledger} {damaged} && head -n {sound} {damaged} > {ledger}")
}
