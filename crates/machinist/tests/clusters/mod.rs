//! What the targets with real clusters share: the description of the clusters, a client, and
//! waiting for a state.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail};
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
