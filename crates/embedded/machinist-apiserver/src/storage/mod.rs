//! Persistent state: a data folder, for one process at a time.
//!
//! ```text
//! commit (store::mvcc) -> Journal: a queue, and a thread that writes whole batches -> Database: redb, synced
//!                     <- shown to callers and watchers, batch by batch
//! ```
//!
//! - `lock` is held while a server uses the folder. A second server is rejected.
//! - `state.redb` holds the current version of every object, and the revision counter. History is
//!   not kept: each start is a compaction.
//! - `ca.crt`, `ca.key` and other files that must outlive the server are in the same folder, see
//!   [`Folder::write`].
//!
//! # Guarantees
//! A commit is on stable storage before its request is answered and before any client can read the
//! commit. After a crash the folder contains the state of some moment between the last answer and
//! the last commit. It never contains part of a commit.
//!
//! Deliberately absent: encryption, backups, any history. Only the folder's owner can read it.

pub(crate) mod database;
pub(crate) mod error;
pub(crate) mod folder;
pub(crate) mod journal;

pub use error::StorageError;
pub use folder::Folder;
pub(crate) use folder::{PRIVATE_FOLDER, STATE_FILE, replace};
