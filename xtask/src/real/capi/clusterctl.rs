//! clusterctl with the output of `cargo xtask components` as its local repository.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use super::management::{self, PROVIDERS};
use crate::components::{COMPONENTS, Provider};
use crate::control_plane::{Cluster, ControlPlane, pipe_into};
use crate::go_programs::{CLUSTER_API_VERSION, CLUSTERCTL};
use crate::node_image::NodeImages;
use crate::workspace::{self, output_of};

const PROVIDER: &str = "machinist-docker";
pub(super) const NAMESPACE: &str = "default";

/// The templates by flavor; the first is the default one.
pub(super) const FLAVORS: [&str; 3] = ["", "topology", "ignition"];

/// Enough of cert-manager for clusterctl to accept it. No certificate is issued, and no controller
/// runs.
const CERT_MANAGER: &str = "cert-manager.io";

/// Number of machines of a generated Cluster.
#[derive(Debug, Clone, Copy)]
pub(super) struct Size {
    pub(super) control_plane: u32,
    pub(super) workers: u32,
}

/// The program, its configuration and its repository.
pub(super) struct Clusterctl {
    program: PathBuf,
    configuration: PathBuf,
    home: PathBuf,
    kubeconfig: PathBuf,
    /// The entry of our provider in the configuration.
    provider: Value,
}

impl Clusterctl {
    /// Writes the files of the provider into a repository under `folder`, with the CRDs of the
    /// program `machinist`.
    pub(super) fn new(cluster: &Cluster, folder: &Path, machinist: &Path) -> Result<Self> {
        let home = folder.join("clusterctl");
        let components = Provider::Docker.release_into(&home.join("repository"), machinist)?.join(COMPONENTS);
        let clusterctl = Self {
            program: CLUSTERCTL.provide()?,
            configuration: home.join("clusterctl.yaml"),
            kubeconfig: cluster.kubeconfig().to_owned(),
            home,
            provider: json!({"name": PROVIDER, "type": "InfrastructureProvider", "url": components}),
        };
        clusterctl.configure(vec![clusterctl.provider.clone()])?;
        Ok(clusterctl)
    }

    fn configure(&self, providers: Vec<Value>) -> Result<()> {
        fs::write(&self.configuration, json!({"providers": providers}).to_string())?;
        Ok(())
    }

    /// Returns the manifest of a Cluster.
    pub(super) fn generate(&self, name: &str, flavor: &str, size: Size) -> Result<String> {
        let mut command = self.command(&["generate", "cluster", name]);
        command.args(["--infrastructure", &format!("{PROVIDER}:{}", version()), "--flavor", flavor]);
        command.args(["--kubernetes-version", &NodeImages::kubernetes_version()]);
        command.args(["--control-plane-machine-count", &size.control_plane.to_string()]);
        command.args(["--worker-machine-count", &size.workers.to_string(), "--target-namespace", NAMESPACE]);
        output_of(&mut command).with_context(|| format!("the template {flavor:?}"))
    }

    /// Returns a command of clusterctl, which reads no file of the user.
    pub(super) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(&self.program);
        command.args(arguments).arg("--config").arg(&self.configuration);
        command.env("HOME", &self.home).env("XDG_CONFIG_HOME", &self.home);
        command.env("KUBECONFIG", &self.kubeconfig).env("CLUSTERCTL_DISABLE_VERSIONCHECK", "true");
        command
    }
}

/// Creates the folder of one release of a provider.
fn release(home: &Path, label: &str, version: &str) -> Result<PathBuf> {
    let folder = home.join("repository").join(label).join(version);
    fs::create_dir_all(&folder).with_context(|| format!("cannot create {}", folder.display()))?;
    Ok(folder)
}

fn version() -> String {
    format!("v{}", env!("CARGO_PKG_VERSION"))
}

