//! The files of a cloud in `--data-dir`.
//!
//! ```text
//! --cloud sim      ledger.jsonl, disks
//! --cloud hcloud   hcloud/hcloud.jsonl            the objects of the API
//!                  hcloud/machines/ledger.jsonl   the instances that boot, and disks beside it
//! ```

use std::path::{Path, PathBuf};

use anyhow::bail;
use machinist_cloud_sim::{Clock, Kept};
use machinist_standin_hcloud::{OpenError, Settings, Standin};

use super::Backend;
use crate::args::UpCloud;
use crate::embedded::data_folder;
use crate::output;
use crate::wiring::{self, LEDGER_FILE, set_aside};

/// Directory of the stand-in.
pub(in crate::cmd::up) const HCLOUD: &str = "hcloud";
/// Objects of the stand-in.
const HCLOUD_OBJECTS: &str = "hcloud/hcloud.jsonl";
/// Ledger of the machines of the stand-in.
const HCLOUD_LEDGER: &str = "hcloud/machines/ledger.jsonl";

impl UpCloud {
    /// Returns the file of the ledger, relative to the data directory.
    pub(in crate::cmd::up) fn ledger_file(self) -> &'static str {
        match self {
            Self::Sim => LEDGER_FILE,
            Self::Hcloud => HCLOUD_LEDGER,
        }
    }

    /// Returns all files that keep the state of the cloud, relative to the data directory.
    pub(in crate::cmd::up) fn state_files(self) -> &'static [&'static str] {
        match self {
            Self::Sim => &[LEDGER_FILE],
            Self::Hcloud => &[HCLOUD_LEDGER, HCLOUD_OBJECTS],
        }
    }

    /// Returns the directory with the disks of the instances.
    pub(in crate::cmd::up) fn disks(self, data_dir: &Path) -> PathBuf {
        self.ledger_folder(data_dir).join("disks")
    }

    fn ledger_folder(self, data_dir: &Path) -> PathBuf {
        match self {
            Self::Sim => data_dir.to_owned(),
            Self::Hcloud => data_dir.join(HCLOUD).join("machines"),
        }
    }

    /// Rejects a directory with the state of another cloud: its Machines have no instances here.
    ///
    /// # Errors
    /// If there is such state. The error has the command for that cloud.
    pub(in crate::cmd::up) fn refuse_that_of_another(self, data_dir: &Path) -> anyhow::Result<()> {
        let (other, mark) = match self {
            Self::Sim => (Self::Hcloud, HCLOUD),
            Self::Hcloud => (Self::Sim, LEDGER_FILE),
        };
        if data_folder::files(data_dir, &[mark]).is_empty() {
            return Ok(());
        }
        bail!(
            "--data-dir {}: expected a directory of `machinist up --cloud {}`, but this one has the instances of `--cloud {}`. Nothing was \
             changed. Name another directory, or continue with this one: {}",
            data_dir.display(),
            self.name(),
            other.name(),
            other.command_line(data_dir)
        );
    }

    /// Reads the ledger of a data directory. The files stay unchanged until [`Self::resume`].
    ///
    /// # Errors
    /// If the ledger cannot be used, or a part of the state is missing. The error explains how to
    /// repair it.
    pub(in crate::cmd::up) fn read_ledger(self, data_dir: &Path) -> anyhow::Result<Option<Kept>> {
        let kept = wiring::read_ledger(data_dir, &self.ledger_folder(data_dir))?;
        let alive = kept.as_ref().map_or(0, |kept| kept.ledger(&Clock::wall()).alive().count());
        let lost = self.state_files().iter().find(|file| !data_dir.join(file).exists());
        if let Some(lost) = lost.filter(|_| 0 < alive) {
            bail!(
                "--data-dir {}: {lost} (the objects of the stand-in) is missing, but {alive} instances are alive in {}. Nothing was \
                 changed. Restore {lost} from a backup, or start again by moving the directory away: {}",
                data_dir.display(),
                self.ledger_file(),
                set_aside(data_dir)
            );
        }
        Ok(kept)
    }

    /// Opens a cloud with a ledger that was read, or a new cloud if there was none.
    ///
    /// # Errors
    /// If a file cannot be used. The error explains how to repair it.
    pub(in crate::cmd::up) fn resume(self, data_dir: &Path, kept: Option<Kept>) -> anyhow::Result<Backend> {
        match self {
            Self::Sim => wiring::resume_ledger(data_dir, kept).map(Backend::Sim),
            Self::Hcloud => {
                // The stand-in opens the ledger again. The lock of the data directory keeps other
                // processes away meanwhile.
                drop(kept);
                let opened = Standin::open(&data_dir.join(HCLOUD), Settings::default(), Clock::wall());
                opened.map(Backend::Hcloud).map_err(|error| refusal(data_dir, error))
            }
        }
    }
}

fn refusal(data_dir: &Path, error: OpenError) -> anyhow::Error {
    let flag = format!("--data-dir {}", data_dir.display());
    match &error {
        OpenError::Machines(_) | OpenError::Io { .. } => {
            anyhow::Error::new(error).context(format!("{flag}: expected a writable directory"))
        }
        OpenError::Damaged { .. } => anyhow::anyhow!(
            "{flag}: {}. Nothing was changed. Restore the file from a backup, or start again by moving the directory away: {}",
            output::one_line(&error.into()),
            set_aside(data_dir)
        ),
    }
}
