//! Keys of the work queue.

use std::fmt;
use std::time::Duration;

use machinist_kube::ObjectKey;
use machinist_runtime::QueueKey;

/// An object to decide about. Keys of all kinds share one queue.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Key {
    /// A Machine.
    Machine(ObjectKey),
    /// A MachineClass.
    Class(ObjectKey),
    /// A Secret of the control cluster.
    Secret(ObjectKey),
    /// The replacements among the Machines of one MachineDeployment, by its UID. For a MachineSet
    /// without a MachineDeployment, this is the UID of the set.
    Replacement(String),
    /// A Machine whose MachineSet is unknown.
    Owner(ObjectKey),
    /// A Node that is being deleted and that no Machine has.
    Node(ObjectKey),
    /// A MachineSet.
    Set(ObjectKey),
    /// A MachineDeployment.
    Deployment(ObjectKey),
}

impl QueueKey for Key {
    fn kind(&self) -> &'static str {
        match self {
            Self::Machine(_) => "machine",
            Self::Class(_) => "machineclass",
            Self::Secret(_) => "secret",
            Self::Replacement(_) => "replacement",
            Self::Owner(_) => "owner",
            Self::Node(_) => "node",
            Self::Set(_) => "machineset",
            Self::Deployment(_) => "machinedeployment",
        }
    }

    fn min_interval(&self) -> Duration {
        match self {
            Key::Machine(_) | Key::Secret(_) => Duration::ZERO,
            Key::Class(_)
            | Key::Replacement(_)
            | Key::Owner(_)
            | Key::Node(_)
            | Key::Set(_)
            | Key::Deployment(_) => Duration::from_millis(100),
        }
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Replacement(uid) => write!(f, "replacement/{uid}"),
            Self::Machine(key)
            | Self::Class(key)
            | Self::Secret(key)
            | Self::Owner(key)
            | Self::Node(key)
            | Self::Set(key)
            | Self::Deployment(key) => {
                write!(f, "{}/{key}", self.kind())
            }
        }
    }
}
