//! Runs real clusters on this computer: etcd, kube-apiserver and, on request,
//! kube-controller-manager.
//!
//! There are always two roles: *control* (the cluster with the Machines) and *target* (the cluster
//! with the Nodes). With `--count 1` one cluster has both roles; nothing else changes for readers
//! of the description. A test program in another process starts `cargo xtask control-plane`, reads
//! one line of JSON, and closes the standard input of the task when done. Other tasks of this crate
//! call [`ControlPlane::start`].
//!
//! Each cluster is set up so that a machine can join with only a bootstrap token: Node and RBAC
//! authorizers, NodeRestriction, bootstrap-token authentication, the bindings of [`bootstrap`], and
//! a controller manager that approves and signs certificates. A cluster uses its own folder and
//! ends with this process, even if the process is killed: see [`processes`].
//!
//! Deliberately absent: a scheduler and kubelets (nodes are simulated, tests bind pods) and
//! aggregated APIs.

mod bootstrap;
mod cluster;
mod pki;
pub(crate) mod processes;

use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use clap::ValueEnum;
use serde::Serialize;

pub(crate) use cluster::{Cluster, pause, pipe_into};

use crate::envtest::{Assets, Program};
use cluster::Settings;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// One cluster for both roles, or two: control and target
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..=2))]
    count: u8,

    /// Run kube-controller-manager for the given clusters; without a value for all
    #[arg(long, value_name = "WHICH", num_args = 0..=1, require_equals = true, default_missing_value = "all")]
    kcm: Option<ControllerManagers>,

    /// Seconds without a lease renewal after which kube-controller-manager marks a Node as Unknown
    #[arg(long, value_name = "SECONDS", default_value_t = 8, value_parser = clap::value_parser!(u64).range(2..))]
    node_grace: u64,

    /// Let each kube-apiserver write an audit log with user, request and response code
    #[arg(long)]
    audit: bool,

    /// Let etcd skip fsync; faster, but not suitable for measurements
    #[arg(long)]
    no_fsync: bool,

    /// Keep all files in this directory, including logs; otherwise a temporary directory is used
    /// and removed
    #[arg(long, value_name = "DIR")]
    folder: Option<PathBuf>,
}

/// Clusters with a kube-controller-manager.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum ControllerManagers {
    None,
    Target,
    All,
}

/// Pods that a cluster without a kube-controller-manager accepts: no process creates service
/// accounts there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Pods {
    /// Pods with an existing service account, as in any cluster.
    AsAlways,
    /// All pods.
    WithoutServiceAccount,
}

/// Whether kube-apiserver records its requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Audit {
    Off,
    /// Records user, User-Agent, verb, object and code of every request, in the order of the
    /// responses.
    Metadata,
}

/// Durability of writes that etcd acknowledges.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Durability {
    /// Synced to disk, as in production.
    Fsync,
    /// Lost in a power cut. For scenarios, which discard the data, on disks with a slow sync.
    None,
}

/// Options of a control plane.
#[derive(Debug, Clone)]
pub(crate) struct Options {
    pub(crate) roles: Roles,
    pub(crate) controller_managers: ControllerManagers,
    pub(crate) pods: Pods,
    pub(crate) node_grace: Duration,
    pub(crate) audit: Audit,
    pub(crate) durability: Durability,
    /// Folder for all files, which is kept. `None` uses a temporary folder that is removed at the
    /// end.
    pub(crate) folder: Option<PathBuf>,
}

/// Number of clusters for the two roles.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Roles {
    OneClusterForBoth,
    OneClusterEach,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            roles: Roles::OneClusterEach,
            controller_managers: ControllerManagers::All,
            pods: Pods::AsAlways,
            node_grace: Duration::from_secs(8),
            audit: Audit::Off,
            durability: Durability::Fsync,
            folder: None,
        }
    }
}

impl From<&Args> for Options {
    fn from(args: &Args) -> Self {
        Self {
            roles: if args.count == 1 { Roles::OneClusterForBoth } else { Roles::OneClusterEach },
            controller_managers: args.kcm.unwrap_or(ControllerManagers::None),
            pods: Pods::WithoutServiceAccount,
            node_grace: Duration::from_secs(args.node_grace),
            audit: if args.audit { Audit::Metadata } else { Audit::Off },
            durability: if args.no_fsync { Durability::None } else { Durability::Fsync },
            folder: args.folder.clone(),
        }
    }
}