/// The lane that installs the files of the provider with clusterctl, and generates every template.
/// No controller runs, so this lane needs no Docker daemon.
pub(in crate::real) fn check(control_plane: &mut ControlPlane) -> Result<()> {
    let cluster = control_plane.target();
    let folder = tempfile::tempdir()?;
    let program = workspace::program()?;
    let clusterctl = Clusterctl::new(cluster, folder.path(), Path::new(program.get_program()))?;
    for flavor in FLAVORS {
        let manifest = clusterctl.generate("first", flavor, Size { control_plane: 1, workers: 2 })?;
        let objects = management::objects_in(cluster, &manifest)?;
        ensure!(!manifest.contains("${"), "the template {flavor:?} leaves a variable:\n{manifest}");
        println!("the template {flavor:?} has {} objects", objects.len());
    }
    install_cert_manager(cluster)?;
    init(cluster, &clusterctl)
}

/// Installs all providers from local repositories, and compares the inventory.
fn init(cluster: &Cluster, clusterctl: &Clusterctl) -> Result<()> {
    let sources = management::sources()?;
    let kinds = [
        ("cluster-api", "cluster-api", "CoreProvider", "core"),
        ("kubeadm", "bootstrap-kubeadm", "BootstrapProvider", "bootstrap"),
        ("kubeadm", "control-plane-kubeadm", "ControlPlaneProvider", "control-plane"),
    ];
    let mut providers = vec![clusterctl.provider.clone()];
    for (provider, (name, label, kind, prefix)) in PROVIDERS.iter().zip(kinds) {
        let release = release(&clusterctl.home, label, CLUSTER_API_VERSION)?;
        let file = release.join(format!("{prefix}-components.yaml"));
        let mut kustomize = cluster.kubectl();
        kustomize.arg("kustomize").arg(sources.join(provider.kustomization));
        fs::write(&file, output_of(&mut kustomize)?)?;
        fs::copy(sources.join("metadata.yaml"), release.join("metadata.yaml"))
            .context("the module of Cluster API has no metadata.yaml")?;
        providers.push(json!({"name": name, "type": kind, "url": file}));
    }
    clusterctl.configure(providers)?;

    let mut command = clusterctl.command(&["init", "--infrastructure", &format!("{PROVIDER}:{}", version())]);
    command.args(["--core", &format!("cluster-api:{CLUSTER_API_VERSION}")]);
    command.args(["--bootstrap", &format!("kubeadm:{CLUSTER_API_VERSION}")]);
    command.args(["--control-plane", &format!("kubeadm:{CLUSTER_API_VERSION}")]);
    output_of(&mut command).context("clusterctl does not install the output of `cargo xtask components`")?;
    let mut get = cluster.kubectl();
    get.args(["get", "providers.clusterctl.cluster.x-k8s.io", "--all-namespaces"]);
    let installed = output_of(get.arg("--output=jsonpath={.items[*].metadata.name}"))?;
    let installed: Vec<&str> = installed.split_whitespace().collect();
    let ours = format!("infrastructure-{PROVIDER}");
    ensure!(
        installed.len() == PROVIDERS.len() + 1 && installed.contains(&ours.as_str()),
        "clusterctl installed {installed:?}; expected {} providers with {ours}",
        PROVIDERS.len() + 1
    );
    println!("clusterctl installed {}", installed.join(", "));
    Ok(())
}

fn install_cert_manager(cluster: &Cluster) -> Result<()> {
    let define = |kind: &str| {
        let (singular, plural) = (kind.to_lowercase(), format!("{}s", kind.to_lowercase()));
        let schema =
            json!({"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}});
        json!({
            "apiVersion": "apiextensions.k8s.io/v1",
            "kind": "CustomResourceDefinition",
            "metadata": {"name": format!("{plural}.{CERT_MANAGER}")},
            "spec": {
                "group": CERT_MANAGER,
                "scope": "Namespaced",
                "names": {"kind": kind, "plural": plural, "singular": singular},
                "versions": [{"name": "v1", "served": true, "storage": true, "schema": schema}],
            },
        })
    };
    management::apply(cluster, &["Issuer", "Certificate", "CertificateRequest"].map(define))
}

/// Creates the objects of a manifest.
pub(super) fn create(cluster: &Cluster, objects: &[Value]) -> Result<()> {
    let list = json!({"apiVersion": "v1", "kind": "List", "items": objects});
    pipe_into(cluster.kubectl().args(["create", "--filename=-"]), &list.to_string())
}
