//! The disk of an instance. Its files outlive a stop of the instance and of the cloud's process.

use std::collections::BTreeMap;
use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// The disk of one instance. Files are few and small. They may hold keys, so only their owner can
/// read them.
#[derive(Debug, Clone)]
pub struct Disk(Arc<DiskInner>);

#[derive(Debug)]
struct DiskInner {
    medium: Medium,
    /// The instance was deleted. A machine's last write must not leave a file behind.
    wiped: AtomicBool,
}

#[derive(Debug)]
enum Medium {
    Memory(Mutex<BTreeMap<String, Vec<u8>>>),
    Folder(PathBuf),
}

impl Disk {
    pub(crate) fn in_memory() -> Self {
        Self::of(Medium::Memory(Mutex::default()))
    }

    pub(crate) fn in_folder(folder: PathBuf) -> Self {
        Self::of(Medium::Folder(folder))
    }

    fn of(medium: Medium) -> Self {
        Self(Arc::new(DiskInner { medium, wiped: AtomicBool::new(false) }))
    }

    /// Reads a file; `None` if it was never written.
    ///
    /// # Errors
    /// When the file system returns an error.
    pub fn read(&self, name: &str) -> io::Result<Option<Vec<u8>>> {
        match &self.0.medium {
            Medium::Memory(files) => {
                Ok(files.lock().unwrap_or_else(PoisonError::into_inner).get(name).cloned())
            }
            Medium::Folder(folder) => match fs::read(folder.join(name)) {
                Ok(bytes) => Ok(Some(bytes)),
                Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
                Err(error) => Err(error),
            },
        }
    }

    /// Replaces a whole file. After a crash the file has either the old content or the new content.
    ///
    /// # Errors
    /// When the file system returns an error, or the instance was deleted.
    pub fn write(&self, name: &str, content: &[u8]) -> io::Result<()> {
        if self.0.wiped.load(Ordering::Acquire) {
            return Err(io::Error::new(io::ErrorKind::NotFound, "the instance and its disk were deleted"));
        }
        match &self.0.medium {
            Medium::Memory(files) => {
                files
                    .lock()
                    .unwrap_or_else(PoisonError::into_inner)
                    .insert(name.to_owned(), content.to_owned());
                Ok(())
            }
            Medium::Folder(folder) => {
                fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
                let unfinished = folder.join(format!("{name}.new"));
                let mut file = OpenOptions::new()
                    .write(true)
                    .create(true)
                    .truncate(true)
                    .mode(0o600)
                    .open(&unfinished)?;
                file.write_all(content)?;
                file.sync_data()?;
                fs::rename(unfinished, folder.join(name))
            }
        }
    }

    /// Wipes the disk of a deleted instance. Later writes fail, even if the wipe fails.
    ///
    /// # Errors
    /// When the file system returns an error. The disk's content may then still be readable.
    pub(crate) fn wipe(&self) -> io::Result<()> {
        self.0.wiped.store(true, Ordering::Release);
        match &self.0.medium {
            Medium::Memory(files) => {
                files.lock().unwrap_or_else(PoisonError::into_inner).clear();
                Ok(())
            }
            Medium::Folder(folder) => match fs::remove_dir_all(folder) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
                Ok(()) | Err(_) => Ok(()),
            },
        }
    }
}
