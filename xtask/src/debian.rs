//! Debian packages that are unpacked into the cache, and not installed.
//!
//! The lane of the Docker provider needs a Docker daemon and a node image. Installing packages
//! would change the computer, so apt downloads them, and dpkg-deb unpacks them into a folder of the
//! cache. A program there finds its libraries through `LD_LIBRARY_PATH`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::workspace::output_of;

/// Packages in a folder, laid out as in a root file system.
#[derive(Debug, Clone)]
pub(crate) struct Unpacked {
    root: PathBuf,
}

impl Unpacked {
    /// Downloads packages and unpacks them into the new folder `root`.
    pub(crate) fn create(packages: &[&str], root: &Path) -> Result<Self> {
        fs::create_dir_all(root).with_context(|| format!("cannot create {}", root.display()))?;
        let downloads = tempfile::tempdir()?;
        let mut download = Command::new("apt-get");
        download.current_dir(downloads.path()).args(["download", "--quiet"]).args(packages);
        // The download does not use the user `_apt`, who cannot write into our folder.
        download.args(["--option", "APT::Sandbox::User=root"]);
        output_of(&mut download)
            .with_context(|| format!("cannot download the Debian packages {}", packages.join(", ")))?;
        let mut files: Vec<PathBuf> = fs::read_dir(downloads.path())?
            .map(|entry| entry.map(|entry| entry.path()))
            .collect::<Result<_, _>>()?;
        files.sort();
        ensure!(!files.is_empty(), "`apt-get download` downloaded no package");
        for file in files {
            output_of(Command::new("dpkg-deb").arg("--extract").arg(&file).arg(root))?;
        }
        Ok(Self { root: root.to_owned() })
    }

    pub(crate) fn at(root: &Path) -> Self {
        Self { root: root.to_owned() }
    }

    /// Returns the path of a file of a package, such as `usr/sbin/dockerd`.
    pub(crate) fn path(&self, file: &str) -> PathBuf {
        self.root.join(file)
    }

    /// Returns the folders of shared libraries, as a value for `LD_LIBRARY_PATH`.
    pub(crate) fn libraries(&self) -> Result<std::ffi::OsString> {
        let mut folders = Vec::new();
        for folder in ["usr/lib", "lib"].map(|folder| self.root.join(folder)) {
            let Ok(entries) = fs::read_dir(&folder) else { continue };
            for entry in entries {
                let path = entry?.path();
                // Libraries are in a folder of their architecture, such as `x86_64-linux-gnu`.
                if path.is_dir() && path.to_string_lossy().ends_with("-linux-gnu") {
                    folders.push(path);
                }
            }
        }
        std::env::join_paths(folders).context("a folder of libraries has a colon in its name")
    }
}
