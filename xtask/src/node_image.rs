//! `cargo xtask node-image`: builds the images of the Docker provider's lane. With `--import`, a
//! Docker engine gets them, for `machinist up --cloud docker`.
//!
//! The *node image* runs systemd, containerd, kubelet and kubeadm. The *balancer image* runs
//! haproxy. Both are made of Debian packages and of Go modules, because no registry is involved:
//! each result is an archive of a root file system, which `docker import` accepts.
//!
//! The images that kubeadm starts (etcd, kube-apiserver, ...) are in the node image already, as in
//! the images of kind: [`images`] imports them into the store of containerd.
//!
//! Deliberately absent: kube-proxy and CoreDNS. A cluster of the lane skips both.

mod images;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use anyhow::{Context, Result, ensure};

use crate::debian::Unpacked;
use crate::docker::{Daemon, Tools};
use crate::envtest::go::{self, Recipe, Source};
use crate::envtest::{self, Assets, KUBERNETES_VERSION, Program};
use crate::go_modules;
use crate::workspace::{self, output_of};

/// Part of the name of the cached folder. Increase it when the content of an image changes.
const REVISION: u32 = 3;

const DEBIAN_RELEASE: &str = "bookworm";

/// Packages of the root file system, in addition to the smallest possible system.
const PACKAGES: &[&str] = &[
    "systemd",
    "systemd-sysv",
    "dbus",
    "containerd",
    "runc",
    "containernetworking-plugins",
    "iptables",
    "iproute2",
    "kmod",
    "ethtool",
    "conntrack",
    "ca-certificates",
    "socat",
    "mount",
    "procps",
    // For the balancer image.
    "haproxy",
];

/// Units that make no sense in a container, or cost time.
const MASKED: &[&str] = &[
    "getty.target",
    "console-getty.service",
    "systemd-logind.service",
    "systemd-udevd.service",
    "systemd-udev-trigger.service",
    "systemd-remount-fs.service",
    "systemd-networkd-wait-online.service",
    "apt-daily.timer",
    "apt-daily-upgrade.timer",
    "dpkg-db-backup.timer",
    "e2scrub_all.timer",
    "fstrim.timer",
    "haproxy.service",
];

/// Files of the balancer image, which are copied together with the libraries that they need.
const BALANCER_FILES: &[&str] = &[
    "/usr/sbin/haproxy",
    "/bin/sh",
    "/bin/cat",
    "/bin/cp",
    "/bin/mkdir",
    "/bin/mv",
    "/bin/kill",
    "/bin/tar",
];

/// First processes of the images.
const NODE_ENTRYPOINT: &str = r#"ENTRYPOINT ["/usr/local/bin/entrypoint"]"#;
const BALANCER_ENTRYPOINT: &str =
    r#"ENTRYPOINT ["haproxy", "-W", "-db", "-f", "/usr/local/etc/haproxy/haproxy.cfg"]"#;

/// Archives of root file systems, ready for `docker import`.
#[derive(Debug)]
pub(crate) struct NodeImages {
    pub(crate) node: PathBuf,
    pub(crate) balancer: PathBuf,
}

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Import the node image into the engine of DOCKER_HOST, under the name that
    /// `machinist up --cloud docker` uses
    #[arg(long)]
    import: bool,
}

/// Runs `cargo xtask node-image`.
pub(crate) fn run(args: &Args) -> Result<()> {
    let tools = Tools::provide()?;
    let images = NodeImages::provide(&Assets::provide()?, &tools)?;
    println!("{}\n{}", images.node.display(), images.balancer.display());
    if args.import {
        let name = format!("kindest/node:{}", NodeImages::kubernetes_version());
        import(tools.command("usr/bin/docker")?, &images.node, &name, NODE_ENTRYPOINT)?;
        println!("{name}");
    }
    Ok(())
}

/// Imports an archive with a command of Docker's client.
fn import(mut docker: Command, archive: &Path, name: &str, entrypoint: &str) -> Result<()> {
    docker.args(["import", "--change", entrypoint, "--change", "ENV container=docker"]);
    docker.args(["--change", "ENV PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"]);
    let imported = output_of(docker.arg(archive).arg(name));
    imported.map(drop).with_context(|| format!("cannot import {name}"))
}

impl NodeImages {
    /// Returns the version of Kubernetes in the node image, as tags of images have it.
    pub(crate) fn kubernetes_version() -> String {
        format!("v{KUBERNETES_VERSION}")
    }

