//! Who is who in a run: the two clusters and the two processes under test.

use std::fmt;

/// One of the two clusters. Both may be the same server in production; here there are always two.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Side {
    /// Where Machines live.
    Control,
    /// Where Nodes live.
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

/// One of the two processes under test.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Process {
    /// Keeps as many Machines as deployments ask for.
    Manager,
    /// Makes, watches and deletes instances.
    MachineController,
}

impl Process {
    /// Both of them, in the order in which they are started.
    pub const ALL: [Self; 2] = [Self::Manager, Self::MachineController];

    /// The User-Agent of its requests.
    pub fn user_agent(self) -> &'static str {
        match self {
            Self::Manager => "machine-controller-manager",
            Self::MachineController => "machine-controller",
        }
    }

    /// The process that sends that User-Agent.
    pub fn of_agent(user_agent: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|process| process.user_agent() == user_agent)
    }
}

impl fmt::Display for Process {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Padded where the format asks for it.
        f.pad(match self {
            Self::Manager => "manager",
            Self::MachineController => "controller",
        })
    }
}
