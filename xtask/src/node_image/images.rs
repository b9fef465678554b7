//! The images that kubeadm starts: one program each, in the store of the node's containerd.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde_json::json;

use super::Builder;
use crate::control_plane::pause;
use crate::envtest::{KUBERNETES_VERSION, Program};
use crate::workspace::output_of;

/// Far longer than containerd needs to start.
const READY_WITHIN: Duration = Duration::from_secs(30);
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// Namespace of the images that the kubelet uses.
const NAMESPACE: &str = "k8s.io";

/// Folder of containerd in the root file system.
const STORE: &str = "var/lib/containerd";

/// Only what an import needs. The second plugin would create a folder outside of ours.
const CONFIGURATION: &str = r#"
version = 2
disabled_plugins = ["io.containerd.grpc.v1.cri", "io.containerd.internal.v1.opt"]
"#;

/// Images by their complete names, with the programs in them.
pub(super) struct Images {
    programs: BTreeMap<String, PathBuf>,
    /// Name of the image that each pod starts with.
    pub(super) sandbox: String,
}

/// Asks kubeadm for the names of its images, and finds the program of each.
pub(super) fn of_kubeadm(builder: &Builder) -> Result<Images> {
    let mut kubeadm = Command::new(builder.programs.join("kubeadm"));
    kubeadm.args(["config", "images", "list", &format!("--kubernetes-version=v{KUBERNETES_VERSION}")]);
    let names = output_of(&mut kubeadm)?;
    let mut programs = BTreeMap::new();
    let mut sandbox = None;
    for name in names.lines() {
        let last = name.rsplit('/').next().unwrap_or(name);
        let program = match last.split(':').next().unwrap_or(last) {
            "kube-apiserver" => builder.assets.path(Program::KubeApiserver),
            "kube-controller-manager" => builder.assets.path(Program::KubeControllerManager),
            "etcd" => builder.assets.path(Program::Etcd),
            "kube-scheduler" => builder.programs.join("kube-scheduler"),
            "pause" => {
                sandbox = Some(name.to_owned());
                builder.programs.join("pause")
            }
            // kube-proxy and CoreDNS, which the clusters of the lane skip.
            _ => continue,
        };
        programs.insert(name.to_owned(), program);
    }
    let sandbox = sandbox.context("`kubeadm config images list` names no image of `pause`")?;
    ensure!(programs.len() == 5, "expected 5 known images of kubeadm, found {programs:?} in:\n{names}");
    Ok(Images { programs, sandbox })
}

impl Images {
    /// Imports the images into the store of containerd in a root file system.
    pub(super) fn import(&self, builder: &Builder, root: &Path) -> Result<()> {
        let folder = builder.workshop.join("images");
        fs::create_dir_all(&folder)?;
        let store = Store::start(builder, root)?;
        for (name, program) in &self.programs {
            let archive = archive(name, program, &folder)?;
            let import = ["images", "import", "--all-platforms", "--no-unpack=false"];
            output_of(store.ctr(builder).args(import).arg(&archive.file))
                .with_context(|| format!("cannot import {name}"))?;
            // containerd has unpacked the layer, and needs the packed one only to push the image.
            // Docker copies the store into a volume of each node.
            output_of(store.ctr(builder).args(["content", "delete", &archive.layer]))?;
            fs::remove_file(archive.file)?;
        }
        drop(store);
        Ok(())
    }
}

/// An image in the format of `docker save`.
struct Archive {
    file: PathBuf,
    /// Digest of the only layer.
    layer: String,
}

/// Writes the archive of an image with one program.
fn archive(name: &str, program: &Path, folder: &Path) -> Result<Archive> {
    let file_name = program.file_name().context("the program has a name")?.to_owned();
    let content = folder.join("content");
    let to = content.join("usr/local/bin").join(&file_name);
    super::copy(program, &to)?;
    let layer = folder.join("layer.tar");
    super::pack(&content, &layer)?;
    fs::remove_dir_all(&content)?;

    let sum = output_of(Command::new("sha256sum").arg(&layer))?;
    let sum = sum.split_whitespace().next().context("`sha256sum` printed nothing")?;
    let digest = format!("sha256:{sum}");
    let entrypoint = format!("/usr/local/bin/{}", file_name.to_string_lossy());
    let config = json!({
        "architecture": architecture(),
        "os": "linux",
        "config": {
            "Env": ["PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"],
            "Entrypoint": [entrypoint],
        },
        "rootfs": {"type": "layers", "diff_ids": [digest]},
    });
    fs::write(folder.join("config.json"), config.to_string())?;
    let manifest = json!([{"Config": "config.json", "RepoTags": [name], "Layers": ["layer.tar"]}]);
    fs::write(folder.join("manifest.json"), manifest.to_string())?;

    let file = folder.join("image.tar");
    let mut tar = Command::new("tar");
    tar.arg("--create").arg("--file").arg(&file).arg("--directory").arg(folder);
    output_of(tar.args(["manifest.json", "config.json", "layer.tar"]))?;
    Ok(Archive { file, layer: digest })
}

/// Returns the architecture of this computer with its name in Go.
fn architecture() -> &'static str {
    match std::env::consts::ARCH {
        "aarch64" => "arm64",
        "x86_64" => "amd64",
        other => other,
    }
}

/// A containerd of this computer that works on the store of a root file system.
struct Store {
    process: Child,
    socket: PathBuf,
}

impl Store {
    fn start(builder: &Builder, root: &Path) -> Result<Self> {
        let state = builder.workshop.join("containerd");
        fs::create_dir_all(&state)?;
        let socket = state.join("containerd.sock");
        let configuration = state.join("config.toml");
        fs::write(&configuration, CONFIGURATION)?;
        let log = File::create(state.join("log"))?;
        let process = builder
            .tools
            .command("usr/bin/containerd")?
            .arg("--config")
            .arg(&configuration)
            .arg("--root")
            .arg(root.join(STORE))
            .arg("--state")
            .arg(state.join("state"))
            .arg("--address")
            .arg(&socket)
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .spawn()
            .context("cannot start containerd")?;
        let store = Self { process, socket };
        store.wait(builder, &state.join("log"))?;
        Ok(store)
    }

    fn wait(&self, builder: &Builder, log: &Path) -> Result<()> {
        let started = Instant::now();
        while output_of(self.ctr(builder).arg("version")).is_err() {
            ensure!(
                started.elapsed() < READY_WITHIN,
                "containerd did not start within {READY_WITHIN:?}:\n{}",
                fs::read_to_string(log).unwrap_or_default()
            );
            pause(LOOK_EVERY);
        }
        Ok(())
    }

    fn ctr(&self, builder: &Builder) -> Command {
        let mut command = Command::new(builder.tools.path("usr/bin/ctr"));
        command.arg("--address").arg(&self.socket).args(["--namespace", NAMESPACE]);
        command
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        // SIGTERM, so that containerd closes its databases.
        let asked = Command::new("kill").arg(self.process.id().to_string()).status();
        if !asked.is_ok_and(|status| status.success()) {
            let _ = self.process.kill();
        }
        let _ = self.process.wait();
    }
}
