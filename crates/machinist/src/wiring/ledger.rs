//! The ledger of the simulated cloud in `--data-dir`, and what to do when it cannot be used.

use std::path::Path;

use machinist_cloud_sim::{Clock, Cloud, OpenError, Settings};

/// Opens the cloud whose ledger is in a folder.
///
/// # Errors
/// Says what is wrong with it and what helps.
pub(crate) fn open_ledger(folder: &Path) -> anyhow::Result<Cloud> {
    Cloud::open(folder, Settings::default(), Clock::wall()).map_err(|error| {
        let advice = advice(&error);
        anyhow::Error::new(error).context(format!("--data-dir {}: {advice}", folder.display()))
    })
}

fn advice(error: &OpenError) -> String {
    match error {
        OpenError::Io { .. } => "expected a folder that can be written".to_owned(),
        OpenError::InUse { .. } => {
            "expected a folder that no other process uses; end that process, or name another folder"
                .to_owned()
        }
        OpenError::Damaged { path, line, .. } => {
            let (path, before) = (path.display(), line - 1);
            format!(
                "expected a ledger that can be read; nothing was changed. Move {path} away to start without any instance, or keep \
                 what is before the damage, {before} lines, with: cp {path} {path}.damaged && head -n {before} {path}.damaged > \
                 {path}"
            )
        }
    }
}
