//! Runs a part of a lane in namespaces of its own.
//!
//! A Docker daemon changes the network, the mounts and the cgroups of its computer. In its own
//! network, mount and process namespaces it changes nothing outside, two lanes do not see each
//! other, and the kernel removes all of it when the first process of the namespace ends. That
//! process dies together with the lane, even if the lane is killed.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use crate::control_plane::pause;
use crate::control_plane::processes::{Afterwards, Processes};
use crate::docker::Tools;
use crate::workspace::output_of;

/// Root folder of the cgroups.
const CGROUPS: &str = "/sys/fs/cgroup";

const INOTIFY_INSTANCES: &str = "/proc/sys/fs/inotify/max_user_instances";
const ENOUGH_INOTIFY_INSTANCES: u32 = 1024;

/// The last process of a group ends shortly after the first process of the namespace.
const GROUPS_EMPTY_WITHIN: Duration = Duration::from_secs(20);
const LOOK_EVERY: Duration = Duration::from_millis(200);

/// The part of a lane that is in namespaces of its own.
pub(super) struct Enclosed<'a> {
    /// Start of the names of folders and cgroups.
    pub(super) prefix: &'static str,
    /// The hidden command of this program that runs the part. Its argument `--folder` names the
    /// folder of all its files.
    pub(super) command: &'static str,
    /// Further arguments of the command.
    pub(super) arguments: &'a [&'a OsStr],
    /// The time limit.
    pub(super) within: Duration,
}

impl Enclosed<'_> {
    /// Runs the part to its end, and removes everything that it leaves.
    pub(super) fn run(&self, tools: &Tools) -> Result<()> {
        remove_old_groups(self.prefix);
        let folder = tempfile::Builder::new().prefix(self.prefix).tempdir();
        let folder = folder.context("cannot create a folder")?.keep();
        let ended = self.run_in(tools, &folder);
        let group = folder.file_name().context("the folder of the lane has a name")?;
        ended.and(remove_groups(&group.to_string_lossy()))
    }

    /// Waits for the inner process. The warden of `processes` ends it and removes the folder, even
    /// if this process is killed.
    fn run_in(&self, tools: &Tools, folder: &Path) -> Result<()> {
        let mut processes = Processes::new(folder, Afterwards::Remove)?;
        let mut command = command(tools)?;
        command.arg(self.command).arg("--folder").arg(folder).args(self.arguments);
        processes.spawn_with_our_output("lane", command)?;
        let started = Instant::now();
        loop {
            if let Some(ended) = processes.ended()? {
                ensure!(ended.status.success(), "the lane failed ({}); its output is above", ended.status);
                return Ok(());
            }
            ensure!(
                started.elapsed() < self.within,
                "timed out: the lane did not end within {:?}",
                self.within
            );
            pause(LOOK_EVERY);
        }
    }
}

/// Returns why namespaces cannot be created here; `None` if they can.
pub(super) fn reason_it_cannot_be_had() -> Option<String> {
    let mut own = Command::new("unshare");
    own.args(["--mount", "--net", "--pid", "--fork", "--", "ip", "link", "set", "lo", "up"]);
    output_of(&mut own)
        .err()
        .map(|error| format!("a Docker daemon needs root and namespaces of its own: {error:#}"))
}

/// Returns a command that runs this program in new namespaces.
fn command(tools: &Tools) -> Result<Command> {
    let program = std::env::current_exe().context("cannot find this program")?;
    let mut command = Command::new("unshare");
    command.args(["--mount", "--net", "--pid", "--fork", "--kill-child", "--mount-proc", "--"]);
    // The first process of the namespace inherits orphans, and has to reap them.
    command.arg(tools.path("usr/bin/tini-static")).arg("--").arg(program);
    Ok(command)
}

