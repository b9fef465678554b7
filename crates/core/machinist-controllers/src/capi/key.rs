//! Keys of the work queue: one row per kind.

use machinist_kube::ObjectKey;

machinist_runtime::keys! {
    /// An object to decide about. Keys of all kinds share one queue.
    pub enum Key {
        /// A DockerCluster.
        DockerCluster(id: ObjectKey) = "dockercluster",
        /// A DockerMachine.
        DockerMachine(id: ObjectKey) = "dockermachine",
        /// A MailgunCluster.
        MailgunCluster(id: ObjectKey) = "mailguncluster",
        /// A MailgunMachine.
        MailgunMachine(id: ObjectKey) = "mailgunmachine",
    }
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
