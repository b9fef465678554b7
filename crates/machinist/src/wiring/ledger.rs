//! The ledger of the simulated cloud in `--data-dir`, and what to do when it cannot be used.

use std::path::Path;

use machinist_cloud_sim::{Clock, Cloud, Kept, OpenError, Settings};

use super::advice::{in_shell, set_aside};

/// The file in the folder.
pub(crate) const LEDGER_FILE: &str = "ledger.jsonl";

/// Opens the cloud whose ledger is in a folder, and nothing else that has to fit to it.
///
/// # Errors
/// Says what is wrong with it and what helps.
pub(crate) fn open_ledger(folder: &Path) -> anyhow::Result<Cloud> {
    let opened = Cloud::open(folder, Settings::default(), Clock::wall());
    opened.map_err(|error| refusal(folder, error, recovery))
}

/// Reads the ledger of a folder that keeps the API server's objects, too. Nothing is changed before [`resume_ledger`].
///
/// # Errors
/// As above.
pub(crate) fn read_ledger(folder: &Path) -> anyhow::Result<Option<Kept>> {
    Kept::read(folder).map_err(|error| refusal(folder, error, recovery_beside_a_state))
}

/// Goes on with a ledger that was read; begins one where there was none.
///
/// # Errors
/// As above.
pub(crate) fn resume_ledger(folder: &Path, kept: Option<Kept>) -> anyhow::Result<Cloud> {
    let Some(kept) = kept else { return open_ledger(folder) };
    let resumed = Cloud::resume(kept, Settings::default(), Clock::wall());
    resumed.map_err(|error| refusal(folder, error, recovery_beside_a_state))
}

fn refusal(folder: &Path, error: OpenError, recovery: fn(&Path, &Path, usize) -> String) -> anyhow::Error {
    let flag = format!("--data-dir {}", folder.display());
    match &error {
        OpenError::Io { .. } => {
            anyhow::Error::new(error).context(format!("{flag}: expected a folder that can be written"))
        }
        OpenError::InUse { .. } => {
            anyhow::anyhow!("{flag}: {error}; end that process, or name another folder")
        }
        OpenError::Damaged { path, line, .. } => {
            let advice = recovery(folder, path, line - 1);
            anyhow::anyhow!("{flag}: {error}; nothing was changed. {advice}")
        }
    }
}

/// How to go on with a ledger of which so many lines are sound, as far as is known.
fn recovery(folder: &Path, ledger: &Path, sound: usize) -> String {
    let anew = anew(folder);
    if sound == 0 {
        return anew;
    }
    format!("To keep what was recorded before (line 1 to {sound}), {}. {anew}", cut(ledger, sound))
}

/// The same where Machines name the instances of the ledger. What is cut off may have made some of them.
fn recovery_beside_a_state(folder: &Path, ledger: &Path, sound: usize) -> String {
    let anew = anew(folder);
    let copy = format!("Bring {LEDGER_FILE} back from a copy of the folder");
    if sound == 0 {
        return format!("{copy}. {anew}");
    }
    format!(
        "{copy}. Where there is none, line 1 to {sound} can be kept; what was recorded from line {} on is lost then, and if \
         Machines name instances that were made there, the next start refuses, and says which: {}. {anew}",
        sound + 1,
        cut(ledger, sound)
    )
}

fn anew(folder: &Path) -> String {
    format!("To start anew, without any instance, move the folder away: {}", set_aside(folder))
}

fn cut(ledger: &Path, sound: usize) -> String {
    let damaged = ledger.with_extension("jsonl.damaged");
    let (ledger, damaged) = (in_shell(ledger), in_shell(&damaged));
    format!("copy it and cut it off there: cp {ledger} {damaged} && head -n {sound} {damaged} > {ledger}")
}
