//! The workspace as the rules see it.

use std::path::PathBuf;
use std::process::Command;

use anyhow::Result;

use crate::workspace::{Package, output_of, packages, root};

/// The files and packages that the rules check, read once.
pub(super) struct Workspace {
    root: PathBuf,
    pub(super) packages: Vec<Package>,
    /// Every file under version control, or new and not ignored, relative to the root.
    pub(super) files: Vec<String>,
}

impl Workspace {
    pub(super) fn read() -> Result<Self> {
        let root = root();
        let mut list = Command::new("git");
        list.current_dir(&root).args(["ls-files", "--cached", "--others", "--exclude-standard"]);
        let mut files: Vec<String> = output_of(&mut list)?.lines().map(str::to_owned).collect();
        // A file that was removed and not yet committed is still listed.
        files.retain(|file| root.join(file).is_file());
        Ok(Self { packages: packages()?, files, root })
    }

    /// The text of a file; empty if it is not text.
    pub(super) fn text_of(&self, file: &str) -> Result<String> {
        Ok(String::from_utf8(std::fs::read(self.root.join(file))?).unwrap_or_default())
    }

    pub(super) fn files_ending<'a>(&'a self, ending: &'a str) -> impl Iterator<Item = &'a str> {
        self.files.iter().map(String::as_str).filter(move |file| file.ends_with(ending))
    }
}
