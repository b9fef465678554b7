//! The participants of a run: the two clusters and the processes under test.

use std::fmt;

/// User-Agent of the user's client.
pub const USER: &str = "user";
/// User-Agent of an actor that knows nothing of the processes.
pub const STRANGER: &str = "stranger";
/// User-Agent of a restore of a cluster.
pub const RESTORE: &str = "restore";

/// One of the two clusters. In production both may be the same server; here there are always two.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Side {
    /// The cluster of the Machines.
    Control,
    /// The cluster of the Nodes.
    Target,
}

impl fmt::Display for Side {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Control => "control",
            Self::Target => "target",
        })
    }
}

/// One of the processes under test.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum TestedProcess {
    /// The manager, which keeps the number of Machines that deployments request.
    Manager,
    /// The machine controller, which creates, watches and deletes instances.
    MachineController,
    /// The cloud-controller-manager, which initialises and deletes Nodes, and programs load
    /// balancers.
    CloudController,
    /// A provider of Cluster API, for containers or for requests by mail.
    Provider,
}

impl TestedProcess {
    /// Both processes of the machine API, in the order of their start.
    pub const ALL: [Self; 2] = [Self::Manager, Self::MachineController];
    /// The processes of all contracts.
    const OF_ALL_CONTRACTS: [Self; 4] =
        [Self::Manager, Self::MachineController, Self::CloudController, Self::Provider];

    /// The User-Agent of the process's requests.
    pub fn user_agent(self) -> &'static str {
        match self {
            Self::Manager => "machine-controller-manager",
            Self::MachineController => "machine-controller",
            Self::CloudController => "cloud-controller-manager",
            Self::Provider => "capi-provider",
        }
    }

    /// The process that sends that User-Agent.
    pub fn of_agent(user_agent: &str) -> Option<Self> {
        Self::OF_ALL_CONTRACTS.into_iter().find(|process| process.user_agent() == user_agent)
    }
}

impl fmt::Display for TestedProcess {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // `pad` respects a width in the format string.
        f.pad(match self {
            Self::Manager => "manager",
            Self::MachineController => "controller",
            Self::CloudController => "ccm",
            Self::Provider => "provider",
        })
    }
}
