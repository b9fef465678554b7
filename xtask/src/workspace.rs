//! Where this workspace lies and how to ask Cargo about it.

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

/// A test target of a package, compiled and ready to run.
///
/// All packages are chosen, as the test command of the README does: whoever chooses one gets other features of the crates that all
/// share, and compiles everything once more.
pub(crate) fn test_target(package: &Package, target: &str) -> Result<Command> {
    let messages = output_of(
        cargo()
            .args(["test", "--no-run", "--test", target])
            .args(["--message-format=json-render-diagnostics"]),
    )?;
    let compiled = messages.lines().filter_map(|line| serde_json::from_str::<Compiled>(line).ok());
    let executable = compiled
        .filter(|it| it.manifest_path == package.manifest_path && it.target.name == target)
        .find_map(|it| it.executable)
        .with_context(|| {
            format!("cargo does not say where it put test target {target:?} of {}", package.name)
        })?;
    let folder = package.manifest_path.parent().context("a manifest lies in a folder")?;
    let mut command = Command::new(executable);
    command.current_dir(folder).env("CARGO_MANIFEST_DIR", folder);
    Ok(command)
}

/// The program, compiled as the test command of the README compiles it, for the same reason as a [`test_target`].
pub(crate) fn program() -> Result<Command> {
    // Integration tests of the program bring it.
    output_of(cargo().args(["test", "--no-run", "--test", "it"]))?;
    Ok(Command::new(metadata()?.target_directory.join("debug").join("machinist")))
}

/// What cargo says of one target that it has compiled.
#[derive(Deserialize)]
struct Compiled {
    manifest_path: PathBuf,
    target: Target,
    executable: Option<PathBuf>,
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
