//! The disk of an instance: what it wrote before it, or the cloud's process, stopped, it finds again.

use std::collections::BTreeMap;
use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// The disk of one instance. Files are few and small; they may hold keys, so only their owner can read them.
#[derive(Debug, Clone)]
pub struct Disk(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    medium: Medium,
    /// Its instance is gone: what a machine writes in its last moment must not stay behind.
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
        Self(Arc::new(Inner { medium, wiped: AtomicBool::new(false) }))
    }

    /// A file's content, if it was ever written.
    ///
    /// # Errors
    /// When the file system refuses.
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

    /// Replaces a file as a whole: after a crash there is the old content or the new one.
    ///
    /// # Errors
    /// When the file system refuses, or the instance is gone.
    pub fn write(&self, name: &str, content: &[u8]) -> io::Result<()> {
        if self.0.wiped.load(Ordering::Acquire) {
            return Err(io::Error::new(
                io::ErrorKind::NotFound,
                "the instance is gone, and its disk with it",
            ));
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

    /// Wipes it, when its instance is gone. Whatever comes of that, nothing is written to it any more.
    ///
    /// # Errors
    /// When the file system refuses: then somebody could still read what is on it.
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
