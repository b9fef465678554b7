//! Why a data folder cannot be used.

use std::io;
use std::path::PathBuf;

use crate::values::tls::TlsError;

/// Reason why a folder cannot be used. Nothing in the folder was changed, except for
/// [`StorageError::Failed`].
#[derive(Debug, thiserror::Error)]
pub enum StorageError {
    /// The file system returned an error.
    #[error("{} cannot be read or written", path.display())]
    Io {
        /// Path of the file or folder.
        path: PathBuf,
        /// Error of the file system.
        #[source]
        source: io::Error,
    },
    /// Another server is running on it.
    #[error("{} is in use by another process. Give each API server its own folder", folder.display())]
    InUse {
        /// Path of the folder.
        folder: PathBuf,
    },
    /// Another program wrote the file.
    #[error(
        "{} holds something else than the state of an API server: use a new folder, or the folder of an earlier run",
        file.display()
    )]
    Foreign {
        /// Path of the file.
        file: PathBuf,
    },
    /// A newer version wrote the file.
    #[error(
        "{} has format {found}, and this version reads formats up to {known}. Use the newer version, or another folder",
        file.display()
    )]
    Newer {
        /// Path of the file.
        file: PathBuf,
        /// Format of the file.
        found: u64,
        /// Newest readable format.
        known: u64,
    },
    /// We wrote the file, but its content is invalid.
    #[error("{} is damaged: {why}", file.display())]
    Damaged {
        /// Path of the file.
        file: PathBuf,
        /// Description of the damage.
        why: String,
    },
    /// A required file is missing, and a new one would not match the others.
    #[error("{} is missing: expected {expected}", file.display())]
    Missing {
        /// Path of the file.
        file: PathBuf,
        /// Expected content.
        expected: &'static str,
    },
    /// A file could not be written while the server was running.
    #[error("{} can no longer be written: {why}", file.display())]
    Failed {
        /// Path of the file.
        file: PathBuf,
        /// Error of the file system.
        why: String,
    },
    /// The certificate authority could not be made or read.
    #[error("cannot use the certificate authority in {}", folder.display())]
    Certificates {
        /// Path of the folder.
        folder: PathBuf,
        /// Cause of the failure.
        #[source]
        source: TlsError,
    },
}
