//! The common parts of the targets with real clusters: the description of the clusters, a client,
//! processes, and waiting for a state.

use std::fs::File;
use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use kube::config::{KubeConfigOptions, Kubeconfig};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use tokio::time::Instant;

/// The variable that describes the clusters, with the output of `cargo xtask control-plane`.
const CLUSTERS: &str = "MACHINIST_REAL_CLUSTERS";

/// Interval between looks at the objects.
pub(crate) const LOOK_EVERY: Duration = Duration::from_millis(200);

/// A cluster, as `cargo xtask control-plane` describes it.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Cluster {
    pub server: String,
    pub version: String,
    pub kubeconfig: PathBuf,
    pub ca_file: PathBuf,
}

/// Reads the description that the lane of this name provides.
pub(crate) fn described<T: DeserializeOwned>(lane: &str) -> Result<T> {
    let text = std::env::var(CLUSTERS)
        .with_context(|| format!("{CLUSTERS} is not set. Run `cargo xtask real --lane {lane}`"))?;
    serde_json::from_str(&text)
        .with_context(|| format!("{CLUSTERS}: expected the output of `cargo xtask control-plane`"))
}

/// Creates a client of an administrator.
pub(crate) async fn client(kubeconfig: &Path) -> Result<kube::Client> {
    let kubeconfig = Kubeconfig::read_from(kubeconfig)?;
    let config = kube::Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?;
    Ok(kube::Client::try_from(config)?)
}

/// A process, killed when it is dropped.
pub(crate) struct Process {
    pub child: Child,
    log: PathBuf,
}

impl Process {
    /// Starts a process. Its log goes to a file of this name, which a restarted process continues.
    pub(crate) fn start(command: &mut Command, folder: &Path, name: &str) -> Result<Self> {
        let log = folder.join(format!("{name}.log"));
        let stderr = File::options().create(true).append(true).open(&log)?;
        let child = command.env_remove("KUBECONFIG").stdin(Stdio::null()).stderr(stderr).spawn();
        Ok(Self { child: child.with_context(|| format!("cannot start {name}"))?, log })
    }

    /// Kills the process without a chance to clean up.
    pub(crate) fn kill(&mut self) -> Result<()> {
        self.child.kill()?;
        self.child.wait()?;
        Ok(())
    }

    /// Returns an error if the process has ended.
    pub(crate) fn ensure_alive(&mut self) -> Result<()> {
        let status = self.child.try_wait()?;
        ensure!(status.is_none(), "a process ended ({status:?}): {}", self.log());
        Ok(())
    }

    /// The end of the log.
    pub(crate) fn log(&self) -> String {
        let log = std::fs::read_to_string(&self.log).unwrap_or_default();
        let mut last: Vec<&str> = log.lines().rev().take(60).collect();
        last.reverse();
        last.join("\n")
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // The process may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Returns a port that was free a moment ago. Nothing else takes ports here until the process opens
/// it, and a process that cannot open its port fails the run.
pub(crate) fn free_port() -> Result<u16> {
    Ok(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port())
}

/// Waits for a state, at most that long. Ends with the error of `ensure_alive`.
pub(crate) async fn until_within<W>(
    world: &mut W,
    limit: Duration,
    what: &str,
    is_so: impl AsyncFn(&W) -> Result<bool>,
    ensure_alive: impl Fn(&mut W) -> Result<()>,
) -> Result<()> {
    let started = Instant::now();
    while started.elapsed() < limit {
        if is_so(world).await? {
            return Ok(());
        }
        ensure_alive(world)?;
        tokio::time::sleep(LOOK_EVERY).await;
    }
    bail!("{limit:?} passed before this was true: {what}")
}
