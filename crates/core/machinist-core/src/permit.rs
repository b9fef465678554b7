//! Leave to destroy, minted only here and only from evidence.

use std::fmt;

use jiff::Timestamp;
use machinist_instance::{InstanceKey, InstanceRef};

/// Leave to delete one instance once. Only [`Departure::next`](crate::instance::Departure::next) makes one, it cannot be copied, and it
/// expires: whoever acts late must decide again. That only planners weigh evidence is kept by clippy.toml.
#[derive(Debug)]
pub struct Permit {
    which: InstanceRef,
    owner: InstanceKey,
    evidence: Evidence,
    valid_until: Timestamp,
}

/// Why an instance may be deleted: its machine is to go, and no pod that has to leave its Node is lost with it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Evidence {
    /// The Node was closed for new pods, and a quorum list that began after that was seen showed no pod that has to leave.
    EmptyAfterCordon {
        /// The Node's name.
        node: String,
        /// When the Node was seen closed.
        cordoned: Timestamp,
        /// When the list began.
        listed: Timestamp,
    },
    /// The API server itself, not a store, said that no Node of that name is the machine's.
    NoNode {
        /// The name that was looked for.
        node: String,
        /// When the look began.
        looked: Timestamp,
    },
    /// The drain was ended by force: its time is up, or the Node is dead. The machine's status says so.
    Forced,
    /// A person set the label that gives pods up.
    ForceDeletion,
    /// The machine's status says that the drain ended before.
    PastDrain {
        /// The stage that the status names.
        stage: &'static str,
    },
}

impl Permit {
    /// Mints a permit. Only the rules about instances may, so it stays inside this crate.
    pub(crate) fn mint(
        which: InstanceRef,
        owner: InstanceKey,
        evidence: Evidence,
        valid_until: Timestamp,
    ) -> Self {
        Self { which, owner, evidence, valid_until }
    }

    /// The instance that may be deleted.
    pub fn which(&self) -> &InstanceRef {
        &self.which
    }

    /// The key the instance must carry, if it carries one.
    pub fn owner(&self) -> &InstanceKey {
        &self.owner
    }

    /// What it was minted from.
    pub fn evidence(&self) -> &Evidence {
        &self.evidence
    }

    /// The last moment at which it may be used.
    pub fn valid_until(&self) -> Timestamp {
        self.valid_until
    }
}

impl fmt::Display for Permit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.evidence.fmt(f)
    }
}

impl fmt::Display for Evidence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::EmptyAfterCordon { node, cordoned, listed } => {
                write!(f, "node {node}, closed since {cordoned}, had no pod to evict at {listed}")
            }
            Self::NoNode { node, looked } => write!(f, "it had no node {node} at {looked}"),
            Self::Forced => f.write_str("its drain was ended by force"),
            Self::ForceDeletion => f.write_str("it has the label force-deletion"),
            Self::PastDrain { stage } => write!(f, "its drain has ended: {stage}"),
        }
    }
}
