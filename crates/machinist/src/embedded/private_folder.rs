//! Temporary directory of an API server without `--data-dir`. It holds the administrator's
//! kubeconfig and the CA key while the process runs.
//!
//! A killed process leaves its directory behind. Each process therefore locks a file in its
//! directory, and the next process deletes the directories without a held lock. A directory is kept
//! if it has another name, another owner, no lock file, or if other users may enter it.

use std::fs::{self, DirEntry, File, Metadata, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use tempfile::TempDir;

use super::data_folder::Command;

/// Returns the prefix of the directory names.
fn prefix(command: Command) -> &'static str {
    match command {
        Command::Up => "machinist-up-",
        Command::ApiServer => "machinist-api-server-",
    }
}

/// Returns the name of the file that a running process locks.
fn lock_file(command: Command) -> &'static str {
    match command {
        Command::Up => "up.lock",
        Command::ApiServer => "api-server.lock",
    }
}

/// Mode of the directory: only its owner may enter it.
const PRIVATE_FOLDER: u32 = 0o700;
const PRIVATE_FILE: u32 = 0o600;
/// Limit of the entries of the temporary directory that are checked, so that the start stays fast.
const MAX_ENTRIES: usize = 10_000;

/// A directory that is deleted on drop.
#[derive(Debug)]
pub(super) struct PrivateFolder {
    folder: TempDir,
    /// Locked until the process ends.
    _lock: File,
}

impl PrivateFolder {
    /// Creates a directory in `parent` and deletes the directories of killed processes of the same
    /// command.
    pub(super) fn make(parent: &Path, command: Command) -> io::Result<Self> {
        remove_abandoned(parent, command);
        let mut builder = tempfile::Builder::new();
        let builder = builder.prefix(prefix(command)).permissions(fs::Permissions::from_mode(PRIVATE_FOLDER));
        let folder = builder.tempdir_in(parent)?;
        // The file is locked before it gets its final name. Otherwise another process could treat
        // the directory as abandoned.
        let unknown = folder.path().join("new.lock");
        let lock = OpenOptions::new().write(true).create_new(true).mode(PRIVATE_FILE).open(&unknown)?;
        lock.lock()?;
        fs::rename(&unknown, folder.path().join(lock_file(command)))?;
        Ok(Self { folder, _lock: lock })
    }

    pub(super) fn path(&self) -> &Path {
        self.folder.path()
    }
}

/// Deletes the directories of killed processes. A directory that cannot be deleted does not prevent
/// the start.
fn remove_abandoned(parent: &Path, command: Command) {
    let Ok(entries) = fs::read_dir(parent) else { return };
    for entry in entries.take(MAX_ENTRIES).flatten() {
        let Some(folder) = candidate(&entry, command) else { continue };
        // The lock is held during the deletion, so that no other process deletes the directory too.
        let Some(_lock) = abandoned(&folder, command) else { continue };
        let shown = folder.display();
        match fs::remove_dir_all(&folder) {
            Ok(()) => {
                tracing::info!(folder = %shown, command = command.name(), "Deleted the temporary directory of a killed process")
            }
            Err(error) => {
                tracing::warn!(folder = %shown, %error, command = command.name(), "Cannot delete the temporary directory of a killed process")
            }
        }
    }
}

/// Returns the path of an entry that is a directory with our prefix and mode.
fn candidate(entry: &DirEntry, command: Command) -> Option<PathBuf> {
    if !entry.file_name().to_str()?.starts_with(prefix(command)) {
        return None;
    }
    // A symbolic link is not followed and never a candidate.
    let metadata = fs::symlink_metadata(entry.path()).ok()?;
    let is_private = metadata.is_dir() && metadata.mode() & 0o777 == PRIVATE_FOLDER;
    is_private.then(|| entry.path())
}

/// Locks a directory of ours and returns the lock, if its process has ended.
pub(super) fn abandoned(folder: &Path, command: Command) -> Option<File> {
    let path = folder.join(lock_file(command));
    let named = fs::symlink_metadata(&path).ok()?;
    let lock = File::options().write(true).open(&path).ok()?;
    let opened = lock.metadata().ok()?;
    // Directories of other users are not touched, even by root.
    let ours = is_same_file(&named, &opened) && named.is_file() && owner_of_new_files()? == named.uid();
    match lock.try_lock() {
        Ok(()) if ours => Some(lock),
        Ok(()) | Err(TryLockError::WouldBlock | TryLockError::Error(_)) => None,
    }
}

fn is_same_file(a: &Metadata, b: &Metadata) -> bool {
    (a.dev(), a.ino()) == (b.dev(), b.ino())
}

/// Returns the user id of this process.
fn owner_of_new_files() -> Option<u32> {
    Some(tempfile::tempfile().ok()?.metadata().ok()?.uid())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).expect("the path exists").permissions().mode() & 0o777
    }

    #[test]
    fn only_directories_of_killed_processes_are_deleted() {
        let parent = tempfile::tempdir().expect("a temporary folder");
        let alive = PrivateFolder::make(parent.path(), Command::Up).expect("created");
        assert_eq!(mode(alive.path()), 0o700);

        // A killed process leaves its directory and a lock file without a lock.
        let killed = PrivateFolder::make(parent.path(), Command::Up).expect("created");
        let PrivateFolder { folder, _lock } = killed;
        let left = folder.keep();
        drop(_lock);
        fs::write(left.join("ca.key"), "a key").expect("written");

        let others = ["machinist-up-notes", "machinist-other", "machinist-up-open"].map(|name| {
            let folder = parent.path().join(name);
            fs::create_dir(&folder).expect("created");
            fs::set_permissions(&folder, fs::Permissions::from_mode(0o700)).expect("set");
            folder
        });
        fs::write(others[1].join(lock_file(Command::Up)), "").expect("written");
        fs::write(others[2].join(lock_file(Command::Up)), "").expect("written");
        fs::set_permissions(&others[2], fs::Permissions::from_mode(0o755)).expect("set");
        let link = parent.path().join("machinist-up-link");
        std::os::unix::fs::symlink(&others[1], &link).expect("linked");

        let next = PrivateFolder::make(parent.path(), Command::Up).expect("created");
        assert!(!left.exists(), "the directory of the killed process was kept");
        PrivateFolder::make(parent.path(), Command::ApiServer).expect("created");
        for kept in [alive.path(), next.path(), &others[0], &others[1], &others[2], &link] {
            assert!(kept.exists(), "{}", kept.display());
        }
        let path = alive.path().to_owned();
        drop(alive);
        assert!(!path.exists(), "the directory was kept at the end of its process");
    }
}
