//! A Docker daemon from the packages of Debian, for one lane.
//!
//! The daemon uses only files of its own folder, and the network of its process. The lane runs it
//! in namespaces of its own (see `real::enclosure`), so that no bridge, firewall rule or
//! mount of this computer changes, and the kernel removes everything at the end.

use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use crate::control_plane::pause;
use crate::control_plane::processes::Processes;
use crate::debian::Unpacked;
use crate::envtest;
use crate::workspace::{self, output_of};

/// The daemon, and the libraries that a minimal system lacks.
const PACKAGES: &[&str] = &[
    "docker.io",
    "containerd",
    "runc",
    "tini",
    "iptables",
    "libip4tc2",
    "libip6tc2",
    "libxtables12",
    "libnftnl11",
    "libnfnetlink0",
    "libnetfilter-conntrack3",
    "libmnl0",
    "libdevmapper1.02.1",
    // The images of the Docker driver's tests consist of it.
    "busybox-static",
];

/// Part of the name of the cached folder. Increase it when the packages change.
const REVISION: u32 = 2;

/// Folder of links in the unpacked packages.
const LINKS: &str = "links";

/// Runs the daemon, and starts it again when it has ended, as systemd does. The pause is as long as
/// for a service that has crashed.
const SUPERVISOR: &str = r#"while :; do "$@"; echo "dockerd ended with code $?"; sleep 1; done"#;

/// The daemon is up in less than a second on an idle computer.
const READY_WITHIN: Duration = Duration::from_secs(60);
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// The programs of the packages.
#[derive(Debug, Clone)]
pub(crate) struct Tools {
    packages: Unpacked,
}

impl Tools {
    /// Finds the programs in the cache, or downloads the packages.
    ///
    /// # Errors
    /// If this is not Debian, or its packages cannot be downloaded.
    pub(crate) fn provide() -> Result<Self> {
        let parent = workspace::cache()?.join("docker");
        let folder = parent.join(format!("debian-{}-{REVISION}", debian_version()?));
        fs::create_dir_all(&parent).with_context(|| format!("cannot create {}", parent.display()))?;
        let _lock = envtest::lock(&parent.join(".lock"))?;
        if !folder.is_dir() {
            let workshop = tempfile::Builder::new().prefix(".building-").tempdir_in(&parent)?;
            let built = workshop.path().join("root");
            let packages = Unpacked::create(PACKAGES, &built)?;
            // One program with many names: an alternative of Debian, which nothing has installed.
            fs::create_dir(packages.path(LINKS))?;
            for name in ["iptables", "iptables-save", "iptables-restore", "ip6tables", "ip6tables-save"] {
                symlink("../usr/sbin/xtables-nft-multi", packages.path(LINKS).join(name))?;
            }
            envtest::put_in_place(&built, &folder)?;
        }
        Ok(Self { packages: Unpacked::at(&folder) })
    }

    /// Returns the path of a file of the packages.
    pub(crate) fn path(&self, file: &str) -> PathBuf {
        self.packages.path(file)
    }

    /// Returns a value for `PATH` with which the programs of the packages are found first.
    pub(crate) fn search_path(&self) -> Result<OsString> {
        let own = [LINKS, "usr/sbin", "usr/bin", "sbin", "bin"].map(|folder| self.path(folder));
        let path = std::env::var_os("PATH").unwrap_or_default();
        std::env::join_paths(own.into_iter().chain(std::env::split_paths(&path)))
            .context("a folder of programs has a colon in its name")
    }

    /// Returns a command that finds the other programs and the libraries of the packages.
    pub(crate) fn command(&self, file: &str) -> Result<Command> {
        self.with_libraries(Command::new(self.path(file)))
    }

    /// The same for a program that is started again when it has ended.
    fn supervised(&self, file: &str) -> Result<Command> {
        let mut command = Command::new("sh");
        command.args(["-c", SUPERVISOR, "supervisor"]).arg(self.path(file));
        self.with_libraries(command)
    }

