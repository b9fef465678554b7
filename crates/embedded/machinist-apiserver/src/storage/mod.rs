//! What survives the process: a folder of its own, for one process at a time.
//!
//! ```text
//! commit (store::mvcc) -> Journal: a queue, and a thread that writes whole batches -> Database: redb, synced
//!                     <- shown to callers and watchers, batch by batch
//! ```
//!
//! - `lock` is held while a server has the folder; a second one is refused.
//! - `state.redb` holds every object as it is now, and the revision counter. The past is not kept: a start is a compaction.
//! - `ca.crt`, `ca.key` and whatever else must outlive a server lie beside it, see [`Folder::write`].
//!
//! # Guarantees
//! A commit is on stable storage before its request is answered and before anyone can read it. After a crash the state is that of
//! some moment between the last answer and the last commit, and never a part of a commit.
//!
//! Deliberately absent: encryption, backups, any history. The folder is readable by its owner alone.

pub(crate) mod database;
mod folder;
pub(crate) mod journal;
mod kept;
#[cfg(test)]
mod power_cut;
mod resume;

use std::io;
use std::path::PathBuf;

pub use folder::Folder;
pub(crate) use folder::{PRIVATE_FOLDER, STATE_FILE, replace};
pub use kept::Kept;
pub(crate) use resume::resume;

use crate::tls::TlsError;

/// Why a folder cannot be served from. Nothing in it was changed, except by [`StorageError::Failed`].
#[derive(Debug, thiserror::Error)]
pub enum StorageError {
    /// The file system refused.
    #[error("{} cannot be read or written", path.display())]
    Io {
        /// The file or folder.
        path: PathBuf,
        /// What the file system said.
        #[source]
        source: io::Error,
    },
    /// Another server is running on it.
    #[error("{} is in use by another process: expected a folder of its own for each API server", folder.display())]
    InUse {
        /// The folder.
        folder: PathBuf,
    },
    /// The file is not ours.
    #[error(
        "{} holds something else than the state of an API server: expected a new folder, or one that an earlier run left",
        file.display()
    )]
    Foreign {
        /// The file.
        file: PathBuf,
    },
    /// The file was written by a version that knows more.
    #[error(
        "{} has format {found}, and this version knows formats up to {known}: use the version that wrote it, or another folder",
        file.display()
    )]
    Newer {
        /// The file.
        file: PathBuf,
        /// The format that it says it has.
        found: u64,
        /// The newest format that can be read.
        known: u64,
    },
    /// The file is ours and its content is not as we wrote it.
    #[error("{} is damaged: {why}", file.display())]
    Damaged {
        /// The file.
        file: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// A file is gone that was made together with others, and cannot be made again to fit them.
    #[error("{} is missing: expected {expected}", file.display())]
    Missing {
        /// The file.
        file: PathBuf,
        /// What should be there.
        expected: &'static str,
    },
    /// A file could not be written while the server ran.
    #[error("{} cannot be written any more: {why}", file.display())]
    Failed {
        /// The file.
        file: PathBuf,
        /// What the file system said.
        why: String,
    },
    /// The certificate authority could not be made or read.
    #[error("the certificate authority in {}", folder.display())]
    Certificates {
        /// The folder.
        folder: PathBuf,
        /// Why not.
        #[source]
        source: TlsError,
    },
}
