//! Which kind of our Cluster API providers decides about which key.

use super::contract::Capi;
use super::docker_cluster::DockerClusters;
use super::docker_machine::DockerMachines;
use super::key::Key;
use super::mailgun_cluster::MailgunClusters;
use super::mailgun_machine::MailgunMachines;

machinist_runtime::kinds! {
    Key of Capi {
        DockerCluster(id) => DockerClusters,
        DockerMachine(id) => DockerMachines,
        MailgunCluster(id) => MailgunClusters,
        MailgunMachine(id) => MailgunMachines,
    }
}