    fn with_libraries(&self, mut command: Command) -> Result<Command> {
        command.env("PATH", self.search_path()?);
        let libraries = self.packages.libraries()?;
        let extensions: Vec<PathBuf> =
            std::env::split_paths(&libraries).map(|folder| folder.join("xtables")).collect();
        command.env("XTABLES_LIBDIR", std::env::join_paths(extensions)?);
        command.env("LD_LIBRARY_PATH", libraries);
        Ok(command)
    }
}

fn debian_version() -> Result<String> {
    let text = fs::read_to_string("/etc/os-release").context("cannot read /etc/os-release")?;
    let value = |key: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix('='))?;
        Some(line.trim_matches('"').to_owned())
    };
    let id = value("ID").unwrap_or_default();
    ensure!(id == "debian", "the Docker daemon comes from Debian's packages, and this system is {id:?}");
    value("VERSION_ID").context("/etc/os-release has no VERSION_ID")
}

/// A running daemon; it ends with the [`Processes`] that it was started with.
pub(crate) struct Daemon {
    socket: PathBuf,
    pid_file: PathBuf,
    client: Tools,
}

impl Daemon {
    /// Starts the daemon with all its files in `folder`, and waits until it answers.
    pub(crate) fn start(
        tools: &Tools,
        processes: &mut Processes,
        folder: &Path,
        group: &str,
    ) -> Result<Self> {
        fs::create_dir_all(folder).with_context(|| format!("cannot create {}", folder.display()))?;
        let socket = folder.join("docker.sock");
        let configuration = folder.join("daemon.json");
        fs::write(&configuration, "{}\n")?;
        let mut command = tools.supervised("usr/sbin/dockerd")?;
        let pid_file = folder.join("pid");
        command
            .arg(flag("config-file", &configuration))
            .arg(flag("data-root", &folder.join("data")))
            .arg(flag("exec-root", &folder.join("exec")))
            .arg(flag("pidfile", &pid_file))
            .arg(format!("--host=unix://{}", socket.display()))
            // The nodes use a network of their own.
            .arg("--bridge=none")
            .arg("--storage-driver=overlay2")
            .arg(format!("--cgroup-parent=/{group}"));
        let log = folder.join("dockerd.log");
        processes.spawn("dockerd", command, log)?;
        let daemon = Self { socket, pid_file, client: tools.clone() };
        let started = Instant::now();
        while !daemon.answers()? {
            if let Some(ended) = processes.ended()? {
                bail!("{} ended ({}) before it was ready:\n{}", ended.name, ended.status, ended.log_tail);
            }
            ensure!(
                started.elapsed() < READY_WITHIN,
                "timed out: no answer of dockerd within {READY_WITHIN:?}{}",
                processes.log_tails()
            );
            pause(LOOK_EVERY);
        }
        Ok(daemon)
    }

    /// Returns the file with the process id of the daemon. It changes when the daemon starts again.
    pub(crate) fn pid_file(&self) -> &Path {
        &self.pid_file
    }

    fn answers(&self) -> Result<bool> {
        Ok(output_of(self.docker()?.arg("version")).is_ok())
    }

    /// Ends the daemon with this signal, and waits until its successor answers.
    pub(crate) fn restart(&self, signal: &str) -> Result<()> {
        let read = || fs::read_to_string(&self.pid_file).map(|text| text.trim().to_owned());
        let before = read().context("cannot read the process id of dockerd")?;
        output_of(Command::new("kill").args(["-s", signal, &before]))?;
        let started = Instant::now();
        // The file may be absent for a moment.
        while read().ok().is_none_or(|pid| pid.is_empty() || pid == before) || !self.answers()? {
            ensure!(started.elapsed() < READY_WITHIN, "dockerd did not return within {READY_WITHIN:?}");
            pause(LOOK_EVERY);
        }
        Ok(())
    }

    /// Returns the value for `DOCKER_HOST`.
    pub(crate) fn host(&self) -> String {
        format!("unix://{}", self.socket.display())
    }

    /// Returns a command of the client.
    pub(crate) fn docker(&self) -> Result<Command> {
        let mut command = self.client.command("usr/bin/docker")?;
        command.env("DOCKER_HOST", self.host()).env_remove("DOCKER_CONTEXT");
        Ok(command)
    }
}

fn flag(name: &str, path: &Path) -> OsString {
    let mut flag = OsString::from(format!("--{name}="));
    flag.push(path);
    flag
}
