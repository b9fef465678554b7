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
pub(crate) mod error;
pub(crate) mod folder;
pub(crate) mod journal;

pub use error::StorageError;
pub use folder::Folder;
pub(crate) use folder::{PRIVATE_FOLDER, STATE_FILE, replace};