/// Prepares the namespaces, from within. Files outside of the folder keep their content.
pub(super) fn prepare(folder: &Path) -> Result<()> {
    output_of(Command::new("ip").args(["link", "set", "lo", "up"]))?;
    // The daemon and iptables keep locks and sockets there.
    output_of(Command::new("mount").args(["-t", "tmpfs", "tmpfs", "/run"]))?;
    // The daemon writes a key to /etc, and containerd creates a folder in /opt.
    for covered in ["etc", "opt"] {
        let [upper, work] = ["upper", "work"].map(|name| folder.join("covered").join(covered).join(name));
        for folder in [&upper, &work] {
            fs::create_dir_all(folder).with_context(|| format!("cannot create {}", folder.display()))?;
        }
        let (upper, work) = (upper.display(), work.display());
        let options = format!("lowerdir=/{covered},upperdir={upper},workdir={work}");
        let mount = ["-t", "overlay", "overlay", "-o", &options, &format!("/{covered}")];
        output_of(Command::new("mount").args(mount))?;
    }
    fs::write("/proc/sys/net/ipv4/ip_forward", "1").context("cannot allow forwarding between containers")?;
    raise_inotify_limit()
}

/// Raises the number of inotify instances that root may have. A node needs about eighteen of them,
/// and a kubelet without one ends at its start. The limit is the computer's, not the namespace's:
/// the lane never lowers it, because other programs may have started to rely on it.
fn raise_inotify_limit() -> Result<()> {
    let limit =
        fs::read_to_string(INOTIFY_INSTANCES).context("cannot read the limit of inotify instances")?;
    let limit: u32 = limit.trim().parse().with_context(|| format!("{INOTIFY_INSTANCES}: {limit:?}"))?;
    if limit >= ENOUGH_INOTIFY_INSTANCES {
        return Ok(());
    }
    fs::write(INOTIFY_INSTANCES, ENOUGH_INOTIFY_INSTANCES.to_string())
        .context("cannot raise the limit of inotify instances")?;
    println!("fs.inotify.max_user_instances was {limit}, and is {ENOUGH_INOTIFY_INSTANCES} now");
    Ok(())
}

/// Removes the cgroups of a daemon whose processes have ended.
fn remove_groups(name: &str) -> Result<()> {
    let started = Instant::now();
    for group in groups(name)? {
        while let Err(error) = remove_tree(&group) {
            let waited = started.elapsed();
            ensure!(waited < GROUPS_EMPTY_WITHIN, "cannot remove {}: {error}", group.display());
            pause(LOOK_EVERY);
        }
    }
    Ok(())
}

/// Returns the groups of that name: one per hierarchy, or one of cgroup v2.
fn groups(name: &str) -> Result<Vec<PathBuf>> {
    let mut groups = vec![Path::new(CGROUPS).join(name)];
    for entry in fs::read_dir(CGROUPS).context("cannot read the folder of the cgroups")? {
        groups.push(entry?.path().join(name));
    }
    groups.retain(|group| group.is_dir());
    Ok(groups)
}

/// Removes a group and the groups in it. Files in these folders belong to the kernel.
fn remove_tree(group: &Path) -> std::io::Result<()> {
    for entry in fs::read_dir(group)? {
        let path = entry?.path();
        if path.is_dir() {
            remove_tree(&path)?;
        }
    }
    fs::remove_dir(group)
}

/// Removes the empty groups of lanes that were killed. Groups in use cannot be removed.
fn remove_old_groups(prefix: &str) {
    let hierarchies = fs::read_dir(CGROUPS).into_iter().flatten().flatten().map(|entry| entry.path());
    for hierarchy in hierarchies.chain([PathBuf::from(CGROUPS)]) {
        for entry in fs::read_dir(hierarchy).into_iter().flatten().flatten() {
            if entry.file_name().to_string_lossy().starts_with(prefix) {
                // A group in use belongs to a lane that runs now.
                let _ = remove_tree(&entry.path());
            }
        }
    }
}

/// Copies the logs to a folder that stays, for the reader of a failure.
pub(super) fn keep_logs(folder: &Path) -> Result<()> {
    let kept = tempfile::Builder::new().prefix("machinist-logs-").tempdir()?.keep();
    for entry in [folder, &folder.join("docker")].into_iter().flat_map(fs::read_dir).flatten() {
        let file = entry?.path();
        if let Some(name) =
            file.file_name().filter(|_| file.extension().is_some_and(|extension| extension == "log"))
        {
            fs::copy(&file, kept.join(name)).with_context(|| format!("cannot copy {}", file.display()))?;
        }
    }
    eprintln!("the logs are in {}", kept.display());
    Ok(())
}
