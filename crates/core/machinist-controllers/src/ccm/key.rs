//! Keys of the work queue.

use std::fmt;
use std::time::Duration;

use machinist_kube::ObjectKey;
use machinist_runtime::QueueKey;

/// Something to decide about. Keys of all kinds share one queue.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Key {
    /// The list of the account's instances.
    Account,
    /// A Node, by its name.
    Node(String),
    /// The deletion of Nodes, all in one decision.
    NodeRemoval,
    /// The set of Nodes behind all load balancers.
    Backends,
    /// A Service.
    Service(ObjectKey),
    /// The list of the account's load balancers.
    BalancerDrift,
    /// All routes.
    Routes,
}

/// Nodes join in groups. One computation of the set serves all of them.
const BACKENDS_AT_MOST_EVERY: Duration = Duration::from_secs(2);

impl QueueKey for Key {
    fn kind(&self) -> &'static str {
        match self {
            Self::Account => "account",
            Self::Node(_) => "node",
            Self::NodeRemoval => "noderemoval",
            Self::Backends => "backends",
            Self::Service(_) => "service",
            Self::BalancerDrift => "balancerdrift",
            Self::Routes => "routes",
        }
    }

    fn min_interval(&self) -> Duration {
        match self {
            Self::Node(_) | Self::Service(_) => Duration::ZERO,
            Self::Account | Self::NodeRemoval | Self::BalancerDrift => Duration::from_millis(100),
            Self::Routes => Duration::from_secs(1),
            Self::Backends => BACKENDS_AT_MOST_EVERY,
        }
    }

    fn is_cluster_scoped(&self) -> bool {
        !matches!(self, Self::Service(_))
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Node(name) => write!(f, "node/{name}"),
            Self::Service(key) => write!(f, "service/{key}"),
            Self::Account | Self::NodeRemoval | Self::Backends | Self::BalancerDrift | Self::Routes => {
                f.write_str(self.kind())
            }
        }
    }
}
