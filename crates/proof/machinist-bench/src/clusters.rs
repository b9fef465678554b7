//! Real clusters, in the form that `cargo xtask control-plane` prints.

use std::collections::BTreeMap;
use std::path::PathBuf;

use anyhow::{Context, Result};
use kube::Client;
use machinist_kube::{ClientOptions, KubeconfigSource, connect};
use serde::Deserialize;

use crate::requests::AuditLog;

/// The variable in which xtask passes the description: the same variable and the same JSON as for
/// the tests of the real lane.
const CLUSTERS_VARIABLE: &str = "MACHINIST_REAL_CLUSTERS";

/// The clusters of the two roles. One cluster may have both.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct MeasuredClusters {
    /// The cluster of the Machines.
    pub(crate) control: MeasuredCluster,
    /// The cluster of the Nodes.
    pub(crate) target: MeasuredCluster,
    /// Seconds from the start of the first program until the server was ready.
    pub(crate) seconds_to_ready: f64,
}

/// Address, credentials and audit log of one cluster.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct MeasuredCluster {
    /// `https://127.0.0.1:PORT`
    pub(crate) server: String,
    /// Version reported by the server, such as `v1.36.3`.
    pub(crate) version: String,
    /// Kubeconfig of the administrator.
    pub(crate) kubeconfig: PathBuf,
    /// CA file for clients.
    pub(crate) ca_file: PathBuf,
    /// Process id of each program: `etcd`, `kube-apiserver`.
    pub(crate) process_ids: BTreeMap<String, u32>,
    audit_log: Option<PathBuf>,
}

impl MeasuredClusters {
    /// Reads the description from the variable.
    ///
    /// # Errors
    /// When the variable is not set or cannot be parsed.
    pub(crate) fn from_environment() -> Result<Self> {
        let text = std::env::var(CLUSTERS_VARIABLE).with_context(|| {
            format!("{CLUSTERS_VARIABLE} is not set. Set it to the line of JSON that `cargo xtask control-plane --audit` prints")
        })?;
        serde_json::from_str(&text).with_context(|| format!("cannot read {CLUSTERS_VARIABLE}"))
    }

    /// Whether one cluster has both roles.
    pub(crate) fn are_one(&self) -> bool {
        self.control.server == self.target.server
    }
}

impl MeasuredCluster {
    /// The client of the administrator, with this User-Agent.
    ///
    /// # Errors
    /// When the kubeconfig cannot be read.
    pub(crate) async fn client(&self, user_agent: &str) -> Result<Client> {
        let source = KubeconfigSource::File(self.kubeconfig.clone());
        Ok(connect(&source, &ClientOptions::new(user_agent)).await?)
    }

    /// Opens the audit log: a file with one line of JSON per request.
    ///
    /// # Errors
    /// When the cluster has no audit log, or it cannot be opened.
    pub(crate) fn audit_log(&self) -> Result<AuditLog> {
        let path = self.audit_log.as_ref();
        AuditLog::open(path.with_context(|| format!("{} was started without --audit", self.server))?)
    }
}