    /// Returns why [`provide`](Self::provide) cannot succeed, without building anything; `None` if
    /// it may succeed. May download a package and a module.
    pub(crate) fn reason_they_cannot_be_had() -> Option<String> {
        if cached().is_ok_and(|folder| Self::in_folder(&folder).are_complete()) {
            return None;
        }
        let probe = || -> Result<()> {
            Unpacked::create(&["debootstrap"], &tempfile::tempdir()?.path().join("root"))?;
            let source = go_modules::Source::CacheOrProxy;
            go_modules::provide("k8s.io/kubernetes", &Self::kubernetes_version(), source).map(drop)
        };
        probe().err().map(|error| format!("the node image cannot be built: {error:#}"))
    }

    /// Finds the images in the cache, or builds them.
    ///
    /// # Errors
    /// If Go, a package or the permission to create a root file system is missing.
    pub(crate) fn provide(assets: &Assets, tools: &Tools) -> Result<Self> {
        let folder = cached()?;
        if !Self::in_folder(&folder).are_complete() {
            build_once(assets, tools, &folder)?;
        }
        Ok(Self::in_folder(&folder))
    }

    /// Imports the images into a daemon, under the given names.
    pub(crate) fn import(&self, docker: &Daemon, node: &str, balancer: &str) -> Result<()> {
        import(docker.docker()?, &self.node, node, NODE_ENTRYPOINT)?;
        import(docker.docker()?, &self.balancer, balancer, BALANCER_ENTRYPOINT)
    }

    fn in_folder(folder: &Path) -> Self {
        Self { node: folder.join("node.tar"), balancer: folder.join("balancer.tar") }
    }

    fn are_complete(&self) -> bool {
        self.node.is_file() && self.balancer.is_file()
    }
}

/// Returns the folder of the images in the cache. It is named by version.
fn cached() -> Result<PathBuf> {
    Ok(workspace::cache()?.join("node-image").join(format!("{KUBERNETES_VERSION}-{REVISION}")))
}

/// The programs of a node that are not programs of a control plane on this computer.
fn recipes() -> [Recipe; 4] {
    let kubeadm = r#"package main

import (
	"k8s.io/kubernetes/cmd/kubeadm/app"
	"k8s.io/kubernetes/cmd/kubeadm/app/util/errors"
)

func main() { errors.HandleError(app.Run()) }
"#;
    let pause = include_str!("node_image/pause.go");
    [
        Recipe::kubernetes_server("kubelet", "NewKubeletCommand(context.Background())"),
        Recipe { file_name: "kubeadm", source: Source::kubernetes(), main: kubeadm.to_owned() },
        Recipe::kubernetes_server("kube-scheduler", "NewSchedulerCommand()"),
        Recipe { file_name: "pause", source: Source::kubernetes(), main: pause.to_owned() },
    ]
}

/// Returns the folder with the programs of [`recipes`], and builds them if necessary.
fn programs() -> Result<PathBuf> {
    let folder = workspace::cache()?.join("node-programs").join(KUBERNETES_VERSION);
    let recipes = recipes();
    if !recipes.iter().all(|recipe| folder.join(recipe.file_name).is_file()) {
        envtest::build_recipes(&go::toolchain()?, &recipes, &folder)?;
    }
    Ok(folder)
}

fn build_once(assets: &Assets, tools: &Tools, folder: &Path) -> Result<()> {
    let programs = programs()?;
    let parent = folder.parent().context("the cache folder has a parent")?;
    fs::create_dir_all(parent).with_context(|| format!("cannot create {}", parent.display()))?;
    let _lock = envtest::lock(&parent.join(".lock"))?;
    if NodeImages::in_folder(folder).are_complete() {
        return Ok(());
    }
    let started = Instant::now();
    eprintln!("Building the node image into {} (about two minutes, once)", folder.display());
    let workshop = tempfile::Builder::new().prefix(".building-").tempdir_in(parent)?;
    let built = workshop.path().join("built");
    fs::create_dir(&built)?;
    let images = NodeImages::in_folder(&built);
    let builder = Builder { assets, tools, programs, workshop: workshop.path() };
    let root = builder.debian_root()?;
    eprintln!("  Debian packages after {:.0?}", started.elapsed());
    builder.balancer(&root, &images.balancer)?;
    builder.add_kubernetes(&root)?;
    pack(&root, &images.node)?;
    envtest::put_in_place(&built, folder)?;
    eprintln!("Built in {:.0?}", started.elapsed());
    Ok(())
}

struct Builder<'a> {
    assets: &'a Assets,
    tools: &'a Tools,
    /// Folder of the programs of [`recipes`].
    programs: PathBuf,
    workshop: &'a Path,
}

