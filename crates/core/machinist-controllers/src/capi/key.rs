//! Keys of the work queue.

use std::fmt;

use machinist_kube::ObjectKey;
use machinist_runtime::QueueKey;

/// An object to decide about. Keys of all kinds share one queue.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Key {
    /// A DockerCluster.
    DockerCluster(ObjectKey),
    /// A DockerMachine.
    DockerMachine(ObjectKey),
    /// A MailgunCluster.
    MailgunCluster(ObjectKey),
    /// A MailgunMachine.
    MailgunMachine(ObjectKey),
}

impl Key {
    /// The namespace and name of the object.
    pub(crate) fn id(&self) -> &ObjectKey {
        match self {
            Self::DockerCluster(id)
            | Self::DockerMachine(id)
            | Self::MailgunCluster(id)
            | Self::MailgunMachine(id) => id,
        }
    }
}

impl QueueKey for Key {
    fn kind(&self) -> &'static str {
        match self {
            Self::DockerCluster(_) => "dockercluster",
            Self::DockerMachine(_) => "dockermachine",
            Self::MailgunCluster(_) => "mailguncluster",
            Self::MailgunMachine(_) => "mailgunmachine",
        }
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.kind(), self.id())
    }
}
