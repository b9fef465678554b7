//! Downloads Go modules with the Go toolchain of this computer, and runs that toolchain.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result, bail};
use serde::Deserialize;

use crate::workspace::output_of;

/// Go's machine-controller-manager, in the version whose objects Machinist manages.
pub(crate) const GO_MCM: (&str, &str) = ("github.com/gardener/machine-controller-manager", "v0.62.1");

/// A module in Go's cache.
pub(crate) struct Module {
    pub(crate) go_mod: PathBuf,
    /// Folder of the sources.
    pub(crate) folder: PathBuf,
}

/// Where a module may come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Source {
    CacheOrProxy,
    CacheOnly,
    /// Like `CacheOrProxy`, for files that are only read and compared. The checksum database is not
    /// asked, which does not know every module.
    FilesToRead,
}

/// Finds a module in Go's cache, or downloads it.
pub(crate) fn provide(module: &str, version: &str, source: Source) -> Result<Module> {
    #[derive(Deserialize)]
    #[serde(rename_all = "PascalCase")]
    struct Downloaded {
        go_mod: Option<PathBuf>,
        dir: Option<PathBuf>,
        error: Option<String>,
    }

    let mut command = Command::new("go");
    command.args(["mod", "download", "-json", &format!("{module}@{version}")]);
    // Runs outside of any module, because the current folder may be a module with other settings.
    command.current_dir(std::env::temp_dir()).env("GOFLAGS", "").env("GOWORK", "off");
    match source {
        Source::CacheOrProxy => {}
        Source::CacheOnly => {
            command.env("GOPROXY", "off");
        }
        Source::FilesToRead => {
            command.env("GONOSUMDB", module);
        }
    }
    let output = command.output().context("cannot start `go mod download`")?;
    // The output contains the reason of a failure, too.
    let answer: Downloaded = serde_json::from_slice(&output.stdout).with_context(|| {
        format!(
            "`go mod download {module}@{version}` failed: {}",
            String::from_utf8_lossy(&output.stderr).trim()
        )
    })?;
    match answer {
        Downloaded { error: Some(_), .. } if source == Source::CacheOnly => {
            bail!("{module}@{version} is not in Go's module cache")
        }
        Downloaded { error: Some(error), .. } => bail!("cannot download {module}@{version}: {error}"),
        Downloaded { go_mod: Some(go_mod), dir: Some(folder), error: None } => Ok(Module { go_mod, folder }),
        Downloaded { error: None, .. } => bail!("the download of {module}@{version} has no files"),
    }
}

/// Returns why the Go toolchain cannot run; `None` if it can.
pub(crate) fn why_no_go() -> Option<String> {
    output_of(Command::new("go").arg("version")).err().map(|error| format!("no Go toolchain: {error:#}"))
}

/// Returns Go with a low priority: it uses every core for minutes, and the user may work on this
/// computer.
pub(crate) fn polite_go() -> Command {
    let can_be_nice = Command::new("nice").arg("true").output().is_ok_and(|output| output.status.success());
    if !can_be_nice {
        return Command::new("go");
    }
    let mut command = Command::new("nice");
    command.args(["-n", "10", "go"]);
    command
}