impl Builder<'_> {
    /// Creates the root file system with the Debian packages.
    fn debian_root(&self) -> Result<PathBuf> {
        let debootstrap = Unpacked::create(&["debootstrap"], &self.workshop.join("debootstrap"))?;
        let root = self.workshop.join("root");
        // The mounts of the script end with its own mount namespace, also if it is killed.
        let mut command = Command::new("unshare");
        command.args(["--mount", "--", "sh"]).arg(debootstrap.path("usr/sbin/debootstrap"));
        command.env("DEBOOTSTRAP_DIR", debootstrap.path("usr/share/debootstrap"));
        command.args(["--variant=minbase", &format!("--include={}", PACKAGES.join(","))]);
        output_of(command.arg(DEBIAN_RELEASE).arg(&root))
            .context("cannot create a Debian root file system")?;
        for folder in [
            "var/cache/apt/archives",
            "var/lib/apt/lists",
            "usr/share/doc",
            "usr/share/man",
            "usr/share/locale",
        ] {
            let folder = root.join(folder);
            if folder.exists() {
                fs::remove_dir_all(&folder)?;
            }
        }
        Ok(root)
    }

    /// Makes the archive of the balancer image from files of the root file system.
    fn balancer(&self, root: &Path, archive: &Path) -> Result<()> {
        let folder = self.workshop.join("balancer");
        for file in BALANCER_FILES {
            let libraries = output_of(chroot(root).arg("ldd").arg(file))?;
            let libraries = libraries.split_whitespace().filter(|word| word.starts_with('/'));
            for file in std::iter::once(*file).chain(libraries) {
                copy(&root.join(file.trim_start_matches('/')), &folder.join(file.trim_start_matches('/')))?;
            }
        }
        for folder in
            ["etc", "tmp", "run", "usr/local/etc/haproxy", "var/lib/haproxy"].map(|name| folder.join(name))
        {
            fs::create_dir_all(folder)?;
        }
        fs::write(folder.join("etc/passwd"), "root:x:0:0:root:/:/bin/sh\n")?;
        fs::write(folder.join("etc/group"), "root:x:0:\n")?;
        pack(&folder, archive)
    }

    /// Adds the programs of Kubernetes, their configuration, and the images of kubeadm.
    fn add_kubernetes(&self, root: &Path) -> Result<()> {
        for name in ["kubelet", "kubeadm"] {
            copy(&self.programs.join(name), &root.join("usr/bin").join(name))?;
        }
        copy(&self.assets.path(Program::Kubectl), &root.join("usr/bin/kubectl"))?;
        let images = images::of_kubeadm(self)?;
        let containerd = include_str!("node_image/containerd.toml").replace("SANDBOX_IMAGE", &images.sandbox);
        let files = [
            ("usr/local/bin/entrypoint", include_str!("node_image/entrypoint.sh")),
            ("etc/systemd/system/kubelet.service", include_str!("node_image/kubelet.service")),
            ("etc/kubernetes/kubelet.conf.d/50-node.conf", include_str!("node_image/kubelet.conf")),
            ("etc/cni/net.d/10-node.conflist", include_str!("node_image/network.conflist")),
            ("etc/containerd/config.toml", &containerd),
            ("etc/fstab", ""),
            ("etc/hostname", ""),
        ];
        for (name, text) in files {
            write(&root.join(name), text)?;
        }
        output_of(Command::new("chmod").arg("755").arg(root.join("usr/local/bin/entrypoint")))?;
        output_of(chroot(root).args(["systemctl", "mask"]).args(MASKED))?;
        output_of(chroot(root).args(["systemctl", "enable", "containerd.service", "kubelet.service"]))?;
        output_of(chroot(root).args(["systemctl", "set-default", "multi-user.target"]))?;
        images.import(self, root)
    }
}

fn chroot(root: &Path) -> Command {
    let mut command = Command::new("chroot");
    command.arg(root).env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin").env("LC_ALL", "C");
    command
}

fn copy(from: &Path, to: &Path) -> Result<()> {
    let folder = to.parent().context("the file has a folder")?;
    fs::create_dir_all(folder).with_context(|| format!("cannot create {}", folder.display()))?;
    let copied = fs::copy(from, to);
    copied.map(drop).with_context(|| format!("cannot copy {} to {}", from.display(), to.display()))
}

fn write(file: &Path, text: &str) -> Result<()> {
    let folder = file.parent().context("the file has a folder")?;
    fs::create_dir_all(folder).with_context(|| format!("cannot create {}", folder.display()))?;
    fs::write(file, text).with_context(|| format!("cannot write {}", file.display()))
}

/// Packs a root file system into an archive.
fn pack(root: &Path, archive: &Path) -> Result<()> {
    let mut tar = Command::new("tar");
    tar.args(["--numeric-owner", "--xattrs", "--create", "--file"]).arg(archive).arg("--directory").arg(root);
    output_of(tar.arg(".")).map(drop)?;
    ensure!(archive.is_file(), "`tar` wrote no {}", archive.display());
    Ok(())
}
