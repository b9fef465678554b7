//! A measured server, as a process.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use kube::Client;
use kube::config::{KubeConfigOptions, Kubeconfig};
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::{Child, Command};
use tokio::time::Instant;

use crate::clusters::MeasuredClusters;
use crate::program::resident_mb;

/// Timeout of a start, which normally takes milliseconds.
const STARTED_WITHIN: Duration = Duration::from_secs(60);

/// Where the embedded server stores its state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Keeping {
    /// In memory only.
    Memory,
    /// In a folder, synced before each answer.
    Folder,
}

/// A running server.
pub(super) struct Subject {
    pub(super) name: String,
    /// Milliseconds from the start of the process until its first answer.
    pub(super) start_ms: f64,
    kubeconfig: PathBuf,
    what: What,
}

enum What {
    Embedded {
        keeping: Keeping,
        folder: TempDir,
        child: Child,
    },
    /// The process ids of kube-apiserver and etcd.
    Real(Vec<u32>),
}

impl Subject {
    pub(super) async fn embedded(keeping: Keeping) -> Result<Self> {
        let folder = tempfile::Builder::new().prefix("machinist-bench-").tempdir()?;
        let kubeconfig = folder.path().join("kubeconfig");
        let (child, start_ms) = start(folder.path(), keeping).await?;
        let name = match keeping {
            Keeping::Memory => "embedded, in memory",
            Keeping::Folder => "embedded, data folder",
        };
        Ok(Self {
            name: name.to_owned(),
            start_ms,
            kubeconfig,
            what: What::Embedded { keeping, folder, child },
        })
    }

    pub(super) async fn real() -> Result<Self> {
        let clusters = MeasuredClusters::from_environment()?;
        let cluster = clusters.control;
        Ok(Self {
            name: format!("kube-apiserver {}", cluster.version),
            start_ms: clusters.seconds_to_ready * 1000.0,
            kubeconfig: cluster.kubeconfig,
            what: What::Real(cluster.process_ids.into_values().collect()),
        })
    }

    /// The administrator's client.
    pub(super) async fn client(&self) -> Result<Client> {
        client(&self.kubeconfig).await
    }

    /// The memory of all processes of the server.
    pub(super) fn resident_mb(&self) -> Result<f64> {
        match &self.what {
            What::Embedded { child, .. } => {
                resident_mb(&child.id().context("the server has ended")?.to_string())
            }
            What::Real(ids) => ids.iter().map(|id| resident_mb(&id.to_string())).sum(),
        }
    }

    /// Kills the server, starts it again on its stored state, and returns the time of that start.
    /// Returns nothing for a server that stores no state, and for kube-apiserver, which xtask
    /// started.
    pub(super) async fn restart(&mut self) -> Result<Option<f64>> {
        let What::Embedded { keeping: Keeping::Folder, folder, child } = &mut self.what else {
            return Ok(None);
        };
        child.kill().await?;
        let (again, start_ms) = start(folder.path(), Keeping::Folder).await?;
        *child = again;
        Ok(Some(start_ms))
    }
}

/// Starts the embedded server. Returns the milliseconds from the start of its process until it
/// answers.
async fn start(folder: &Path, keeping: Keeping) -> Result<(Child, f64)> {
    let began = Instant::now();
    let mut command = Command::new(std::env::current_exe()?);
    command.arg("embedded-server").arg("--folder").arg(folder);
    if keeping == Keeping::Folder {
        command.arg("--keep");
    }
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).kill_on_drop(true).spawn()?;
    let mut lines = BufReader::new(child.stdout.take().context("stdout is a pipe")?).lines();
    let started = tokio::time::timeout(STARTED_WITHIN, lines.next_line()).await;
    if started.context("the embedded server did not start in time")??.is_none() {
        bail!("the embedded server ended");
    }
    let client = client(&folder.join("kubeconfig")).await?;
    client.apiserver_version().await.context("the embedded server does not answer")?;
    Ok((child, began.elapsed().as_secs_f64() * 1000.0))
}

/// Reports the server's URL to the parent process.
pub(super) fn say_ready(url: &str) -> Result<()> {
    let mut out = std::io::stdout();
    writeln!(out, "{url}")?;
    Ok(out.flush()?)
}

async fn client(kubeconfig: &Path) -> Result<Client> {
    let read = Kubeconfig::read_from(kubeconfig)?;
    let mut config = kube::Config::from_custom_kubeconfig(read, &KubeConfigOptions::default()).await?;
    config.default_retry = false;
    Ok(Client::try_from(config)?)
}
