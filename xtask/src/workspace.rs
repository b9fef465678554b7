//! Where this workspace lies and how to ask Cargo about it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde::Deserialize;

/// The root folder of the workspace.
pub(crate) fn root() -> PathBuf {
    // Cargo sets the variable when it runs us; the value from compile time serves a binary that was started by hand.
    let here = std::env::var_os("CARGO_MANIFEST_DIR")
        .map_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")), PathBuf::from);
    here.parent().map_or_else(|| here.clone(), Path::to_path_buf)
}

/// The Cargo that runs us, to be run again from the root of the workspace.
pub(crate) fn cargo() -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(root());
    // Cargo tells us about our own package. Build scripts that ask about theirs would run again each time that we build after a person
    // does, or a person after us.
    let is_of_our_package =
        |name: &str| name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_");
    for (name, _) in std::env::vars_os() {
        if name.to_str().is_some_and(is_of_our_package) {
            command.env_remove(name);
        }
    }
    command
}

/// Runs a command to its end and returns what it printed.
///
/// # Errors
/// When it cannot be started, or ends with a failure: the error then carries what it wrote to standard error.
pub(crate) fn output_of(command: &mut Command) -> Result<String> {
    let line = line_of(command);
    let output = command.output().with_context(|| format!("cannot start `{line}`"))?;
    ensure!(
        output.status.success(),
        "`{line}` failed ({}): {}",
        output.status,
        String::from_utf8_lossy(&output.stderr).trim()
    );
    String::from_utf8(output.stdout).with_context(|| format!("`{line}` printed something that is not UTF-8"))
}

/// A command as a user would type it, for messages.
pub(crate) fn line_of(command: &Command) -> String {
    let program = Path::new(command.get_program()).file_name().unwrap_or_else(|| command.get_program());
    std::iter::once(program)
        .chain(command.get_args())
        .map(|word| word.to_string_lossy())
        .collect::<Vec<_>>()
        .join(" ")
}

/// A package of this workspace, as Cargo describes it.
#[derive(Debug, Deserialize)]
pub(crate) struct Package {
    pub(crate) name: String,
    pub(crate) manifest_path: PathBuf,
    pub(crate) dependencies: Vec<Dependency>,
    pub(crate) targets: Vec<Target>,
    pub(crate) features: BTreeMap<String, Vec<String>>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct Dependency {
    pub(crate) name: String,
    /// `None` for what the package itself needs, else `dev` or `build`.
    pub(crate) kind: Option<String>,
    /// Set for a dependency that is no registry's.
    pub(crate) path: Option<PathBuf>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct Target {
    pub(crate) name: String,
    pub(crate) kind: Vec<String>,
}

/// All packages of this workspace.
pub(crate) fn packages() -> Result<Vec<Package>> {
    Ok(metadata()?.packages)
}

/// Where `cargo build --release` puts programs.
pub(crate) fn release_folder() -> Result<PathBuf> {
    Ok(metadata()?.target_directory.join("release"))
}

#[derive(Deserialize)]
struct Metadata {
    packages: Vec<Package>,
    target_directory: PathBuf,
}

fn metadata() -> Result<Metadata> {
    let answer = output_of(cargo().args(["metadata", "--no-deps", "--format-version=1"]))?;
    serde_json::from_str(&answer).context("cannot read what `cargo metadata` answers")
}