/// Running clusters; dropping the value stops them.
pub(crate) struct ControlPlane {
    control: Cluster,
    /// `None` if the control cluster is also the target.
    target: Option<Cluster>,
    kubectl: PathBuf,
    start_took: Duration,
}

/// Variable that describes the clusters to a test target, or to `machinist-bench`.
pub(crate) const CLUSTERS_VARIABLE: &str = "MACHINIST_REAL_CLUSTERS";

/// Description of a control plane for other programs: the line of JSON.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Description<'a> {
    control: &'a cluster::Description,
    target: &'a cluster::Description,
    kubectl: &'a Path,
    seconds_to_ready: f64,
}

impl ControlPlane {
    /// Starts the clusters and waits until they are ready.
    ///
    /// # Errors
    /// If a program fails. The error contains the end of its log.
    pub(crate) fn start(assets: &Assets, options: &Options) -> Result<Self> {
        let started = Instant::now();
        let start = |role: &'static str, with_controller_manager: bool| {
            let settings = Settings {
                role,
                controller_manager: with_controller_manager.then_some(options.node_grace),
                pods: options.pods,
                audit: options.audit,
                durability: options.durability,
                folder: options.folder.as_ref().map(|folder| folder.join(role)),
            };
            Cluster::start(assets, &settings).with_context(|| format!("cannot start the {role} cluster"))
        };
        let on_control = match (options.controller_managers, options.roles) {
            (ControllerManagers::None, _) | (ControllerManagers::Target, Roles::OneClusterEach) => false,
            (ControllerManagers::All, _) | (ControllerManagers::Target, Roles::OneClusterForBoth) => true,
        };
        let on_target = options.controller_managers != ControllerManagers::None;
        let (control, target) = match options.roles {
            Roles::OneClusterForBoth => (start("control", on_control)?, None),
            Roles::OneClusterEach => thread::scope(|scope| -> Result<_> {
                let target = scope.spawn(|| start("target", on_target));
                let control = start("control", on_control);
                let target = target.join().expect("starting a cluster does not panic");
                Ok((control?, Some(target?)))
            })?,
        };
        Ok(Self { control, target, kubectl: assets.path(Program::Kubectl), start_took: started.elapsed() })
    }

    pub(crate) fn control(&self) -> &Cluster {
        &self.control
    }

    pub(crate) fn target(&self) -> &Cluster {
        self.target.as_ref().unwrap_or(&self.control)
    }

    /// Fails if a program of any cluster has ended.
    pub(crate) fn ensure_alive(&mut self) -> Result<()> {
        std::iter::once(&mut self.control).chain(&mut self.target).try_for_each(Cluster::ensure_alive)
    }

    /// Says what the programs of each cluster printed last and which of them have ended, and how
    /// much disk and memory is left.
    pub(crate) fn last_words(&mut self) -> String {
        let clusters = std::iter::once(&mut self.control).chain(&mut self.target);
        let clusters: Vec<String> = clusters.map(Cluster::last_words).collect();
        format!("{}\n{}", clusters.join("\n"), what_is_left())
    }

    /// Returns the kubectl that belongs to the clusters.
    pub(crate) fn kubectl(&self) -> &Path {
        &self.kubectl
    }

    pub(crate) fn describe(&self) -> Description<'_> {
        Description {
            control: self.control.describe(),
            target: self.target().describe(),
            kubectl: &self.kubectl,
            seconds_to_ready: self.start_took.as_secs_f64(),
        }
    }
}

/// The output of `df` and `free`. Servers without disk or memory end or stop answering.
fn what_is_left() -> String {
    let folder = std::env::temp_dir();
    let printed =
        [Command::new("df").arg("-h").arg(folder).output(), Command::new("free").arg("-m").output()];
    printed.iter().flatten().map(|output| String::from_utf8_lossy(&output.stdout)).collect()
}

/// Runs `cargo xtask control-plane`.
pub(crate) fn run(args: &Args) -> Result<()> {
    let assets = Assets::provide()?;
    let control_plane = ControlPlane::start(&assets, &Options::from(args))?;
    println!("{}", serde_json::to_string(&control_plane.describe())?);
    io::stdout().flush()?;
    wait_for_end_of_input()
}

/// Blocks until the parent process closes our standard input, on purpose or by ending. Ctrl-C needs
/// no handler: see [`processes`].
pub(crate) fn wait_for_end_of_input() -> Result<()> {
    let mut ignored = [0; 256];
    while io::stdin().read(&mut ignored).context("cannot read standard input")? != 0 {}
    Ok(())
}
