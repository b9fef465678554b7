//! Real clusters, in the form that `cargo xtask control-plane` prints.

use std::collections::BTreeMap;
use std::path::PathBuf;

use anyhow::{Context, Result};
use kube::Client;
use machinist_kube::{ClientOptions, KubeconfigSource, connect};
use serde::Deserialize;

/// The variable in which xtask passes the description: the same variable and the same JSON as for
/// the tests of the real lane.
pub const CLUSTERS_VARIABLE: &str = "MACHINIST_REAL_CLUSTERS";

/// The clusters of the two roles. One cluster may have both.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct MeasuredClusters {
    /// The cluster of the Machines.
    pub control: MeasuredCluster,
    /// The cluster of the Nodes.
    pub target: MeasuredCluster,
    /// Seconds from the start of the first program until the server was ready.
    pub seconds_to_ready: f64,
}

/// Address, credentials and audit log of one cluster.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct MeasuredCluster {
    /// `https://127.0.0.1:PORT`
    pub server: String,
    /// Version reported by the server, such as `v1.36.3`.
    pub version: String,
    /// Kubeconfig of the administrator.
    pub kubeconfig: PathBuf,
    /// CA file for clients.
    pub ca_file: PathBuf,
    /// Process id of each program: `etcd`, `kube-apiserver`.
    pub process_ids: BTreeMap<String, u32>,
    audit_log: Option<PathBuf>,
}

impl MeasuredClusters {
    /// Reads the description from the variable.
    ///
    /// # Errors
    /// When the variable is not set or cannot be parsed.
    pub fn from_environment() -> Result<Self> {
        let text = std::env::var(CLUSTERS_VARIABLE).with_context(|| {
            format!("{CLUSTERS_VARIABLE} is not set. Set it to the line of JSON that `cargo xtask control-plane --audit` prints")
        })?;
        serde_json::from_str(&text).with_context(|| format!("cannot read {CLUSTERS_VARIABLE}"))
    }

    /// Whether one cluster has both roles.
    pub fn are_one(&self) -> bool {
        self.control.server == self.target.server
    }
}

impl MeasuredCluster {
    /// The client of the administrator, with this User-Agent.
    ///
    /// # Errors
    /// When the kubeconfig cannot be read.
    pub async fn client(&self, user_agent: &str) -> Result<Client> {
        let source = KubeconfigSource::File(self.kubeconfig.clone());
        Ok(connect(&source, &ClientOptions::new(user_agent)).await?)
    }

    /// The audit log: a file with one line of JSON per request.
    ///
    /// # Errors
    /// When the cluster has no audit log.
    pub fn audit_log(&self) -> Result<&PathBuf> {
        self.audit_log.as_ref().with_context(|| format!("{} was started without --audit", self.server))
    }
}
