//! The files of a cloud in `--data-dir`.
//!
//! ```text
//! --cloud sim      ledger.jsonl, disks
//! --cloud hcloud   hcloud/hcloud.jsonl            the objects of the API
//!                  hcloud/machines/ledger.jsonl   the instances that boot, and disks beside it
//! --cloud docker   docker/cluster.json            the name of the cluster, and its CA beside it
//! --cloud local    local/ledger.jsonl             the machines inside of pods, and disks beside it
//! ```

use std::path::{Path, PathBuf};

use anyhow::bail;
use machinist_cloud_sim::{Clock, Kept};
use machinist_standin_hcloud::{OpenError, Settings, Standin};

use super::{Backend, Choice, DOCKER, DOCKER_FILES};
use crate::clouds::UpCloud;
use crate::embedded::data_folder;
use crate::output;
use crate::wiring::{self, LEDGER_FILE, set_aside};

/// Directory of the stand-in.
pub(in crate::cmd::up) const HCLOUD: &str = "hcloud";
/// Directory of the machines inside of pods.
pub(in crate::cmd::up) const LOCAL: &str = "local";
/// Ledger of the machines inside of pods.
const LOCAL_LEDGER: &str = "local/ledger.jsonl";
/// Objects of the stand-in.
const HCLOUD_OBJECTS: &str = "hcloud/hcloud.jsonl";
/// Ledger of the machines of the stand-in.
const HCLOUD_LEDGER: &str = "hcloud/machines/ledger.jsonl";

impl UpCloud {
    /// Returns the file of the ledger, relative to the data directory. An engine has no ledger, but
    /// a file that names the cluster.
    pub(in crate::cmd::up) fn ledger_file(self) -> &'static str {
        match self {
            Self::Sim => LEDGER_FILE,
            Self::Hcloud => HCLOUD_LEDGER,
            Self::Docker => DOCKER_FILES[2],
            Self::Local => LOCAL_LEDGER,
        }
    }

    /// Returns all files that keep the state of the cloud, relative to the data directory.
    pub(in crate::cmd::up) fn state_files(self) -> &'static [&'static str] {
        match self {
            Self::Sim => &[LEDGER_FILE],
            Self::Hcloud => &[HCLOUD_LEDGER, HCLOUD_OBJECTS],
            Self::Docker => &DOCKER_FILES,
            Self::Local => &[LOCAL_LEDGER],
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
            Self::Docker => data_dir.join(DOCKER),
            Self::Local => data_dir.join(LOCAL),
        }
    }

    /// Rejects a directory with the state of another cloud: its Machines have no instances here.
    ///
    /// # Errors
    /// If there is such state. The error has the command for that cloud.
    pub(in crate::cmd::up) fn refuse_folder_of_another_cloud(self, data_dir: &Path) -> anyhow::Result<()> {
        let marks =
            [(Self::Sim, LEDGER_FILE), (Self::Hcloud, HCLOUD), (Self::Docker, DOCKER), (Self::Local, LOCAL)];
        let mut others = marks.into_iter().filter(|(cloud, _)| *cloud != self);
        let found = others.find(|(_, mark)| !data_folder::files(data_dir, &[mark]).is_empty());
        let Some((other, _)) = found else { return Ok(()) };
        bail!(
            "--data-dir {}: expected a directory of `machinist up --cloud {}`, but this one has the instances of `--cloud {}`. Nothing was \
             changed. Name another directory, or continue with this one: {}",
            data_dir.display(),
            self.cloud().name,
            other.cloud().name,
            other.command_line(data_dir)
        );
    }

    /// Reads the ledger of a data directory. The files stay unchanged until [`Choice::resume`].
    ///
    /// # Errors
    /// If the ledger cannot be used, or a part of the state is missing. The error explains how to
    /// repair it.
    pub(in crate::cmd::up) fn read_ledger(self, data_dir: &Path) -> anyhow::Result<Option<Kept>> {
        if self == Self::Docker {
            return Ok(None);
        }
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
}

impl Choice {
    /// Opens a cloud with a ledger that was read, or a new cloud if there was none.
    ///
    /// # Errors
    /// If a file cannot be used. The error explains how to repair it.
    pub(in crate::cmd::up) fn resume(&self, data_dir: &Path, kept: Option<Kept>) -> anyhow::Result<Backend> {
        match self {
            Self::Sim => wiring::resume_ledger(data_dir, kept).map(Backend::Sim),
            Self::Local => wiring::resume_ledger(&data_dir.join(LOCAL), kept).map(Backend::Local),
            Self::Hcloud => {
                // The stand-in opens the ledger again. The lock of the data directory keeps other
                // processes away meanwhile.
                drop(kept);
                let opened = Standin::open(&data_dir.join(HCLOUD), Settings::default(), Clock::wall());
                opened.map(Backend::Hcloud).map_err(|error| refusal(data_dir, error))
            }
            Self::Docker(docker) => {
                docker.keep()?;
                Ok(Backend::Docker(docker.clone()))
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
