//! The names of the kinds in the history.

/// The table of MailgunClusters.
pub(crate) const MAILGUN_CLUSTERS: &str = "mailgunclusters.infrastructure.cluster.x-k8s.io";
/// The table of MailgunMachines.
pub(crate) const MAILGUN_MACHINES: &str = "mailgunmachines.infrastructure.cluster.x-k8s.io";
/// The table of Clusters.
pub(crate) const CLUSTERS: &str = "clusters.cluster.x-k8s.io";
/// The table of Machines.
pub(crate) const MACHINES: &str = "machines.cluster.x-k8s.io";
