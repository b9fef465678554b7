//! API servers that do not answer: since when, and the error of a watch.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};

use jiff::Timestamp;
use machinist_kube::Cluster;

/// A silent API server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SilentServer {
    /// The cluster of the server.
    pub cluster: Cluster,
    /// When a watch last delivered something, or when this process began.
    pub since: Timestamp,
    /// The error of a watch; absent if the connection is open.
    pub error: Option<String>,
}

impl SilentServer {
    /// Returns the error of a watch, or that there is none.
    pub fn error(&self) -> &str {
        self.error.as_deref().unwrap_or("the connection is open, and no data arrives")
    }
}

impl fmt::Display for SilentServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} is silent since {:.0}", server(&self.cluster), self.since)
    }
}

/// The outages that the log has named.
#[derive(Debug, Default)]
pub(crate) struct Told(Mutex<BTreeMap<Cluster, SilentServer>>);

impl Told {
    pub(crate) fn lock(&self) -> MutexGuard<'_, BTreeMap<Cluster, SilentServer>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The last failure of a watch.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) error: String,
    /// Whether the failure is an answer of the API server.
    pub(crate) server_answers: bool,
}

/// The name of an API server for users.
pub(crate) fn server(cluster: &Cluster) -> String {
    format!("the API server of the {cluster} cluster")
}
