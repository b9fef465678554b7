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
