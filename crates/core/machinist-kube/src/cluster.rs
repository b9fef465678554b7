//! Which API server something is about.

use std::fmt;
use std::sync::Arc;

/// The API server that a store, a charge or a skew is about. resourceVersions and clocks of two clusters are never compared.
///
/// A process always has a control and a target cluster, also when one server plays both roles.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Cluster {
    /// Where Machines, classes and sets live.
    Control,
    /// Where Nodes and pods live.
    Target,
    /// One of many clusters that a process makes for its users, each with Nodes and pods of its own. The name is that of the object
    /// that describes the cluster, with its namespace: `team-a/shop`. A clone shares it.
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
    fn workload_clusters_are_told_apart_by_name() {
        let (shop, same, blog) =
            (Cluster::workload("a/shop"), Cluster::workload("a/shop"), Cluster::workload("a/blog"));
        assert_eq!(shop, same);
        let all = std::collections::BTreeSet::from([shop, same, blog, Cluster::Target, Cluster::Control]);
        let told: Vec<String> = all.iter().map(ToString::to_string).collect();
        assert_eq!(told, ["control", "target", "workload a/blog", "workload a/shop"]);
    }
}
