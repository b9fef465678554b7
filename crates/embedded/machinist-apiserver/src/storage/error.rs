//! Why a data folder cannot be used.

use std::io;
use std::path::PathBuf;

use crate::values::tls::TlsError;

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
