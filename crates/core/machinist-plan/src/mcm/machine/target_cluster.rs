//! Whether there is a cluster with Nodes.

/// Whether the process has a target cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum TargetCluster {
    /// The process has a target cluster, which may not answer.
    #[default]
    Given,
    /// The options say that there is no target cluster. No failed connection has this result.
    None,
}
