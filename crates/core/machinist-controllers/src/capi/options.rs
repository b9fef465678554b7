//! Options of the process, besides the options of every process.

use std::sync::Arc;

use machinist_driver::Provider;
use machinist_mailer::Mailer;
use machinist_plan::capi::{Plan, docker_cluster, docker_machine, mailgun_cluster, mailgun_machine};

use super::workload_clusters::{KubeWorkloads, WorkloadClusters};

/// The version of Cluster and Machine that the management cluster serves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CoreApi {
    /// v1beta1.
    Beta1,
    /// v1beta2.
    Beta2,
}

/// The provider that a process runs.
#[derive(Clone)]
pub enum Serves {
    /// DockerCluster and DockerMachine.
    Docker(DockerOptions),
    /// MailgunCluster and MailgunMachine.
    Mailgun(MailOptions),
}

/// Options of the Docker provider.
#[derive(Clone)]
pub struct DockerOptions {
    /// The engine.
    pub provider: Arc<dyn Provider>,
    /// The flags of the planner.
    pub machines: Arc<docker_machine::Options>,
    /// The largest number of calls in flight.
    pub calls_at_once: usize,
    /// Access to workload clusters.
    pub workloads: Arc<dyn WorkloadClusters>,
}

impl DockerOptions {
    /// Returns the default options for an engine.
    pub fn new(provider: Arc<dyn Provider>) -> Self {
        Self { provider, machines: Arc::default(), calls_at_once: 16, workloads: Arc::new(KubeWorkloads) }
    }
}

/// Options of the Mailgun provider.
#[derive(Clone)]
pub struct MailOptions {
    /// The mail service.
    pub mailer: Arc<dyn Mailer>,
    /// Domain of the mail service.
    pub domain: String,
    /// Fingerprint of the mail service and its domain: another one does not show the mails of this
    /// one.
    pub service: String,
    /// Recipient of requests without their own.
    pub recipient: String,
    /// Domains of the recipients that a request may name; empty for all domains.
    pub recipient_domains: Vec<String>,
    /// Fingerprint of the credential: a rejected mail is sent again with another one.
    pub credential: String,
    /// Identity of this process, unique among all processes that ever run.
    pub process: String,
}

/// Options of a Cluster API provider.
#[derive(Clone)]
pub struct CapiOptions {
    /// The provider.
    pub serves: Serves,
    /// The version of the core kinds.
    pub core: CoreApi,
    /// Value of the label that selects the objects of this process; absent for all objects.
    pub watch_filter: Option<String>,
    /// Functions that decide.
    pub planners: Planners,
}

impl CapiOptions {
    /// Returns the default options: all objects, and the planners of the product.
    pub fn new(serves: Serves, core: CoreApi) -> Self {
        Self { serves, core, watch_filter: None, planners: Planners::default() }
    }
}

/// Functions that decide about each kind. A simulation replaces them with faulty ones to check that
/// it finds the faults.
#[derive(Clone, Copy)]
pub struct Planners {
    /// Decides about a DockerCluster.
    pub docker_cluster: fn(&docker_cluster::Snapshot) -> Plan<docker_cluster::Action>,
    /// Decides about a DockerMachine.
    pub docker_machine: fn(&docker_machine::Snapshot) -> Plan<docker_machine::Action>,
    /// Decides about a MailgunCluster.
    pub mailgun_cluster: fn(&mailgun_cluster::Snapshot) -> Plan<mailgun_cluster::Action>,
    /// Decides about a MailgunMachine.
    pub mailgun_machine: fn(&mailgun_machine::Snapshot) -> Plan<mailgun_machine::Action>,
}

impl Default for Planners {
    fn default() -> Self {
        Self {
            docker_cluster: docker_cluster::plan,
            docker_machine: docker_machine::plan,
            mailgun_cluster: mailgun_cluster::plan,
            mailgun_machine: mailgun_machine::plan,
        }
    }
}

/// Inputs of the kinds beyond the runtime's options.
pub struct Tools {
    pub(crate) options: CapiOptions,
}

impl Tools {
    /// The options of the Docker provider, if this process runs it.
    pub(crate) fn docker(&self) -> Option<&DockerOptions> {
        match &self.options.serves {
            Serves::Docker(options) => Some(options),
            Serves::Mailgun(_) => None,
        }
    }

    /// The options of the Mailgun provider, if this process runs it.
    pub(crate) fn mail(&self) -> Option<&MailOptions> {
        match &self.options.serves {
            Serves::Mailgun(options) => Some(options),
            Serves::Docker(_) => None,
        }
    }
}

impl From<CapiOptions> for Tools {
    fn from(options: CapiOptions) -> Self {
        Self { options }
    }
}
