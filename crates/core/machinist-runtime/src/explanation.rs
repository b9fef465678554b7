//! The explanation of an object's state, and why there is none.

use jiff::Timestamp;
use machinist_core::Why;

use crate::key::QueueKey;

/// The reason for the state of an object, and the planned actions.
#[derive(Debug, Clone)]
pub struct Explanation<R> {
    /// The time of the decision.
    pub at: Timestamp,
    /// The reason and the next step.
    pub why: Why<R>,
    /// The actions that a controller would perform now, rendered as text.
    pub actions: Vec<String>,
}

/// The reason why an explanation failed.
#[derive(Debug, thiserror::Error)]
pub enum ExplainError<K: QueueKey> {
    /// The object does not exist.
    #[error("{0} not found; check the name and the namespace")]
    NotFound(K),
    /// The object does not exist. Objects of its kind have no namespace.
    #[error("{0} not found; check the name and the cluster")]
    NotFoundInCluster(K),
    /// The object exists, but its fields do not match its kind.
    #[error("cannot parse {0}: a field has the wrong type; correct the object")]
    Undecodable(K),
    /// No planner decides about objects of this kind.
    #[error("cannot explain {0}: the controller makes no decisions about this kind")]
    NotDecided(K),
    /// A list request to an API server failed.
    #[error("cannot list {kind}")]
    Unreadable {
        /// The plural name of the kind.
        kind: &'static str,
        /// The error of the client.
        #[source]
        source: Box<kube::Error>,
    },
}
