//! The objects on disk: JSON lines. The first line holds all objects at one moment, and each later
//! line the objects that one request or one moment changed. A line is on stable storage before the
//! request is answered.
//!
//! No user data is in this file. The folder `machines` beside it, the ledger of the simulated
//! cloud, holds it, and its lock keeps other processes out of both.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::model::{
    Certificate, FloatingIp, HcloudAction, HcloudLoadBalancer, HcloudServer, Network, SshKey,
};
use crate::store::{Sort, State};

const FILE_NAME: &str = "hcloud.jsonl";

/// Objects that changed together.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Line {
    pub(crate) last_id: i64,
    pub(crate) changes: Vec<Change>,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Change {
    Server(Box<HcloudServer>),
    Network(Network),
    LoadBalancer(Box<HcloudLoadBalancer>),
    Certificate(Certificate),
    SshKey(SshKey),
    FloatingIp(FloatingIp),
    Action(Box<HcloudAction>),
    Removed { sort: Sort, id: i64 },
}

/// Why the stand-in cannot use a data folder.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The ledger of the simulated cloud cannot be used.
    #[error("cannot open the simulated machines of the stand-in")]
    Machines(#[from] machinist_cloud_sim::OpenError),
    /// The file system returned an error.
    #[error("cannot open the stand-in's journal {path}")]
    Io {
        /// The journal.
        path: PathBuf,
        /// The error of the file system.
        #[source]
        source: io::Error,
    },
    /// A line has another form than the stand-in writes.
    #[error("the stand-in's journal {path} is damaged in line {line}: expected one JSON object")]
    Damaged {
        /// The journal.
        path: PathBuf,
        /// Line number, from 1.
        line: usize,
    },
}

/// An open journal.
#[derive(Debug)]
pub(crate) struct Journal {
    path: PathBuf,
    file: File,
    /// Where the last whole line ends.
    end: u64,
}

impl Journal {
    /// Reads the journal of a folder, and replaces it by one line with all objects. A last line
    /// without a line end is an unanswered request that a crash interrupted: it is left out.
    pub(crate) fn open(folder: &Path) -> Result<(Self, State), OpenError> {
        let path = folder.join(FILE_NAME);
        let failed = |source| OpenError::Io { path: path.clone(), source };
        let mut state = State::default();
        let text = match fs::read(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
            Err(error) => return Err(failed(error)),
        };
        for (index, line) in text.split_inclusive(|byte| *byte == b'\n').enumerate() {
            let Some((b'\n', line)) = line.split_last() else { break };
            let damaged = |_| OpenError::Damaged { path: path.clone(), line: index + 1 };
            if index == 0 {
                state = serde_json::from_slice(line).map_err(damaged)?;
            } else {
                state.apply(serde_json::from_slice(line).map_err(damaged)?);
            }
        }
        let file = write_whole(&path, &state).map_err(failed)?;
        let mut journal = Self { path: path.clone(), file, end: 0 };
        journal.end = journal.file.seek(SeekFrom::End(0)).map_err(failed)?;
        Ok((journal, state))
    }

    /// Replaces the journal by one line with all objects.
    pub(crate) fn rewrite(&mut self, state: &State) -> io::Result<()> {
        self.file = write_whole(&self.path, state)?;
        self.end = self.file.seek(SeekFrom::End(0))?;
        Ok(())
    }

    /// Puts a line on stable storage. After an error the file ends where it ended before.
    pub(crate) fn append(&mut self, line: &Line) -> io::Result<()> {
        let mut bytes = serde_json::to_vec(line).map_err(io::Error::other)?;
        bytes.push(b'\n');
        let written = self
            .file
            .seek(SeekFrom::Start(self.end))
            .and_then(|_| self.file.write_all(&bytes))
            .and_then(|()| self.file.sync_data());
        match written {
            Ok(()) => {
                self.end += bytes.len() as u64;
                Ok(())
            }
            Err(error) => {
                // If this fails too, the next append overwrites the partial line.
                let _ = self.file.set_len(self.end);
                Err(error)
            }
        }
    }
}

/// Writes a new file and renames it, so that a crash leaves the old file or the new one.
fn write_whole(path: &Path, state: &State) -> io::Result<File> {
    let unfinished = path.with_extension("jsonl.new");
    let mut file = OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(&unfinished)?;
    let mut bytes = serde_json::to_vec(state).map_err(io::Error::other)?;
    bytes.push(b'\n');
    file.write_all(&bytes)?;
    file.sync_data()?;
    fs::rename(&unfinished, path)?;
    if let Some(folder) = path.parent() {
        File::open(folder)?.sync_all()?;
    }
    Ok(file)
}
