//! Real clusters, as `cargo xtask control-plane` describes them.

use std::collections::BTreeMap;
use std::path::PathBuf;

use anyhow::{Context, Result};
use serde::Deserialize;

/// Where xtask puts the description: the same variable, and the same JSON, that the tests of the real lane get.
pub const CLUSTERS_VARIABLE: &str = "MACHINIST_REAL_CLUSTERS";

/// The two roles. One cluster may play both.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Clusters {
    /// Where Machines live.
    pub control: Cluster,
    /// Where Nodes live.
    pub target: Cluster,
    /// From the start of the first program until the server was ready.
    pub seconds_to_ready: f64,
}

/// How one cluster is reached, and where it writes down who asked for what.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Cluster {
    /// `https://127.0.0.1:PORT`
    pub server: String,
    /// As the server says, such as `v1.36.3`.
    pub version: String,
    /// The administrator's.
    pub kubeconfig: PathBuf,
    /// What clients trust.
    pub ca_file: PathBuf,
    /// By program: `etcd`, `kube-apiserver`.
    pub process_ids: BTreeMap<String, u32>,
    audit_log: Option<PathBuf>,
}

impl Clusters {
    /// Reads the variable.
    ///
    /// # Errors
    /// When it is not set or holds something else.
    pub fn from_environment() -> Result<Self> {
        let text = std::env::var(CLUSTERS_VARIABLE).with_context(|| {
            format!("{CLUSTERS_VARIABLE} is not set: expected the line of JSON that `cargo xtask control-plane --audit` prints")
        })?;
        serde_json::from_str(&text).with_context(|| format!("cannot read {CLUSTERS_VARIABLE}"))
    }

    /// Whether one cluster plays both roles.
    pub fn are_one(&self) -> bool {
        self.control.server == self.target.server
    }
}

impl Cluster {
    /// The file with one line of JSON per request.
    ///
    /// # Errors
    /// When the cluster keeps none.
    pub fn audit_log(&self) -> Result<&PathBuf> {
        self.audit_log.as_ref().with_context(|| format!("{} was started without --audit", self.server))
    }
}
