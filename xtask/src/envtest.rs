//! The programs of a real control plane: kube-apiserver, kube-controller-manager, etcd, kubectl.
//!
//! The programs come from the folder in `KUBEBUILDER_ASSETS` if it is set. Otherwise they come from
//! a cache, which is filled by building them from their Go modules with the Go toolchain of this
//! computer. There is no third way: kube-controller-manager is published only on download sites,
//! and a computer with Go can reach the Go module proxy.
//!
//! The cache is outside of `target/`, so that `cargo clean` does not cost minutes, and its folders
//! are named by version. A folder is built under another name and renamed when it is complete, so
//! an existing folder is usable. A lock file makes a second builder wait for the first.

pub(crate) mod go;

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use anyhow::{Context, Result, bail, ensure};

use crate::workspace::{self, output_of};

/// Default versions. All measurements use the same ones, so that figures can be compared.
pub(crate) const KUBERNETES_VERSION: &str = "1.36.3";
pub(crate) const ETCD_VERSION: &str = "3.6.16";

/// The oldest versions in a given folder: older ones lack features that the recorded answers depend
/// on.
const OLDEST_KUBERNETES: Version = Version { major: 1, minor: 33 };
const OLDEST_ETCD: Version = Version { major: 3, minor: 6 };

const ASSETS_VARIABLE: &str = "KUBEBUILDER_ASSETS";

/// A folder with all four programs.
#[derive(Debug, Clone)]
pub(crate) struct Assets {
    folder: PathBuf,
}

/// The programs; each has the name of its file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Program {
    KubeApiserver,
    KubeControllerManager,
    Kubectl,
    Etcd,
}

impl Program {
    // The server is first: it compiles most of the code that the next two use, and it is the most
    // likely to fail.
    pub(crate) const ALL: [Self; 4] =
        [Self::KubeApiserver, Self::KubeControllerManager, Self::Kubectl, Self::Etcd];

    pub(crate) fn file_name(self) -> &'static str {
        match self {
            Self::KubeApiserver => "kube-apiserver",
            Self::KubeControllerManager => "kube-controller-manager",
            Self::Kubectl => "kubectl",
            Self::Etcd => "etcd",
        }
    }
}

impl Assets {
    pub(crate) fn path(&self, program: Program) -> PathBuf {
        self.folder.join(program.file_name())
    }

    pub(crate) fn command(&self, program: Program) -> Command {
        Command::new(self.path(program))
    }

    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    /// Finds the programs, and builds them if necessary.
    ///
    /// # Errors
    /// If programs are missing. The message names them and the two ways to get them.
    pub(crate) fn provide() -> Result<Self> {
        match std::env::var_os(ASSETS_VARIABLE).filter(|value| !value.is_empty()) {
            Some(folder) => Self::given(Path::new(&folder)),
            None => Self::cached_or_built(),
        }
    }

    /// Returns why [`provide`](Self::provide) cannot succeed, without building anything; `None` if
    /// it may succeed.
    pub(crate) fn reason_they_cannot_be_had() -> Option<String> {
        let given = std::env::var_os(ASSETS_VARIABLE).is_some_and(|value| !value.is_empty());
        if given || cache_folder().is_ok_and(|folder| missing_from(&folder).is_empty()) {
            return None;
        }
        go::toolchain().err().map(|error| format!("{error:#}, and {ASSETS_VARIABLE} is not set"))
    }

    fn given(folder: &Path) -> Result<Self> {
        let folder = folder
            .canonicalize()
            .with_context(|| format!("cannot open the folder in {ASSETS_VARIABLE}, {}", folder.display()))?;
        let missing = missing_from(&folder);
        ensure!(
            missing.is_empty(),
            "{ASSETS_VARIABLE} is {}, which lacks {}. Add them, or unset the variable to build all four from their Go \
             modules",
            folder.display(),
            missing.join(", ")
        );
        let assets = Self { folder };
        assets.ensure_at_least(Program::KubeApiserver, OLDEST_KUBERNETES)?;
        assets.ensure_at_least(Program::KubeControllerManager, OLDEST_KUBERNETES)?;
        assets.ensure_at_least(Program::Etcd, OLDEST_ETCD)?;
        Ok(assets)
    }

    fn cached_or_built() -> Result<Self> {
        let folder = cache_folder()?;
        if !missing_from(&folder).is_empty() {
            build_once(&folder)?;
        }
        Ok(Self { folder })
    }

    fn ensure_at_least(&self, program: Program, oldest: Version) -> Result<()> {
        let printed = output_of(self.command(program).arg("--version"))?;
        let found = Version::find_in(&printed).with_context(|| {
            format!("cannot find a version in the output of {}: {printed:?}", self.path(program).display())
        })?;
        ensure!(
            oldest <= found,
            "{} has version {found}, but {oldest} or newer is required",
            self.path(program).display()
        );
        Ok(())
    }
}

/// Runs `cargo xtask envtest`. Progress is printed to standard error, so that standard output
/// contains only the folder.
pub(crate) fn run() -> Result<()> {
    let assets = Assets::provide()?;
    println!("{}", assets.folder().display());
    Ok(())
}

