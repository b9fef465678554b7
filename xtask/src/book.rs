//! `cargo xtask book`: checks the links of the book in `docs`, and builds it with mdbook into
//! `target/book`.
//!
//! The links are checked first and without mdbook. If mdbook is neither on the PATH nor in the
//! cache and cannot be installed, the task prints a line that starts with `SKIPPED book:`, and
//! succeeds.

mod links;

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use crate::workspace::{self, cargo, ensure_success};

/// Installing compiles mdbook. Longer than it takes on two slow cores.
const INSTALL_WITHIN: Duration = Duration::from_secs(30 * 60);

pub(crate) fn run() -> Result<()> {
    let folder = workspace::root().join("docs");
    let pages = links::read(&folder.join("src"))?;
    let broken = links::broken(&pages);
    ensure!(broken.is_empty(), "broken links in docs/src:\n{}", broken.join("\n"));
    println!("{} pages; their links are right", pages.len());
    let mdbook = match mdbook() {
        Ok(mdbook) => mdbook,
        Err(error) => {
            println!("SKIPPED book: {error:#}");
            return Ok(());
        }
    };
    let built = workspace::target()?.join("book");
    ensure_success(Command::new(mdbook).arg("build").arg("--dest-dir").arg(&built).arg(&folder))?;
    println!("{}", built.join("index.html").display());
    Ok(())
}

/// Finds mdbook, and installs it if necessary.
fn mdbook() -> Result<PathBuf> {
    let tools = workspace::cache()?.join("tools");
    let installed = tools.join("bin").join("mdbook");
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = on_path(&path).into_iter().chain([installed.clone()]).find(|file| file.is_file());
    match found {
        Some(found) => Ok(found),
        None => install(&tools).map(|()| installed),
    }
}

/// Returns the files that may be mdbook, in the order of the PATH.
fn on_path(path: &OsStr) -> Vec<PathBuf> {
    std::env::split_paths(path).map(|folder| folder.join("mdbook")).collect()
}

/// Installs mdbook, as `.ci/run` installs cargo-deny.
fn install(tools: &Path) -> Result<()> {
    println!("Installing mdbook into {}", tools.display());
    let mut install = cargo();
    install.args(["install", "--quiet", "--locked", "--root"]).arg(tools).arg("mdbook");
    let help = "mdbook not found and not installed. Install it with: cargo install mdbook";
    let mut running = install.stdin(Stdio::null()).spawn().context(help)?;
    let began = Instant::now();
    while began.elapsed() < INSTALL_WITHIN {
        if let Some(status) = running.try_wait()? {
            ensure!(status.success(), "{help}");
            return Ok(());
        }
        std::thread::sleep(Duration::from_secs(1));
    }
    running.kill()?;
    running.wait()?;
    bail!(
        "mdbook not found and not installed within {INSTALL_WITHIN:?}. Install it with: cargo install mdbook"
    )
}
