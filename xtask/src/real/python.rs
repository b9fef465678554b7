//! Python packages for a lane, in an environment of its own.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use crate::workspace::output_of;

/// Installs packages below a folder, and returns the folder of their programs.
///
/// # Errors
/// If Python or a package cannot be had here. The lane is then skipped.
pub(super) fn install(folder: &Path, packages: &[&str]) -> Result<PathBuf> {
    output_of(Command::new("python3").arg("--version")).context("no Python")?;
    let environment = folder.join("environment");
    let programs = environment.join("bin");
    let names = packages.join(" ");
    output_of(Command::new("python3").args(["-m", "venv"]).arg(&environment))
        .and_then(|_| {
            let mut pip = Command::new(programs.join("python"));
            output_of(pip.args(["-m", "pip", "install", "--quiet"]).args(packages))
        })
        .with_context(|| format!("cannot install {names}"))?;
    Ok(programs)
}
