//! Names of the API servers that a process uses.

use std::fmt;
use std::sync::Arc;

/// The API server of a store, a charge or a skew. resourceVersions and clocks of two clusters are
/// never compared.
///
/// A process always has a control cluster and a target cluster, even if one API server has both
/// roles.
///
/// ```
/// use machinist_kube::Cluster;
///
/// assert_eq!(Cluster::Target.to_string(), "target");
/// let shop = Cluster::workload("team-a/shop");
/// assert_eq!(shop.to_string(), "workload team-a/shop");
/// assert_ne!(shop, Cluster::workload("team-a/blog"));
/// ```
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Cluster {
    /// The cluster of Machines, MachineClasses and MachineSets.
    Control,
    /// The cluster of Nodes and pods.
    Target,
    /// One of many clusters that a process creates for its users, each with its own Nodes and pods.
    /// The name is the namespace and name of the object that describes the cluster: `team-a/shop`.
    /// A clone shares the name.
    Workload(Arc<str>),
}

impl Cluster {
    /// The workload cluster of that name.
    pub fn workload(name: impl Into<Arc<str>>) -> Self {
        Self::Workload(name.into())
    }
}

impl fmt::Display for Cluster {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Control => f.write_str("control"),
            Self::Target => f.write_str("target"),
            Self::Workload(name) => write!(f, "workload {name}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn workload_clusters_are_distinguished_by_name() {
        let (shop, same, blog) =
            (Cluster::workload("a/shop"), Cluster::workload("a/shop"), Cluster::workload("a/blog"));
        assert_eq!(shop, same);
        let all = std::collections::BTreeSet::from([shop, same, blog, Cluster::Target, Cluster::Control]);
        let told: Vec<String> = all.iter().map(ToString::to_string).collect();
        assert_eq!(told, ["control", "target", "workload a/blog", "workload a/shop"]);
    }
}
