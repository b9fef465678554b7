//! The ledger on disk: JSON lines. Each line is on stable storage before the cloud answers the call
//! that caused it.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufRead as _, BufReader, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use machinist_instance::UserData;
use serde::{Deserialize, Serialize};

use crate::LedgerCommit;

const FILE_NAME: &str = "ledger.jsonl";

/// One line: a commit, and the user data of a new instance.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Line {
    #[serde(flatten)]
    pub(crate) commit: LedgerCommit,
    #[serde(default, with = "crate::request::user_data")]
    pub(crate) user_data: UserData,
}

/// Why a ledger could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The file system returned an error.
    #[error("cannot open the cloud's ledger {path}")]
    Io {
        /// The ledger.
        path: PathBuf,
        /// The error of the file system.
        #[source]
        source: io::Error,
    },
    /// Another process has it open.
    #[error("the cloud's ledger {path} is in use by another process")]
    InUse {
        /// The ledger.
        path: PathBuf,
    },
    /// A line is not a commit. The message does not quote the line, because it may hold user data
    /// and so a token.
    #[error("the cloud's ledger {path} is damaged in line {line}, column {column}: expected {expected}")]
    Damaged {
        /// The ledger.
        path: PathBuf,
        /// Line number, from 1.
        line: usize,
        /// Column in the line, from 1.
        column: usize,
        /// The expected content.
        expected: &'static str,
    },
}

/// An open ledger file. It holds user data, so only its owner may read it.
#[derive(Debug)]
pub(crate) struct Journal {
    file: File,
    /// Where the last whole line ends.
    end: u64,
}

impl Journal {
    /// Opens or creates the ledger of a data folder and reads its lines. A last line without a line
    /// end is an unanswered commit that a crash interrupted: it is cut off.
    pub(crate) fn open(folder: &Path) -> Result<(Self, Vec<Line>), OpenError> {
        let path = folder.join(FILE_NAME);
        let io = |source| OpenError::Io { path: path.clone(), source };
        fs::create_dir_all(folder).map_err(io)?;
        let file = open_file().create(true).mode(0o600).open(&path).map_err(io)?;
        Found::of(file, folder)?.begin()
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
                // If this fails too, the next append overwrites the partial line: it starts at the
                // same place.
                let _ = self.file.set_len(self.end);
                Err(error)
            }
        }
    }
}

/// A ledger that was read and locked, but not changed.
#[derive(Debug)]
pub(crate) struct Found {
    folder: PathBuf,
    file: File,
    pub(crate) lines: Vec<Line>,
    /// Where the last whole line ends.
    end: u64,
}

impl Found {
    /// Reads the ledger of a data folder, if it has one.
    pub(crate) fn in_folder(folder: &Path) -> Result<Option<Self>, OpenError> {
        let path = folder.join(FILE_NAME);
        match open_file().open(&path) {
            Ok(file) => Self::of(file, folder).map(Some),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(source) => Err(OpenError::Io { path, source }),
        }
    }

    fn of(file: File, folder: &Path) -> Result<Self, OpenError> {
        let path = folder.join(FILE_NAME);
        match file.try_lock() {
            Ok(()) => {}
            Err(fs::TryLockError::WouldBlock) => return Err(OpenError::InUse { path }),
            Err(fs::TryLockError::Error(source)) => return Err(OpenError::Io { path, source }),
        }
        let (lines, end) = read_lines(&file, &path)?;
        Ok(Self { folder: folder.to_owned(), file, lines, end })
    }

    /// Starts to write where the last whole line ends.
    pub(crate) fn begin(self) -> Result<(Journal, Vec<Line>), OpenError> {
        let Self { folder, file, lines, end } = self;
        // The folder's entry for a new file must be as durable as the file.
        let ready = file.set_len(end).and_then(|()| File::open(&folder)?.sync_all());
        ready.map_err(|source| OpenError::Io { path: folder.join(FILE_NAME), source })?;
        Ok((Journal { file, end }, lines))
    }
}

fn open_file() -> OpenOptions {
    let mut open = OpenOptions::new();
    open.read(true).write(true).truncate(false);
    open
}

#[cfg(test)]
impl Journal {
    /// Makes every write fail from now on, as on a full disk. Another journal can then open the
    /// ledger.
    pub(crate) fn fail_writes(&mut self, folder: &Path) {
        self.file = File::open(folder.join(FILE_NAME)).expect("the ledger exists");
    }
}

fn read_lines(file: &File, path: &Path) -> Result<(Vec<Line>, u64), OpenError> {
    let (mut lines, mut end) = (Vec::new(), 0);
    let mut reader = BufReader::new(file);
    let mut text = Vec::new();
    loop {
        text.clear();
        let length = reader
            .read_until(b'\n', &mut text)
            .map_err(|source| OpenError::Io { path: path.to_owned(), source })?;
        let Some((b'\n', line)) = text.split_last() else { return Ok((lines, end)) };
        let line = serde_json::from_slice(line).map_err(|error| OpenError::Damaged {
            path: path.to_owned(),
            line: lines.len() + 1,
            column: error.column(),
            expected: if error.is_data() { "a commit of the cloud" } else { "one JSON object" },
        })?;
        lines.push(line);
        end += length as u64;
    }
}
