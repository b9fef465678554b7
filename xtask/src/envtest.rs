//! The programs of a real control plane: kube-apiserver, kube-controller-manager, etcd, kubectl.
//!
//! They come from the folder in `KUBEBUILDER_ASSETS` if that is set, else from a cache that is filled by building them from
//! their Go modules with the Go toolchain on this machine. There is no third way: nobody publishes kube-controller-manager
//! in a form that needs no download site of its own, and the Go module proxy is what a machine that has Go can reach.
//!
//! The cache lies outside `target/` (a `cargo clean` must not cost minutes) and a folder in it is named by its versions. It is
//! built under another name and renamed when complete, so a folder that exists is a folder that can be used. A lock file
//! makes a second builder wait for the first.

mod go;

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use anyhow::{Context, Result, bail, ensure};

use crate::workspace::output_of;

/// What is built when nothing is given. One version for all who measure, so that figures can be compared.
pub(crate) const KUBERNETES_VERSION: &str = "1.36.3";
pub(crate) const ETCD_VERSION: &str = "3.6.16";

/// The oldest versions a given folder may hold: older ones lack what the recorded facts rest on.
const OLDEST_KUBERNETES: Version = Version { major: 1, minor: 33 };
const OLDEST_ETCD: Version = Version { major: 3, minor: 6 };

const ASSETS_VARIABLE: &str = "KUBEBUILDER_ASSETS";

/// A folder with all four programs in it.
#[derive(Debug, Clone)]
pub(crate) struct Assets {
    folder: PathBuf,
}

/// The programs, each under the name of its file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Program {
    KubeApiserver,
    KubeControllerManager,
    Kubectl,
    Etcd,
}

impl Program {
    // The server first: it compiles most of what the next two are made of, and its failure is the likeliest.
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

    /// Finds the programs, building them if need be.
    ///
    /// # Errors
    /// The message tells which programs are missing and the two ways to get them.
    pub(crate) fn provide() -> Result<Self> {
        match std::env::var_os(ASSETS_VARIABLE).filter(|value| !value.is_empty()) {
            Some(folder) => Self::given(Path::new(&folder)),
            None => Self::cached_or_built(),
        }
    }

    /// Tells whether [`provide`](Self::provide) has a chance, without building anything; the answer "no" is a reason for people.
    pub(crate) fn reason_they_cannot_be_had() -> Option<String> {
        let given = std::env::var_os(ASSETS_VARIABLE).is_some_and(|value| !value.is_empty());
        if given || cache_folder().is_ok_and(|folder| missing_from(&folder).is_empty()) {
            return None;
        }
        go::toolchain().err().map(|error| format!("{error:#}, and {ASSETS_VARIABLE} is not set"))
    }

    fn given(folder: &Path) -> Result<Self> {
        let folder = folder.canonicalize().with_context(|| {
            format!("{ASSETS_VARIABLE} names {}, which cannot be opened", folder.display())
        })?;
        let missing = missing_from(&folder);
        ensure!(
            missing.is_empty(),
            "{ASSETS_VARIABLE} names {}, which lacks {}. Put them there, or unset the variable to have all four built from their Go \
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
            format!("cannot read a version from what {} prints: {printed:?}", self.path(program).display())
        })?;
        ensure!(
            oldest <= found,
            "{} is version {found}, but {oldest} or newer is needed",
            self.path(program).display()
        );
        Ok(())
    }
}

/// `cargo xtask envtest`: progress goes to standard error, so that standard output is the folder and nothing else.
pub(crate) fn run() -> Result<()> {
    let assets = Assets::provide()?;
    println!("{}", assets.folder().display());
    Ok(())
}

/// A major and a minor number; more precision never decided anything here.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Version {
    major: u32,
    minor: u32,
}

impl Version {
    /// The first thing that looks like a version in `Kubernetes v1.36.3` or `etcd Version: 3.6.16\nGit SHA: ...`.
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
    let cache = match std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from).filter(|path| path.is_absolute())
    {
        Some(folder) => folder,
        None => std::env::home_dir()
            .context("neither XDG_CACHE_HOME nor a home folder is known, so there is no place for a cache")?
            .join(".cache"),
    };
    Ok(cache
        .join("machinist")
        .join("envtest")
        .join(format!("kubernetes-{KUBERNETES_VERSION}-etcd-{ETCD_VERSION}")))
}

fn missing_from(folder: &Path) -> Vec<&'static str> {
    Program::ALL.map(Program::file_name).into_iter().filter(|name| !folder.join(name).is_file()).collect()
}

/// Builds all programs into `folder`, unless another process just did.
fn build_once(folder: &Path) -> Result<()> {
    let toolchain = go::toolchain().with_context(|| {
        format!(
            "kube-apiserver, kube-controller-manager, etcd and kubectl are needed. Either set {ASSETS_VARIABLE} to a folder that \
             holds all four, or install Go and they are built from their Go modules"
        )
    })?;
    let parent = folder.parent().context("the cache folder has a parent")?;
    fs::create_dir_all(parent).with_context(|| format!("cannot create {}", parent.display()))?;
    let _lock = lock(&parent.join(".lock"))?;
    if missing_from(folder).is_empty() {
        return Ok(());
    }

    let started = Instant::now();
    eprintln!("Building the programs of a control plane into {} (a few minutes, once)", folder.display());
    let workshop = tempfile::Builder::new()
        .prefix(".building-")
        .tempdir_in(parent)
        .with_context(|| format!("cannot create a folder in {}", parent.display()))?;
    let built = workshop.path().join("bin");
    fs::create_dir(&built)?;
    for program in Program::ALL {
        let begun = Instant::now();
        eprintln!("  {} ...", program.file_name());
        toolchain.build(program, workshop.path(), &built)?;
        eprintln!("  {} built in {:.0?}", program.file_name(), begun.elapsed());
    }
    put_in_place(&built, folder)?;
    eprintln!("Built in {:.0?}", started.elapsed());
    Ok(())
}

/// Takes the lock of the cache, saying so when another process has it.
fn lock(path: &Path) -> Result<File> {
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

fn put_in_place(built: &Path, folder: &Path) -> Result<()> {
    // What lies there is incomplete, or we would not be building: an older layout, or a folder that someone thinned out.
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
    fn versions_are_found_in_what_the_programs_print() {
        assert_eq!(Version::find_in("Kubernetes v1.36.3\n"), Some(Version { major: 1, minor: 36 }));
        assert_eq!(
            Version::find_in("etcd Version: 3.6.16\nGit SHA: Not provided\n"),
            Some(Version { major: 3, minor: 6 })
        );
        assert_eq!(Version::find_in("no version at all"), None);
    }

    #[test]
    fn versions_compare_by_number_and_not_by_letter() {
        assert!(Version { major: 1, minor: 9 } < OLDEST_KUBERNETES);
        assert!(OLDEST_KUBERNETES <= Version { major: 1, minor: 100 });
    }

    #[test]
    fn a_given_folder_that_lacks_programs_is_refused_by_their_names() {
        let folder = tempfile::tempdir().expect("a folder for the test");
        for name in ["kube-apiserver", "etcd", "kubectl"] {
            File::create(folder.path().join(name)).expect("a file for the test");
        }
        let message = Assets::given(folder.path()).expect_err("one program is missing").to_string();
        assert!(message.contains("lacks kube-controller-manager."), "{message}");
    }
}
