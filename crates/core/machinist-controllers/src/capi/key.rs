//! The kinds of our Cluster API providers: one row each, and the queue key that they make.

use machinist_kube::ObjectKey;

use super::contract::Capi;
use super::docker_cluster::DockerClusters;
use super::docker_machine::DockerMachines;
use super::mailgun_cluster::MailgunClusters;
use super::mailgun_machine::MailgunMachines;

machinist_runtime::kinds! {
    /// An object to decide about. Keys of all kinds share one queue.
    pub enum Key of Capi {
        /// A DockerCluster.
        DockerCluster(id: ObjectKey) => DockerClusters,
        /// A DockerMachine.
        DockerMachine(id: ObjectKey) => DockerMachines,
        /// A MailgunCluster.
        MailgunCluster(id: ObjectKey) => MailgunClusters,
        /// A MailgunMachine.
        MailgunMachine(id: ObjectKey) => MailgunMachines,
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
