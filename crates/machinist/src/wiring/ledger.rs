//! The ledger of the simulated cloud in `--data-dir`, and what to do when it cannot be used.

use std::path::Path;

use machinist_cloud_sim::{Clock, Cloud, OpenError, Settings};

use super::advice::{in_shell, set_aside};

/// The file in the folder.
pub(crate) const LEDGER_FILE: &str = "ledger.jsonl";

/// Opens the cloud whose ledger is in a folder.
///
/// # Errors
/// Says what is wrong with it and what helps.
pub(crate) fn open_ledger(folder: &Path) -> anyhow::Result<Cloud> {
    Cloud::open(folder, Settings::default(), Clock::wall()).map_err(|error| {
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
    })
}

/// How to go on with a ledger of which so many lines are sound, as far as is known.
fn recovery(folder: &Path, ledger: &Path, sound: usize) -> String {
    let anew = format!("To start anew, without any instance, move the folder away: {}", set_aside(folder));
    if sound == 0 {
        return anew;
    }
    let damaged = ledger.with_extension("jsonl.damaged");
    let (ledger, damaged) = (in_shell(ledger), in_shell(&damaged));
    format!(
        "To keep what was recorded before (line 1 to {sound}), copy it and cut it off there: cp {ledger} {damaged} && head -n \
         {sound} {damaged} > {ledger}. {anew}"
    )
}
