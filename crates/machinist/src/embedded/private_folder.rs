//! The private folder of an API server that was given none: the administrator's kubeconfig and the key of the CA lie in it for as long
//! as it runs.
//!
//! A process that is killed leaves its folder behind. So each holds the lock of a file in its own, and the next one to start
//! removes the folders whose lock nobody holds. What is not provably such a folder stays: another name, another owner, others may
//! enter, or no lock file in it.

use std::fs::{self, DirEntry, File, Metadata, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use tempfile::TempDir;

use super::data_folder::Command;

/// What the names of these folders begin with.
fn prefix(command: Command) -> &'static str {
    match command {
        Command::Up => "machinist-up-",
        Command::ApiServer => "machinist-api-server-",
    }
}

/// The file whose lock says that the process runs.
fn lock_file(command: Command) -> &'static str {
    match command {
        Command::Up => "up.lock",
        Command::ApiServer => "api-server.lock",
    }
}

/// Nobody else may look into the folder.
const PRIVATE_FOLDER: u32 = 0o700;
const PRIVATE_FILE: u32 = 0o600;
/// How many entries of the place for temporary files are looked at: it is no reason to start slowly.
const MOST_ENTRIES: usize = 10_000;

/// A folder that goes when this is dropped.
#[derive(Debug)]
pub(super) struct PrivateFolder {
    folder: TempDir,
    /// Held for as long as the process lives, whichever way it ends.
    _lock: File,
}

impl PrivateFolder {
    /// Makes one below `parent`, and removes those of processes of the same command that have ended.
    pub(super) fn make(parent: &Path, command: Command) -> io::Result<Self> {
        remove_abandoned(parent, command);
        let mut builder = tempfile::Builder::new();
        let builder = builder.prefix(prefix(command)).permissions(fs::Permissions::from_mode(PRIVATE_FOLDER));
        let folder = builder.tempdir_in(parent)?;
        // Locked before it has the name by which it is known: otherwise it could be taken for an abandoned one.
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

/// Removes what processes that were killed left behind. Whatever cannot be removed is no reason not to start.
fn remove_abandoned(parent: &Path, command: Command) {
    let Ok(entries) = fs::read_dir(parent) else { return };
    for entry in entries.take(MOST_ENTRIES).flatten() {
        let Some(folder) = candidate(&entry, command) else { continue };
        // Held while the folder goes, so that nobody else removes it too.
        let Some(_lock) = abandoned(&folder, command) else { continue };
        let shown = folder.display();
        match fs::remove_dir_all(&folder) {
            Ok(()) => {
                tracing::info!(folder = %shown, command = command.name(), "Removed the private folder of a process that was killed")
            }
            Err(error) => {
                tracing::warn!(folder = %shown, %error, command = command.name(), "Cannot remove the private folder of a process that was killed")
            }
        }
    }
}

/// A folder of our name that only its owner may enter.
fn candidate(entry: &DirEntry, command: Command) -> Option<PathBuf> {
    if !entry.file_name().to_str()?.starts_with(prefix(command)) {
        return None;
    }
    // Not followed: a link of that name is nobody's folder.
    let metadata = fs::symlink_metadata(entry.path()).ok()?;
    let is_private = metadata.is_dir() && metadata.mode() & 0o777 == PRIVATE_FOLDER;
    is_private.then(|| entry.path())
}

/// The lock of a folder of ours, if its process does not hold it any more.
fn abandoned(folder: &Path, command: Command) -> Option<File> {
    let path = folder.join(lock_file(command));
    let named = fs::symlink_metadata(&path).ok()?;
    let lock = File::options().write(true).open(&path).ok()?;
    let opened = lock.metadata().ok()?;
    // Files that we make belong to whom we run as; those of others are none of our business, even for root.
    let ours = is_same_file(&named, &opened) && named.is_file() && owner_of_new_files()? == named.uid();
    match lock.try_lock() {
        Ok(()) if ours => Some(lock),
        Ok(()) | Err(TryLockError::WouldBlock | TryLockError::Error(_)) => None,
    }
}

fn is_same_file(a: &Metadata, b: &Metadata) -> bool {
    (a.dev(), a.ino()) == (b.dev(), b.ino())
}

/// Whom this process runs as.
fn owner_of_new_files() -> Option<u32> {
    Some(tempfile::tempfile().ok()?.metadata().ok()?.uid())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).expect("it is there").permissions().mode() & 0o777
    }

    #[test]
    fn only_folders_of_processes_that_are_gone_are_removed() {
        let parent = tempfile::tempdir().expect("a temporary folder");
        let alive = PrivateFolder::make(parent.path(), Command::Up).expect("made");
        assert_eq!(mode(alive.path()), 0o700);

        // What a killed process leaves: its folder, and a lock that nobody holds.
        let killed = PrivateFolder::make(parent.path(), Command::Up).expect("made");
        let PrivateFolder { folder, _lock } = killed;
        let left = folder.keep();
        drop(_lock);
        fs::write(left.join("ca.key"), "a key").expect("written");

        let others = ["machinist-up-notes", "machinist-other", "machinist-up-open"].map(|name| {
            let folder = parent.path().join(name);
            fs::create_dir(&folder).expect("made");
            fs::set_permissions(&folder, fs::Permissions::from_mode(0o700)).expect("set");
            folder
        });
        fs::write(others[1].join(lock_file(Command::Up)), "").expect("written");
        fs::write(others[2].join(lock_file(Command::Up)), "").expect("written");
        fs::set_permissions(&others[2], fs::Permissions::from_mode(0o755)).expect("set");
        let link = parent.path().join("machinist-up-link");
        std::os::unix::fs::symlink(&others[1], &link).expect("linked");

        let next = PrivateFolder::make(parent.path(), Command::Up).expect("made");
        assert!(!left.exists(), "nobody runs there any more");
        PrivateFolder::make(parent.path(), Command::ApiServer).expect("made");
        for kept in [alive.path(), next.path(), &others[0], &others[1], &others[2], &link] {
            assert!(kept.exists(), "{}", kept.display());
        }
        let path = alive.path().to_owned();
        drop(alive);
        assert!(!path.exists(), "it goes with its process");
    }
}