/// A major and a minor version number; more precision is not needed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Version {
    major: u32,
    minor: u32,
}

impl Version {
    /// Finds the first version number, in `Kubernetes v1.36.3` or `etcd Version: 3.6.16\nGit SHA:
    /// ...`.
    fn find_in(text: &str) -> Option<Self> {
        text.split_whitespace().find_map(|word| {
            let mut numbers = word.strip_prefix('v').unwrap_or(word).split('.');
            let major = numbers.next()?.parse().ok()?;
            let minor = numbers.next()?.parse().ok()?;
            Some(Self { major, minor })
        })
    }
}

impl std::fmt::Display for Version {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

fn cache_folder() -> Result<PathBuf> {
    let name = format!("kubernetes-{KUBERNETES_VERSION}-etcd-{ETCD_VERSION}");
    Ok(workspace::cache()?.join("envtest").join(name))
}

fn missing_from(folder: &Path) -> Vec<&'static str> {
    Program::ALL.map(Program::file_name).into_iter().filter(|name| !folder.join(name).is_file()).collect()
}

/// Builds the four programs, unless another process has just built them.
fn build_once(folder: &Path) -> Result<()> {
    let toolchain = go::toolchain().with_context(|| {
        format!(
            "kube-apiserver, kube-controller-manager, etcd and kubectl not found. Either set {ASSETS_VARIABLE} to a folder that \
             contains all four, or install Go to build them from their Go modules"
        )
    })?;
    build_recipes(&toolchain, &Program::ALL.map(go::Recipe::of), folder)
}

/// Builds all programs into `folder`, unless another process has just built them.
pub(crate) fn build_recipes(toolchain: &go::Toolchain, recipes: &[go::Recipe], folder: &Path) -> Result<()> {
    let parent = folder.parent().context("the cache folder has a parent")?;
    fs::create_dir_all(parent).with_context(|| format!("cannot create {}", parent.display()))?;
    let _lock = lock(&parent.join(".lock"))?;
    if recipes.iter().all(|recipe| folder.join(recipe.file_name).is_file()) {
        return Ok(());
    }

    let started = Instant::now();
    eprintln!("Building programs from their Go modules into {} (a few minutes, once)", folder.display());
    let workshop = tempfile::Builder::new()
        .prefix(".building-")
        .tempdir_in(parent)
        .with_context(|| format!("cannot create a folder in {}", parent.display()))?;
    let built = workshop.path().join("bin");
    fs::create_dir(&built)?;
    for recipe in recipes {
        let begun = Instant::now();
        eprintln!("  {} ...", recipe.file_name);
        toolchain.build(recipe, workshop.path(), &built)?;
        eprintln!("  {} built in {:.0?}", recipe.file_name, begun.elapsed());
    }
    put_in_place(&built, folder)?;
    eprintln!("Built in {:.0?}", started.elapsed());
    Ok(())
}

/// Takes the lock of a cache. Prints a message if another process holds it.
pub(crate) fn lock(path: &Path) -> Result<File> {
    let file = File::create(path).with_context(|| format!("cannot create {}", path.display()))?;
    match file.try_lock() {
        Ok(()) => {}
        Err(fs::TryLockError::WouldBlock) => {
            eprintln!("Another process is building the programs; waiting for it");
            file.lock().with_context(|| format!("cannot lock {}", path.display()))?;
        }
        Err(fs::TryLockError::Error(error)) => {
            bail!("cannot lock {}: {error}", path.display());
        }
    }
    Ok(file)
}

/// Makes a complete folder visible under its name.
pub(crate) fn put_in_place(built: &Path, folder: &Path) -> Result<()> {
    // An existing folder is incomplete here: it has an older layout, or a user removed files.
    if folder.exists() {
        fs::remove_dir_all(folder).with_context(|| format!("cannot remove {}", folder.display()))?;
    }
    fs::rename(built, folder)
        .with_context(|| format!("cannot rename {} to {}", built.display(), folder.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_found_in_the_output_of_programs() {
        assert_eq!(Version::find_in("Kubernetes v1.36.3\n"), Some(Version { major: 1, minor: 36 }));
        assert_eq!(
            Version::find_in("etcd Version: 3.6.16\nGit SHA: Not provided\n"),
            Some(Version { major: 3, minor: 6 })
        );
        assert_eq!(Version::find_in("no version at all"), None);
    }

    #[test]
    fn versions_compare_by_number() {
        assert!(Version { major: 1, minor: 9 } < OLDEST_KUBERNETES);
        assert!(OLDEST_KUBERNETES <= Version { major: 1, minor: 100 });
    }

    #[test]
    fn a_folder_that_lacks_programs_is_rejected_by_name() {
        let folder = tempfile::tempdir().expect("a folder for the test");
        for name in ["kube-apiserver", "etcd", "kubectl"] {
            File::create(folder.path().join(name)).expect("a file for the test");
        }
        let message = Assets::given(folder.path()).expect_err("one program is missing").to_string();
        assert!(message.contains("lacks kube-controller-manager."), "{message}");
    }
}
