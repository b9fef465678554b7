//! The ledger of the simulated cloud in `--data-dir`, and what to do when it cannot be used.

use std::path::Path;

use machinist_cloud_sim::{Clock, Cloud, OpenError, Settings};

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
                let advice = recovery(path, line - 1);
                anyhow::anyhow!("{flag}: {error}; nothing was changed. {advice}")
            }
        }
    })
}

/// How to go on with a ledger of which so many lines are sound, as far as is known.
fn recovery(path: &Path, sound: usize) -> String {
    let path = path.display();
    let without = format!("To start without any instance, move it away: mv {path} {path}.damaged");
    if sound == 0 {
        return without;
    }
    format!(
        "To keep what was recorded before (line 1 to {sound}), copy it and cut it off there: cp {path} {path}.damaged && head -n \
         {sound} {path}.damaged > {path}. {without}"
    )
}
