//! Paths of this workspace, calls of Cargo about it, and how this crate runs commands.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde::Deserialize;

/// Returns the root folder of the workspace.
pub(crate) fn root() -> PathBuf {
    // Cargo sets the variable when it runs this program. The compile-time value is for a binary
    // that was started directly.
    let here = std::env::var_os("CARGO_MANIFEST_DIR")
        .map_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")), PathBuf::from);
    here.parent().map_or_else(|| here.clone(), Path::to_path_buf)
}

/// Returns the folder for what is built once per computer, and not once per checkout.
pub(crate) fn cache() -> Result<PathBuf> {
    let cache = match std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from).filter(|path| path.is_absolute())
    {
        Some(folder) => folder,
        None => std::env::home_dir()
            .context("no folder for the cache: neither XDG_CACHE_HOME nor a home folder is known. Set XDG_CACHE_HOME")?
            .join(".cache"),
    };
    Ok(cache.join("machinist"))
}

/// Returns the Cargo that runs this program, with the root of the workspace as its working folder.
pub(crate) fn cargo() -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(root());
    // Cargo sets variables for the package of this program. Build scripts that read these variables
    // would otherwise run again in each build that follows one without them, and the other way
    // round.
    let is_of_our_package =
        |name: &str| name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_");
    for (name, _) in std::env::vars_os() {
        if name.to_str().is_some_and(is_of_our_package) {
            command.env_remove(name);
        }
    }
    command
}

/// Compiles a test target of a package, and returns the command that runs it.
///
/// All packages are compiled, as with the test command of the README. Selecting one package would
/// select other features of the shared crates, and compile everything once more.
pub(crate) fn test_target(package: &Package, target: &str) -> Result<Command> {
    let messages = output_of(
        cargo()
            .args(["test", "--no-run", "--test", target])
            .args(["--message-format=json-render-diagnostics"]),
    )?;
    let compiled = messages.lines().filter_map(|line| serde_json::from_str::<Compiled>(line).ok());
    let executable = compiled
        .filter(|compiled| compiled.manifest_path == package.manifest_path && compiled.target.name == target)
        .find_map(|compiled| compiled.executable)
        .with_context(|| {
            format!("cargo does not say where it put test target {target:?} of {}", package.name)
        })?;
    let folder = package.manifest_path.parent().context("the manifest path has a parent folder")?;
    let mut command = Command::new(executable);
    command.current_dir(folder).env("CARGO_MANIFEST_DIR", folder);
    Ok(command)
}

/// Runs one integration test of a package, with a variable of the environment.
pub(crate) fn run_test(package: &str, test: &str, (variable, value): (&str, &OsStr)) -> Result<()> {
    let packages = packages()?;
    let found = packages.iter().find(|found| found.name == package);
    let found = found.with_context(|| format!("the workspace has no package {package}"))?;
    let mut command = test_target(found, "it")?;
    // Without its own capture, a failure of the test is part of the error.
    let output = output_of(command.args(["--exact", test, "--nocapture"]).env(variable, value))?;
    // A filter that selects no test succeeds, too.
    ensure!(output.contains("1 passed"), "{package} has no test {test}");
    Ok(())
}

/// Compiles the program `machinist`, and returns the command that runs it.
pub(crate) fn program() -> Result<Command> {
    program_named("machinist")
}

/// Folder of compiled programs that [`program_named`] returns instead of compiling them.
const PROGRAMS_VARIABLE: &str = "MACHINIST_PROGRAMS";

/// Compiles a program as the test command of the README does, for the same reason as
/// [`test_target`]. Its package must have a test target `it`.
pub(crate) fn program_named(name: &str) -> Result<Command> {
    if let Some(folder) = std::env::var_os(PROGRAMS_VARIABLE) {
        return Ok(Command::new(PathBuf::from(folder).join(name)));
    }
    // Cargo builds the programs of a package for its integration tests, too.
    output_of(cargo().args(["test", "--no-run", "--test", "it"]))?;
    Ok(Command::new(metadata()?.target_directory.join("debug").join(name)))
}

/// Cargo's message about one compiled target.
#[derive(Deserialize)]
struct Compiled {
    manifest_path: PathBuf,
    target: Target,
    executable: Option<PathBuf>,
}

/// Runs a command to its end and returns its standard output.
///
/// # Errors
/// If the command cannot be started, or fails: the error then contains its standard error.
pub(crate) fn output_of(command: &mut Command) -> Result<String> {
    let line = line_of(command);
    let output = command.output().with_context(|| format!("cannot start `{line}`"))?;
    ensure!(
        output.status.success(),
        "`{line}` failed ({}): {}",
        output.status,
        String::from_utf8_lossy(&output.stderr).trim()
    );
    String::from_utf8(output.stdout).with_context(|| format!("the output of `{line}` is not UTF-8"))
}

/// Runs a command to its end, with our standard output and error.
pub(crate) fn ensure_success(command: &mut Command) -> Result<()> {
    let status = command.status()?;
    ensure!(status.success(), "`{}` failed ({status})", line_of(command));
    Ok(())
}

/// Formats a command as a user would type it, for messages.
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
    /// `None` for a normal dependency, otherwise `dev` or `build`.
    pub(crate) kind: Option<String>,
    /// Set for a dependency that comes from a path and not from a registry.
    pub(crate) path: Option<PathBuf>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct Target {
    pub(crate) name: String,
    pub(crate) kind: Vec<String>,
}

/// Returns all packages of this workspace.
pub(crate) fn packages() -> Result<Vec<Package>> {
    Ok(metadata()?.packages)
}

/// Returns the folder of programs from `cargo build --profile dist`.
pub(crate) fn dist_folder() -> Result<PathBuf> {
    profile_folder("dist")
}

/// Returns the folder of programs from `cargo build --profile PROFILE`.
pub(crate) fn profile_folder(profile: &str) -> Result<PathBuf> {
    // Cargo names the folder of this one profile differently.
    Ok(target()?.join(if profile == "dev" { "debug" } else { profile }))
}

/// Returns the folder of everything that is built.
pub(crate) fn target() -> Result<PathBuf> {
    Ok(metadata()?.target_directory)
}

#[derive(Deserialize)]
struct Metadata {
    packages: Vec<Package>,
    target_directory: PathBuf,
}

fn metadata() -> Result<Metadata> {
    let answer = output_of(cargo().args(["metadata", "--no-deps", "--format-version=1"]))?;
    serde_json::from_str(&answer).context("cannot parse the output of `cargo metadata`")
}
